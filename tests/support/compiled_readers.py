"""Loops whose rows are read in every way: by indices, through arithmetic, behind inlined graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from hypothesis import strategies as st
from pytensor.compile.builders import OpFromGraph
from pytensor.scan.utils import until

from support.graph_building import scan

s = pt.dvector("s")
x, w, most = pt.dscalars("x", "w", "most")
n, k = pt.lscalars("n", "k")
INPUTS = [s, x, w, most, n, k]
ARGUMENTS = [
    [np.linspace(0.1, 1, 6), 0.3, 0.7, 1.0, 6, 2],
    [np.linspace(0.1, 1, 6), 0.3, 0.7, 9.0, 2, -2],
    [np.linspace(0.1, 1, 3), 0.3, 0.7, 9.0, 1, 0],
    [np.linspace(0.1, 1, 5), 0.3, 0.7, 2.0, 5, -3],
    [np.linspace(0.1, 1, 2), 0.3, 0.7, 0.5, 0, 1],
    [np.linspace(0.1, 1, 6), 0.3, 0.7, 0.2, 4, 5],
]


def _buffer(states: Any) -> Any:
    return states.owner.inputs[0]


def _map(steps: Any) -> list[Any]:
    return scan(
        lambda q, y: (y + q, 2 * y + 1),
        sequences=[s],
        outputs_info=[x, None],
        n_steps=steps,
    )


def _state(steps: Any) -> list[Any]:
    states = scan(lambda q, y: y * 1.5 + q, sequences=[s], outputs_info=[x], n_steps=steps)
    return [states, _buffer(states)]


def _far(steps: Any) -> list[Any]:
    taps = {"initial": pt.stack([x, w, x + w]), "taps": [-3, -1]}
    states = scan(
        lambda q, y3, y1: y1 + 0.5 * y3 + q, sequences=[s], outputs_info=[taps], n_steps=steps
    )
    return [states, _buffer(states)]


def _while(steps: Any) -> list[Any]:
    return scan(
        lambda q, y: ((y * 1.5 + q, 3 * y), until(y > most)),
        sequences=[s],
        outputs_info=[x, None],
        n_steps=steps,
    )


def _two_whiles(steps: Any) -> list[Any]:
    one, two = (
        scan(
            lambda y, q, factor=factor: (y * factor + q, until(y > most)),
            outputs_info=[x],
            non_sequences=[w],
            n_steps=n,
        )
        for factor in (1.5, 1.7)
    )
    return [one, two]


def _two_states(steps: Any) -> list[Any]:
    return scan(
        lambda q, y, z: (y * 1.1 + q, z + y, y * z),
        sequences=[s],
        outputs_info=[x, w, None],
        n_steps=steps,
    )


def _gradients(steps: Any) -> list[Any]:
    ys, zs = scan(
        lambda q, r, y, z: (2 * y + q * r, 0.5 * z + r),
        sequences=[s, s * w],
        outputs_info=[x, w],
        n_steps=steps,
    )
    both = pt.grad(ys[-1] + zs[-1], [s, w])
    return [both[0], ys, both[1] * zs]


LOOPS = (_map, _state, _far, _while, _two_whiles, _two_states, _gradients)


def _inlined(rows: Any) -> Any:
    inner = rows.type()
    return OpFromGraph([inner], [inner * 2], inline=True)(rows)


THROUGH: tuple[Callable[[Any], Any], ...] = (
    pt.sin,
    lambda rows: rows * w,
    lambda rows: rows[::-1],
    lambda rows: pt.concatenate([pt.stack([x]), rows]),
    lambda rows: pt.concatenate([rows, rows[:1]]),
    lambda rows: pt.set_subtensor(rows[-1], 0.0),
    pt.cumsum,
    lambda rows: pt.outer(rows, pt.ones(2))[:, 0],
    lambda rows: rows[:, None][:, 0],
    lambda rows: rows + 0 * rows[-1],
    _inlined,
)
_BOUNDS = st.sampled_from([None, None, 0, 1, 2, 3, -1, -2, -3, -4, 5, k])
_SLICES = st.builds(slice, _BOUNDS, _BOUNDS, st.sampled_from([None, None, None, 2, -1, -2]))
_ROWS = st.sampled_from([0, 1, 2, 4, -1, -2, -3, k])
_STEPS = st.one_of(_SLICES, _SLICES, _ROWS, st.sampled_from(THROUGH))


def _read(rows: Any, steps: Sequence[Any]) -> Any:
    for step in steps:
        if rows.ndim:
            rows = step(rows) if callable(step) else rows[step]
    return rows


@st.composite
def read_loops(draw: st.DrawFn) -> list[Any]:
    """Draw one to three readers of the outputs of a loop."""
    outputs = draw(st.sampled_from(LOOPS))(draw(st.sampled_from([n, n, None, 5])))
    return [
        _read(draw(st.sampled_from(outputs)), draw(st.lists(_STEPS, min_size=1, max_size=3)))
        for _ in range(draw(st.integers(1, 3)))
    ]

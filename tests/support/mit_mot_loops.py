"""Hand-built loops with a mit_mot, with taps, buffers and readers that gradients don't make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt
from hypothesis import strategies as st
from pytensor.graph.basic import Variable
from pytensor.scan.op import Scan

from support.generated.drawing import Draw
from support.graph_building import scan_info

N = pt.lscalar("n")
G = pt.dscalar("g")
WIDTH = 2

# Buffers of `rows` rows: each of zeros, a value `g`, and an input `given` of the same length.
BUFFERS: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "given": lambda zeros, g, given, rows: given,
    "given reversed": lambda zeros, g, given, rows: given[::-1],
    "zeros": lambda zeros, g, given, rows: zeros,
    "seed at the end": lambda zeros, g, given, rows: zeros[-1].inc(g)[::-1],
    "seed at the start": lambda zeros, g, given, rows: zeros[0].set(g),
    "seed in the middle": lambda zeros, g, given, rows: zeros[1].inc(g),
    "late seed": lambda zeros, g, given, rows: zeros[1:].inc(zeros[1:][-1].inc(g))[::-1],
    "all equal": lambda zeros, g, given, rows: pt.second(zeros, pt.ones_like(zeros) * 0 + g),
    "filled": lambda zeros, g, given, rows: pt.full_like(zeros, g),
    "last rows zero": lambda zeros, g, given, rows: zeros[1:].inc(pt.full_like(zeros[1:], g))[::-1],
    "two zero": lambda zeros, g, given, rows: zeros[:-2].set(pt.full_like(zeros[:-2], g)),
    "zero set": lambda zeros, g, given, rows: zeros[1].set(0.0),
    "another last": lambda zeros, g, given, rows: pt.full_like(zeros, g)[-1].set(2.0),
    "late equal": lambda zeros, g, given, rows: zeros[1:].set(pt.full_like(zeros[1:], g)[0].set(g))[
        ::-1
    ],
    "joined": lambda zeros, g, given, rows: pt.join(0, zeros[:2] + g, zeros[2:]),
    "sum": lambda zeros, g, given, rows: zeros[0].inc(g) + zeros[-1].inc(g),
    "every other": lambda zeros, g, given, rows: zeros[::2].inc(given[::2]),
    "ones": lambda zeros, g, given, rows: pt.ones_like(zeros),
}

READERS: dict[str, Callable[[Any], Any]] = {
    "whole": lambda b: b,
    "last": lambda b: b[-1],
    "first": lambda b: b[0],
    "reversed first": lambda b: b[::-1][0],
    "reversed two": lambda b: b[::-1][:2],
    "reversed": lambda b: b[::-1],
    "one row": lambda b: b[::-1][:1],
    "back and forth": lambda b: b[::-1][1:][::-1],
    "middle": lambda b: b[1:3],
    "but the last": lambda b: b[:-1],
    "two from the end": lambda b: b[-2:][::-1],
    "backwards from -2": lambda b: b[-2::-1],
    "every other": lambda b: b[::2],
    "sum": lambda b: b.sum(axis=0),
    "length": lambda b: b.shape[0],
    "at n": lambda b: b[N],
    "up to n": lambda b: b[:N],
    "after n": lambda b: b[N:],
    "both": lambda b: b[:1] + b[::-1][:1] + b.sum(),
}


@dataclass(frozen=True)
class MitMotLoop:
    """A loop with a mit_mot, as a recipe.

    A step writes, at each out-tap, ``tanh`` of a weighted sum of what it reads. ``adds`` are
    out-taps that are a plain sum of the tap of the same name and the rest.
    """

    taps: tuple[int, ...]
    out_taps: tuple[int, ...]
    buffer: str
    readers: tuple[str, ...]
    steps: int | None
    extra: int
    is_vector: bool
    is_static: bool
    adds: bool

    @property
    def reach(self) -> int:
        every = (*self.taps, *self.out_taps)
        return max(every) - min(every)

    def built(self) -> tuple[list[Variable], list[Variable]]:
        """Return inputs ``n, g, given, s`` and what the readers read."""
        row = (WIDTH if self.is_static else None,) * self.is_vector
        steps = N if self.steps is None else pt.constant(self.steps, dtype="int64")
        rows = steps + self.reach + self.extra
        source = pt.tensor("given", shape=(None, *row), dtype="float64")
        given = source[:rows] if self.buffer.startswith("given") else source
        if self.buffer.startswith("given"):
            # Of a length that is known: as a gradient has that of the loop it belongs to.
            given = pt.zeros((rows, *source.shape[1:])) + given
        zeros = pt.zeros((rows, *(row if self.is_static else source.shape[1:])))
        start = BUFFERS[self.buffer](zeros, G, given, rows)
        s = pt.dvector("s")
        node = self._op(row).make_node(
            steps, s[:steps], start, pt.zeros((steps + 1, *(source.shape[1:]))), steps
        )
        buffer, last, trace = node.outputs
        outputs = [READERS[reader](buffer) for reader in self.readers]
        return [N, G, source, s], [*outputs, last, trace]

    def arguments(self, steps: int) -> list[np.ndarray]:
        """Return values for the inputs, for ``steps`` steps."""
        steps = steps if self.steps is None else self.steps
        rows = steps + self.reach + self.extra
        rng = np.random.default_rng(steps)
        given = rng.normal(size=(rows, *(WIDTH,) * self.is_vector))
        return [np.asarray(steps), np.asarray(0.75), given, rng.normal(size=steps)]

    def _op(self, row: tuple[int | None, ...]) -> Scan:
        """The loop itself; a sit_sot and a nit_sot stand beside the mit_mot."""
        s = pt.dscalar("s_t")
        reads = [pt.tensor(f"in{tap:+d}", shape=row, dtype="float64") for tap in self.taps]
        state = pt.tensor("state", shape=row, dtype="float64")
        by_tap = dict(zip(self.taps, reads, strict=True))
        writes = []
        for position, tap in enumerate(self.out_taps):
            others = [read for at, read in by_tap.items() if not (self.adds and at == tap)]
            mixed = sum(
                (read * (0.3 + 0.2 * place + 0.1 * position) for place, read in enumerate(others)),
                start=s * (position + 1),
            )
            mixed = pt.tanh(mixed if others else mixed + pt.zeros_like(state))
            writes.append(by_tap[tap] + mixed if self.adds and tap in by_tap else mixed)
        info = scan_info(
            n_seqs=1,
            mit_mot_in_slices=(self.taps,),
            mit_mot_out_slices=(self.out_taps,),
            sit_sot_in_slices=((-1,),),
            n_nit_sot=1,
        )
        return Scan([s, *reads, state], [*writes, state + reads[0], state * s], info)


def two_rows(step: Callable[..., Any], s: Any, buffer: Any, *others: Any) -> list[Any]:
    """Return the buffer and the trace of a loop over ``s``, of four steps, over two rows each.

    ``step`` is given an entry of ``s``, the two rows of ``buffer`` and ``others``; it computes the
    two rows and an entry of the trace.
    """
    s_t = s.type.clone(shape=s.type.shape[1:])()
    rows = [buffer.type.clone(shape=buffer.type.shape[1:])() for _ in range(2)]
    inside = [other.type() for other in others]
    info = scan_info(
        n_seqs=1,
        mit_mot_in_slices=((0, 1),),
        mit_mot_out_slices=((0, 1),),
        n_nit_sot=1,
        n_non_seqs=len(others),
    )
    inputs = [s_t, *rows, *inside]
    four = pt.as_tensor(4)
    return list(Scan(inputs, list(step(*inputs)), info)(four, s, buffer, four, *others))


def simulated_two_rows(
    step: Callable[..., Any], s: np.ndarray, buffer: np.ndarray
) -> list[np.ndarray]:
    """Run the loop of `two_rows` by the definition of a mit_mot."""
    buffer, trace = buffer.copy(), []
    for i, value in enumerate(s):
        buffer[i], buffer[i + 1], entry = step(value, buffer[i].copy(), buffer[i + 1].copy())
        trace.append(entry)
    return [buffer, np.array(trace)]


def simulated(loop: MitMotLoop, start: np.ndarray, s: Sequence[float]) -> np.ndarray:
    """Run a loop by the definition of a mit_mot: rows of one buffer, read and written in place."""
    buffer = start.copy()
    first = min(loop.taps)
    for i, value in enumerate(s):
        reads = {tap: buffer[i + tap - first].copy() for tap in loop.taps}
        for position, tap in enumerate(loop.out_taps):
            others = [read for at, read in reads.items() if not (loop.adds and at == tap)]
            mixed = value * (position + 1)
            for place, read in enumerate(others):
                mixed = mixed + read * (0.3 + 0.2 * place + 0.1 * position)
            mixed = np.tanh(mixed)
            own = reads[tap] if loop.adds and tap in reads else 0.0
            buffer[i + tap - first] = own + mixed
    return buffer


@st.composite
def mit_mot_loops(draw: Draw) -> MitMotLoop:
    """Draw a loop with a mit_mot of any taps between -2 and 2."""
    taps = st.lists(st.integers(-2, 2), min_size=1, max_size=4, unique=True).map(tuple)
    return MitMotLoop(
        taps=draw(st.one_of(st.just((0, 1)), st.just((0, -1)), taps)),
        out_taps=draw(st.one_of(st.just((1,)), taps)),
        buffer=draw(st.sampled_from(tuple(BUFFERS))),
        readers=tuple(draw(st.lists(st.sampled_from(tuple(READERS)), min_size=1, max_size=2))),
        steps=draw(st.sampled_from([None, None, 0, 1, 2, 4])),
        extra=draw(st.integers(0, 2)),
        is_vector=draw(st.booleans()),
        is_static=draw(st.booleans()),
        adds=draw(st.booleans()),
    )

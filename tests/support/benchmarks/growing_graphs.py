"""Graphs that are large in one way only: many loops, many slots of one, wide or deep bodies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from scanopt_cli.ir.graph import Graph
from support.graph_building import graph_of, scan


def scans_of_one_input(n: int) -> Graph:
    """Return ``n`` loops over one sequence, which can be merged."""
    x, zero = pt.dvector("x"), pt.constant(0.0, dtype="float64")
    return graph_of(
        pt.stack([_last(lambda s, h, i=i: h * (0.5 + i) + s, x, zero) for i in range(n)])
    )


def scans_apart(n: int) -> Graph:
    """Return ``n`` loops, each with inputs of its own."""
    inputs = [(pt.dvector("x"), pt.dscalar("y")) for _ in range(n)]
    steps = (lambda s, h, i=i: h * (0.5 + i) + s for i in range(n))
    return graph_of(*(_last(step, x, y) for step, (x, y) in zip(steps, inputs, strict=True)))


def gradients_apart(n: int) -> Graph:
    """Return ``n`` loops of one name, each with its gradient."""
    results = []
    for _ in range(n):
        x, y = pt.dvector("x"), pt.dscalar("y")
        results.append(pt.grad(_last(lambda s, h: pt.sin(h * s), x, y), y))
    return graph_of(*results)


def states(n: int) -> Graph:
    """Return a loop of ``n`` states, each of which reads another."""
    starts, s = [pt.dscalar(f"y{i}") for i in range(n)], pt.dvector("s")

    def step(s: Any, *h: Any) -> list[Variable]:
        pairs = zip(h, h[1:] + h[:1], strict=True)
        return [pt.tanh(a * b + s * (i + 1)) for i, (a, b) in enumerate(pairs)]

    return graph_of(*(ys[-1] for ys in scan(step, sequences=[s], outputs_info=starts)))


def traces(n: int) -> Graph:
    """Return a loop of ``n`` traced outputs."""
    s, start = pt.dvector("s"), pt.dscalar("start")

    def step(s: Any, y: Any) -> list[Variable]:
        return [pt.tanh(y + s), *(pt.sin(y) * (i + 1.5) for i in range(n))]

    made = scan(step, sequences=[s], outputs_info=[start] + [None] * n)
    return graph_of(*(pt.exp(ys).sum() for ys in made))


def sequences(n: int) -> Graph:
    """Return a loop over ``n`` sequences."""
    given, start = [pt.dvector(f"s{i}") for i in range(n)], pt.dscalar("start")
    made = scan(
        lambda *parts: pt.tanh(parts[-1] * pt.add(*parts[:-1])),
        sequences=given,
        outputs_info=[start],
    )
    return graph_of(made[-1])


def constants(n: int) -> Graph:
    """Return a loop that reads ``n`` variables which no step changes."""
    s, start = pt.dvector("s"), pt.dscalar("start")
    given = [pt.dscalar(f"w{i}") for i in range(n)]
    made = scan(
        lambda s, y, *w: pt.tanh(y + s * pt.add(*map(pt.exp, w))),
        sequences=[s],
        outputs_info=[start],
        non_sequences=given,
    )
    return graph_of(made[-1])


def readers_of_a_trace(n: int) -> Graph:
    """Return a loop of which ``n`` rows are read."""
    made = scan(lambda s, y: pt.tanh(y + s), sequences=[pt.dvector("s")], outputs_info=[_start()])
    return graph_of(*(made[-i - 1] * 1.5 for i in range(n)))


def readers_in_a_step(n: int) -> Graph:
    """Return a loop whose state is read ``n`` times in a step."""
    return graph_of(
        _last(
            lambda s, y: pt.add(*(pt.tanh(y * (i + 1.5) + s) for i in range(n))),
            pt.dvector("s"),
            _start(),
        )
    )


def long_body(n: int) -> Graph:
    """Return a loop with a chain of ``2 * n`` operations in a step."""

    def step(s: Any, y: Any) -> Variable:
        for _ in range(n):
            y = pt.tanh(y + s)
        return y

    return graph_of(_last(step, pt.dvector("s"), _start()))


def many_taps(n: int) -> Graph:
    """Return a loop whose state is read at ``n`` taps."""
    s, start = pt.dvector("s"), pt.dvector("start")
    made = scan(
        lambda s, *y: pt.tanh(s + pt.add(*(a * (i + 1.5) for i, a in enumerate(y)))),
        sequences=[s],
        outputs_info=[{"initial": start, "taps": list(range(-n, 0))}],
    )
    return graph_of(made[-1])


def joined_sequence(n: int) -> Graph:
    """Return a loop over ``n`` vectors that are joined."""
    parts = [pt.dvector(f"x{i}") for i in range(n)]
    return graph_of(_last(lambda a, h: h * 0.5 + a, pt.concatenate(parts), _start()))


def chain_before(n: int) -> Graph:
    """Return a loop whose start is computed by a chain of ``2 * n`` operations."""
    y = _start()
    for _ in range(n):
        y = pt.tanh(y + 1)
    return graph_of(_last(lambda s, h: pt.tanh(h + s), pt.dvector("s"), y))


def _start() -> Any:
    return pt.dscalar("start")


def _last(step: Callable[..., Variable], sequence: Any, start: Any) -> Any:
    return scan(step, sequences=[sequence], outputs_info=[start])[-1]

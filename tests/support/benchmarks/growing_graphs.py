"""Graphs that are large in one way only: many loops, many slots of one, wide or deep bodies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import io_toposort

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


def scans_in_a_row(n: int) -> Graph:
    """Return ``n`` loops of one body, each of which starts with what the one before ends with.

    They are copies of one: `pytensor.scan` walks all that its inputs depend on, and would take
    hours for a thousand.
    """
    start = _start()
    y = first = _last(lambda s, h: pt.tanh(h * s + 0.5), pt.dvector("s"), start)
    nodes = io_toposort([start], [first])
    for _ in range(n - 1):
        known = {start: y}
        for node in nodes:
            copy = node.clone_with_new_inputs([known.get(v, v) for v in node.inputs])
            known.update(zip(node.outputs, copy.outputs, strict=True))
        y = known[first]
    return graph_of(y)


def states(n: int) -> Graph:
    """Return a loop of ``n`` states, each of which reads another."""
    starts, s = [pt.dscalar(f"y{i}") for i in range(n)], pt.dvector("s")

    def step(s: Any, *h: Any) -> list[Variable]:
        pairs = zip(h, h[1:] + h[:1], strict=True)
        return [pt.tanh(a * b + s * (i + 1)) for i, (a, b) in enumerate(pairs)]

    made = scan(step, sequences=[s], outputs_info=starts, return_list=True)
    return graph_of(*(ys[-1] for ys in made))


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
    """Return a loop whose state is read at ``n`` taps, at least two.

    With one, a vector as the start would be its first value.
    """
    s, start = pt.dvector("s"), pt.dvector("start")
    made = scan(
        lambda s, *y: pt.tanh(s + pt.add(*(a * (i + 1.5) for i, a in enumerate(y)))),
        sequences=[s],
        outputs_info=[{"initial": start, "taps": list(range(-max(n, 2), 0))}],
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


def operations(n: int) -> Graph:
    """Return ``n`` operations side by side on ten inputs, added up ten at a time, and a loop."""
    given = [pt.dscalar(f"x{i}") for i in range(10)]
    sums = [pt.sin(given[i % 10] * (i + 1.5)) for i in range(max(n * 9 // 20, 1))]
    while len(sums) > 1:
        sums = [
            pt.add(*sums[i : i + 10]) if i + 1 < len(sums) else sums[i]
            for i in range(0, len(sums), 10)
        ]
    return graph_of(_last(lambda s, h: pt.tanh(h + s), pt.dvector("s"), sums[0]))


def layers_in_a_row(n: int) -> Graph:
    """Return ``n`` OpFromGraphs with a loop inside, each of which reads the one before."""
    layers = [_layer(pt.tanh, i + 1.5) for i in range(10)]
    y = _start()
    for i in range(n):
        y = layers[i % 10](y)
    return graph_of(y)


def nest(depth: int) -> Graph:
    """Return loops inside of each other, ``depth`` deep, with work in each."""
    return graph_of(_nested(depth, pt.dvector("s"), _start()))


def nest_of_two(depth: int) -> Graph:
    """Return loops inside of each other, ``depth`` deep, two different ones in each step."""

    def nested(level: int, s: Any, y: Any) -> Any:
        if level == 0:
            return pt.tanh(y)
        return _last(lambda a, h: nested(level - 1, s, h) * a + nested(level - 1, s * 2.0, h), s, y)

    return graph_of(nested(depth, pt.dvector("s"), _start()))


def nest_of_layers(depth: int, factor: float = 1.5) -> Graph:
    """Return OpFromGraphs inside of each other, ``depth`` deep, with a loop, each applied twice.

    There is one body a level; written out there would be ``2**depth``.
    """
    layer: Callable[[Any], Any] = pt.tanh
    for level in range(depth):
        layer = _layer(layer, level + factor, twice=True)
    return graph_of(layer(_start()))


def gradient_of_a_nest(depth: int) -> Graph:
    """Return the gradient of loops inside of each other, ``depth`` deep."""
    s, start = pt.dvector("s"), _start()
    return graph_of(pt.grad(_nested(depth, s, start), start))


def _nested(depth: int, s: Any, y: Any) -> Any:
    if depth == 0:
        return pt.tanh(y)
    return _last(lambda a, h: _nested(depth - 1, s, h) * a, s, y)


def _layer(inside: Callable[[Any], Any], factor: float, *, twice: bool = False) -> Any:
    p = pt.dscalar("p")
    last = scan(lambda y: inside(y) * factor, outputs_info=[p], n_steps=3)[-1]
    return OpFromGraph([p], [inside(last) if twice else last], name="layer")


def _start() -> Any:
    return pt.dscalar("start")


def _last(step: Callable[..., Variable], sequence: Any, start: Any) -> Any:
    return scan(step, sequences=[sequence], outputs_info=[start])[-1]

"""Generated graphs that apply OpFromGraphs: some of their ends unread, equal, or passed on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt
from hypothesis import strategies as st
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.replace import vectorize_graph

from support.graph_building import scan

type Draw = Any

_UNARY = (pt.sin, pt.tanh, lambda a: pt.exp(-(a**2)), lambda a: a * 0.5 + 0.1)
_BINARY = (lambda a, b: a * b, lambda a, b: a - 0.5 * b, lambda a, b: b + a)
_LENGTH = 3


@dataclass(frozen=True)
class AppliedGraphs:
    """A smooth program of numbers and vectors, with arguments for it."""

    inputs: list[Any]
    outputs: list[Any]
    arguments: list[Any]

    @property
    def cost(self) -> Any:
        """One number that depends on every output."""
        return sum((output**2).sum() for output in self.outputs)


@st.composite
def applied_graphs(draw: Draw) -> AppliedGraphs:
    """Draw one to three OpFromGraphs, and a graph and a body that apply them."""
    ops: list[OpFromGraph] = []
    for number in range(draw(st.integers(1, 3))):
        ops.append(_graph(draw, ops, f"g{number}"))
    inputs = [pt.dscalar("v"), pt.dscalar("w"), pt.dvector("x"), pt.dvector("y")]
    numbers, vectors = inputs[:2], inputs[2:]
    read: list[Any] = []
    for _ in range(draw(st.integers(1, 4))):
        where = draw(st.sampled_from(("graph", "graph", "batch", "body")))
        op = draw(st.sampled_from(ops))
        if where == "body":
            made = _in_body(draw, op, numbers)
        else:
            made = _applied(draw, op, numbers)
            if where == "batch":
                batch = dict(zip(inputs[:2], inputs[2:], strict=True))
                made = [v for v in vectorize_graph(made, batch) if v.type.ndim == 1]
        for variable in made:
            (vectors if variable.type.ndim else numbers).append(variable)
        read += [variable for variable in made if draw(st.booleans())]
    outputs = read or [numbers[-1]]
    values = st.floats(-1.5, 1.5, width=32)
    arguments = [np.float64(draw(values)) for _ in range(2)]
    arguments += [np.array([draw(values) for _ in range(_LENGTH)]) for _ in range(2)]
    return AppliedGraphs(inputs, outputs, arguments)


def _graph(draw: Draw, ops: list[OpFromGraph], name: str) -> OpFromGraph:
    """Draw an OpFromGraph of numbers, which may apply earlier ones."""
    inputs = [pt.dscalar() for _ in range(draw(st.integers(1, 4)))]
    found: list[Any] = [*inputs, pt.constant(draw(st.sampled_from((0.0, 0.7))), dtype="float64")]
    for _ in range(draw(st.integers(1, 5))):
        if ops and draw(st.integers(0, 3)) == 0:
            found += _applied(draw, draw(st.sampled_from(ops)), found)
        else:
            found.append(_expression(draw, found))
    outputs = []
    for _ in range(draw(st.integers(1, 4))):
        variable = draw(st.sampled_from(found))
        # The same once more, of other nodes.
        again = variable.owner is not None and draw(st.booleans())
        outputs.append(variable.owner.clone().outputs[variable.index] if again else variable)
    return OpFromGraph(inputs, outputs, name=name, inline=draw(st.integers(0, 5)) == 0)


def _expression(draw: Draw, found: list[Any]) -> Any:
    a, b = draw(st.sampled_from(found)), draw(st.sampled_from(found))
    if draw(st.booleans()):
        return draw(st.sampled_from(_UNARY))(a)
    return draw(st.sampled_from(_BINARY))(a, b)


def _applied(draw: Draw, op: OpFromGraph, found: list[Any]) -> list[Any]:
    """Apply an OpFromGraph to numbers, the same one twice at times."""
    given = [draw(st.sampled_from(found)) for _ in op.input_types]
    made: list[Any] = op(*given, return_list=True)
    return made


def _in_body(draw: Draw, op: OpFromGraph, found: list[Any]) -> list[Any]:
    """Apply an OpFromGraph in each step of a loop of one state."""
    start, other = draw(st.sampled_from(found)), draw(st.sampled_from(found))

    def step(state: Any, held: Any) -> list[Any]:
        made = _applied(draw, op, [state, held])
        return [pt.tanh(made[0] + state), made[-1]]

    states, values = scan(
        step,
        outputs_info=[pt.as_tensor(start), None],
        non_sequences=[other],
        n_steps=draw(st.sampled_from((1, _LENGTH))),
    )
    return [states[-1], values.sum()]

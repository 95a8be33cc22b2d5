"""Loops that PyTensor refuses to make again, once it has found lengths of 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.ir.graph import Graph
from support.graph_building import scan

s, h0, v = pt.dvectors("s", "h0", "v")
m = pt.dmatrix("m")
x = pt.dscalar("x")
VALUES = {
    "s": [1.0, 2.0, 0.5],
    "h0": [0.3],
    "v": [0.1, 0.2, 0.4],
    "x": 0.5,
    "m": [[0.2, 0.1, 0.3], [0.4, 0.2, 0.1]],
    "column": [[0.2], [0.1], [0.4]],
    "one": [0.7],
}


def wide(value: Any) -> Any:
    """Return ``value`` of a node that declares no lengths, as rewrites leave them."""
    kind = pt.TensorType(value.type.dtype, [None] * value.type.ndim)
    return Apply(value.owner.op, value.owner.inputs, [kind()]).outputs[0]


def _fed(inputs: list[Variable], output: Variable, old: Variable, new: Variable) -> Graph:
    """Return a graph in which ``new`` is read for ``old``, and no node is made anew for it."""
    fgraph = FunctionGraph([*inputs, old], [output], clone=False)
    fgraph.replace(old, new, import_missing=True)
    return Graph(fgraph=FunctionGraph([*inputs, new], fgraph.outputs, clone=False))


def _invariant_of_one() -> Graph:
    def step(t: Any, h: Any, x: Any) -> Any:
        return t * h * wide(pt.alloc(pt.exp(x), 1))[::-1].dot(h)

    out = scan(step, sequences=[s], outputs_info=[h0], non_sequences=[x])
    return Graph(fgraph=FunctionGraph([s, h0, x], [out]))


def _rows(t: Any, h: Any, v: Any) -> Any:
    return t * h * pt.exp(v[2:]).dot(h)


def _invariant_of_three() -> Graph:
    out = scan(_rows, sequences=[s], outputs_info=[h0], non_sequences=[v])
    return _fed([s, h0], out, v, pt.tensor("v", shape=(3,)))


def _non_sequence() -> Graph:
    step = lambda t, h, v: t * h * pt.exp(v).dot(h)  # noqa: E731
    out = scan(step, sequences=[s], outputs_info=[h0], non_sequences=[v])
    return _fed([s, h0], out, v, pt.tensor("one", shape=(1,)))


def _sequence() -> Graph:
    out = scan(lambda t, h: h * pt.exp(t).dot(h), sequences=[m], outputs_info=[h0])
    return _fed([h0], out, m, pt.tensor("column", shape=(None, 1)))


def _computed_sequence() -> Graph:
    filled = wide(pt.alloc(x, 4, 1))
    out = scan(lambda t, h: h * pt.exp(t).dot(h), sequences=[filled], outputs_info=[h0])
    return Graph(fgraph=FunctionGraph([h0, x], [out]))


def _state() -> Graph:
    out = scan(lambda t, h: wide(pt.alloc(t + h.sum(), 1)), sequences=[s], outputs_info=[h0])
    return Graph(fgraph=FunctionGraph([s, h0], [out]))


def _nested() -> Graph:
    def row(r: Any, v: Any) -> Any:
        return scan(_rows, sequences=[r], outputs_info=[v[:1]], non_sequences=[v])[-1]

    out = scan(row, sequences=[m], non_sequences=[v])
    return _fed([m], out, v, pt.tensor("v", shape=(3,)))


FORMS: dict[str, Callable[[], Graph]] = {
    "an invariant of a step that is one long": _invariant_of_one,
    "an invariant of a step, outside one long": _invariant_of_three,
    "a non-sequence": _non_sequence,
    "a sequence": _sequence,
    "a sequence that is computed": _computed_sequence,
    "a state": _state,
    "a loop in a loop": _nested,
}
"""Each has a length of 1, which is not declared where the loop is made."""

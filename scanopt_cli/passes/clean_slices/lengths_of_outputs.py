"""Lengths computed from a loop's output, expressed by the loop's trip count."""

from __future__ import annotations

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.scalar import basic as ps
from pytensor.tensor.basic import ScalarFromTensor
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.shape import Shape_i
from pytensor.tensor.subtensor import Subtensor

from scanopt_cli.analysis.count_variables import as_count
from scanopt_cli.passes.clean_slices.buffer_facts import BufferFacts


def length_by_trip_count(node: Apply, facts: BufferFacts) -> Variable | None:
    """Return a length as a constant, or as one scalar variable plus a constant."""
    out = node.outputs[0]
    if isinstance(node.op, ScalarFromTensor) and isinstance(node.inputs[0], Constant):
        number: Variable = ps.constant(node.inputs[0].data.item(), dtype=out.type.dtype)
        return number
    if not isinstance(node.op, Subtensor | Shape_i | Elemwise):
        return None
    if getattr(out.type, "dtype", None) != "int64" or out.type.ndim:
        return None
    length = facts.lengths.value_of(out)
    if len(length.terms) > 1:
        return None
    for atom, count in length.terms:
        if atom.axis is not None or atom.variable.type != out.type:
            return None
        if count != 1 or _is_plain(node, atom.variable):
            return None
    found: Variable | None = as_count(length)
    return found


def _is_plain(node: Apply, variable: Variable) -> bool:
    """Whether ``node`` already computes ``variable``, or combines it with constants only."""
    if variable in node.outputs:
        return True
    others = [part for part in node.inputs if part is not variable]
    return variable in node.inputs and all(isinstance(part, Constant) for part in others)

"""Constants of which steps read rows by the index of the loop, as they read a sequence."""

from __future__ import annotations

from pytensor.graph.basic import Variable
from pytensor.graph.traversal import io_toposort
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.type import TensorType

from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.indexing import indices_of
from scanopt_cli.loop.operator_base import LoopView


def rows_read(
    view: LoopView, index: Variable, constant: Variable, outer: Variable, lengths: Lengths
) -> dict[Variable, int] | None:
    """Return the rows that steps read of a constant, by how far they are behind the index.

    ``None`` if the constant is read otherwise, or may be too short.
    """
    if not isinstance(constant.type, TensorType) or not constant.type.ndim:
        return None
    outputs = view.inner_outputs()
    found: dict[Variable, int] = {}
    inside = Lengths()
    for node in io_toposort([], outputs):
        if constant not in node.inputs:
            continue
        if not isinstance(node.op, Subtensor) or constant in node.inputs[1:]:
            return None
        place, *rest = indices_of(node)
        if isinstance(place, slice) or rest:
            return None
        ahead = inside.value_of(place) - inside.value_of(index)
        if not ahead.is_constant or ahead.constant < 0:
            return None
        found[node.outputs[0]] = ahead.constant
    if constant in outputs or not found:
        return None
    needed = lengths.steps + max(found.values())
    return found if lengths.provably_le(needed, lengths.length_of(outer)) else None

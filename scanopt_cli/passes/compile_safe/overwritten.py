"""Copies of outputs that may alias an overwritten row of a mit_mot."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import zip_longest
from operator import or_
from typing import Any, ClassVar

from pytensor.compile.ops import DeepCopyOp
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import io_toposort
from pytensor.tensor.type import TensorType

from scanopt_cli.ir.scan_view import ScanView, SlotKind
from scanopt_cli.passes.compile_safe.bodies import copy_outputs
from scanopt_cli.pipeline.contract import PassContext, ScanPass


@dataclass(frozen=True)
class CopyOverwritten(ScanPass):
    """Case 7 of ``compile-safe``; see `CompileSafe`."""

    name: ClassVar[str] = "compile-safe"

    def rewrite(self, view: ScanView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for all outputs, from a Scan with outputs that alias no such row."""
        copied = _aliases(view)
        if not copied:
            return None
        view.unfreeze()
        copy_outputs(view, copied, context)
        return view.rebuild()


def _aliases(view: ScanView) -> list[int]:
    """Return the positions of the inner outputs that may alias a row that a step overwrites.

    PyTensor may simplify any value computed from a row to that row, or to a view of it.
    """
    mit_mots = view.of_kind(SlotKind.MIT_MOT)
    # The row that each inner output overwrites, in the order of inner outputs: those of mit_mots
    # come first.
    targets = [
        slot.inner_inputs[slot.taps.index(tap)] if tap in slot.taps else None
        for slot in mit_mots
        for tap in slot.out_taps
    ]
    rows = [row for row in targets if row is not None]
    if not rows:
        return []
    sources = _sources(rows, view.inner_outputs())
    return [
        place
        for place, (output, target) in enumerate(zip_longest(view.inner_outputs(), targets))
        if not (output.owner and isinstance(output.owner.op, DeepCopyOp))
        and any(row is not target and _are_alike(row, output) for row in sources[output])
    ]


def _sources(rows: list[Variable], outputs: list[Variable]) -> dict[Variable, list[Variable]]:
    """Map each of ``outputs`` to those of ``rows`` that it is computed from."""
    # Bit n of a number stands for row n.
    bits = {row: 1 << place for place, row in enumerate(rows)}
    for node in io_toposort([], outputs):
        found = reduce(or_, (bits.get(variable, 0) for variable in node.inputs), 0)
        bits.update(dict.fromkeys(node.outputs, found))
    return {
        output: [row for place, row in enumerate(rows) if bits.get(output, 0) >> place & 1]
        for output in outputs
    }


def _are_alike(row: Variable, output: Variable) -> bool:
    """Whether both are tensors of one dtype and number of dimensions."""
    types: list[Any] = [row.type, output.type]
    return all(isinstance(each, TensorType) for each in types) and (
        types[0].dtype == types[1].dtype and types[0].ndim == types[1].ndim
    )

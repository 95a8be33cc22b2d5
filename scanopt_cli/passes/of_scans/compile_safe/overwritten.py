"""Copies of outputs that may alias a row of a buffer that the step overwrites."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, ClassVar

from pytensor.compile.ops import DeepCopyOp
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import io_toposort
from pytensor.tensor.type import TensorType

from scanopt_cli.analysis.affine import AffineExpr
from scanopt_cli.analysis.buffers import is_whole
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.loop_lengths import rows, with_start
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.passes.of_scans.compile_safe.bodies import copy_outputs
from scanopt_cli.pipeline.contract import PassContext
from scanopt_cli.pipeline.loop_passes import ScanPass


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

    PyTensor may simplify any value computed from a row of a mit_mot to that row, or to a view of
    it. Of states, only outputs that are rows count, since most loops read their states.
    """
    # The row that each inner output overwrites, in the order of inner outputs.
    lengths = Lengths(view.n_steps)
    targets = [target for slot in view.outputs() for target in _targets(view, slot, lengths)]
    written = [row for slot, row in targets if row is not None and slot.kind is SlotKind.MIT_MOT]
    of_states = {row for _, row in targets if row is not None}.difference(written)
    if not (written or of_states):
        return []
    outputs = view.inner_outputs()
    sources = _sources(written, outputs)
    return [
        place
        for place, (output, (_, target)) in enumerate(zip(outputs, targets, strict=False))
        if not (output.owner and isinstance(output.owner.op, DeepCopyOp))
        and (
            any(row is not target and _are_alike(row, output) for row in sources[output])
            or (output in of_states and output is not target)
        )
    ]


def _targets(
    view: ScanView, slot: Slot, lengths: Lengths
) -> Iterator[tuple[Slot, Variable | None]]:
    """Yield, for each inner output of ``slot``, the row that it overwrites, if a step reads it."""
    if slot.kind is SlotKind.MIT_MOT:
        for tap in slot.out_taps:
            yield slot, slot.inner_inputs[slot.taps.index(tap)] if tap in slot.taps else None
    elif slot.n_initial and not _has_room(view, slot, lengths):
        yield slot, slot.inner_inputs[slot.taps.index(-slot.n_initial)]
    else:
        yield from ((slot, None) for _ in slot.inner_outputs)


def _has_room(view: ScanView, slot: Slot, lengths: Lengths) -> bool:
    """Whether the buffer of a state provably has a row besides those that a step reads."""
    needed = AffineExpr(slot.n_initial + 1)
    held = with_start(rows(view, slot, lengths), slot.n_initial)
    return lengths.provably_le(needed, held) or is_whole(view, slot, lengths)


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

"""What is known at a node of what has run before it."""

from __future__ import annotations

from dataclasses import dataclass

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.subtensor import Subtensor

from scanopt_cli.analysis.accesses.row_ranges import rows_index
from scanopt_cli.analysis.accesses.slice_chains import axis_of
from scanopt_cli.analysis.lengths import AffineExpr, Lengths
from scanopt_cli.ir.levels import IfElse
from scanopt_cli.ir.scan_view import ScanView, scan_op
from scanopt_cli.passes.clean_slices.facts import Facts

# How many reads that have not failed are remembered at a node.
_READS = 3


@dataclass(frozen=True, slots=True)
class Attempt:
    """Facts, and the read that they rest on: where it fails, so must what comes of them."""

    facts: Facts
    read: Variable | None = None


class Ahead:
    """What is known at each node of what has run before it, in topological order."""

    def __init__(self) -> None:
        self._steps: dict[Apply, Variable | None] = {}
        self._reads: dict[Apply, dict[AffineExpr, Variable]] = {}
        self._attempts: dict[object, Attempt] = {}

    def of(self, node: Apply) -> list[Attempt]:
        """Return the facts to try on ``node``, one after the other."""
        before = [part.owner for part in node.inputs if part.owner in self._steps]
        if isinstance(node.op, IfElse):
            # What only one branch needs may not have run.
            before = []
        reads: dict[AffineExpr, Variable] = {}
        for other in before:
            reads |= self._reads[other]
        reads = dict(list(reads.items())[:_READS])
        counts = (self._steps[other] for other in before)
        steps = next((count for count in counts if count is not None), None)
        attempts = [self._attempt(steps)]
        attempts += [self._attempt(steps, floor, read) for floor, read in reads.items()]
        # A loop with a negative step count fails, and so does a read out of bounds.
        self._steps[node] = ScanView.of(node).n_steps if scan_op(node) is not None else steps
        floor = _floor_of(node, attempts[0].facts.lengths)
        self._reads[node] = reads if floor is None else {floor: node.outputs[0], **reads}
        return attempts

    def _attempt(
        self, steps: Variable | None, floor: AffineExpr | None = None, read: Variable | None = None
    ) -> Attempt:
        key = (steps, floor, read)
        if key not in self._attempts:
            self._attempts[key] = Attempt(Facts(Lengths(steps, floor=floor)), read)
        return self._attempts[key]


def _floor_of(node: Apply, lengths: Lengths) -> AffineExpr | None:
    """Return what a read ``x[i]`` with a constant ``i`` shows not to be negative, if it is news."""
    axis = axis_of(node) if isinstance(node.op, Subtensor) else None
    index = None if axis is None else rows_index(node, axis)
    if axis is None or not isinstance(index, Constant):
        return None
    place = int(index.data)
    needed = AffineExpr(place + 1 if place >= 0 else -place)
    form = lengths.length_of(node.inputs[0], axis) - needed
    return None if form.is_constant or lengths.provably_le(AffineExpr(), form) else form

"""Facts that hold at a node because the nodes that it depends on ran without an error."""

from __future__ import annotations

from dataclasses import dataclass

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.subtensor import Subtensor

from scanopt_cli.analysis.accesses.indices import axis_of, rows_index
from scanopt_cli.analysis.affine import AffineExpr
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.levels import IfElse
from scanopt_cli.ir.scan_view import ScanView, scan_op
from scanopt_cli.ir.step_check import checked_steps
from scanopt_cli.passes.clean_slices.buffer_facts import BufferFacts

# How many successful reads are remembered at a node.
_READS = 3


@dataclass(frozen=True, slots=True)
class ConditionalFacts:
    """Facts that hold if ``read``, where there is one, succeeds.

    A rewrite that uses them must still fail where ``read`` fails.
    """

    facts: BufferFacts
    read: Variable | None = None


class ImpliedFacts:
    """The facts that hold at each node because its predecessors ran without an error.

    Call `of` once for each node, in topological order.
    """

    def __init__(self) -> None:
        self._steps: dict[Apply, Variable | None] = {}
        self._reads: dict[Apply, dict[AffineExpr, Variable]] = {}
        self._attempts: dict[object, ConditionalFacts] = {}

    def of(self, node: Apply) -> list[ConditionalFacts]:
        """Return the facts to try on ``node``: without any read, then with each read before it."""
        before = [part.owner for part in node.inputs if part.owner in self._steps]
        if isinstance(node.op, IfElse):
            # An IfElse evaluates one branch only, so its operands may not have run.
            before = []
        reads: dict[AffineExpr, Variable] = {}
        for other in before:
            reads |= self._reads[other]
        reads = dict(list(reads.items())[:_READS])
        counts = (self._steps[other] for other in before)
        steps = next((count for count in counts if count is not None), None)
        attempts = [self._attempt(steps)]
        attempts += [self._attempt(steps, floor, read) for floor, read in reads.items()]
        # A negative trip count or a read out of bounds raises, so after this node neither occurs.
        self._steps[node] = steps if scan_op(node) is None else ScanView.of_outputs(node).n_steps
        floor = _floor_of(node, attempts[0].facts.lengths)
        self._reads[node] = reads if floor is None else {floor: node.outputs[0], **reads}
        return attempts

    def _attempt(
        self, steps: Variable | None, floor: AffineExpr | None = None, read: Variable | None = None
    ) -> ConditionalFacts:
        key = (steps, floor, read)
        if key not in self._attempts:
            self._attempts[key] = ConditionalFacts(BufferFacts(Lengths(steps, floor=floor)), read)
        return self._attempts[key]


def _floor_of(node: Apply, lengths: Lengths) -> AffineExpr | None:
    """Return the expression that a read ``x[i]`` with a constant ``i`` proves non-negative.

    So does a check that a loop runs a step. ``None`` for other nodes, or if that is provable
    without the node.
    """
    steps = checked_steps(node)
    if steps is not None:
        excess = lengths.value_of(steps) - 1
        return None if lengths.provably_le(0, excess) else excess
    axis = axis_of(node) if isinstance(node.op, Subtensor) else None
    index = None if axis is None else rows_index(node, axis)
    if axis is None or not isinstance(index, Constant):
        return None
    place = int(index.data)
    needed = AffineExpr(place + 1 if place >= 0 else -place)
    excess = lengths.length_of(node.inputs[0], axis) - needed
    is_known = excess.is_constant or lengths.provably_le(0, excess)
    return None if is_known else excess

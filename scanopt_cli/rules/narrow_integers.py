"""C004: small integers that wrap, and sequences whose lengths differ."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from pytensor.graph.basic import Variable
from pytensor.graph.traversal import walk
from pytensor.tensor.subtensor import Subtensor

from scanopt_cli.analysis.accesses.indices import rows_index
from scanopt_cli.analysis.affine import AffineExpr
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.minima import minimum_parts
from scanopt_cli.analysis.named_loops import NamedLoop
from scanopt_cli.analysis.narrow_states import Growth, wrapping_states
from scanopt_cli.analysis.value_ranges import of_dtype
from scanopt_cli.ir.indexing import number
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.passes.widen_integers import is_widened
from scanopt_cli.rules.check_context import CheckContext
from scanopt_cli.rules.rule_contract import Finding, Fix, Rule, Severity


class NarrowIntegers(Rule):
    """A small integer adds up until it wraps, or the sequences of a loop differ in length.

    The dtype of a state is that of its start. A counter of int8 is -128 after 127, without a word::

        scan(lambda c: c + np.int8(1), outputs_info=[np.int8(0)], n_steps=n)  # n may be 128
        scan(lambda c: c + 1, outputs_info=[np.int64(0)], n_steps=n)

    A counter that is provably small enough for the steps that the loop runs is not reported, nor
    one that a minimum or a remainder bounds. The fix computes the state in int64. It reaches
    readers that compute in a wider dtype, as a mean does; to those that want the small one, the
    number wraps as before.

    Where sequences differ in length, ``scan`` runs as many steps as the shortest one has rows::

        scan(step, sequences=[y[1:], y])  # the last row of y is never read
        scan(step, sequences=[y[1:], y[:-1]])

    And where ``n_steps`` asks for more steps than a sequence has rows, PyTensor's virtual machine
    raises a ValueError, and Numba reads what lies behind the array in memory. For both there is no
    fix: which rows are meant is for you to say.
    """

    code: ClassVar[str] = "C004"
    name: ClassVar[str] = "narrow-integers"
    severity: ClassVar[Severity] = Severity.WARNING
    fix: ClassVar[Fix | None] = Fix("widen-integers", is_safe=False)

    def find(self, context: CheckContext) -> Iterator[Finding]:
        """Yield a finding for each such state, and for each sequence of another length."""
        for loop in context.loops:
            for growth in wrapping_states(loop.view):
                fix = self.fix if _is_fixed(loop, growth) else None
                yield self.at(context, loop, _wraps(loop, growth), growth.slot, fix=fix)
            if isinstance(loop.view, ScanView) and not loop.view.batch_ndim:
                yield from self._lengths(context, loop)

    def _lengths(self, context: CheckContext, loop: NamedLoop) -> Iterator[Finding]:
        view, lengths = loop.view, Lengths(loop.view.n_steps)
        assert isinstance(view, ScanView)
        deciding = {one.slot: one for one in _deciding(view, lengths)}
        for slot in view.of_kind(SlotKind.SEQ):
            name = loop.names[slot]
            rows = lengths.length_of(slot.outer_input)
            if lengths.provably_le(rows + 1, lengths.steps):
                text = (
                    f"`{name}` has {rows} rows for {lengths.steps} steps: the virtual machine "
                    "raises an error, Numba reads memory behind it"
                )
                yield self.at(context, loop, text, slot, fix=None)
                continue
            mine = deciding.get(slot)
            shorter = mine and _shorter(mine, deciding.values(), lengths)
            if shorter is not None:
                text = (
                    f"the loop never reads the last rows of `{name}`: `{loop.names[shorter.slot]}` "
                    "is shorter"
                )
                yield self.at(context, loop, text, slot, fix=None)


@dataclass(frozen=True, slots=True)
class _Sequence:
    """A sequence whose length is one of those that decide the number of steps.

    Attributes
    ----------
    slot
        Its slot.
    rows
        Its length.
    base, left_out
        What it is a slice of, and how many rows that leaves out at the ends.
    least, most
        The constant in its length. A length can only be proved to be below another one of a larger
        constant, unless one of them is a minimum.
    """

    slot: Slot
    rows: AffineExpr
    base: Variable
    left_out: int
    least: float
    most: float


def _deciding(view: ScanView, lengths: Lengths) -> Iterator[_Sequence]:
    """Yield the sequences whose lengths the number of steps is the least of."""
    parts = walk([view.n_steps], minimum_parts)
    steps = lengths.steps
    counts = {lengths.value_of(v) for v in parts if minimum_parts(v) is None}
    for slot in view.of_kind(SlotKind.SEQ):
        sequence = _uncut(slot.outer_input)
        rows = lengths.length_of(sequence)
        if rows in counts:
            is_known = not lengths.minima(rows) and steps.constant >= 0
            bounds = (rows.constant, rows.constant) if is_known else (-inf, inf)
            yield _Sequence(slot, rows, *_left_out(sequence), *bounds)


def _shorter(
    mine: _Sequence, sequences: Collection[_Sequence], lengths: Lengths
) -> _Sequence | None:
    """Return a sequence that is provably shorter than ``mine``, and so decides the steps."""
    for other in sequences:
        if mine.base is other.base and mine.left_out < other.left_out:
            return other
        if other.least < mine.most and lengths.provably_le(other.rows + 1, mine.rows):
            return other
    return None


def _left_out(sequence: Variable) -> tuple[Variable, int]:
    """Return what slices take a sequence of, and how many rows they leave out at the ends."""
    count = 0
    while sequence.owner is not None and isinstance(sequence.owner.op, Subtensor):
        index = rows_index(sequence.owner, 0)
        if not isinstance(index, slice) or number(index.step, 1) != 1:
            break
        start, stop = number(index.start, 0), number(index.stop, 0)
        if start is None or stop is None or start < 0 or stop > 0:
            break
        if index.stop is not None and not stop:
            break
        count += start - stop
        sequence = sequence.owner.inputs[0]
    return sequence, count


def _is_fixed(loop: NamedLoop, growth: Growth) -> bool:
    """Whether the fix reaches a reader of a state."""
    return is_widened(loop.view, growth, loop.clients)


def _wraps(loop: NamedLoop, growth: Growth) -> str:
    dtype = str(growth.slot.inner_inputs[0].type.dtype)
    held, change = of_dtype(dtype), growth.change
    steps = Lengths(loop.view.n_steps).steps
    most = max(abs(change.low), abs(change.high))
    how = f"is multiplied by up to {most:g}" if growth.is_product else f"changes by up to {most:g}"
    return (
        f"the state `{loop.names[growth.slot]}` is {dtype} and {how} in each of {steps} steps: "
        f"outside of {held.low:g} to {held.high:g}, which {growth.steps} may reach, it wraps"
    )


def _uncut(sequence: Variable) -> Variable:
    """Return a sequence before it was cut to the number of steps."""
    node = sequence.owner
    index = None if node is None or not isinstance(node.op, Subtensor) else rows_index(node, 0)
    if isinstance(index, slice) and index.start is index.step is None and index.stop is not None:
        source: Variable = node.inputs[0]
        return source
    return sequence

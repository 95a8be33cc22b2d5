"""Passes that rewrite one loop at a time, and the walk over loops that they share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pytensor.graph.basic import Variable

from scanopt_cli.analysis.buffers import trimmed
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import Slot, SlotView
from scanopt_cli.loop.operator_base import LoopView
from scanopt_cli.pipeline.contract import Pass, PassContext, Rewrite
from scanopt_cli.remarks import Code, Reason, Why, because


@dataclass(frozen=True)
class LoopPass[View: SlotView](Pass):
    """A pass that rewrites one loop at a time, in topological order or its reverse."""

    accepts_trimmed: ClassVar[bool] = True
    """Whether the pass is valid on a Scan whose buffers do not hold every step."""
    accepts_in_place: ClassVar[bool] = True
    """Whether the pass is valid on a loop whose body works in place."""
    accepts_batched: ClassVar[bool] = True
    """Whether the pass is for batched Scans, too (``Blockwise{Scan}``); if not, it skips them."""
    accepts_while: ClassVar[bool] = True
    """Whether the pass is for loops that a condition may end, too; if not, it skips them."""
    from_the_end: ClassVar[bool] = False
    """Whether to visit later loops first, since changing one may enable changes in its operands."""

    @abstractmethod
    def loops(self, context: PassContext) -> Iterator[View]:
        """Yield the loops that the pass takes."""

    @abstractmethod
    def rewrite(self, view: View, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for the outputs of a loop and their readers, ``None`` for none.

        The driver replaces all keys at once. If a rewrite rebuilds the loop, every output that is
        missing from the keys must have no reader, or the old loop stays alive.
        """

    def rewrites(self, context: PassContext) -> Iterator[Rewrite]:
        """Call `rewrite` once on every loop of ``context.fgraph`` that the pass takes."""
        for view in self.loops(context):
            if view.batch_ndim and not self.accepts_batched:
                continue
            if view.is_while and not self.accepts_while:
                continue
            if not self.accepts_trimmed and (short := trimmed(view)):
                context.missed(view, Code.LOOP_LEFT, not_whole(short))
                continue
            if not self.accepts_in_place and works_in_place(view):
                context.missed(view, Code.LOOP_LEFT, because(Why.IN_PLACE, what="a step"))
                continue
            try:
                replacements = self.rewrite(view, context)
            except Exception as error:
                context.failed(view, error)
                continue
            if replacements:
                yield Rewrite(replacements)


class ScanPass(LoopPass[ScanView]):
    """A pass that rewrites one Scan at a time."""

    def loops(self, context: PassContext) -> Iterator[ScanView]:
        """Yield the Scans."""
        return context.scans(from_the_end=self.from_the_end)


class TracedLoopPass(LoopPass[LoopView]):
    """A pass that rewrites one TracedLoop at a time."""

    accepts_untraced: ClassVar[bool] = False
    """Whether the pass takes a Loop as well."""

    def loops(self, context: PassContext) -> Iterator[LoopView]:
        """Yield the TracedLoops, and Loops if the pass takes them."""
        for view in context.loops(from_the_end=self.from_the_end):
            if isinstance(view, LoopView) and (view.is_traced or self.accepts_untraced):
                yield view


class AnyLoopPass(LoopPass[SlotView]):
    """A pass that rewrites one loop at a time, a Scan or a TracedLoop."""

    def loops(self, context: PassContext) -> Iterator[SlotView]:
        """Yield the Scans and the TracedLoops."""
        for view in context.loops(from_the_end=self.from_the_end):
            if not isinstance(view, LoopView) or view.is_traced:
                yield view


def works_in_place(view: SlotView) -> bool:
    """Whether a node of a loop's body overwrites an operand."""
    return any(node.op.destroy_map for node in view.op.fgraph.toposort())


def duplicates(slots: Sequence[Slot], key: Callable[[Slot], Hashable]) -> dict[Slot, Slot]:
    """Map each slot that has the key of an earlier one to the first of that key."""
    first: dict[Hashable, Slot] = {}
    kept = {slot: first.setdefault(key(slot), slot) for slot in slots}
    return {slot: one for slot, one in kept.items() if one is not slot}


def not_whole(slots: Sequence[Slot]) -> Reason:
    """Return the reason that buffers are not proved to hold every step."""
    return because(Why.BUFFERS_NOT_WHOLE, slots=tuple(slot.label for slot in slots))

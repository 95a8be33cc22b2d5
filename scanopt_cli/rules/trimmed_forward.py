"""C001: a gradient that reads rows which its loop no longer keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar

from scanopt_cli.analysis.buffers import is_trimmed, is_whole
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.named_loops import NamedLoop
from scanopt_cli.analysis.provenance.inference import rows_read
from scanopt_cli.ir.slots import TRACED, Slot, SlotView
from scanopt_cli.rules.check_context import CheckContext
from scanopt_cli.rules.rule_contract import Finding, Rule, Severity


class TrimmedForward(Rule):
    """A gradient was taken of a loop that no longer keeps all steps, so it is a wrong number.

    PyTensor's ``scan_save_mem`` lets a loop keep the rows alone that are read. The pullback of such
    a loop reads the others, too, and finds later rows in their place::

        graph = so.load("optimized.scanopt")  # by save-mem
        pt.grad(graph.outputs[0], graph.inputs[0])  # wrong

    Differentiate first, and optimize then.
    """

    code: ClassVar[str] = "C001"
    name: ClassVar[str] = "trimmed-forward"
    severity: ClassVar[Severity] = Severity.ERROR

    def find(self, context: CheckContext) -> Iterator[Finding]:
        """Yield a finding for each pullback of a loop with trimmed buffers."""
        yield from self._told(context, "does not keep", is_trimmed)

    def suspects(self, context: CheckContext) -> Iterator[Finding]:
        """Yield a finding for each pullback of a loop whose buffers may be trimmed."""
        yield from self._told(context, "may not keep", _is_unclear)

    def _told(
        self,
        context: CheckContext,
        what: str,
        is_short: Callable[[SlotView, Slot, Lengths], bool],
    ) -> Iterator[Finding]:
        for loop, parent in _pullbacks(context):
            view, lengths = parent.view, Lengths(parent.view.n_steps)
            read = {source for source, _ in rows_read(loop.view)}
            slots = [
                slot
                for slot in view.of_kind(*TRACED)
                if slot.outer_output in read and is_short(view, slot, lengths)
            ]
            if slots:
                steps = f"which {what} all steps of {parent.quoted(slots)}"
                yield self.at(context, loop, f"is the gradient of {parent.title}, {steps}")


def _pullbacks(context: CheckContext) -> Iterator[tuple[NamedLoop, NamedLoop]]:
    """Yield each loop that is the pullback of another one, and that other."""
    by_node = {loop.view.node: loop for loop in context.loops}
    for loop in context.loops:
        origin = context.origins.get(loop.view.node)
        if origin is not None and origin.parent is not None:
            yield loop, by_node[origin.parent]


def _is_unclear(view: SlotView, slot: Slot, lengths: Lengths) -> bool:
    return not (is_whole(view, slot, lengths) or is_trimmed(view, slot, lengths))

"""C001: a gradient that reads rows which its loop no longer keeps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from scanopt_cli.analysis.buffers import is_trimmed
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.provenance.inference import rows_read
from scanopt_cli.ir.slots import TRACED
from scanopt_cli.rules.rule_contract import CheckContext, Finding, Rule, Severity


class TrimmedForward(Rule):
    """A gradient was taken of a loop that no longer keeps all steps, so it is a wrong number.

    PyTensor's ``scan_save_mem`` lets a loop keep the rows alone that are read. The pullback of such
    a loop reads the others, too, and finds later rows in their place::

        graph = so.load("optimized.pkl")  # by save-mem
        pt.grad(graph.outputs[0], graph.inputs[0])  # wrong

    Differentiate first, and optimize then.
    """

    code: ClassVar[str] = "C001"
    name: ClassVar[str] = "trimmed-forward"
    severity: ClassVar[Severity] = Severity.ERROR

    def find(self, context: CheckContext) -> Iterator[Finding]:
        """Yield a finding for each pullback of a loop with trimmed buffers."""
        by_node = {loop.view.node: loop for loop in context.loops}
        for node, origin in context.parents.items():
            loop, parent = by_node[node], by_node[origin]
            view, lengths = parent.view, Lengths(parent.view.n_steps)
            read = {source for source, _ in rows_read(loop.view)}
            slots = [
                slot
                for slot in view.of_kind(*TRACED)
                if slot.outer_output in read and is_trimmed(view, slot, lengths)
            ]
            if slots:
                names = ", ".join(f"`{parent.names[slot]}`" for slot in slots)
                text = (
                    f"is the gradient of {parent.title}, which does not keep all steps of {names}"
                )
                yield self.at(context, loop, text)

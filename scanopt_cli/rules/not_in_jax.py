"""J001: loops that JAX cannot run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import walk
from pytensor.tensor.shape import Shape, Shape_i

from scanopt_cli.analysis.accesses.accesses import accesses_of_outputs
from scanopt_cli.analysis.named_loops import NamedLoop
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import Slot
from scanopt_cli.rules.rule_contract import CheckContext, Finding, Rule, Severity


class NotInJax(Rule):
    """JAX cannot run the loop: it must know the lengths of arrays before it runs anything.

    A trace has a row for each step. Where the number of steps is the value of an input, or a
    condition ends the loop, its length is known only once the loop has run::

        ys = scan(step, outputs_info=[x], n_steps=n)
        pytensor.function([x, n], ys, mode="JAX")  # an error when it is called

    The last value alone needs no trace; within ``so.enabled()`` JAX returns it. A gradient reads
    the trace, and so does ``ys.sum()``. Use a constant ``n_steps``, or the length of an array; in
    place of a condition, run a constant number of steps that keep the state once it holds.

    Loops inside of other loops are not looked at. The rule is for those who compile for JAX: it is
    left out unless it is selected (``--select J``).
    """

    code: ClassVar[str] = "J001"
    name: ClassVar[str] = "not-in-jax"
    severity: ClassVar[Severity] = Severity.NOTE
    is_default: ClassVar[bool] = False

    def find(self, context: CheckContext) -> Iterator[Finding]:
        """Yield a finding for each loop with a trace whose length JAX cannot know."""
        for loop in context.outer_scans:
            view = loop.view
            assert isinstance(view, ScanView)
            slots = _with_trace(loop, view)
            if not slots:
                continue
            if view.is_while:
                why = "a condition ends the loop"
            elif given := _given(view.n_steps):
                listed = ", ".join(f"`{variable.name or '?'}`" for variable in given)
                why = f"the number of steps is the value of {listed}"
            else:
                continue
            read = f"more than the last row of {loop.quoted(slots)} is read"
            yield self.at(context, loop, f"JAX cannot run it: {why}, and {read}", *slots)


def _with_trace(loop: NamedLoop, view: ScanView) -> list[Slot]:
    """Return the slots of which other rows than the last are read."""
    found = accesses_of_outputs(view, loop.clients)
    return [slot for slot, reads in found.items() if not all(read.is_last_row for read in reads)]


def _given(n_steps: Variable) -> list[Variable]:
    """Return the inputs of the graph whose values, not shapes, decide a number of steps."""

    def operands(variable: Variable) -> Sequence[Variable] | None:
        node = variable.owner
        return None if node is None or isinstance(node.op, Shape | Shape_i) else node.inputs

    return [
        variable
        for variable in walk([n_steps], operands, bfs=False)
        if variable.owner is None and not isinstance(variable, Constant)
    ]

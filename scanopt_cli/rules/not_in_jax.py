"""J001: loops that JAX cannot run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import walk
from pytensor.tensor.shape import Shape, Shape_i

from scanopt_cli.analysis.accesses.accesses import accesses_of_outputs
from scanopt_cli.analysis.named_loops import Holder, NamedLoop
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import Slot
from scanopt_cli.rules.check_context import CheckContext
from scanopt_cli.rules.rule_contract import Finding, Rule, Severity


class NotInJax(Rule):
    """JAX cannot run the loop: it must know the lengths of arrays before it runs anything.

    A trace has a row for each step. Where the number of steps is the value of an input, or a
    condition ends the loop, its length is known only once the loop has run::

        ys = scan(step, outputs_info=[x], n_steps=n)
        pytensor.function([x, n], ys, mode="JAX")  # an error when it is called

    The last value alone needs no trace; within ``so.enabled()`` JAX returns it. A gradient reads
    the trace, and so does ``ys.sum()``. Use a constant ``n_steps``, or the length of an array; in
    place of a condition, run a constant number of steps that keep the state once it holds.

    A graph with such a loop in the body of another cannot be run either. The rule is for those who
    compile for JAX: it is left out unless it is selected (``--select J``).
    """

    code: ClassVar[str] = "J001"
    name: ClassVar[str] = "not-in-jax"
    severity: ClassVar[Severity] = Severity.NOTE
    is_default: ClassVar[bool] = False

    def find(self, context: CheckContext) -> Iterator[Finding]:
        """Yield a finding for each loop with a trace whose length JAX cannot know."""
        for loop in context.scans:
            view = loop.view
            assert isinstance(view, ScanView)
            slots = _with_trace(loop, view)
            if not slots or not context.is_read(loop):
                continue
            if view.is_while:
                why = "a condition ends the loop"
            elif given := _given(view.n_steps, loop.holder):
                why = _why(given)
            else:
                continue
            read = f"more than the last row of {loop.quoted(slots)} is read"
            yield self.at(context, loop, f"JAX cannot run it: {why}, and {read}", *slots)


def _why(given: Sequence[Variable | None]) -> str:
    if any(variable is None for variable in given):
        return "the number of steps is another one in each step of the loop around it"
    listed = ", ".join(f"`{getattr(variable, 'name', None) or '?'}`" for variable in given)
    return f"the number of steps is the value of {listed}"


def _with_trace(loop: NamedLoop, view: ScanView) -> list[Slot]:
    """Return the slots of which other rows than the last are read."""
    found = accesses_of_outputs(view, loop.clients)
    return [slot for slot, reads in found.items() if not all(read.is_last_row for read in reads)]


def _given(n_steps: Variable, holder: Holder | None) -> list[Variable | None]:
    """Return the inputs of the graph whose values, not shapes, decide a number of steps.

    ``None`` is among them if a loop around has another number in each step.
    """

    def operands(variable: Variable) -> Sequence[Variable] | None:
        node = variable.owner
        return None if node is None or isinstance(node.op, Shape | Shape_i) else node.inputs

    roots = [
        variable
        for variable in walk([n_steps], operands, bfs=False)
        if variable.owner is None and not isinstance(variable, Constant)
    ]
    if holder is None:
        return [*roots]
    found: dict[Variable | None, None] = {}
    for root in roots:
        outside = holder.given.get(root)
        values = [None] if outside is None else _given(outside, holder.around)
        found |= dict.fromkeys(values)
    return list(found)

"""P004: loops that need no loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Add, Mul
from pytensor.tensor.elemwise import Elemwise

from scanopt_cli.analysis.dependence import is_elementwise_map
from scanopt_cli.analysis.named_loops import NamedLoop
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import STATES, Slot, SlotKind
from scanopt_cli.rules.rule_contract import CheckContext, Finding, Fix, Rule, Severity


class Maps(Rule):
    """The loop needs no loop: no step depends on another, or a state only adds or multiplies up.

    A loop runs its steps one after the other, and looks at one row at a time. NumPy's, Numba's and
    JAX's operations on whole arrays take a fraction of that::

        scan(lambda v: pt.exp(v) * w, sequences=[x])  # pt.exp(x) * w
        scan(lambda v, s: s + v, sequences=[x], outputs_info=[0.0])  # pt.cumsum(x)

    The fix computes elementwise maps on whole arrays; the others are for you to rewrite.
    """

    code: ClassVar[str] = "P004"
    name: ClassVar[str] = "maps"
    severity: ClassVar[Severity] = Severity.WARNING
    fix: ClassVar[Fix | None] = Fix("push-out")

    def find(self, context: CheckContext) -> Iterator[Finding]:
        """Yield a finding for each loop that needs none."""
        for loop in context.loops:
            view = loop.view
            if not isinstance(view, ScanView) or view.is_while or view.batch_ndim:
                continue
            if not view.of_kind(*STATES):
                if view.of_kind(SlotKind.SEQ):
                    yield self._map(context, loop, view)
            elif (found := _running(loop)) is not None:
                slot, function = found
                text = (
                    f"the state `{loop.names[slot]}` is a running {function}: a loop is not needed"
                )
                yield self.at(context, loop, text, slot, fix=None)

    def _map(self, context: CheckContext, loop: NamedLoop, view: ScanView) -> Finding:
        text = "no step depends on another"
        if is_elementwise_map(view):
            text += ", and all is elementwise: whole arrays need no loop"
            return self.at(context, loop, text)
        return self.at(context, loop, f"{text} (a map): pt.vectorize needs no loop", fix=None)


def _running(loop: NamedLoop) -> tuple[Slot, str] | None:
    """Return the only state of a loop, and the sum or product that it is, if it is one."""
    states = loop.view.of_kind(*STATES)
    if len(states) != 1 or states[0].taps != (-1,):
        return None
    ((before,), (after,)) = states[0].inner_inputs, states[0].inner_outputs
    node = after.owner
    if node is None or not isinstance(node.op, Elemwise) or list(node.inputs).count(before) != 1:
        return None
    names = {Add: "sum (pt.cumsum)", Mul: "product (pt.cumprod)"}
    name = names.get(type(node.op.scalar_op))
    others = [v for v in node.inputs if v is not before]
    others += [v for v in loop.view.inner_outputs() if v is not after]
    reads_rows = any(
        s.inner_inputs[0] in ancestors(others) for s in loop.view.of_kind(SlotKind.SEQ)
    )
    if name is None or not reads_rows or before in ancestors(others):
        return None
    return states[0], name

"""P003: a product, or what is costlier, that no step changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.math import Dot

from scanopt_cli.analysis.named_loops import NamedLoop
from scanopt_cli.ir.inner_graphs import core_op
from scanopt_cli.ir.slots import SlotKind
from scanopt_cli.passes.push_out.hoisting import invariant_nodes
from scanopt_cli.rules.rule_contract import CheckContext, Finding, Fix, Rule, Severity


class InvariantProducts(Rule):
    """Each step computes a product of matrices, a factor or an inverse that no step changes.

    It depends on non-sequences alone, so its value is the same in every step. A guard, a branch or
    a batch may keep PyTensor from moving it out::

        scan(lambda s, A, B: (A @ B) @ s, outputs_info=[x], non_sequences=[A, B], n_steps=n)

    Compute it before the loop; the fix does.
    """

    code: ClassVar[str] = "P003"
    name: ClassVar[str] = "invariant-products"
    severity: ClassVar[Severity] = Severity.WARNING
    fix: ClassVar[Fix | None] = Fix("push-out{cheap=false}")

    def find(self, context: CheckContext) -> Iterator[Finding]:
        """Yield a finding for each loop with such operations."""
        for loop in context.loops:
            found = [node for node in _invariant(loop) if _is_costly(node.op)]
            if found:
                names = ", ".join(dict.fromkeys(_name(node.op) for node in found))
                text = f"each step computes {names} of what no step changes"
                yield self.at(context, loop, text)


def _invariant(loop: NamedLoop) -> list[Apply]:
    view = loop.view
    given = {s.inner_inputs[0] for s in view.of_kind(SlotKind.NON_SEQ, SlotKind.CONSTANT)}
    nodes = view.op.fgraph.toposort()
    invariant = invariant_nodes(nodes, given)
    return [node for node in nodes if node in invariant]


def _is_costly(op: Op) -> bool:
    """Whether an Op takes as long as a product of its arguments."""
    return isinstance(core_op(op), Dot) or isinstance(op, Blockwise)


def _name(op: Op) -> str:
    return type(core_op(op)).__name__

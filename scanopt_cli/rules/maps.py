"""P004: loops that need no loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Add, Mul
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.math import Dot

from scanopt_cli.analysis.accesses.accesses import accesses
from scanopt_cli.analysis.dependence import is_elementwise_map
from scanopt_cli.analysis.named_loops import NamedLoop
from scanopt_cli.analysis.vector_products import vector_products
from scanopt_cli.ir.inner_graphs import core_op
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import STATES, Slot, SlotKind
from scanopt_cli.remarks import Code
from scanopt_cli.rules.check_context import CheckContext
from scanopt_cli.rules.finding_costs import work
from scanopt_cli.rules.rule_contract import Finding, Fix, Rule, Severity

_ON_ARRAYS, _SUM = Fix("guard-last-rows,loops-to-ops"), Fix("guard-last-rows,push-out-sums")
_RUNNING = {Add: "a running sum (pt.cumsum)", Mul: "a running product (pt.cumprod)"}
_LAST = {Add: "a sum (pt.sum)", Mul: "a product (pt.prod)"}


class Maps(Rule):
    """The loop needs no loop: no step depends on another, or a state only adds or multiplies up.

    A loop runs its steps one after the other, and looks at one row at a time. NumPy's, Numba's and
    JAX's operations on whole arrays take a fraction of that::

        scan(lambda v: pt.exp(v) * w, sequences=[x])  # pt.exp(x) * w
        scan(lambda v, s: s + v, sequences=[x], outputs_info=[0.0])  # pt.cumsum(x)
        scan(lambda v, s: s + v, sequences=[x], outputs_info=[0.0])[-1]  # pt.sum(x)
        scan(lambda v, s: s + pt.outer(v, v), sequences=[X], outputs_info=[S])[-1]  # X.T @ X

    The fix does so where the sequences are provably as long as the loop has steps, and the Ops are
    known that do for all rows what a step does for one; the others are for you to rewrite.
    """

    code: ClassVar[str] = "P004"
    name: ClassVar[str] = "maps"
    severity: ClassVar[Severity] = Severity.WARNING
    fix: ClassVar[Fix | None] = _ON_ARRAYS

    def find(self, context: CheckContext) -> Iterator[Finding]:
        """Yield a finding for each loop that needs none."""
        may_sum = any(map(_has_one_matrix, context.loops))
        found_sums = context.remarks(_SUM.passes) if may_sum else ()
        sums = {remark.scan for remark in found_sums if remark.code is Code.SUM_MOVED}
        for loop in context.loops:
            view = loop.view
            if not isinstance(view, ScanView) or view.is_while or view.batch_ndim:
                continue
            if not view.of_kind(*STATES):
                if view.of_kind(SlotKind.SEQ):
                    yield self._map(context, loop, view)
            elif loop.title in sums and _has_one_matrix(loop):
                (slot,) = view.of_kind(*STATES)
                text = (
                    f"the state `{loop.names[slot]}` adds up products: one matrix product does it"
                )
                yield self.at(context, loop, text, slot, cost=work(loop), fix=_SUM)
            elif (found := _running(loop)) is not None:
                slot, text = found
                text = f"the state `{loop.names[slot]}` is {text}: a loop is not needed"
                fix = _on_arrays(context, loop)
                yield self.at(context, loop, text, slot, cost=work(loop), fix=fix)

    def _map(self, context: CheckContext, loop: NamedLoop, view: ScanView) -> Finding:
        text, fix = "no step depends on another", _on_arrays(context, loop)
        if is_elementwise_map(view):
            text += ", and all is elementwise: whole arrays need no loop"
            return self.at(context, loop, text, cost=work(loop), fix=fix)
        rows = {v for slot in view.of_kind(SlotKind.SEQ) for v in slot.inner_inputs}
        is_product = [p.vector in rows for p in vector_products(view.inner_outputs())]
        others = (Dot, Blockwise, CAReduce)
        n_others = sum(isinstance(core_op(n.op), others) for n in view.op.fgraph.toposort())
        if is_product and all(is_product) and len(is_product) == n_others:
            text += " (a map): one matrix product does it"
        elif fix is not None:
            text += " (a map): whole arrays need no loop"
        else:
            text += " (a map): pt.vectorize needs no loop"
        return self.at(context, loop, text, cost=work(loop), fix=fix)


def _on_arrays(context: CheckContext, loop: NamedLoop) -> Fix | None:
    """Return the fix by which whole arrays take the place of a loop, if it takes it away."""
    n_outputs = len(loop.view.outputs())
    is_done = any(
        remark.scan == loop.title
        and remark.code is Code.LOOP_NOT_NEEDED
        and len(remark.slots) == n_outputs
        for remark in context.remarks(_ON_ARRAYS.passes)
    )
    return _ON_ARRAYS if is_done else None


def _has_one_matrix(loop: NamedLoop) -> bool:
    """Whether the only state of a loop is a matrix."""
    states = loop.view.of_kind(*STATES)
    return len(states) == 1 and getattr(states[0].inner_inputs[0].type, "ndim", 0) == 2


def _running(loop: NamedLoop) -> tuple[Slot, str] | None:
    """Return the only state of a loop, and which sum or product it is, if it is one."""
    states = loop.view.of_kind(*STATES)
    if len(states) != 1 or states[0].taps != (-1,):
        return None
    ((before,), (after,)) = states[0].inner_inputs, states[0].inner_outputs
    node = after.owner
    if node is None or not isinstance(node.op, Elemwise) or list(node.inputs).count(before) != 1:
        return None
    read = accesses(loop.view, states[0], loop.clients)
    is_last = all(access.is_last_row for access in read)
    names = _LAST if is_last else _RUNNING
    name = names.get(type(node.op.scalar_op))
    others = [v for v in node.inputs if v is not before]
    others += [v for v in loop.view.inner_outputs() if v is not after]
    reads_rows = any(
        s.inner_inputs[0] in ancestors(others) for s in loop.view.of_kind(SlotKind.SEQ)
    )
    if name is None or not reads_rows or before in ancestors(others):
        return None
    return states[0], name

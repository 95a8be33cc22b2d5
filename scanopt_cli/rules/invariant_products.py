"""P003: a product, or what is costlier, that needs no loop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.linalg.solvers.general import Solve
from pytensor.tensor.math import Dot

from scanopt_cli.analysis.dependence import dependent_nodes
from scanopt_cli.analysis.named_loops import NamedLoop
from scanopt_cli.analysis.step_rows import invariant_inputs
from scanopt_cli.analysis.vector_products import vector_products
from scanopt_cli.ir.inner_graphs import core_op
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import SlotKind
from scanopt_cli.passes.push_out.hoisting import invariant_nodes
from scanopt_cli.remarks import Code, Remark
from scanopt_cli.rules.check_context import CheckContext
from scanopt_cli.rules.finding_costs import work
from scanopt_cli.rules.rule_contract import Finding, Fix, Rule, Severity

_MULTIPLYING, _FACTORING = Fix("push-out-products"), Fix("factor-once")


class InvariantProducts(Rule):
    """Each step computes a product of matrices, or what is as costly, that depends on no state.

    Of non-sequences alone, its value is the same in every step. Out of a Scan that is in no other
    loop, PyTensor moves it when it compiles in its default modes: that is a note. In a loop in a
    loop, or in a batch of loops, it stays, and is a warning. Of the rows of a sequence, the
    products of all steps are one product of matrices, which takes a fraction of the time. A matrix
    that no step changes, and that each step solves by, needs to be factored only once::

        scan(lambda s, A, B: (A @ B) @ s, outputs_info=[x], non_sequences=[A, B], n_steps=n)
        scan(lambda x, s, W: pt.tanh(x @ W + s), sequences=[X], ...)  # X @ W before the loop

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
                if not _is_moved_by_pytensor(loop):
                    yield self.at(context, loop, text, cost=work(loop, found))
                    continue
                note = self.at(context, loop, f"{text}; PyTensor moves it when it compiles")
                yield replace(note, severity=Severity.NOTE)
        yield from self._of_sequences(context)
        if not any(map(_solves, context.loops)):
            return
        for loop, _ in _loops_with(context, _FACTORING, Code.MATRIX_FACTORED):
            text = "each step factors a matrix that no step changes"
            yield self.at(context, loop, text, fix=_FACTORING)

    def _of_sequences(self, context: CheckContext) -> Iterator[Finding]:
        if not any(map(_products_of_rows, context.loops)):
            return
        for loop, remark in _loops_with(context, _MULTIPLYING, Code.PRODUCT_MOVED):
            names = ", ".join(f"`{name}`" for name in remark.slots)
            text = f"each step multiplies a row of {names} by a matrix: one product does for all"
            slots = loop.slots_named(remark.slots)
            cost = work(loop, _products_of_rows(loop))
            yield self.at(context, loop, text, *slots, cost=cost, fix=_MULTIPLYING)


def _products_of_rows(loop: NamedLoop) -> list[Apply]:
    """Return the nodes that multiply rows of sequences by matrices."""
    rows = {v for slot in loop.view.of_kind(SlotKind.SEQ) for v in slot.inner_inputs}
    products = vector_products(loop.view.inner_outputs()) if rows else ()
    return [product.node for product in products if product.vector in rows]


def _solves(loop: NamedLoop) -> bool:
    return any(isinstance(core_op(node.op), Solve) for node in loop.view.op.fgraph.apply_nodes)


def _loops_with(context: CheckContext, fix: Fix, code: Code) -> Iterator[tuple[NamedLoop, Remark]]:
    for remark in context.remarks(fix.passes):
        loop = context.loop(remark.scan)
        if remark.code is code and loop is not None:
            yield loop, remark


def _invariant(loop: NamedLoop) -> list[Apply]:
    view = loop.view
    given = set(invariant_inputs(view))
    nodes = view.op.fgraph.toposort()
    # What is computed of constants alone, PyTensor computes when it compiles.
    moved = invariant_nodes(nodes, given).intersection(dependent_nodes(given, view.inner_outputs()))
    return [node for node in nodes if node in moved]


def _is_moved_by_pytensor(loop: NamedLoop) -> bool:
    """Whether PyTensor's own push-out takes invariants out of a loop, in its default modes."""
    return loop.holder is None and isinstance(loop.view, ScanView) and not loop.view.batch_ndim


def _is_costly(op: Op) -> bool:
    """Whether an Op takes as long as a product of its arguments."""
    return isinstance(core_op(op), Dot) or isinstance(op, Blockwise)


def _name(op: Op) -> str:
    return type(core_op(op)).__name__

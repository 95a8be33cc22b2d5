"""N001: a gradient that is NaN because of the branch that a switch does not select."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import grad
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.scalar import basic as ps
from pytensor.tensor.rewriting.basic import unconditional_constant_folding
from pytensor.tensor.type import TensorType

from scanopt_cli.analysis.dependence import varying_inputs
from scanopt_cli.analysis.guards import Guarded, difference_of, guarded_operands
from scanopt_cli.analysis.named_loops import NamedLoop
from scanopt_cli.analysis.value_ranges import step_ranges
from scanopt_cli.ir.folding import bounded_folding, work_of
from scanopt_cli.ir.graph import substituted
from scanopt_cli.ir.scan_view import ScanView, view_of
from scanopt_cli.passes.simplify.sound_rewriters import sound_rewriter
from scanopt_cli.rules.check_context import CheckContext
from scanopt_cli.rules.rule_contract import Finding, Fix, Rule, Severity

# How long axes of unknown length are in the step that is tried.
_LENGTH = 2


class UnselectedBranches(Rule):
    """The gradient is NaN, since the branch that a switch does not select has an infinite one.

    Both branches of a switch are computed. Of the one that is not selected, the gradient is zero
    times its derivative; and zero times infinity is NaN. Here, at a vector of zeros::

        norm = pt.sqrt((v**2).sum())
        pt.switch(norm > 0, v / norm, 0)

    PyTensor repairs most of these when it compiles (those of arrays that are computed entry by
    entry), but not this one, where one number decides for an array. Keep the function away from the
    number at which its derivative is infinite, and differentiate then; the fix does::

        square = (v**2).sum()
        norm = pt.sqrt(pt.switch(square > 0, square, 1))
        pt.switch(square > 0, v / norm, 0)

    Reported is what is NaN after PyTensor's own rewriting: the derivative of the branch is made,
    simplified by PyTensor's rewrites, and evaluated at such a number. The fix keeps all values. It
    is called unsafe since gradients that are taken afterwards are other ones; it does not reach
    those that were taken before.
    """

    code: ClassVar[str] = "N001"
    name: ClassVar[str] = "unselected-branches"
    severity: ClassVar[Severity] = Severity.WARNING
    fix: ClassVar[Fix | None] = Fix("merge-equal,safe-branches", is_safe=False)

    def find(self, context: CheckContext) -> Iterator[Finding]:
        """Yield a finding for each loop with such switches."""
        for loop in context.written:
            found = next((each for each in _guarded(loop) if _is_nan(each)), None)
            if found is not None:
                what = _name(found)
                text = (
                    f"a switch does not select {what} where that is computed of {found.at:g}, "
                    "but the gradient is NaN there"
                )
                yield self.at(context, loop, text)


def _guarded(loop: NamedLoop) -> Iterator[Guarded]:
    """Yield the operands that depend on a state or a sequence, and may be such a number."""
    view = view_of(loop.view.node)
    view.unfreeze()
    ranges = step_ranges(view)
    varying = (
        varying_inputs(view)
        if isinstance(view, ScanView)
        else {v for slot in view.slots for v in slot.inner_inputs}
    )
    for found in guarded_operands(view.inner_outputs()):
        is_varying = not varying.isdisjoint(ancestors([found.operand]))
        if is_varying and found.at in ranges.of(found.operand):
            yield found


def _name(found: Guarded) -> str:
    op = found.node.op.scalar_op
    names = {ps.TrueDiv: "a division", ps.Pow: "a power", ps.Sqrt: "a square root"}
    return names.get(type(op), f"a {type(op).__name__.lower()}")


def _is_nan(found: Guarded) -> bool:
    """Whether the gradient by the operand is NaN where PyTensor has simplified it."""
    operand = found.operand
    fresh = operand.type()
    replaced: dict[Variable, Variable] = {operand: fresh}
    if sides := difference_of(operand):
        # The condition may compare the two sides of a difference.
        first, second = sides
        replaced[first] = second + fresh
    try:
        (value,) = substituted(found.switch.outputs, replaced)
        cotangent = value.type()
        gradient: Any = grad(
            None, fresh, known_grads={value: cotangent}, disconnected_inputs="raise"
        )
        inputs = [v for v in graph_inputs([value, gradient]) if not isinstance(v, Constant)]
        graph = FunctionGraph(inputs, [value, gradient], clone=True)
        sound_rewriter(graph, "").rewrite(graph)
        numbers = [found.at if v is fresh else 1.0 if v is cotangent else 0.75 for v in inputs]
        values = _evaluated(graph, numbers)
    except Exception:
        return False  # what cannot be tried is not proved
    return (
        values is not None
        and bool(np.isfinite(values[0]).all())
        and bool(np.isnan(values[1]).any())
    )


def _evaluated(graph: FunctionGraph, numbers: Sequence[float]) -> list[Any] | None:
    """Return the values of a graph whose inputs are filled with numbers, if that is safe to do."""
    known: dict[Variable, Constant] = {}
    for variable, number in zip(graph.inputs, numbers, strict=True):
        if not isinstance(variable.type, TensorType):
            return None
        shape = [_LENGTH if length is None else length for length in variable.type.shape]
        known[variable] = pt.constant(np.full(shape, number, dtype=variable.type.dtype))
    with bounded_folding():
        for node in graph.toposort():
            again = node.op.make_node(*(known.get(v, v) for v in node.inputs))
            if not np.isfinite(work_of(again)):
                return None
            found = unconditional_constant_folding.transform(graph, again)
            if not found:
                return None
            known.update(zip(node.outputs, found, strict=True))
    outputs: list[Any] = [known.get(v, v) for v in graph.outputs]
    return [np.asarray(v.data) for v in outputs]

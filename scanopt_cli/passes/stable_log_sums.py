"""Subtract the maximum in log-sum-exps, so that gradients do not overflow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.analysis.log_sums import log_sums
from scanopt_cli.analysis.value_ranges import ValueRanges, step_ranges
from scanopt_cli.ir.slots import SlotView
from scanopt_cli.pipeline.contract import PassContext, Rewrite
from scanopt_cli.pipeline.loop_passes import AnyLoopPass
from scanopt_cli.remarks import Code


@dataclass(frozen=True)
class StableLogSums(AnyLoopPass):
    """Subtract the maximum of the exponents where the logarithm of a sum of exponentials is taken.

    PyTensor <version> does so when it compiles a graph, and that is after derivatives were taken:
    those still divide by the sum as it was written, infinity by infinity.

    Legal cases:

    1. ``log(sum(exp(x)))``, along some axes or all, becomes ``pt.logsumexp``.
    2. ``log(exp(a) + exp(b) + ...)`` becomes ``pt.logaddexp``.
    3. The logarithm of a sum of such terms with weights, ``log(sum(w * exp(x)))``, or of sums and
       single exponentials together: the largest exponent is subtracted from each, and added to the
       logarithm. Derivatives take it for a constant.

    They are in a step, or in a graph that holds loops. The result may round differently, and is
    finite where the exponentials overflow or all are zero; so are derivatives that are taken
    afterwards. So no preset has this pass.

    Preconditions: an exponent may be so large or so small that its exponential does not fit the
    dtype, and no maximum is subtracted from it already. All are floats of one dtype. Nothing works
    in place.

    Out of scope: sums with other terms (of ``log(1 + exp(x))`` PyTensor knows the gradient),
    ``log1p``, and derivatives that were taken already.
    """

    name: ClassVar[str] = "stable-log-sums"
    accepts_in_place: ClassVar[bool] = False

    def rewrites(self, context: PassContext) -> Iterator[Rewrite]:
        """Rewrite the steps of the loops of a graph, and then the graph."""
        if next(context.loops(), None) is None or context.is_in_place():
            return
        yield from super().rewrites(context)
        ranges = ValueRanges()
        for found in log_sums(context.fgraph.outputs):
            if found.may_overflow(ranges) and found.node in context.fgraph.apply_nodes:
                context.passed(None, Code.LOG_SUM_SHIFTED)
                yield Rewrite({found.node.outputs[0]: found.stable()})

    def rewrite(self, view: SlotView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for all outputs, from a loop whose log-sums are stable."""
        ranges = step_ranges(view)
        if not any(found.may_overflow(ranges) for found in log_sums(view.inner_outputs())):
            return None
        view.unfreeze()
        body = FunctionGraph(outputs=view.inner_outputs(), clone=False)
        count = _rewrite(body, step_ranges(view))
        context.passed(view, Code.LOG_SUM_SHIFTED, count=count)
        view.set_inner_outputs(list(body.outputs))
        return view.rebuild()


def _rewrite(body: FunctionGraph, ranges: ValueRanges) -> int:
    """Rewrite all log-sums of a step that may overflow, and return how many."""
    count = 0
    while True:
        found = next((f for f in log_sums(body.outputs) if f.may_overflow(ranges)), None)
        if found is None:
            return count
        old: Variable = found.node.outputs[0]
        body.replace(old, found.stable(), import_missing=True)
        count += 1

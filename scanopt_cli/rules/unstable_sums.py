"""N002: log-sum-exps whose gradients overflow, and products of probabilities."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors
from pytensor.scalar import basic as ps
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.subtensor import Subtensor

from scanopt_cli.analysis.dependence import varying_inputs
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.log_sums import LogSum, log_sums
from scanopt_cli.analysis.named_loops import NamedLoop
from scanopt_cli.analysis.state_changes import change
from scanopt_cli.analysis.value_ranges import Range, ValueRanges, step_ranges
from scanopt_cli.ir.scan_view import ScanView, is_loop
from scanopt_cli.ir.slots import STATES, Slot, SlotKind
from scanopt_cli.rules.check_context import CheckContext
from scanopt_cli.rules.rule_contract import Finding, Fix, Rule, Severity

_PROBABILITY = Range(0.0, 1.0)
_NAN = "where an exponent is large, what pytensor.grad makes of it is NaN"


class UnstableSums(Rule):
    """A log-sum-exp overflows in gradients, or a product of probabilities underflows.

    PyTensor subtracts the maximum in ``log(sum(exp(x)))`` when it compiles, after derivatives were
    taken: those divide infinity by infinity, and are NaN where x is over 709 (float32: 88). In a
    step, it may not even see the value::

        scan(lambda x, a: pt.log(pt.exp(a[:, None] + P).sum(axis=0)) + x, ...)
        scan(lambda x, a: pt.logsumexp(a[:, None] + P, axis=0) + x, ...)

    Outside of loops, PyTensor repairs the gradient of the sum of one exponential; it is not
    reported. Nor are exponents of a known size, and those with their maximum subtracted. The fix
    writes ``logsumexp``. It is called unsafe since numbers may round differently, and are finite
    where they were not; it does not reach gradients that were taken before.

    A state that each step multiplies by a probability is zero after some hundred steps, and its
    logarithm minus infinity. Add up logarithms; there is no fix, since the state is another one::

        scan(lambda x, p: p * pt.sigmoid(x), sequences=[xs], outputs_info=[1.0])
        scan(lambda x, l: l + pt.log(pt.sigmoid(x)), sequences=[xs], outputs_info=[0.0])

    A loop that provably runs fewer steps than 1/2 can be multiplied with itself is not reported
    (1022, in float32 126), nor is a factor that is the same in all steps.
    """

    code: ClassVar[str] = "N002"
    name: ClassVar[str] = "unstable-sums"
    severity: ClassVar[Severity] = Severity.WARNING
    fix: ClassVar[Fix | None] = Fix("stable-log-sums", is_safe=False)

    def find(self, context: CheckContext) -> Iterator[Finding]:
        """Yield a finding for each loop with log-sums, one for the graph, one for each product."""
        for loop in context.written:
            ranges = step_ranges(loop.view)
            found = [f for f in log_sums(loop.view.inner_outputs()) if f.may_overflow(ranges)]
            if found:
                yield self.at(context, loop, f"{_forms(found)}: {_NAN}")
            if isinstance(loop.view, ScanView):
                for slot in _products(loop.view):
                    yield self.at(context, loop, _underflows(loop, slot), slot, fix=None)
        outside = [found for found in log_sums(context.fgraph.outputs) if _is_reported(found)]
        if outside:
            yield self.at(context, None, f"{_forms(outside)} of a loop: {_NAN}")


def _is_reported(found: LogSum) -> bool:
    """Whether a log-sum outside of loops reads one, and PyTensor does not know its gradient."""
    return (
        not found.is_plain
        and found.may_overflow(ValueRanges())
        and any(v.owner is not None and is_loop(v.owner) for v in ancestors([found.total]))
    )


def _forms(found: list[LogSum]) -> str:
    counted = f"{len(found)} times " if len(found) > 1 else ""
    return f"{counted}the logarithm of a sum of exponentials"


def _products(view: ScanView) -> Iterator[Slot]:
    """Yield the states that each step multiplies by a number between 0 and 1 that varies."""
    ranges, steps = step_ranges(view), Lengths(view.n_steps).steps
    for slot in view.of_kind(*STATES):
        if slot.kind is SlotKind.MIT_MOT or slot.taps != (-1,):
            continue
        ((state,), (update,)) = slot.inner_inputs, slot.inner_outputs
        dtype = str(getattr(state.type, "dtype", ""))
        if not dtype.startswith("float") or update is state:
            continue
        few = steps.is_constant and steps.constant < -np.finfo(dtype).minexp
        factor = change(update, state, ranges, ps.Mul)
        varying = varying_inputs(view).difference([state])
        if (
            factor is not None
            and not few
            and factor.is_within(_PROBABILITY)
            and not varying.isdisjoint(ancestors([update]))
        ):
            yield slot


def _underflows(loop: NamedLoop, slot: Slot) -> str:
    text = f"the state `{loop.names[slot]}` is a product of numbers between 0 and 1: it underflows"
    is_logged = any(map(_is_log, _readers(loop, slot.output)))
    return f"{text}, and its logarithm is taken" if is_logged else text


def _is_log(node: Any) -> bool:
    return isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, ps.Log)


def _readers(loop: NamedLoop, output: Variable) -> Iterator[Apply]:
    """Yield what reads rows of an output."""
    waiting = [output]
    while waiting:
        for node, _ in loop.graph.clients.get(waiting.pop(), ()):
            yield node
            if isinstance(node.op, Subtensor | DimShuffle):
                waiting.append(node.outputs[0])

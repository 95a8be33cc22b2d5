"""Are the values of a derivative right? They are compared with a strategy that shares no step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace

from scanopt_cli.autodiff.connections import is_float
from scanopt_cli.autodiff.forward import push
from scanopt_cli.autodiff.hessian import times
from scanopt_cli.autodiff.provenance.lineage import Lineage
from scanopt_cli.autodiff.pushforward_rules import TangentError
from scanopt_cli.autodiff.reverse import derivatives, total
from scanopt_cli.autodiff.strategies import Strategy, along, cleaned
from scanopt_cli.errors import VerificationError
from scanopt_cli.ir.graph import Graph
from scanopt_cli.verification.result import Difference, DifferenceKind, Verdict, Verification
from scanopt_cli.verification.verifying import verify

if TYPE_CHECKING:
    from scanopt_cli.autodiff.derivative import Derivative

_RUNS = 10
# Reverse mode doubles the loops with each order; with more than so many it takes too long.
_MOST_SCANS = 64
_STEP = 1e-4


class Outcome(StrEnum):
    """What a check found. What could not be checked is not known to be right."""

    AGREES = "agrees"
    DIFFERS = "differs"
    NOT_CHECKED = "not_checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """How the values of a derivative compare with what was computed in another way.

    Attributes
    ----------
    outcome
        Whether they agree.
    against
        The other way.
    runs, runs_tried
        On how many random arguments they agree, and how many were drawn.
    reason
        Why nothing, or not everything, could be compared; and whether the derivative raises where
        the other way gives values.
    differences
        What differs.
    modes
        The modes by which the derivative was compiled for this as well.
    seconds
        How long it took.
    """

    outcome: Outcome
    against: str
    runs: int = 0
    runs_tried: int = 0
    reason: str | None = None
    differences: tuple[Difference, ...] = ()
    modes: tuple[str, ...] = ()
    seconds: float = 0.0

    def __str__(self) -> str:
        runs = f"{self.runs} of {self.runs_tried} runs"
        match self.outcome:
            case Outcome.AGREES:
                told = f"agrees with {self.against} on {runs}"
                told += f", compiled by {', '.join(self.modes)} as well" if self.modes else ""
                told += f" (in {self.seconds:.1f} s)"
                return f"{told}; {self.reason}" if self.reason else told
            case Outcome.DIFFERS:
                first = self.differences[0]
                return (
                    f"differs from {self.against}: {first.b} instead of {first.a} "
                    f"in run {first.run} ({first.arguments}"
                    f"{'' if first.mode is None else f', compiled by {first.mode}'})"
                )
        return f"not checked: {self.reason}"


@dataclass(frozen=True, slots=True)
class _Question:
    """Two lists of variables that should have the same values, but for so much."""

    against: str
    expected: Sequence[Variable]
    given: Sequence[Variable]
    tolerance: float = 1e-6


def check_derivative(
    derivative: Derivative,
    original: Graph,
    by: Sequence[int],
    modes: str | Sequence[str],
    timeout: float = 300.0,
    progress: Callable[[str], None] | None = None,
) -> Check:
    """Compare the last order of ``derivative`` with what another way gives.

    ``original`` has the differentiated output only, and ``by`` the positions of the inputs. The
    strategies that go forward only are compared with reverse mode, entry by entry. The others are
    compared along one direction, in which every entry grows at a rate of its own, with forward
    mode, or with central differences of the order before. Where the arguments or the other way's
    values are not finite, nothing is compared. ``modes``, which compile the derivative as well,
    ``timeout`` and ``progress`` are those of `scanopt_cli.verify`.
    """
    inputs = [original.inputs[position] for position in by]
    graphs = [
        clone_replace(r.graph.outputs, dict(zip(r.graph.inputs, original.inputs, strict=True)))
        for r in derivative.orders
    ]
    try:
        question = _question(derivative, graphs, inputs)
    except Exception as error:
        return Check(
            outcome=Outcome.NOT_CHECKED,
            against="nothing",
            reason=f"no other way could be built ({type(error).__name__})",
        )
    cost = total(graphs[0])
    # Where the output itself cannot be computed (the last of no steps), neither side may be.
    expected = [e + pt.zeros_like(cost) for e in question.expected]
    sound = pt.isfinite(cost)
    for variable in filter(is_float, original.inputs):
        sound = sound & pt.isfinite(variable).all()
    given = [
        _unless_alike(g + pt.zeros_like(cost), e, sound, question.tolerance)
        for g, e in zip(question.given, expected, strict=True)
    ]
    try:
        found = verify(
            _graph(original, expected),
            _graph(original, given),
            runs=_RUNS,
            modes=modes,
            timeout=timeout,
            progress=progress,
        )
    except VerificationError as error:
        return Check(outcome=Outcome.NOT_CHECKED, against=question.against, reason=str(error))
    return _judged(question.against, found)


def _judged(against: str, found: Verification) -> Check:
    # PyTensor's reverse mode raises for some loops of no steps, which is no wrong value.
    raised = [d for d in found.differences if d.kind is DifferenceKind.ONLY_B_RAISES]
    wrong = tuple(d for d in found.differences if d not in raised)
    reason = found.reason
    if raised:
        reason = f"it raises {raised[0].b} where {against} gives values ({raised[0].arguments})"
    outcome = Outcome.AGREES
    if wrong:
        outcome = Outcome.DIFFERS
    elif found.verdict is Verdict.COULD_NOT_RUN or not found.runs:
        outcome = Outcome.NOT_CHECKED
    return Check(
        outcome=outcome,
        against=against,
        runs=found.runs,
        runs_tried=found.runs_tried,
        reason=reason,
        differences=wrong,
        modes=found.modes,
    )


def _graph(original: Graph, outputs: Sequence[Variable]) -> Graph:
    fgraph = FunctionGraph(original.inputs, list(outputs), clone=True)
    return replace(original, fgraph=fgraph, output_names=())


def _unless_alike(given: Any, expected: Any, sound: Any, tolerance: float) -> Any:
    """``given``, but ``expected`` wherever the two are alike or cannot be compared."""
    size = abs(given) + abs(expected) + 1e-3 * (1 + abs(expected).sum())
    alike = abs(given - expected) <= tolerance * size
    return pt.switch(alike | ~pt.isfinite(expected) | ~sound, expected, given)


def _question(
    derivative: Derivative, graphs: Sequence[Sequence[Variable]], inputs: Sequence[Variable]
) -> _Question:
    order, results = len(graphs) - 1, graphs[-1]
    if derivative.strategy in (Strategy.FORWARD, Strategy.TAYLOR):
        if derivative.orders[0].statistics.scans * 2**order <= _MOST_SCANS:
            (target,) = graphs[0]
            repeated = derivatives(target, inputs, Lineage({}))
            wanted = next(islice(repeated, order - 1, None))
            return _Question("reverse mode", wanted, results)
        return _differences(graphs, inputs, [_along(results, _rates(inputs))])
    rates = _rates(inputs)
    if derivative.full:
        return _of_hessian(derivative.strategy, graphs, inputs, rates)
    along_rates = [_along(results, rates)]
    try:
        slope = _slope(total(graphs[0]), inputs, rates, order)
    except TangentError:
        return _differences(graphs, inputs, along_rates)
    return _Question("forward mode along one direction", [slope], along_rates)


def _slope(cost: Any, inputs: Sequence[Variable], rates: Sequence[Any], order: int) -> Any:
    """The slope of the sum of all derivatives of the order before, by forward mode alone."""
    for _ in range(order - 1):
        (tangent,) = push([cost], [along(inputs)]).tangents[0]
        (cost,) = cleaned([pt.zeros_like(cost) if tangent is None else tangent], Lineage({}))
    (tangent,) = push([cost], [dict(zip(inputs, rates, strict=True))]).tangents[0]
    return pt.zeros_like(cost) if tangent is None else tangent


def _of_hessian(
    strategy: Strategy,
    graphs: Sequence[Sequence[Variable]],
    inputs: Sequence[Variable],
    rates: Sequence[Any],
) -> _Question:
    """The Hessian times one vector, by the strategy that did not build it."""
    vector = pt.join(0, *(rate.ravel() for rate in rates))
    given = [pt.tensordot(vector, block, axes=[[0], [0]]) for block in graphs[-1]]
    is_reverse = strategy is Strategy.REVERSE
    other = Strategy.FORWARD_OVER_REVERSE if is_reverse else Strategy.REVERSE
    try:
        products = times(graphs[1], inputs, rates, other, Lineage({}))
    except TangentError:
        moved = [_moved(graphs[1], inputs, rates, sign * _STEP) for sign in (1, -1)]
        slopes = [(up - down) / (2 * _STEP) for up, down in zip(*moved, strict=True)]
        return _Question("finite differences", slopes, given, 1e-4)
    wanted = [pt.zeros_like(x) if p is None else p for p, x in zip(products, inputs, strict=True)]
    return _Question(f"{other.value}, Hessian times vector", wanted, given)


def _differences(
    graphs: Sequence[Sequence[Variable]], inputs: Sequence[Variable], given: Sequence[Variable]
) -> _Question:
    """Central differences of the order before, with an error of the fourth power of the step."""
    cost, rates = total(graphs[-2]), _rates(inputs)

    def rise(step: float) -> Any:
        (up,) = _moved([cost], inputs, rates, step)
        (down,) = _moved([cost], inputs, rates, -step)
        return (up - down) / (2 * step)

    slope = (4 * rise(_STEP) - rise(2 * _STEP)) / 3
    return _Question("finite differences", [slope], given, 1e-4)


def _moved(
    outputs: Sequence[Any], inputs: Sequence[Any], rates: Sequence[Any], step: float
) -> list[Any]:
    replaced = {
        x: (x + step * rate).astype(x.type.dtype) for x, rate in zip(inputs, rates, strict=True)
    }
    found: list[Any] = clone_replace(list(outputs), replaced)
    return found


def _rates(inputs: Sequence[Any]) -> list[Any]:
    """How fast each entry grows: no two alike, of both signs."""
    rates, start = [], 1.0
    for variable in inputs:
        ramp = pt.cos(start + pt.arange(variable.size)).reshape(
            [variable.shape[axis] for axis in range(variable.type.ndim)], ndim=variable.type.ndim
        )
        rates.append(variable.type.filter_variable(ramp.astype(variable.type.dtype)))
        start += 0.37
    return rates


def _along(results: Sequence[Any], rates: Sequence[Any]) -> Any:
    return total([result * rate for result, rate in zip(results, rates, strict=True)])

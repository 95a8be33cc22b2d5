"""Check the values of a derivative against an independent computation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace

from scanopt_cli.autodiff.activity import is_float
from scanopt_cli.autodiff.choices import Strategy
from scanopt_cli.autodiff.derivative import Check, Derivative, Outcome
from scanopt_cli.autodiff.forward import jvp
from scanopt_cli.autodiff.hessian import hessian_vector_product
from scanopt_cli.autodiff.pedigree.recorder import ProvenanceRecorder
from scanopt_cli.autodiff.pushforward_rules import TangentError
from scanopt_cli.autodiff.strategies import along, by_reverse_mode, or_zeros, simplified, total
from scanopt_cli.errors import VerificationError
from scanopt_cli.ir.graph import Graph
from scanopt_cli.verification.result import DifferenceKind, Verdict, Verification
from scanopt_cli.verification.verifying import verify

_RUNS = 10
# Reverse mode doubles the loops with each order. A check that would build more Scans than this by
# reverse mode takes too long and uses finite differences.
_MOST_SCANS = 64
# The step of finite differences.
_STEP = 1e-4


@dataclass(frozen=True, slots=True)
class _ComparedValues:
    """Two lists of variables whose values `_unless_alike` compares within ``tolerance``."""

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
    """Compare the last order of ``derivative`` with an independent computation.

    ``original`` has the differentiated output only; ``by`` holds the positions of the inputs to
    differentiate by. Derivatives by ``forward`` and ``taylor`` are compared with reverse mode,
    entry by entry. Those by other strategies are compared along one direction whose components all
    differ: a whole Hessian by a Hessian-vector product of the strategy that did not build it,
    anything else with forward mode. Finite differences of the next lower order replace a
    computation that takes too long or lacks a pushforward.

    No values are compared where an argument, the output or an expected value is not finite.
    ``modes``, which also compile the derivative, ``timeout`` and ``progress`` are
    those of `scanopt_cli.verify`.
    """
    inputs = [original.fgraph.inputs[position] for position in by]
    graphs = [r.graph.outputs for r in derivative.orders]
    try:
        comparison = _build_comparison(derivative, graphs, inputs)
    except Exception as error:
        return Check(
            outcome=Outcome.NOT_CHECKED,
            against="nothing",
            reason=f"no other way could be built ({type(error).__name__})",
        )
    cost = total(graphs[0])
    # Both sides depend on the output, so that both raise where computing it raises: the last row
    # of a loop of no steps.
    expected = [e + pt.zeros_like(cost) for e in comparison.expected]
    sound = pt.isfinite(cost)
    for variable in filter(is_float, original.fgraph.inputs):
        sound = sound & pt.isfinite(variable).all()
    given = [
        _unless_alike(g + pt.zeros_like(cost), e, sound, comparison.tolerance)
        for g, e in zip(comparison.given, expected, strict=True)
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
        return Check(outcome=Outcome.NOT_CHECKED, against=comparison.against, reason=str(error))
    return _judged(comparison.against, found)


def _judged(against: str, found: Verification) -> Check:
    # PyTensor's reverse mode raises for some loops of no steps, and some of its rewrites fail on
    # what it makes; these are no wrong values.
    raised = [d for d in found.differences if d.kind is DifferenceKind.ONLY_B_RAISES]
    others = (DifferenceKind.ONLY_B_RAISES, DifferenceKind.REWRITE_FAILS)
    wrong = tuple(d for d in found.differences if d.kind not in others)
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
        times=found.times,
    )


def _graph(original: Graph, outputs: Sequence[Variable]) -> Graph:
    fgraph = FunctionGraph(original.fgraph.inputs, list(outputs), clone=False)
    return replace(original, fgraph=fgraph, output_names=())


def _unless_alike(given: Any, expected: Any, sound: Any, tolerance: float) -> Any:
    """Return ``given``, but ``expected`` wherever the two agree or cannot be compared."""
    size = abs(given) + abs(expected) + 1e-3 * (1 + abs(expected).sum())
    alike = abs(given - expected) <= tolerance * size
    return pt.switch(alike | ~pt.isfinite(expected) | ~sound, expected, given)


def _build_comparison(
    derivative: Derivative, graphs: Sequence[Sequence[Variable]], inputs: Sequence[Variable]
) -> _ComparedValues:
    order, results, rates = len(graphs) - 1, graphs[-1], _rates(inputs)
    if derivative.full:
        return _hessian_comparison(derivative.strategy, graphs, inputs, rates)
    is_forward = derivative.strategy in (Strategy.FORWARD, Strategy.TAYLOR)
    if is_forward and derivative.orders[0].statistics.scans * 2**order <= _MOST_SCANS:
        (target,) = graphs[0]
        repeated = by_reverse_mode(target, inputs, ProvenanceRecorder({}))
        wanted = next(islice(repeated, order - 1, None))
        return _ComparedValues("reverse mode", wanted, results)
    along_rates = [total([result * rate for result, rate in zip(results, rates, strict=True)])]
    if not is_forward:
        with suppress(TangentError):
            slope = _slope(total(graphs[0]), inputs, rates, order)
            return _ComparedValues("forward mode along one direction", [slope], along_rates)
    # Richardson extrapolation makes the error of fourth order in the step.
    cost = total(graphs[-2])
    (near,), (far,) = (_differences([cost], inputs, rates, step) for step in (_STEP, 2 * _STEP))
    return _ComparedValues("finite differences", [(4 * near - far) / 3], along_rates, 1e-4)


def _slope(cost: Any, inputs: Sequence[Variable], rates: Sequence[Any], order: int) -> Any:
    """Differentiate the sum of all derivatives of the order before along ``rates``.

    Only forward mode is used.
    """
    for _ in range(order - 1):
        (tangent,) = jvp([cost], [along(inputs)]).tangents[0]
        (cost,) = simplified([or_zeros(tangent, cost)], ProvenanceRecorder({}))
    (tangent,) = jvp([cost], [dict(zip(inputs, rates, strict=True))]).tangents[0]
    return or_zeros(tangent, cost)


def _hessian_comparison(
    strategy: Strategy,
    graphs: Sequence[Sequence[Variable]],
    inputs: Sequence[Variable],
    rates: Sequence[Any],
) -> _ComparedValues:
    """Compare the Hessian times one vector with that product by the other strategy.

    The other strategy is the one that did not build the Hessian.
    """
    vector = pt.join(0, *(rate.ravel() for rate in rates))
    given = [pt.tensordot(vector, block, axes=[[0], [0]]) for block in graphs[-1]]
    is_reverse = strategy is Strategy.REVERSE
    other = Strategy.FORWARD_OVER_REVERSE if is_reverse else Strategy.REVERSE
    try:
        products = hessian_vector_product(graphs[1], inputs, rates, other, ProvenanceRecorder({}))
    except TangentError:
        slopes = _differences(graphs[1], inputs, rates, _STEP)
        return _ComparedValues("finite differences", slopes, given, 1e-4)
    wanted = list(map(or_zeros, products, inputs))
    return _ComparedValues(f"{other.value}, Hessian times vector", wanted, given)


def _differences(
    outputs: Sequence[Any], inputs: Sequence[Any], rates: Sequence[Any], step: float
) -> list[Any]:
    """The central differences of ``outputs`` along ``rates``."""

    def moved(step: float) -> list[Any]:
        pairs = zip(inputs, rates, strict=True)
        replaced = {x: (x + step * rate).astype(x.type.dtype) for x, rate in pairs}
        return clone_replace(list(outputs), replaced)

    return [(up - down) / (2 * step) for up, down in zip(moved(step), moved(-step), strict=True)]


def _rates(inputs: Sequence[Any]) -> list[Any]:
    """A direction, as one variable for each input: all rates differ, and both signs occur."""
    rates, start = [], 1.0
    for variable in inputs:
        ramp = pt.cos(start + pt.arange(variable.size)).reshape(
            [variable.shape[axis] for axis in range(variable.type.ndim)], ndim=variable.type.ndim
        )
        rates.append(variable.type.filter_variable(ramp.astype(variable.type.dtype)))
        start += 0.37
    return rates

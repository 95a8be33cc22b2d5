"""The strategies for the n-th derivative, each as an iterator over the orders from 1 on.

All compute the same values: for an input x the gradient by x of D^(n-1) f, where f is the sum of
all entries of the output and D the directional derivative along the vector of ones over all
entries of all inputs. They differ in the loops that they build.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from math import prod
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import graph_inputs, toposort

from scanopt_cli.analysis.provenance.inference import infer
from scanopt_cli.analysis.provenance.nearest_scans import NearestScans
from scanopt_cli.autodiff.choices import Strategy
from scanopt_cli.autodiff.pedigree.recorder import ProvenanceRecorder
from scanopt_cli.autodiff.pushforward_rules import fitted
from scanopt_cli.errors import GradientError
from scanopt_cli.ir.scan_view import is_loop
from scanopt_cli.pipeline.grammar import parse
from scanopt_cli.pipeline.runner import run_pipeline

_CLEANING = "merge-equal,simplify{outer=true},merge-states,remove-unused"
# Without it PyTensor would compile some of the simplified sums wrongly.
_SAFE = "compile-safe{only=bodies}"
# Forward mode takes one direction for each entry; for more entries than this it is refused.
MOST_ENTRIES = 16


def derivatives_by_order(
    strategy: Strategy,
    output: Variable,
    wrt: Sequence[Variable],
    names: Sequence[str],
    recorder: ProvenanceRecorder,
) -> Iterator[list[Variable]]:
    """Yield the derivatives of ``output`` of order 1, 2 and so on, one variable for each input.

    Raises
    ------
    GradientError
        If forward mode would need too many directions, or an unknown number of them. Messages name
        ``wrt`` by ``names``.
    TangentError
        If a node that a tangent reaches has no pushforward.
    """
    if strategy is Strategy.REVERSE:
        return by_reverse_mode(output, wrt, recorder)
    if strategy is Strategy.FORWARD_OVER_REVERSE:
        return _forward_over_reverse(output, wrt, recorder)
    return _forward(output, wrt, names, recorder, is_cleaned=strategy is Strategy.TAYLOR)


def entries(variable: Any) -> int | None:
    """Return how many entries ``variable`` has; ``None`` if its static shape leaves that open."""
    shape = variable.type.shape
    return None if None in shape else prod(shape)


def along(wrt: Sequence[Variable]) -> Mapping[Variable, Variable]:
    """Return the direction of ones over all entries of all inputs."""
    return {variable: pt.ones_like(variable) for variable in wrt}


def by_reverse_mode(
    output: Variable, wrt: Sequence[Variable], recorder: ProvenanceRecorder
) -> Iterator[list[Variable]]:
    """Yield the derivatives of ``output`` of order 1, 2 and so on, one variable for each input.

    Order 1 is the gradient of the sum of all entries of ``output``; each further order is the
    gradient of the sum of all entries of all results of the order before. A result has the type of
    its input, and is zero if the order before does not depend on that input.
    """
    results = [output]
    while True:
        found = recorder.grad(total(results), wrt)
        results = [or_zeros(term, variable) for term, variable in zip(found, wrt, strict=True)]
        yield results


def total(variables: Sequence[Any]) -> Any:
    """Return the sum of all entries of all ``variables``, a scalar."""
    first, *rest = (v.sum() if v.type.ndim else v for v in variables)
    return sum(rest, start=first)


def or_zeros(result: Variable | None, variable: Variable) -> Variable:
    """Return ``result``, or zeros like ``variable`` for ``None``."""
    return pt.zeros_like(variable) if result is None else result


def _forward_over_reverse(
    output: Variable, wrt: Sequence[Variable], recorder: ProvenanceRecorder
) -> Iterator[list[Variable]]:
    results = next(by_reverse_mode(output, wrt, recorder))
    yield results
    while True:
        (row,) = recorder.tangents(results, [along(wrt)])
        results = [fitted(tangent, x) for tangent, x in zip(row, wrt, strict=True)]
        yield results
        results = simplified(results, recorder)


def _forward(
    output: Variable,
    wrt: Sequence[Variable],
    names: Sequence[str],
    recorder: ProvenanceRecorder,
    *,
    is_cleaned: bool,
) -> Iterator[list[Variable]]:
    sizes = entry_counts(wrt, names)
    units = list(_units(wrt, sizes))
    value: Any = total([output])
    while True:
        column = [or_zeros(tangent, value) for (tangent,) in recorder.tangents([value], units)]
        results = _assembled(column, wrt, sizes)
        if is_cleaned:
            results = simplified(results, recorder)
        yield results
        if len(units) == 1:
            value = total(results)
            continue
        ((tangent,),) = recorder.tangents([value], [along(wrt)])
        value = or_zeros(tangent, value)
        if is_cleaned:
            (value,) = simplified([value], recorder)


def entry_counts(wrt: Sequence[Any], names: Sequence[str]) -> list[int]:
    """Return how many entries each input has; forward mode needs a direction for each entry.

    Raises
    ------
    GradientError
        If there are too many, or their number is not known.
    """
    sizes = []
    for name, variable in zip(names, wrt, strict=True):
        size = entries(variable)
        if size is None:
            raise GradientError(
                f"forward mode needs a direction for each entry of {name}, "
                "whose number of entries is not known",
                hint="use strategy forward-over-reverse or reverse",
            )
        sizes.append(size)
    if sum(sizes) > MOST_ENTRIES:
        raise GradientError(
            f"forward mode needs a direction for each of {sum(sizes)} entries, "
            f"and builds at most {MOST_ENTRIES}",
            hint="use strategy forward-over-reverse or reverse",
        )
    return sizes


def _units(wrt: Sequence[Any], sizes: Sequence[int]) -> Iterator[Mapping[Variable, Variable]]:
    """One direction for each entry of each input: the unit vector of that entry."""
    for variable, size in zip(wrt, sizes, strict=True):
        for entry in range(size):
            unit = np.zeros(variable.type.shape, dtype=variable.type.dtype)
            unit.flat[entry] = 1
            yield {variable: pt.constant(unit)}


def _assembled(column: Sequence[Any], wrt: Sequence[Any], sizes: Sequence[int]) -> list[Variable]:
    """The derivatives by single entries, assembled into one for each input."""
    rest = iter(column)
    results = []
    for variable, size in zip(wrt, sizes, strict=True):
        parts = list(islice(rest, size))
        if variable.type.ndim:
            whole = pt.stack(parts).reshape(variable.type.shape) if parts else None
        else:
            (whole,) = parts
        results.append(fitted(whole, variable))
    return results


def simplified(outputs: Sequence[Variable], recorder: ProvenanceRecorder) -> list[Variable]:
    """Return ``outputs`` with bodies simplified and equal states merged."""
    inputs = [v for v in graph_inputs(outputs) if not isinstance(v, Constant)]
    work = FunctionGraph(inputs, list(outputs), clone=True)
    run_pipeline(work, parse(_CLEANING))
    run_pipeline(work, parse(_SAFE), strict=True)
    results = clone_replace(work.outputs, replace=dict(zip(work.inputs, inputs, strict=True)))
    record_inferred(results, recorder)
    return list(results)


def record_inferred(outputs: Sequence[Variable], recorder: ProvenanceRecorder) -> None:
    """Record the origins of the Scans of ``outputs`` that no strategy made."""
    made = filter(is_loop, toposort(outputs))
    if all(node in recorder.origins for node in made):
        return
    inputs = [v for v in graph_inputs(outputs) if not isinstance(v, Constant)]
    graph = FunctionGraph(inputs, list(outputs), clone=False)
    recorder.record_inferred(infer(NearestScans(graph.inputs, graph.toposort())))

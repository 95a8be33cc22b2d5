"""The n-th derivative by repeated reverse mode, which doubles the loops with each order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from scanopt_cli.autodiff.provenance.recorder import ProvenanceRecorder


def derivatives(
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

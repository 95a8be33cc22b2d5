"""The child process that finds arguments which fit a graph, before anything is measured.

It evaluates the graph as it is, with lengths checked, and drawn arguments of a few steps: what does
not fit raises an error there, and may end the process where it is compiled.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import numpy as np
from pytensor.compile.inner_function import HasInnerFunction
from pytensor.scan.op import Scan

from scanopt_cli.benchmarking.requests import BenchRequest, Way
from scanopt_cli.benchmarking.sized_arguments import SizedArguments
from scanopt_cli.serialization.payload import decode
from scanopt_cli.verification.answering import answer_orders
from scanopt_cli.verification.arguments import UndrawableError
from scanopt_cli.verification.modes import inner_mode, plain_mode
from scanopt_cli.verification.worker import compiled, needs_c

_FEW_STEPS = 5
_LINK_MODE = "link_mode"


def main(directory: str) -> None:
    """Find a way to make arguments for the request in ``directory``."""
    answer_orders(directory, lambda request: lambda _order, _details: Finder(request).find())


class Finder:
    """Tries one way after the other, on graphs of its own."""

    def __init__(self, request: BenchRequest) -> None:
        self._request = request
        graphs = [decode(tables, "the request").fgraph for tables in request.graphs]
        self._graph = graphs[request.which]
        self._sized = SizedArguments(request, graphs)

    def find(self) -> Mapping[str, Any]:
        """Return the first way whose results are finite, else the first that gives some."""
        with _checked_bodies():
            return self._found()

    def _found(self) -> Mapping[str, Any]:
        function = compiled(self._graph, plain_mode(with_c=needs_c(self._graph)))
        fallback: Way | None = None
        first: Exception | None = None
        for way in self._sized.ways():
            try:
                values = self._small(way)
                with warnings.catch_warnings(), np.errstate(all="ignore"):
                    warnings.simplefilter("ignore")
                    outputs = function(*deepcopy(values))
            except UndrawableError:
                raise
            except Exception as error:  # of arguments that do not fit, or too large ones
                first = first or error
                continue
            if all(map(_is_finite, outputs)):
                return self._answer(way)
            fallback = fallback or way
        if fallback is None:
            raise first or ValueError("no arguments fit")
        return self._answer(fallback)

    def _small(self, way: Way) -> tuple[Any, ...]:
        """Return arguments of a few steps, that have grown a little if any are to grow."""
        base = self._sized.base(way, min(self._request.steps, _FEW_STEPS))
        growth = self._request.growth
        if growth is None:
            return base
        return self._sized.grown(base, way, min(growth.sizes[-1], self._sized.size_of(base) + 2))

    def _answer(self, way: Way) -> Mapping[str, Any]:
        grown = []
        if self._request.growth is not None:
            grown = self._sized.names_of_what_grows(self._sized.base(way, _FEW_STEPS), way)
        return {"attempt": way.attempt, "together": way.together, "grown": grown}


@contextmanager
def _checked_bodies() -> Iterator[None]:
    """Let the bodies of loops be run with lengths checked, too."""
    places: tuple[Any, ...] = (Scan, HasInnerFunction)
    before = [place.link_mode for place in places]
    for place in places:
        setattr(place, _LINK_MODE, inner_mode)
    try:
        yield
    finally:
        for place, mode in zip(places, before, strict=True):
            setattr(place, _LINK_MODE, mode)


def _is_finite(output: Any) -> bool:
    value = np.asarray(output)
    return value.dtype.kind not in "fc" or bool(np.isfinite(value).all())

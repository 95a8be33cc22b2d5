"""Arguments of graphs, at each of the sizes that one input grows to.

Given, recorded and drawn arguments grow in one way: rows are repeated from the start, or left out
at the end, so that values stay what they were.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.benchmarking.requests import BenchRequest, Way
from scanopt_cli.text import plural
from scanopt_cli.verification.arguments import Setting, attempts, draw
from scanopt_cli.verification.input_constraints import Role, input_constraints
from scanopt_cli.verification.requirements import Label

# Lengths beside that of the steps. Those of verify, which are around 3, make steps of no work.
_MANY = 8
# How far apart lengths are that grow together: x[t-1] and x[t-2] are read of sequences that are
# longer than the loop.
_NEAR = 2


class SizedArguments:
    """Makes the arguments of the graphs of a request."""

    def __init__(self, request: BenchRequest, graphs: Sequence[FunctionGraph]) -> None:
        self._request = request
        self._inputs = graphs[0].inputs
        self._constraints = input_constraints(graphs)
        ways = attempts(Setting(contents=True, many=_MANY), recorded=False)
        # With equal lengths, a matrix has as many rows and columns as there are steps.
        self._settings = sorted(ways, key=lambda way: way.shapes == "equal")

    def ways(self) -> Iterator[Way]:
        """Yield the ways to make arguments, those likely to fit first."""
        given = self._request.arguments.values is not None
        for attempt in (None,) if given else range(len(self._settings)):
            yield Way(attempt)
            if self._request.growth is not None:
                yield Way(attempt, together=True)

    def base(self, way: Way, steps: int | None = None) -> tuple[Any, ...]:
        """Return arguments before anything grows; drawn ones have so many ``steps``."""
        request = self._request
        if request.arguments.values is not None:
            return request.arguments.values
        assert way.attempt is not None
        steps = request.steps if steps is None else steps
        setting = replace(self._settings[way.attempt], steps=steps)
        return draw(
            setting,
            self._constraints,
            [variable.type for variable in self._inputs],
            request.arguments.contents,
            (),
            np.random.default_rng([request.arguments.seed, way.attempt]),
        )

    def size_of(self, base: Sequence[Any]) -> int:
        """Return the length or number of the input that grows."""
        growth = self._request.growth
        assert growth is not None
        named = base[growth.place]
        return int(named) if np.ndim(named) == 0 else len(named)

    def grown(self, base: Sequence[Any], way: Way, size: int) -> tuple[Any, ...]:
        """Return arguments of another size.

        Raises
        ------
        ValueError
            If the length is fixed by the graph, or there are no rows to repeat.
        """
        lengths, numbers = self._what_grows(base, way)
        by = size - self.size_of(base)
        made = []
        for place, value in enumerate(base):
            if place in numbers:
                made.append(
                    self._inputs[place].type.filter(
                        np.asarray(int(value) + by).astype(np.asarray(value).dtype)
                    )
                )
                continue
            for axis, label in enumerate(self._constraints.labels[place]):
                if label in lengths:
                    value = _resized(value, axis, np.shape(value)[axis] + by)
            made.append(value)
        return tuple(made)

    def names_of_what_grows(self, base: Sequence[Any], way: Way) -> list[str]:
        """Return the names of the inputs that grow, the one that was named first."""
        growth = self._request.growth
        assert growth is not None
        lengths, numbers = self._what_grows(base, way)
        places = [
            place
            for place, labels in enumerate(self._constraints.labels)
            if place in numbers or any(label in lengths for label in labels)
        ]
        places.sort(key=lambda place: place != growth.place)
        return [str(self._inputs[place].name or f"input {place}") for place in places]

    def described(self, values: Sequence[Any]) -> list[str]:
        """Return each argument in a few letters: its name, and its shape or number."""
        return [
            _described(str(variable.name or f"input {place}"), value)
            for place, (variable, value) in enumerate(zip(self._inputs, values, strict=True))
        ]

    def _what_grows(self, base: Sequence[Any], way: Way) -> tuple[set[Label], set[int]]:
        """Return the labels of the lengths that grow, and the positions of the numbers."""
        growth, constraints = self._request.growth, self._constraints
        assert growth is not None
        lengths: set[Label] = set()
        numbers: set[int] = set()
        if np.ndim(base[growth.place]) == 0:
            numbers.add(growth.place)
        else:
            lengths.add(constraints.labels[growth.place][0])
        if way.together:
            size = self.size_of(base)
            for place, (labels, role) in enumerate(
                zip(constraints.labels, constraints.roles, strict=True)
            ):
                for label, length in zip(labels, np.shape(base[place]), strict=False):
                    if label in constraints.stepped and abs(length - size) <= _NEAR:
                        lengths.add(label)
                is_number = role is Role.STEPS and np.ndim(base[place]) == 0
                if is_number and abs(int(base[place]) - size) <= _NEAR:
                    numbers.add(place)
        for label in lengths & constraints.static.keys():
            name = self._inputs[growth.place].name
            rows = plural(constraints.static[label], "row")
            raise ValueError(f"{name} cannot grow: the graph wants {rows}")
        return lengths, numbers


def _resized(value: Any, axis: int, length: int) -> Any:
    known = np.shape(value)[axis]
    if not known:
        raise ValueError("an empty array cannot grow")
    return np.take(value, np.arange(max(length, 0)) % known, axis=axis)


def _described(name: str, value: Any) -> str:
    shape = np.shape(value) if isinstance(value, np.ndarray | np.generic) else ()
    if shape:
        return f"{name} ({' × '.join(map(str, shape))})"
    is_count = isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "iu"
    return f"{name} = {int(value)}" if is_count else name

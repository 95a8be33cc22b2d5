"""Ways to give a broken graph smaller inputs: shorter arrays, fewer of what they count, ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.tensor.basic import as_tensor_variable
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorConstant

from scanopt_cli.ir.graph import Graph, from_io

type Candidate = Callable[[], Graph | None]
"""Makes a smaller graph; ``None`` if that cannot be."""

_SHORT = (1, 2, 3)


def size_of_inputs(graph: Graph) -> tuple[int, ...]:
    """Return the known lengths of inputs, the entries and counts of values, and how odd these are.

    An entry that is no whole number is odder than one that is not 1.
    """
    lengths = sum(n for v in graph.fgraph.inputs for n in _shape(v) if n is not None)
    arrays = [value for call in graph.recorded for value in call if _is_number(value)]
    counts = sum(abs(int(value)) for value in arrays if _is_count(value))
    entries = sum(int(np.size(value)) for value in arrays) + counts
    return lengths, entries, _number_of(arrays, _is_odd), _number_of(arrays, _is_not_one)


def _number_of(arrays: Sequence[Any], test: Callable[[Any], Any]) -> int:
    return sum(int(np.sum(test(value))) for value in arrays)


def _is_odd(value: Any) -> Any:
    return np.not_equal(np.rint(value), value) if value.dtype.kind in "fc" else np.zeros(())


def _is_not_one(value: Any) -> Any:
    return np.not_equal(value, 1)


def shorter_inputs(graph: Graph) -> Iterator[Candidate]:
    """Let all that is so long be shorter, and what counts as many count fewer; or one axis alone.

    Lengths are those of types, of constants and of recorded values.
    """
    inputs = graph.fgraph.inputs
    known = {n for v in inputs for n in _shape(v) if n is not None}
    for call in graph.recorded:
        for value in filter(_is_number, call):
            known |= {int(value)} if _is_count(value) else {*np.shape(value)}
    for length in sorted(known, reverse=True):
        for shorter in _shorter(length):
            yield partial(_cut, graph, partial(_all_of, length, shorter))
    for place, variable in enumerate(inputs):
        for axis, length in enumerate(_lengths(graph, place, variable)):
            for shorter in _shorter(length):
                yield partial(_cut, graph, partial(_one_of, (place, axis), shorter))


def plainer_values(graph: Graph) -> Iterator[Candidate]:
    """Let all entries of a recorded value be 1; or 1, 2, 3 and so on; or whole numbers."""
    for number, call in enumerate(graph.recorded):
        for place, value in enumerate(call):
            if _is_number(value) and np.any(_is_not_one(value)):
                counted = np.arange(1, np.size(value) + 1).reshape(np.shape(value))
                for other in (np.ones_like(value), counted.astype(value.dtype), _whole(value)):
                    after = (*call[:place], other, *call[place + 1 :])
                    yield partial(_with_call, graph, number, after)


def _whole(value: Any) -> Any:
    """Return the whole numbers that are next to those of a value, farther from zero."""
    if value.dtype.kind != "f":
        return value
    return np.asarray(np.copysign(np.ceil(np.abs(value)), value), value.dtype)


def _with_call(graph: Graph, number: int, call: tuple[Any, ...]) -> Graph:
    recorded = (*graph.recorded[:number], call, *graph.recorded[number + 1 :])
    return replace(graph, recorded=recorded)


def _shorter(length: int) -> list[int]:
    return list(dict.fromkeys(n for n in (*_SHORT, length // 2) if 0 < n < length))


def _shape(variable: Variable) -> tuple[int | None, ...]:
    kind = variable.type
    return kind.shape if isinstance(kind, TensorType) else ()


def _is_number(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "iufcb"


def _is_count(value: Any) -> bool:
    return np.ndim(value) == 0 and value.dtype.kind in "iu"


def _lengths(graph: Graph, place: int, variable: Variable) -> list[int]:
    """Return how long an input is; 0 for an axis of which that is not known."""
    values = [call[place] for call in graph.recorded[:1]]
    shape = np.shape(values[0]) if any(map(_is_number, values)) else ()
    if len(shape) != len(_shape(variable)):
        return [n or 0 for n in _shape(variable)]
    return [n or m for n, m in zip(_shape(variable), shape, strict=True)]


type _Length = Callable[[tuple[int, int] | None, int], int]
"""What a length becomes: of an axis of an input, or of something else."""


def _all_of(length: int, shorter: int, _: tuple[int, int] | None, n: int) -> int:
    return shorter if n == length else n


def _one_of(axis: tuple[int, int], shorter: int, where: tuple[int, int] | None, n: int) -> int:
    return shorter if where == axis else n


def _cut(graph: Graph, length: _Length) -> Graph:
    """Return a graph whose inputs, values and constants have other lengths.

    Raises
    ------
    Exception
        If a node does not take operands that are so short.
    """
    inputs = graph.fgraph.inputs
    made: dict[Variable, Variable] = {}
    for place, variable in enumerate(inputs):
        shape = tuple(
            n if n is None else length((place, axis), n) for axis, n in enumerate(_shape(variable))
        )
        if shape != _shape(variable) and not isinstance(variable, SharedVariable):
            made[variable] = variable.type.clone(shape=shape)(name=variable.name)
    if made:
        for constant in graph.fgraph.variables:
            if isinstance(constant, TensorConstant):
                data = _shortened(constant.data, length, None)
                if data is not constant.data:
                    made[constant] = as_tensor_variable(data)
    recorded = tuple(
        tuple(_shortened(value, length, place) for place, value in enumerate(call))
        for call in graph.recorded
    )
    if not made:
        return replace(graph, recorded=recorded)
    for node in graph.fgraph.toposort():
        operands = [made.get(variable, variable) for variable in node.inputs]
        if operands != list(node.inputs):
            new = node.op.make_node(*operands)
            made |= dict(zip(node.outputs, new.outputs, strict=True))
    smaller = from_io(
        [made.get(v, v) for v in inputs], [made.get(v, v) for v in graph.fgraph.outputs]
    )
    return replace(smaller, recorded=recorded, source=graph.source)


def _shortened(value: Any, length: _Length, place: int | None) -> Any:
    """Return the first entries of each axis, or a smaller number of what is counted."""
    if not _is_number(value):
        return value
    if np.ndim(value) == 0:
        if not _is_count(value):
            return value
        number = length(None if place is None else (place, 0), int(value))
        return value if number == int(value) else np.asarray(number, value.dtype)
    shape = [
        length(None if place is None else (place, axis), n) for axis, n in enumerate(value.shape)
    ]
    if tuple(shape) == value.shape:
        return value
    return np.ascontiguousarray(value[tuple(slice(n) for n in shape)])

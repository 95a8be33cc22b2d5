"""Type-checks nodes: ``make_node`` of an Op has to give the inputs and outputs that a node has.

A file may declare any inputs and outputs for any Op, and rewrites and backends trust them. Compiled
code checks nothing: a static length that is too large makes it read out of bounds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant, FrozenApply, Variable
from pytensor.graph.op import HasInnerGraph
from pytensor.graph.traversal import io_toposort
from pytensor.scalar.basic import ScalarType
from pytensor.scan.op import Scan
from pytensor.sparse.basic import ConstructSparseFromList, GetItem2d
from pytensor.tensor.basic import Choose, constant
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.rewriting.basic import unconditional_constant_folding
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.type import TensorType, integer_dtypes, matrix
from pytensor.typed_list.basic import MakeList
from pytensor.typed_list.type import TypedListType

from scanopt_cli.errors import brief
from scanopt_cli.ir.folding import bounded_folding
from scanopt_cli.ir.inner_graphs import core_op, op_name
from scanopt_cli.ir.scan_view import scan_signature

_LONGEST_SHAPE = 64
"""How many dimensions an array may have, and so how long a shape may be."""

_FEW_DIMENSIONS, _MOST_DIMENSIONS = 8, 15_000
"""Dimensions that PyTensor finds the lengths of at once, and how many of more are looked at in all;
each takes it a tenth of a millisecond or more."""

_MOST_UPSTREAM = 30_000
"""How many nodes upstream are looked at in all, to find static lengths that depend on values."""

type _Lengths = tuple[int | None, ...]


@bounded_folding()
def type_error(nodes: Iterable[Apply]) -> str | None:
    """Return what is wrong with the first ill-typed node, ``None`` if there is none.

    ``nodes`` are in topological order. The outputs of ``make_node`` depend on the types of its
    inputs and, but for an Elemwise that makes no integers, on the values of short constants; of
    nodes that agree in these, one is checked.
    """
    checked: dict[Hashable, _Made | str] = {}
    known: dict[Variable, Constant] = {}
    upstream = _Upstream()
    dimensions = 0
    for node in nodes:
        inputs = [known.get(variable, variable) for variable in node.inputs]
        key = node.op, *map(_kind, node.outputs), *_decisive(node, inputs)
        if key not in checked:
            ndim = max((getattr(v.type, "ndim", 0) for v in node.outputs), default=0)
            dimensions += ndim if ndim > _FEW_DIMENSIONS else 0
            if dimensions > _MOST_DIMENSIONS:
                return f"{op_name(node.op)} is one of too many with arrays of many dimensions"
            checked[key] = _check(node, inputs)
        made = checked[key]
        if isinstance(made, str):
            return f"{op_name(node.op)} {made}"
        declared = [*map(_lengths, node.outputs)]
        if not (
            _are_implied(declared, made.lengths)
            or _depends_on_arguments(node, known)
            or _are_implied(declared, upstream.lengths(node))
        ):
            return f"{op_name(node.op)} has outputs of static shapes that its inputs do not imply"
        if made.value is not None:
            known[node.outputs[0]] = made.value
    return None


@dataclass(frozen=True, slots=True)
class _Made:
    """What an Op makes of its inputs: the static lengths of its outputs, and the only one's value.

    The value is that of an integer or of a vector of them, if it is known.
    """

    lengths: list[_Lengths]
    value: Constant | None


def _check(node: Apply, inputs: Sequence[Variable]) -> _Made | str:
    """Return what the Op of ``node`` makes of ``inputs``, or why it does not make ``node``."""
    core = core_op(node.op)
    if isinstance(core, Scan) and node.op is not core and node.op.signature != scan_signature(node):
        return "does not have the signature of its Scan"
    # First without long lengths: a vector of integers may be a shape, of so many dimensions.
    broad = [_broad(variable.type) for variable in inputs]
    given = [*map(_stand_in, inputs, broad)]
    try:
        made = _make(node, given)
    except Exception as error:
        return f"does not take its inputs: {brief(error)}"
    if list(map(_kind, made.inputs)) != list(map(_kind, node.inputs)):
        return "does not take its inputs as they are"
    if list(map(_kind, made.outputs)) != list(map(_kind, node.outputs)):
        return "has outputs that it does not make of its inputs"
    if any(kind is not variable.type for kind, variable in zip(broad, inputs, strict=True)):
        given = [_stand_in(variable, variable.type) for variable in inputs]
        try:
            made = _make(node, given)
        except Exception as error:
            return f"does not take inputs of their static shapes: {brief(error)}"
    # An Op with an inner graph inserts a SpecifyShape before what is not of its type.
    if isinstance(core_op(node.op), HasInnerGraph) and made.inputs != given:
        return "takes inputs of other static shapes"
    if not _are_implied([*map(_lengths, made.inputs)], [*map(_lengths, given)]):
        return "takes inputs of static shapes that its inputs do not have"
    return _Made([*map(_lengths, made.outputs)], _value(made))


class _Upstream:
    """Makes nodes anew of the variables upstream, whose values may decide static lengths.

    PyTensor does so whenever somebody makes a node. It takes time in the number of nodes upstream,
    so that is bounded in all.
    """

    def __init__(self) -> None:
        self._copies: dict[Variable, Variable] = {}
        self._left = _MOST_UPSTREAM

    def lengths(self, node: Apply) -> list[_Lengths]:
        """Return the static lengths that the Op of ``node`` gives its outputs; none if unknown."""
        nodes = io_toposort([], node.inputs)
        self._left -= len(nodes)
        if self._left < 0:
            return []
        for above in nodes:
            if above.outputs[0] not in self._copies:
                # Inner graphs are frozen; what PyTensor looks at, it clones, so it must not be.
                copy = Apply(
                    above.op, [*map(self._copy, above.inputs)], [v.type() for v in above.outputs]
                )
                self._copies.update(zip(above.outputs, copy.outputs, strict=True))
        try:
            made = _make(node, [*map(self._copy, node.inputs)])
        except Exception:
            return []
        return [*map(_lengths, made.outputs)]

    def _copy(self, variable: Variable) -> Variable:
        if variable not in self._copies:
            is_constant = isinstance(variable, Constant)
            self._copies[variable] = variable if is_constant else variable.type()
        return self._copies[variable]


def _depends_on_arguments(node: Apply, known: Collection[Variable]) -> bool:
    """Whether numbers given to an inner graph, which are not known inside, may decide lengths.

    PyTensor makes inner graphs of graphs with constants, and keeps the types that these implied.
    """
    return isinstance(node, FrozenApply) and any(
        _may_be_length(variable.type) and variable not in known
        for variable in node.inputs
        if not isinstance(variable, Constant)
    )


def _make(node: Apply, inputs: list[Variable]) -> Apply:
    made: Apply = node.op.make_node(*_arguments(node, inputs))
    return made


def _arguments(node: Apply, inputs: list[Variable]) -> Sequence[Any]:
    """Return what ``make_node`` takes to make a node with ``inputs``; mostly the inputs."""
    match node.op:
        case MakeList():
            return [inputs]
        case Choose() if isinstance(inputs[1].type, TypedListType):
            return [inputs[0], [inputs[1].type.ttype()]]
        case GetItem2d():
            bounds = [None if getattr(v, "data", v) is None else v for v in inputs[1:]]
            rows, columns = bounds[:3], bounds[3:]
            return [inputs[0], (slice(*rows), slice(*columns))]
        case ConstructSparseFromList():
            # Of the dense matrix, the node reads the shape and has the dtype.
            return [matrix(dtype=node.outputs[0].type.dtype), *inputs[1:]]
        case _:
            return inputs


def _stand_in(variable: Variable, kind: Any) -> Variable:
    """Return a short constant itself; else a new variable, upstream of which nothing is read."""
    stand_in: Variable = variable if _is_short(variable) else kind.make_variable()
    return stand_in


def _is_short(variable: Variable) -> bool:
    """Whether ``variable`` is a constant that is no longer than a shape."""
    if not isinstance(variable, Constant):
        return False
    data: Any = variable.data
    # NumPy would make an array of a typed list of arrays.
    size = len(data) if isinstance(data, list | tuple) else np.size(data)
    return size <= _LONGEST_SHAPE


def _decisive(node: Apply, inputs: Iterable[Variable]) -> Iterator[Hashable]:
    """Yield what an Op may decide by: types, and the values of short constants."""
    by_types = type(node.op) is Elemwise and not any(_may_be_length(v.type) for v in node.outputs)
    for variable in inputs:
        yield variable.type
        if not by_types and isinstance(variable, Constant) and _is_short(variable):
            data: Any = variable.data
            yield data.tobytes() if isinstance(data, np.ndarray | np.generic) else id(variable)


def _value(made: Apply) -> Constant | None:
    """Return the value of a node that makes integers, no more than a shape has, if it is known."""
    if len(made.outputs) > 1 or not _may_be_length(made.outputs[0].type):
        return None
    match made.op:
        case Shape_i(i=axis):
            lengths: Any = _lengths(made.inputs[0])[axis]
        case Shape():
            lengths = _lengths(made.inputs[0])
        case _:
            try:
                folded = unconditional_constant_folding.transform(None, made)
            except Exception:  # as the node itself may raise when it is evaluated
                return None
            return folded[0] if folded else None
    is_known = None not in np.atleast_1d(np.asarray(lengths, "object"))
    return constant(np.asarray(lengths, "int64")) if is_known else None


def _may_be_length(kind: Any) -> bool:
    """Whether lengths may be computed from a variable of type ``kind``."""
    if not isinstance(kind, TensorType | ScalarType) or kind.dtype not in (*integer_dtypes, "bool"):
        return False
    return kind.ndim == 0 or (kind.ndim == 1 and (kind.shape[0] or math.inf) <= _LONGEST_SHAPE)


def _broad(kind: Any) -> Any:
    """Return the type of a tensor without the static lengths that decide no number of dimensions.

    A vector of integers may be a shape, whose length is a number of dimensions.
    """
    if not isinstance(kind, TensorType):
        return kind
    most = _LONGEST_SHAPE if kind.ndim == 1 and kind.dtype.startswith(("int", "uint")) else 1
    shape = tuple(None if length is None or length > most else length for length in kind.shape)
    return kind if shape == kind.shape else kind.clone(shape=shape)


def _kind(variable: Variable) -> Hashable:
    """The type of a variable but for its static lengths."""
    kind: Any = variable.type
    if isinstance(kind, TypedListType):
        return TypedListType, _kind(kind.ttype())
    return type(kind), *(getattr(kind, name, None) for name in ("dtype", "ndim", "dims"))


def _lengths(variable: Variable) -> _Lengths:
    """Return the static lengths of a variable, known or not; none if it is no array.

    Those of a list are the lengths of its elements.
    """
    kind: Any = variable.type
    while isinstance(kind, TypedListType):
        kind = kind.ttype
    lengths: _Lengths = getattr(kind, "shape", ())
    return lengths


def _are_implied(declared: Sequence[_Lengths], known: Sequence[_Lengths]) -> bool:
    """Whether each static length that is declared is known."""
    return [*map(len, declared)] == [*map(len, known)] and all(
        length is None or length == other
        for length, other in zip(chain(*declared), chain(*known), strict=True)
    )

"""Parts of arrays that the arithmetic of a step reads where they are, without making them.

Rows, slices, transposes, added and dropped dimensions, and what one-dimensional arrays of indices
pick are `View`s of an array, and of each other as far as `view_of` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor
from pytensor.tensor.type import DenseTensorType, integer_dtypes

from scanopt_cli.ir.indexing import indices_of, is_full_slice, number


@dataclass(frozen=True, slots=True)
class SlicedAxis:
    """An axis of a view: all of a dimension of the array, or from a bound to another."""

    axis: int
    start: Variable | None = None
    stop: Variable | None = None
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class IndexedAxis:
    """One index of a dimension of the array; the first, if there is no variable."""

    index: Variable | None


@dataclass(frozen=True, slots=True)
class Picked:
    """An axis of a view: what an array of indices, itself a view, picks of a dimension."""

    axis: int
    indices: View


type Dimension = SlicedAxis | IndexedAxis | Picked


@dataclass(frozen=True, slots=True)
class View:
    """A part of an array, given by how each dimension of the array is read."""

    array: Variable
    dimensions: tuple[Dimension, ...]

    def variables(self) -> list[Variable]:
        """Return what has to be computed to read the part: arrays, and indices."""
        found = [self.array]
        for dimension in self.dimensions:
            match dimension:
                case SlicedAxis(_, start, stop):
                    found += [v for v in (start, stop) if v is not None]
                case IndexedAxis(index):
                    found += [] if index is None else [index]
                case Picked(_, indices):
                    found += indices.variables()
        return found


def whole(array: Any) -> View:
    """Return all of an array."""
    return View(array, tuple(map(SlicedAxis, range(array.type.ndim))))


def view_of(node: Apply, known: Mapping[Variable, View]) -> View | None:
    """Return what part of an array a node makes, if others can read it where it is.

    ``known`` has the parts that other nodes make.
    """
    if not all(isinstance(v.type, DenseTensorType) for v in (node.inputs[0], *node.outputs)):
        return None
    source = known.get(node.inputs[0]) or whole(node.inputs[0])
    if isinstance(node.op, DimShuffle):
        return _shuffled(node, source)
    if not node.outputs[0].type.ndim:
        return None
    if isinstance(node.op, Subtensor):
        return _sliced(node, source)
    if isinstance(node.op, AdvancedSubtensor):
        return _picked(node, source, known)
    return None


def _shuffled(node: Apply, source: View) -> View | None:
    op: Any = node.op
    found: list[Dimension] = []
    for dimension in source.dimensions:
        if isinstance(dimension, IndexedAxis):
            found.append(dimension)
        elif dimension.axis in op.new_order:
            found.append(replace(dimension, axis=op.new_order.index(dimension.axis)))
        elif _is_all(dimension):
            found.append(IndexedAxis(None))
        else:
            return None
    return View(source.array, tuple(found))


def _sliced(node: Apply, source: View) -> View | None:
    indices = indices_of(node)
    indices += [slice(None)] * (node.inputs[0].type.ndim - len(indices))
    axes = iter(range(len(indices)))
    kept = {i: next(axes) for i, index in enumerate(indices) if isinstance(index, slice)}
    found: list[Dimension] = []
    for dimension in source.dimensions:
        if isinstance(dimension, IndexedAxis):
            found.append(dimension)
            continue
        index = indices[dimension.axis]
        if is_full_slice(index):
            found.append(replace(dimension, axis=kept[dimension.axis]))
        elif not _is_all(dimension) or not _is_plain(index):
            return None
        elif isinstance(index, slice):
            found.append(SlicedAxis(kept[dimension.axis], index.start, index.stop, is_whole=False))
        else:
            found.append(IndexedAxis(index))
    # A dimension that was added is no dimension of the array.
    own = {d.axis for d in source.dimensions if not isinstance(d, IndexedAxis)}
    is_plain = all(i in own or is_full_slice(index) for i, index in enumerate(indices))
    return View(source.array, tuple(found)) if is_plain else None


def _is_all(dimension: Dimension) -> bool:
    """Whether an axis is all of a dimension."""
    return isinstance(dimension, SlicedAxis) and dimension.is_whole


def _is_plain(index: Any) -> bool:
    """Whether an index is a number, or a slice that takes one row after the other."""
    if isinstance(index, slice):
        bounds = [bound for bound in (index.start, index.stop) if bound is not None]
        return number(index.step, 1) == 1 and all(map(_is_signed, bounds))
    return _is_signed(index)


def _is_signed(index: Any) -> bool:
    return isinstance(index, Variable) and (
        isinstance(index.type, ScalarType) and index.type.dtype.startswith("int")
    )


def index_arrays(node: Apply) -> dict[int, Any] | None:
    """Return the arrays of indices of a node, by dimension; ``None`` if it picks otherwise.

    All are vectors of integers, of one length, behind each other; other dimensions are whole.
    """
    op: Any = node.op
    indices = indices_of(node)
    if op.non_consecutive_adv_indexing(node):
        return None
    found = {}
    for axis, index in enumerate(indices):
        if is_full_slice(index):
            continue
        if not isinstance(index, Variable) or not isinstance(index.type, DenseTensorType):
            return None
        if index.type.ndim != 1 or index.type.dtype not in integer_dtypes:
            return None
        if index.type.dtype == "uint64":
            return None
        found[axis] = index
    has_one = any(index.type.shape == (1,) for index in found.values())
    return None if not found or (has_one and len(found) > 1) else found


def _picked(node: Apply, source: View, known: Mapping[Variable, View]) -> View | None:
    arrays = index_arrays(node)
    if arrays is None or source != whole(source.array):
        return None
    first, found = min(arrays), list[Dimension]()
    for axis in range(len(source.dimensions)):
        if axis in arrays:
            index = arrays[axis]
            found.append(Picked(first, known.get(index) or whole(index)))
        else:
            found.append(SlicedAxis(axis if axis < first else axis - len(arrays) + 1))
    return View(source.array, tuple(found))


def is_write(node: Apply) -> bool:
    """Whether a kernel writes what a node writes, into an array or a copy of it."""
    op: Any = node.op
    if not all(isinstance(v.type, DenseTensorType) for v in (*node.inputs[:2], *node.outputs)):
        return False
    indices = index_arrays(node)
    array, value = node.inputs[:2]
    return (
        indices is not None
        and not getattr(op, "ignore_duplicates", False)
        and value.type.ndim == array.type.ndim - len(indices) + 1
        and array.type.dtype == node.outputs[0].type.dtype
        and value.type.dtype in (array.type.dtype, "float32", "float64")
        and (array.type.dtype == value.type.dtype or array.type.dtype.startswith("float"))
    )

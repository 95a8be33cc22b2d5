"""Rows that are joined, stacked, split, filled in and given other axes, at all steps at once."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.basic import Alloc, Join, MakeVector, Split
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, Shape, SpecifyShape, specify_shape
from pytensor.tensor.type_other import NoneTypeT

from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.passes.loops_to_ops.outside import Outside
from scanopt_cli.passes.push_out.hoisting import is_total

LAYOUTS = (Alloc, Join, JoinDims, MakeVector, Reshape, SpecifyShape, Split, SplitDims)
"""Ops that compute no number, but put entries elsewhere."""


def has_layout_for_all_steps(node: Apply, varying: set[Variable]) -> bool:
    """Whether `layout_for_all_steps` takes a node, one of `LAYOUTS`, of varying inputs."""
    match node.op:
        case Alloc():
            return varying.isdisjoint(node.inputs[1:]) and is_total(node)
        case Reshape() | SplitDims():
            rows, shape = node.inputs
            return (
                rows in varying
                and shape not in varying
                and (_asked(shape) is not None or isinstance(shape.owner_op, Shape))
            )
        case SpecifyShape():
            return varying.isdisjoint(node.inputs[1:])
        case Split():
            rows, lengths = node.inputs
            asked = _asked(lengths)
            return (
                rows in varying and lengths not in varying and asked is not None and -1 not in asked
            )
    return True


def layout_for_all_steps(node: Apply, outside: Outside) -> list[Any]:
    """Return what a node computes at all steps, one row for each."""
    match node.op:
        case Join(axis=axis):
            return [pt.join(axis + 1, *(outside.rows(part) for part in node.inputs))]
        case MakeVector(dtype=dtype):
            columns = [pt.expand_dims(outside.rows(v).astype(dtype), 1) for v in node.inputs]
            return [pt.join(1, *columns)]
        case Split(axis=axis, len_splits=count):
            rows, lengths = map(outside.of, node.inputs)
            made: Any = Split(count, axis + 1)(rows, lengths)
            return list(made) if isinstance(made, list) else [made]
        case SpecifyShape():
            rows, *lengths = map(outside.of, node.inputs)
            return [specify_shape(rows, (None, *map(_length, lengths)))]
        case Alloc():
            value, *lengths = map(outside.of, node.inputs)
            added = ["x"] * (len(lengths) - value.type.ndim + 1)
            spread = value.dimshuffle(0, *added, *range(1, value.type.ndim))
            return [pt.alloc(spread, outside.n_steps, *lengths)]
    rows = outside.of(node.inputs[0])
    lengths = _lengths_made(node, rows, outside)
    made = [rows.reshape((outside.n_steps, *lengths))]
    return outside.if_there_is_a_step(made) if any(map(_is_left_out, lengths)) else made


def _length(given: Any) -> Any:
    """Return a length that is asked for, ``None`` if it may be any."""
    return None if isinstance(given.type, NoneTypeT) else given


def _lengths_made(node: Apply, rows: Any, outside: Outside) -> list[Any]:
    """Return the lengths of a row once it has other axes."""
    before = [
        rows.shape[axis] if length is None else length
        for axis, length in enumerate(rows.type.shape)
    ][1:]
    match node.op:
        case JoinDims(start_axis=start, n_axes=count):
            joined = prod(before[start : start + count])
            return [*before[:start], joined, *before[start + count :]]
        case SplitDims(axis=start):
            return [
                *before[:start],
                *_asked_of(node, [before[start]], outside),
                *before[start + 1 :],
            ]
    return _asked_of(node, before, outside)


def _asked_of(node: Apply, before: Sequence[Any], outside: Outside) -> list[Any]:
    """Return the lengths that a node asks for.

    One that is left out is computed, which PyTensor cannot do of an array of no rows. It stays left
    out beside one that may be 0, which is an error of a step.
    """
    asked = _asked(node.inputs[1])
    if asked is None:
        vector = outside.of(node.inputs[1])
        return [vector[place] for place in range(vector.type.shape[0])]
    numbers = [length for length in asked if isinstance(length, int)]
    others = prod(length for length in numbers if length != -1)
    left = prod(before) // others if others and len(numbers) == len(asked) else -1
    found = [length if isinstance(length, int) else outside.of(length) for length in asked]
    return [left if _is_left_out(length) else length for length in found]


def _is_left_out(length: Any) -> bool:
    return isinstance(length, int) and length == -1


def _asked(shape: Any) -> list[Any] | None:
    """Return the lengths of which a shape is made, numbers where they are known.

    ``None`` if they are not known one by one, or one may be negative; -1 stands for what is left.
    """
    lengths = Lengths()
    if isinstance(shape, Constant):
        found: list[Any] = [int(length) for length in np.atleast_1d(shape.data)]
    elif isinstance(shape.owner_op, MakeVector):
        values = [(lengths.value_of(v), v) for v in shape.owner.inputs]
        if not all(value.is_constant or lengths.provably_le(0, value) for value, _ in values):
            return None
        found = [value.constant if value.is_constant else v for value, v in values]
    else:
        return None
    numbers = [length for length in found if isinstance(length, int)]
    is_told = numbers.count(-1) < 2 and all(number >= -1 for number in numbers)
    return found if is_told else None

"""How nodes compute the entries of small arrays: arithmetic, sums, and what only moves entries."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import reduce, singledispatch
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.ops import DeepCopyOp, ViewOp
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.scalar.basic import Add, Mul, Second
from pytensor.tensor.basic import Alloc, ARange, ExtractDiag, Eye, Join, MakeVector, Split
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
)
from pytensor.tensor.type import integer_dtypes

from scanopt_cli.ir.indexing import IN_BOUNDS, indices_of, is_full_slice
from scanopt_cli.passes.of_traced_loops.unroll_small.array_entries import (
    Entries,
    Symbolic,
    Unrolling,
    entrywise,
    filled,
    folded,
    read,
    vector,
)
from scanopt_cli.passes.of_traced_loops.unroll_small.choices import choices
from scanopt_cli.passes.of_traced_loops.unroll_small.linear_algebra import Found, of_matrices


@singledispatch
def entries_of(op: Op, node: Apply, known: Unrolling) -> Found:
    """Return the entries of the outputs of a node.

    Raises
    ------
    ValueError, IndexError
        If they are not known; or shapes do not fit, and the node raises an error when it runs.
    """
    return of_matrices(op, *_parts(node, known))


def _parts(node: Apply, known: Unrolling) -> list[Entries]:
    """Return the entries of all inputs of a node."""
    return [_part(variable, known) for variable in node.inputs]


def _part(variable: Variable, known: Unrolling) -> Entries:
    """Return the entries of an input.

    Raises
    ------
    ValueError
        If they are not known.
    """
    entries = known.entries(variable)
    if entries is None:
        raise ValueError("an operand is not known to be small")
    return entries


def _integers(variable: Variable, known: Unrolling) -> list[int]:
    """Return the entries of an input as numbers.

    Raises
    ------
    ValueError
        If they are not known, or not all of them are constant integers.
    """
    entries = _part(variable, known)
    if not all(isinstance(v, Constant) and v.type.dtype in integer_dtypes for v in entries.flat):
        raise ValueError("an operand varies")
    return [int(v.data) for v in entries.flat]


def _check_small(shape: Sequence[int], known: Unrolling) -> None:
    """Check that a result is small, before its entries are made.

    Raises
    ------
    ValueError
        If it is not.
    """
    if not known.is_small(shape):
        raise ValueError("the result is large")


@entries_of.register
def _elemwise(op: Elemwise, node: Apply, known: Unrolling) -> Found:
    parts = _parts(node, known)
    if isinstance(op.scalar_op, Second):
        return np.broadcast_arrays(*parts)[1:]
    _check_small(np.broadcast_shapes(*(part.shape for part in parts)), known)
    scalar = Elemwise(op.scalar_op)
    if len(node.outputs) == 1:
        return [entrywise(lambda *entries: folded(scalar(*entries)), *parts)]
    nodes = entrywise(scalar.make_node, *parts)
    return [entrywise(lambda node, i=i: node.outputs[i], nodes) for i in range(len(node.outputs))]


@entries_of.register
def _reduction(op: CAReduce, node: Apply, known: Unrolling) -> Found:
    part = _part(node.inputs[0], known)
    axes = tuple(range(part.ndim)) if op.axis is None else op.axis
    kept = [axis for axis in range(part.ndim) if axis not in axes]
    rows = part.transpose([*kept, *axes]).reshape(*(part.shape[axis] for axis in kept), -1)
    dtype = op.acc_dtype
    if dtype is not None:
        rows = entrywise(lambda term: pt.cast(term, dtype), rows)
    made = np.empty(rows.shape[:-1], dtype=object)
    for place in np.ndindex(*made.shape):
        made[place] = _combined(op.scalar_op, list(rows[place]))
    return [made]


def _combined(scalar: Any, terms: Sequence[Symbolic]) -> Symbolic:
    """Return what a commutative scalar Op makes of one term or more."""
    if isinstance(scalar, Add | Mul) and len(terms) > 1:
        return Elemwise(scalar)(*terms)
    return reduce(Elemwise(scalar), terms)


@entries_of.register
def _dimshuffle(op: DimShuffle, node: Apply, known: Unrolling) -> Found:
    part = _part(node.inputs[0], known)
    left = [axis for axis in range(part.ndim) if axis not in op.drop]
    moved = part.squeeze(tuple(op.drop)).transpose(
        [left.index(axis) for axis in op.new_order if axis != "x"]
    )
    return [moved.reshape([1 if axis == "x" else part.shape[axis] for axis in op.new_order])]


@entries_of.register(DeepCopyOp)
@entries_of.register(ViewOp)
@entries_of.register(SpecifyShape)
def _same(op: Op, node: Apply, known: Unrolling) -> Found:
    if isinstance(op, ViewOp) and type(op) is not ViewOp:
        raise ValueError("its derivative is not that of its entries")
    return [_part(node.inputs[0], known)]


@entries_of.register
def _shape(_op: Shape, node: Apply, known: Unrolling) -> Found:
    shape = _part(node.inputs[0], known).shape
    return [vector([pt.constant(n, dtype="int64") for n in shape])]


@entries_of.register
def _length(op: Shape_i, node: Apply, known: Unrolling) -> Found:
    shape = _part(node.inputs[0], known).shape
    return [filled((), pt.constant(shape[op.i], dtype="int64"))]


@entries_of.register
def _reshape(_op: Reshape, node: Apply, known: Unrolling) -> Found:
    array, lengths = node.inputs
    return [_part(array, known).reshape(_integers(lengths, known))]


@entries_of.register
def _alloc(_op: Alloc, node: Apply, known: Unrolling) -> Found:
    value, *lengths = node.inputs
    shape = [n for length in lengths for n in _integers(length, known)]
    return [np.broadcast_to(_part(value, known), shape)]


@entries_of.register
def _eye(op: Eye, node: Apply, known: Unrolling) -> Found:
    rows, columns, offset = (_integers(v, known)[0] for v in node.inputs)
    _check_small((rows, columns), known)
    values = np.eye(rows, columns, offset)
    return [entrywise(lambda value: pt.constant(value, dtype=op.dtype), values)]


@entries_of.register
def _make_vector(_op: MakeVector, node: Apply, known: Unrolling) -> Found:
    return [vector([part[()] for part in _parts(node, known)])]


@entries_of.register
def _range(op: ARange, node: Apply, known: Unrolling) -> Found:
    values = range(*(_integers(bound, known)[0] for bound in node.inputs))
    _check_small((len(values),), known)
    return [vector([pt.constant(value, dtype=op.dtype) for value in values])]


@entries_of.register
def _join(op: Join, node: Apply, known: Unrolling) -> Found:
    return [np.concatenate(_parts(node, known), axis=op.axis)]


@entries_of.register
def _split(op: Split, node: Apply, known: Unrolling) -> Found:
    array, lengths = _part(node.inputs[0], known), _integers(node.inputs[1], known)
    if sum(lengths) != array.shape[op.axis]:
        raise ValueError("the lengths of the parts are wrong")
    return np.split(array, np.cumsum(lengths)[:-1], axis=op.axis)


@entries_of.register
def _extract_diagonal(op: ExtractDiag, node: Apply, known: Unrolling) -> Found:
    part = _part(node.inputs[0], known)
    return [np.diagonal(part, op.offset, op.axis1, op.axis2)]


@entries_of.register
def _subtensor(_op: Subtensor, node: Apply, known: Unrolling) -> Found:
    """Read from entries; an array that is in memory is read there by indices that vary."""
    in_memory = known.is_in_memory(node.inputs[0])
    with suppress(ValueError):
        return _pick(node, known, may_vary=not in_memory)
    indices = indices_of(node)
    while indices and is_full_slice(indices[-1]):
        indices.pop()
    array: Symbolic = known.array(node.inputs[0])
    shape = array.type.shape[len(indices) :]
    if not known.is_small(shape):  # where slices are left, it is not that of the output
        raise ValueError("what is read is not a small row")
    return [read(array, shape, [known.array(index) for index in indices])]


@entries_of.register
def _advanced_subtensor(_op: AdvancedSubtensor, node: Apply, known: Unrolling) -> Found:
    return _pick(node, known, may_vary=not known.is_in_memory(node.inputs[0]))


def _pick(node: Apply, known: Unrolling, *, may_vary: bool) -> Found:
    part = _part(node.inputs[0], known)
    places = choices(part, node, known, may_vary=may_vary)
    return [entrywise(lambda place: place.read(part), places)]


@entries_of.register(IncSubtensor)
@entries_of.register(AdvancedIncSubtensor)
def _write(op: Any, node: Apply, known: Unrolling) -> Found:
    array, value = (_part(v, known) for v in node.inputs[:2])
    masked = _write_by_mask(op, node, array, value, known)
    if masked is not None:
        return [masked]
    written = choices(array, node, known)
    flat = array.copy().reshape(-1)
    # Advanced indices may name a place twice: then both terms are added, or only the last.
    once = getattr(op, "ignore_duplicates", False)
    checks = list(dict.fromkeys(check for choice in written.flat for check in choice.checks))
    others = set(range(array.size))
    for choice, term in zip(written.flat, np.broadcast_to(value, written.shape).flat, strict=True):
        for place, is_it in choice.places():
            before = array.flat[place] if once else flat[place]
            new = term if op.set_instead_of_inc else pt.add(before, term)
            if is_it is not None:
                new = pt.switch(is_it, pt.cast(new, before.type.dtype), flat[place])
            flat[place] = new
            others.discard(place)
    # What is read of the result may be entries that no index chooses.
    for place in others if checks else ():
        flat[place] = IN_BOUNDS(flat[place], *checks)
    return [flat.reshape(array.shape)]


def _write_by_mask(
    op: Any, node: Apply, array: Entries, value: Entries, known: Unrolling
) -> Entries | None:
    """Write one number where a mask says, ``None`` if that is not what the node does."""
    index, *rest = indices_of(node)
    is_mask = isinstance(index, Variable) and index.type.dtype == "bool"
    mask = known.entries(index) if is_mask and not rest and value.size == 1 else None
    if mask is None or mask.shape != array.shape[: mask.ndim]:
        return None
    number = value.item()
    mask = mask.reshape(mask.shape + (1,) * (array.ndim - mask.ndim))

    def written(old: Symbolic, is_written: Symbolic) -> Symbolic:
        new = number if op.set_instead_of_inc else pt.add(old, number)
        return folded(pt.switch(is_written, pt.cast(new, old.type.dtype), old))

    return entrywise(written, array, mask)


@entries_of.register
def _blockwise(op: Blockwise, node: Apply, known: Unrolling) -> Found:
    parts = _parts(node, known)
    batches = [
        part.shape[: part.ndim - len(s)] for part, s in zip(parts, op.inputs_sig, strict=True)
    ]
    batch = np.broadcast_shapes(*batches)
    whole = [
        np.broadcast_to(part, (*batch, *part.shape[len(own) :]))
        for part, own in zip(parts, batches, strict=True)
    ]
    found = [
        of_matrices(op.core_op, *(part[(*place, ...)] for part in whole))
        for place in np.ndindex(*batch)
    ]
    return [
        np.stack(outputs).reshape((*batch, *outputs[0].shape))
        for outputs in zip(*found, strict=True)
    ]


@entries_of.register
def _graph(op: OpFromGraph, node: Apply, known: Unrolling) -> Found:
    """Compute the graph inside in place of the Op, unless the Op has a derivative of its own."""
    if op.pullback_overrides is not None or op.pushforward_overrides is not None:
        raise ValueError("its derivative is not that of the graph inside")
    _parts(node, known)  # raises unless all of them are small
    outputs = op.fgraph.bind(dict(zip(op.fgraph.inputs, node.inputs, strict=True)))
    known.compute(node.inputs, outputs)
    return [_part(output, known) for output in outputs]

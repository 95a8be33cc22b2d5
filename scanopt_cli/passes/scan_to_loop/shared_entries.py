"""Inputs of a batched Scan of which every entry of the batch is given the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytensor.tensor.basic import Alloc, AllocEmpty, alloc
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.subtensor import IncSubtensor, Subtensor, indices_from_subtensor

from scanopt_cli.analysis.count_variables import as_count
from scanopt_cli.analysis.lengths import Lengths

_DEEPEST = 20


def shared_entry(variable: Any, ndim: int, depth: int = 0) -> Any:
    """Return what each entry of a batch is given, if all are given the same; ``None`` if not known.

    That is so of what is broadcast along all ``ndim`` batch axes, and of what is computed of such
    alone: PyTensor gives all inputs of a batched loop the batch axes of one of them.
    """
    node = variable.owner
    op = None if node is None else node.op
    n_rest = variable.type.ndim - ndim
    if isinstance(op, DimShuffle) and op.new_order == (*("x",) * ndim, *range(n_rest)):
        return node.inputs[0]
    if all(variable.type.broadcastable[:ndim]):
        return variable[(0,) * ndim]
    if depth == _DEEPEST:
        return None
    if isinstance(op, Alloc):
        value, *shape = node.inputs
        n_batch = value.type.ndim - n_rest
        inside = value if n_batch <= 0 else shared_entry(value, n_batch, depth + 1)
        return None if inside is None else alloc(inside, *shape[ndim:])
    if isinstance(op, Subtensor):
        array = node.inputs[0]
        index = indices_from_subtensor(node.inputs[1:], op.idx_list)
        inside = shared_entry(array, ndim, depth + 1)
        is_whole = all(i == slice(None) for i in index[:ndim]) and len(index) >= ndim
        return None if inside is None or not is_whole else inside[index[ndim:]]
    if isinstance(op, Blockwise) and isinstance(op.core_op, IncSubtensor):
        return _initial_buffer(variable, ndim, depth)
    core: Any = op if isinstance(op, Elemwise) else None
    if isinstance(op, Blockwise) and op.batch_ndim(node) == ndim:
        core = op.core_op
    # Where the batches differ, it raises an error, which no entry alone does.
    if core is None or len(node.inputs) >= 10 or not _have_equal_batches(node.inputs, ndim):
        return None
    entries = [shared_entry(v, ndim, depth + 5) for v in node.inputs]
    if any(entry is None for entry in entries):
        return None
    return core.make_node(*entries).outputs[variable.index]


def _have_equal_batches(variables: Sequence[Any], ndim: int) -> bool:
    """Whether the batch axes of variables provably have equal lengths, but for those of 1."""
    lengths = Lengths()
    return all(
        len({lengths.length_of(v, axis) for v in variables if not v.type.broadcastable[axis]}) < 2
        for axis in range(ndim)
    )


def _initial_buffer(buffer: Any, ndim: int, depth: int) -> Any:
    """Return the initial buffer of a state, if all entries of the batch start with the same rows.

    What is behind the initial rows is never read.
    """
    node = buffer.owner
    whole, rows, *index = node.inputs
    core: Any = node.op.core_op
    is_empty = isinstance(getattr(whole.owner_op, "core_op", None), AllocEmpty)
    entries = [
        shared_entry(rows, ndim, depth + 1),
        *(shared_entry(v, v.type.ndim, depth + 1) for v in index),
    ]
    if not is_empty or not core.set_instead_of_inc or any(entry is None for entry in entries):
        return None
    start: Any = entries[0]
    room = as_count(Lengths().length_of(buffer, ndim))
    if room is None:
        return None
    empty: Any = AllocEmpty(buffer.type.dtype)(room, *start.shape[1:])
    return core.make_node(empty, *entries).outputs[0]

"""Inputs of a batched Scan of which every entry of the batch is given the same."""

from __future__ import annotations

from typing import Any

from pytensor.tensor.basic import Alloc, AllocEmpty, alloc
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle
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
    if isinstance(op, Blockwise) and op.batch_ndim(node) == ndim and len(node.inputs) < 10:
        entries = [shared_entry(v, ndim, depth + 5) for v in node.inputs]
        if all(entry is not None for entry in entries):
            core: Any = op.core_op
            return core.make_node(*entries).outputs[variable.index]
    return None


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

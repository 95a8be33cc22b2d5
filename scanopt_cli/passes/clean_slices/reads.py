"""Reads of rows: composed slices, and store-to-load forwarding through slices and writes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Sum
from pytensor.tensor.subtensor import Subtensor

from scanopt_cli.analysis.accesses.indices import RowIndex, axis_of, rows_index
from scanopt_cli.analysis.accesses.row_ranges import RowRange
from scanopt_cli.analysis.affine import ONE, AffineExpr
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.row_values import unexpanded
from scanopt_cli.ir.indexing import along, taken
from scanopt_cli.ir.interning import has_negative_zero
from scanopt_cli.passes.clean_slices.buffer_facts import BufferFacts, Write, filled, relative
from scanopt_cli.passes.clean_slices.canonical_slices import canonical_index, canonical_slice, cost
from scanopt_cli.passes.clean_slices.slice_chains import Chain, chains, sliced

# How many writes and slices one rewrite looks behind.
_WRITES = 64


def composed_slice(node: Apply, facts: BufferFacts) -> Variable | None:
    """Return a slice, or a chain of slices, as one simple slice or as the variable it slices."""
    axis = axis_of(node)
    if axis is None or not isinstance(node.op, Subtensor):
        return None
    for chain in chains(node, facts.lengths):
        index = chain.index(facts.lengths)
        if index is None:
            continue
        if chain.links > 1 or cost(index) < cost(rows_index(node, axis)):
            return taken(chain.array, axis, index)
    found = _stepped_row(node, axis, facts)
    return _of_any_length(node, axis) if found is None else found


def _stepped_row(node: Apply, axis: int, facts: BufferFacts) -> Variable | None:
    """Return a stepped slice that reads one row, as ``x[:-3:-2]`` does of 5, as a forward slice.

    PyTensor misreads a reversed slice of one row, see `canonical_slice`.
    """
    index, array = rows_index(node, axis), node.inputs[0]
    length = facts.lengths.length_of(array, axis)
    if not isinstance(index, slice) or not length.is_constant:
        return None
    parts = [_number(part) for part in (index.start, index.stop, index.step)]
    if parts[2] in (None, 0, 1, -1) or any(isinstance(part, Variable) for part in parts):
        return None
    taken_rows = range(length.constant)[slice(*parts)]
    if len(taken_rows) != 1:
        return None
    plain = canonical_slice(RowRange(AffineExpr(taken_rows[0]), ONE), length, facts.lengths)
    return None if plain is None else taken(array, axis, plain)


def _of_any_length(node: Apply, axis: int) -> Variable | None:
    """Compose a reversal with constant bounds that count from one end.

    The result reads the same rows, or raises, for every length.
    """
    inner = sliced(node.inputs[0], axis)
    if inner is None:
        return None
    (source, first), second = inner, rows_index(node, axis)
    index: Any = None
    if RowIndex(first).is_reversal and isinstance(second, Constant):
        index = -1 - int(second.data)
    elif RowIndex(first).is_reversal and isinstance(second, slice):
        index = _from_end(_number(second.start), _number(second.stop), second.step)
    elif isinstance(second, slice) and RowIndex(second).is_reversal:
        index = _to_end(_number(first.start), _number(first.stop), first.step)
    return None if index is None else taken(source, axis, index)


def _number(part: Any) -> Any:
    """Return a constant bound as a number, and any other bound as it is."""
    return int(part.data) if isinstance(part, Constant) else part


def _from_end(start: Any, stop: Any, step: Any) -> slice | None:
    """Compose ``[::-1][:k]`` or ``[::-1][k:]``."""
    if step is not None:
        return None
    if start in (None, 0) and isinstance(stop, int) and stop > 0:
        return _last(stop)
    if stop is None and isinstance(start, int) and start > 0:
        return slice(-start - 1, None, -1)
    return None


def _to_end(start: Any, stop: Any, step: Any) -> slice | None:
    """Compose ``[-k:][::-1]`` or ``[:-k][::-1]``."""
    if step is not None:
        return None
    if stop is None and isinstance(start, int) and start < 0:
        return _last(-start)
    if start in (None, 0) and isinstance(stop, int) and stop < 0:
        return slice(stop - 1, None, -1)
    return None


def _last(count: int) -> slice:
    """Return the slice of the last ``count`` rows, last row first.

    One row is read forwards, since PyTensor misreads a reversed slice of one row.
    """
    return slice(-1, None) if count == 1 else slice(None, -count - 1, -1)


def forwarded_load(node: Apply, facts: BufferFacts) -> Variable | None:
    """Return rows of a buffer as the written value, or as rows of the buffer before the write."""
    if not isinstance(node.op, Subtensor):
        return None
    for chain in chains(node, facts.lengths):
        found = _known_row(chain, node, facts)
        if found is None:
            found = _look_behind(chain, facts)
        if found is not None:
            return found
    return None


def _look_behind(chain: Chain, facts: BufferFacts) -> Variable | None:
    """Look behind writes to other rows, and forward the value of the first write to these rows.

    If that fails, return the read of the deepest buffer behind the writes to other rows.
    """
    past: list[Chain] = []
    here: Chain | None = chain
    for _ in range(_WRITES):
        if here is None:
            break
        write = facts.write(here.array.owner)
        if write is None or write.axis != here.axis:
            here = here.behind_slice(facts.lengths)
        elif facts.disjoint(here.rows, write.rows):
            here = replace(here, array=write.array)
            past.append(here)
        else:
            found = _forwarded(here, write, facts)
            if found is not None:
                return found
            break
    for there in reversed(past):
        index = there.index(facts.lengths)
        if index is not None:
            return taken(there.array, there.axis, index)
    return None


def _known_row(chain: Chain, node: Apply, facts: BufferFacts) -> Variable | None:
    """Return the value of a row read by an index, if it is known without reading the buffer."""
    if not chain.is_row:
        return None
    value = unexpanded(chain.array, chain.axis)
    if value is None:
        value = facts.known(chain.array, chain.axis, chain.rows)
    if value is None or has_negative_zero(value):
        return None
    out = node.outputs[0].type
    is_same = (value.type.ndim, value.type.dtype) == (out.ndim, out.dtype)
    return value if is_same else None


def _forwarded(chain: Chain, write: Write, facts: BufferFacts) -> Variable | None:
    asked = chain.rows
    if (write.is_aligned or not write.is_row) and facts.within(asked, write.rows):
        if not write.sets and not facts.is_zero(write.array, chain.axis, asked):
            return None
        read = _of_value if write.is_aligned else _of_scalar
        return read(chain, write, facts.lengths)
    if not chain.is_row and asked.covers(chain.length) and asked.is_reversed:
        return _reversed_write(chain, write, facts)
    return None


def _of_value(chain: Chain, write: Write, lengths: Lengths) -> Variable | None:
    """Return the rows of the written value that ``chain`` reads."""
    value: Any = write.value
    if write.is_row:
        if chain.is_row:
            return write.value
        return pt.expand_dims(value, chain.axis) if chain.rows.length == ONE else None
    rows, length = relative(chain.rows, write.rows), write.rows.length
    index = replace(chain, rows=rows, length=length).index(lengths)
    return None if index is None else taken(value, chain.axis, index)


def _of_scalar(chain: Chain, write: Write, _lengths: Lengths) -> Variable | None:
    """Return a known number of rows of a vector, to all of which one scalar was written."""
    value, length = write.value, chain.rows.length
    if write.array.type.ndim != 1 or value.type.ndim or write.is_cast or not length.is_constant:
        return None
    return None if chain.is_row else filled(value, [length.constant])


def _reversed_write(chain: Chain, write: Write, facts: BufferFacts) -> Variable | None:
    """Return a reversed buffer of zeros with one write as a write to the mirrored rows.

    A value of several rows must itself be a reversed slice, so that the two reversals cancel.
    """
    if write.is_cast or not facts.is_zero(write.array, chain.axis):
        return None
    low = chain.length - write.rows.high
    rows = RowRange(low, write.rows.length, write.rows.is_reversed)
    value: Any = write.value
    if write.order is not None:
        if not write.is_aligned:
            return None
        index = None if value.owner is None else rows_index(value.owner, chain.axis)
        if not isinstance(index, slice) or _number(index.step) != -1:
            return None
        value = taken(value, chain.axis, slice(None, None, -1))
    return written(write, rows, value, facts)


def written(write: Write, rows: RowRange, value: Any, facts: BufferFacts) -> Variable | None:
    """Return ``write``, but of ``value`` to ``rows``, by an index that goes forwards."""
    array: Any = write.array
    index: Any
    if write.is_row:
        index = canonical_index(rows.low, write.length)
    else:
        if rows.is_reversed and write.order is not None:
            value = taken(value, write.order, slice(None, None, -1))
        index = canonical_slice(replace(rows, is_reversed=False), write.length, facts.lengths)
    if index is None:
        return None
    place = array[along(write.axis, index)]
    made: Variable = place.set(value) if write.sets else place.inc(value)
    return made


def single_element(node: Apply, facts: BufferFacts) -> Variable | None:
    """Return a sum over axes of length 1, or a squeeze of such an axis, as the element."""
    if not isinstance(node.op, DimShuffle | Sum):
        return None
    source: Any = node.inputs[0]
    if isinstance(node.op, DimShuffle):
        return _squeezed(node, facts)
    axes = tuple(range(source.type.ndim)) if node.op.axis is None else node.op.axis
    ones = [axis for axis in axes if facts.lengths.length_of(source, axis) == ONE]
    if not ones:
        return None
    indices = [0 if axis in ones else slice(None) for axis in range(source.type.ndim)]
    while indices and indices[-1] == slice(None):
        indices.pop()
    rest = source[tuple(indices)]
    remaining = [axis - sum(one < axis for one in ones) for axis in axes if axis not in ones]
    if remaining:
        rest = Sum(axis=remaining, dtype=node.op.dtype, acc_dtype=node.op.acc_dtype)(rest)
    dtype = node.outputs[0].type.dtype
    found: Variable = rest if rest.type.dtype == dtype else rest.astype(dtype)
    return found


def _squeezed(node: Apply, facts: BufferFacts) -> Variable | None:
    """Return ``x[-1:].squeeze(0)`` as ``x[-1]``, and ``expand_dims(x, 0).squeeze(0)`` as ``x``."""
    source = node.inputs[0]
    dropped = [axis for axis in range(source.type.ndim) if axis not in node.op.new_order]
    if len(dropped) != 1 or not node.op.is_squeeze or source.owner is None:
        return None
    before = unexpanded(source, dropped[0])
    if before is not None:
        return before
    for chain in chains(source.owner, facts.lengths):
        if chain.axis == dropped[0] and not chain.is_row and chain.rows.length == ONE:
            index = canonical_index(chain.rows.low, chain.length)
            if index is not None:
                return taken(chain.array, chain.axis, index)
    return None

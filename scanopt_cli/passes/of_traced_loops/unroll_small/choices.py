"""Which entries of a small array a node reads or writes, where indices may vary from step to step.

An index of an axis of ``n`` entries has ``n`` values. Where it varies, an entry that is read is
chosen among ``n``, and each of ``n`` entries is written if the index is its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.basic import ScalarFromTensor
from pytensor.tensor.type import integer_dtypes

from scanopt_cli.ir.indexing import IN_BOUNDS, indices_of
from scanopt_cli.passes.of_traced_loops.unroll_small.array_entries import (
    Entries,
    Symbolic,
    Unrolling,
    entrywise,
    filled,
    vector,
)

_MOST = 64
"""Among how many entries a node may choose, all that it reads or writes together."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A place in an array: the ``first`` of the entries, row by row, and steps away from it.

    Each step has an index, how many values it has, and how far apart the places are.
    """

    first: int
    steps: tuple[tuple[Symbolic, int, int], ...] = ()

    @property
    def count(self) -> int:
        """How many places it may be."""
        return prod(n for _, n, _ in self.steps)

    def read(self, array: Entries) -> Symbolic:
        """Return the entry at the place."""
        if not self.steps:
            return array.flat[self.first]
        (index, n, stride), *rest = self.steps
        options = [Choice(self.first + stride * i, tuple(rest)).read(array) for i in range(n)]
        found = options.pop()
        for i, option in reversed([*enumerate(options)]):
            found = pt.switch(pt.eq(index, i), option, found)
        return found

    @property
    def checks(self) -> Iterator[Symbolic]:
        """What holds if each index is within bounds."""
        return (index.owner.inputs[1] for index, _, _ in self.steps)

    def places(self) -> Iterator[tuple[int, Symbolic]]:
        """Yield each place, and whether it is the one; ``None`` if it is the only one."""
        indices = (range(n) for _, n, _ in self.steps)
        for values in np.ndindex(*map(len, indices)):
            at = self.first
            holds = []
            for value, (index, _, stride) in zip(values, self.steps, strict=True):
                at += stride * value
                holds.append(pt.eq(index, value))
            yield at, reduce(pt.and_, holds) if holds else None


def choices(array: Entries, node: Apply, known: Unrolling, *, may_vary: bool = True) -> Entries:
    """Return the place of each entry that a node reads or writes by index.

    Where indices vary, the array counts as one of which entries are computed.

    Raises
    ------
    ValueError
        If indices vary, and may not; if the node would choose among many; or if it is not known
        how many entries it reads or writes.
    """
    indices: list[Any] = []
    varying: dict[int, Entries] = {}
    for axis, index in enumerate(indices_of(node)):
        constant = _constant(index, known)
        if constant is None:
            varying[axis] = _checked(_entries(index, known), array.shape[axis])
            constant = np.zeros(varying[axis].shape, dtype=int)
        indices.append(constant)
    made = entrywise(Choice, np.asarray(_positions(array.shape)[tuple(indices)]))
    if not varying:
        return made
    # A mask is an index of several axes.
    if not may_vary or any(getattr(index, "dtype", None) == np.bool_ for index in indices):
        raise ValueError("an index varies")
    for axis, entries in varying.items():
        # Which of the indices picks an entry: those of an axis that is as long as there are some.
        shape = (*array.shape[:axis], entries.size, *array.shape[axis + 1 :])
        count = np.arange(entries.size).reshape(-1, *(1,) * (array.ndim - axis - 1))
        places = [*indices[:axis], np.arange(entries.size).reshape(entries.shape)]
        picked_by = np.broadcast_to(count, shape)[(*places, *indices[axis + 1 :])]
        n, stride = array.shape[axis], prod(array.shape[axis + 1 :])
        steps = [(entries.flat[which], n, stride) for which in np.ravel(picked_by)]
        made = vector(
            [Choice(c.first, (*c.steps, step)) for c, step in zip(made.flat, steps, strict=True)]
        ).reshape(made.shape)
    if not made.size:
        raise ValueError("indices are checked, and pick nothing")
    if sum(choice.count for choice in made.flat) > _MOST:
        raise ValueError("the entries are chosen among many")
    known.n_arrays += 1
    return made


def _positions(shape: tuple[int, ...]) -> np.ndarray:
    """Return where in an array of a shape, row by row, each of its entries is."""
    return np.arange(prod(shape)).reshape(shape)


def _constant(index: Any, known: Unrolling) -> Any:
    """Return an index as a number, a slice or an array; ``None`` if it varies.

    Raises
    ------
    ValueError
        If it is a slice whose bounds vary, or an array that is not known to be small.
    """
    if isinstance(index, slice):
        return slice(*(_bound(part, known) for part in (index.start, index.stop, index.step)))
    if isinstance(index, Constant):
        return np.asarray(index.data)
    entries = _entries(index, known)
    if not all(isinstance(v, Constant) for v in entries.flat):
        return None
    return np.reshape([v.data for v in entries.flat], entries.shape)


def _bound(part: Any, known: Unrolling) -> int | None:
    found = None if part is None else _constant(part, known)
    if found is None and part is not None:
        raise ValueError("a bound of a slice varies")
    return None if found is None else int(found)


def _entries(index: Variable, known: Unrolling) -> Entries:
    """Return the entries of an index, which may be a scalar that was taken from a tensor."""
    if isinstance(index.type, ScalarType):
        node = index.owner
        if node is None or not isinstance(node.op, ScalarFromTensor):
            return filled((), pt.tensor_from_scalar(known.array(index)))
        index = node.inputs[0]
    entries = known.entries(index)
    if entries is None or not all(v.type.dtype in integer_dtypes for v in entries.flat):
        raise ValueError("an index is not known to be small, or a mask")
    return entries


def _checked(entries: Entries, n: int) -> Entries:
    """Return indices of an axis of ``n`` entries as they count from the front, each checked.

    Raises
    ------
    ValueError
        If the axis has one entry, whatever the index, or an index does not fit into 64 bits.
    """
    if n < 2 or not all(np.can_cast(v.type.dtype, np.int64) for v in entries.flat):
        raise ValueError("an index is not checked by a choice")

    def checked(entry: Symbolic) -> Symbolic:
        number = pt.cast(entry, "int64")
        front = pt.switch(number < 0, number + n, number)
        return IN_BOUNDS(front, pt.and_(front >= 0, front < n))

    return entrywise(checked, entries)

"""What stands for a variable while code is written: a number, an array, or what Numba knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numba
import numpy as np
from numba.core import cgutils, types

type Length = int | Any
"""A number of entries or bytes: an integer if it is known, else an instruction of 64 bits."""

_RECORD: Any = types.MemInfoPointer(types.voidptr)


@dataclass(eq=False, slots=True)
class Memory:
    """A block of memory with a count of references.

    Attributes
    ----------
    info
        Numba's record of it, which counts the references; or a value of Numba's that has some.
    kind
        Numba's type of that.
    is_owned
        Whether the code holds a reference, which it gives up when nothing needs the block.
    n_users
        How many values that are needed later are in it.
    buffer
        The buffer of a loop that holds it, which is free when the memory has no users.
    within
        Memory of which this is a part, as a function of PyTensor's returned it.
    """

    info: Any
    is_owned: bool
    n_users: int = 0
    buffer: Buffer | None = None
    within: tuple[Memory, ...] = ()
    kind: Any = _RECORD


@dataclass(frozen=True, eq=False, slots=True)
class Number:
    """A number in a register; of an array, its only entry."""

    code: Any
    dtype: np.dtype[Any]

    @property
    def numba_type(self) -> Any:
        """Numba's type of it."""
        return numba.from_dtype(self.dtype)


@dataclass(frozen=True, eq=False, slots=True)
class Array:
    """An array in memory.

    Attributes
    ----------
    data
        The pointer to its first entry.
    strides
        Bytes from one entry to the next, by axis.
    is_contiguous
        Whether its entries are known to follow each other in memory, the last axis first.
    """

    dtype: np.dtype[Any]
    data: Any
    shape: tuple[Length, ...]
    strides: tuple[Length, ...]
    memory: Memory
    is_contiguous: bool

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def numba_type(self) -> Any:
        """Numba's type of it."""
        return array_type(self.dtype, self.ndim, is_contiguous=self.is_contiguous)


@dataclass(eq=False, slots=True)
class Buffer:
    """The places of a pointer to memory, and of Numba's record of it.

    Of one that ``is_on_stack``, ``data`` is the pointer itself, since its memory never changes.
    ``shape`` is that of the arrays that it has room for, and ``form`` what buffers have in common
    that one may stand for the other.
    """

    data: Any
    info: Any
    shape: Sequence[Length]
    form: object = None
    is_on_stack: bool = False

    @classmethod
    def of(cls, builder: Any, array: Array) -> Buffer:
        """Return a buffer that holds the memory of an array."""
        return cls(
            cgutils.alloca_once_value(builder, array.data),
            cgutils.alloca_once_value(builder, array.memory.info),
            array.shape,
        )

    def has_size(self, shape: Sequence[Length]) -> bool:
        """Whether an array of this shape surely fills the memory, so that it is not a part."""
        return _size(shape) == _size(self.shape)

    def pointer(self, builder: Any) -> Any:
        """Return the pointer to the memory that it holds now."""
        return self.data if self.is_on_stack else builder.load(self.data)

    def hold(self, builder: Any, data: Any, info: Any) -> None:
        """Change what memory the buffer holds."""
        assert not self.is_on_stack
        builder.store(builder.bitcast(data, self.data.type.pointee), self.data)
        builder.store(info, self.info)

    def memory(self, builder: Any) -> Memory:
        """Return the memory that it holds now."""
        info = self.info if self.is_on_stack else builder.load(self.info)
        return Memory(info, is_owned=False, buffer=self)


def _size(shape: Sequence[Length]) -> tuple[int, list[int]]:
    """Return the product of the lengths that are known, and which the others are."""
    known = prod(n for n in shape if isinstance(n, int))
    return known, sorted(id(n) for n in shape if not isinstance(n, int))


@dataclass(frozen=True, eq=False, slots=True)
class Other:
    """What no rule reads: a generator, a list, a complex number."""

    code: Any
    numba_type: Any

    memory: Memory


@dataclass(frozen=True, eq=False, slots=True)
class Gathered:
    """Entries of an array that indices pick, read where they are.

    Attributes
    ----------
    shape
        The lengths of the axes.
    picked
        By dimension of the array, the indices, which are vectors of one length.
    axis
        The axis of the entries that are picked.
    """

    array: Array
    shape: tuple[Length, ...]
    picked: Mapping[int, Array | Number]
    axis: int
    memory: Memory


def array_type(dtype: Any, ndim: int, *, is_contiguous: bool) -> Any:
    """Return Numba's type of an array."""
    make: Any = types.Array
    return make(numba.from_dtype(np.dtype(dtype)), ndim, "C" if is_contiguous else "A")


type Value = Number | Array | Other | Gathered


def is_real(dtype: Any) -> bool:
    """Whether rules compute with numbers of a dtype: floats, integers, and truth values."""
    dtype = np.dtype(dtype)
    return dtype.kind in "biu" or dtype in (np.float32, np.float64)

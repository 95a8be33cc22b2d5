"""The instructions that all rules write: control, memory, numbers, and calls."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.np import arrayobj
from numba.np.numpy_support import as_dtype
from pytensor.configdefaults import config

from scanopt_cli.loop.codegen.hints import AccessGroup, hint, in_vectors, is_written_out
from scanopt_cli.loop.codegen.lengths import LengthWriter
from scanopt_cli.loop.codegen.number_functions import number_function
from scanopt_cli.loop.codegen.values import (
    Array,
    Gathered,
    Length,
    Memory,
    Number,
    Other,
    Value,
    is_real,
)

_BYTE = ir.IntType(8)
_ALIGNMENT = 32
_REORDERED = ("fadd", "fsub", "fmul")
# PyTensor's, but for the one that lets LLVM reorder: it puts last what is read in the step.
_IN_ORDER = ("arcp", "contract", "afn", "nsz")
NEGATIVE_LENGTH = "negative dimensions are not allowed"
_OTHER_SHAPE = "an array has another shape than its type says"


class Writer(LengthWriter):
    """Writes LLVM's instructions into a function that Numba compiles.

    Attributes
    ----------
    context
        Numba's target, which knows how values are represented.
    builder
        Where the next instruction goes.
    memo
        What PyTensor's functions for Ops remember in one compilation.
    functions
        The functions that are called, which must live as long as the code: Numba keeps the objects
        that their code refers to no longer than them.
    apart
        Functions of LLVM's that are written apart, by what they are written for.
    keeps_order
        Whether LLVM is to compute sums and products of numbers in the order that is written.
    """

    def __init__(self, context: Any, builder: Any, memo: Any, functions: list[Any]) -> None:
        self.context = context
        self.builder = builder
        self.memo = memo
        self.functions = functions
        self.keeps_order = False
        self.apart: dict[object, Any] = {}
        self._searched: dict[tuple[Any, tuple[Any, ...]], tuple[Any, Any]] = {}

    # Control.

    def fail_if(self, condition: Any, error: type[Exception], message: str) -> None:
        """Raise an error if a condition holds."""
        if isinstance(condition, ir.Constant) and not condition.constant:
            return
        with self.builder.if_then(condition, likely=False):
            self.context.call_conv.return_user_exc(self.builder, error, (message,))

    @contextmanager
    def loop(self, length: Length, *hints: Callable[[], Mapping[str, Any]]) -> Iterator[Length]:
        """Repeat what is written inside for each index below ``length``.

        ``hints`` are asked for when that is written.
        """
        if isinstance(length, int) and length == 1:
            yield 0
            return
        with cgutils.for_range(self.builder, self.code(length)) as loop:
            yield loop.index
            last = self.builder.basic_block
        hint(last.terminator, *(more() for more in hints))

    def over_entries(
        self,
        shape: Sequence[Length],
        write: Callable[[Sequence[Length]], None],
        hints: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        """Write a loop for each axis, the last one innermost; ``write`` is given the indices.

        ``hints`` are of the innermost loops, of which there may be several, for parts of an axis.
        """

        if is_written_out(shape):
            for at in np.ndindex(*shape):
                write(at)
            return

        def nest(indices: list[Length]) -> None:
            if len(indices) == len(shape):
                write(indices)
                return
            length = shape[len(indices)]
            if len(indices) < len(shape) - 1:
                with self.loop(length) as index:
                    nest([*indices, index])
                return
            for first, count, own in in_vectors(length):
                with self.loop(count, partial(dict, own), hints) as index:
                    nest([*indices, self.add(index, first)])

        nest([])

    def where(self, condition: Any, write: Callable[[], None]) -> None:
        """Write what is done only where a condition holds."""
        if isinstance(condition, ir.Constant):
            return write() if condition.constant else None
        with self.builder.if_then(condition):
            write()
        return None

    def choose(self, condition: Any, one: Callable[[], None], other: Callable[[], None]) -> None:
        """Write ``one`` for where a condition holds, and ``other`` for where it does not."""
        if isinstance(condition, ir.Constant):
            return one() if condition.constant else other()
        with self.builder.if_else(condition) as (then, otherwise):
            with then:
                one()
            with otherwise:
                other()
        return None

    # Memory.

    def allocate(self, dtype: Any, shape: Sequence[Length]) -> Array:
        """Return an array of new memory."""
        dtype = np.dtype(dtype)
        known = [n for n in shape if isinstance(n, int)]
        size: Length = dtype.itemsize
        for n in known:
            size *= n
        for n in shape:
            self.fail_if(self.is_less(n, 0), ValueError, NEGATIVE_LENGTH)
            if isinstance(n, int):
                continue
            made = self.builder.smul_with_overflow(self.code(size), n)
            self.fail_if(
                self.builder.extract_value(made, 1),
                ValueError,
                "array is too big; `arr.size * arr.dtype.itemsize` is larger than the maximum "
                "possible size.",
            )
            size = self.builder.extract_value(made, 0)
        nrt = self.context.nrt
        info = nrt.meminfo_alloc_aligned(self.builder, self.code(size), _ALIGNMENT)
        data = self.builder.bitcast(
            nrt.meminfo_data(self.builder, info), self.data_type(dtype).as_pointer()
        )
        memory = Memory(info, is_owned=True)
        return Array(dtype, data, tuple(shape), self.row_major(dtype, shape), memory, True)

    def copied(self, array: Array) -> Array:
        """Return a copy of an array."""
        made = self.allocate(array.dtype, array.shape)
        self.copy(array, made)
        return made

    def copy(self, array: Array, target: Array) -> None:
        """Copy the entries of an array into another one, which is contiguous and of its shape."""
        if array.is_contiguous:
            size = self.code(self.multiply(self.product(array.shape), array.dtype.itemsize))
            cgutils.raw_memcpy(self.builder, target.data, array.data, size, 1)
            return

        def put(at: Sequence[Length]) -> None:
            number = self.builder.load(self.entry(array, at))
            self.builder.store(number, self.entry(target, at))

        self.over_entries(array.shape, put)

    def row_major(self, dtype: np.dtype[Any], shape: Sequence[Length]) -> tuple[Length, ...]:
        """Return the strides of an array whose entries follow each other."""
        strides: list[Length] = []
        stride: Length = dtype.itemsize
        for n in reversed(shape):
            strides.insert(0, stride)
            stride = self.multiply(stride, n)
        return tuple(strides)

    def data_type(self, dtype: Any) -> Any:
        """Return the LLVM type of an entry in memory."""
        return self.context.get_data_type(numba.from_dtype(np.dtype(dtype)))

    def keep(self, value: Value) -> None:
        """Count a reference to the memory of a value."""
        if isinstance(value, Array | Other):
            self.context.nrt.incref(self.builder, value.numba_type, self.in_numba(value))

    def release(self, memory: Memory) -> None:
        """Give up the reference to a block of memory."""
        if memory.is_owned:
            self.context.nrt.decref(self.builder, memory.kind, memory.info)

    def entry(self, array: Array, indices: Sequence[Length]) -> Any:
        """Return the pointer to an entry."""
        data, rest = array.data, []
        size = array.dtype.itemsize
        whole: Length = 0
        for index, stride in zip(indices, array.strides, strict=True):
            if isinstance(stride, int) and stride % size == 0:
                whole = self.add(whole, self.multiply(index, stride // size))
            else:
                rest.append(self.multiply(index, stride))
        if rest:
            offset = rest[0]
            for more in rest[1:]:
                offset = self.add(offset, more)
            data = self.moved(data, offset)
        if isinstance(whole, int) and whole == 0:
            return data
        return self.builder.gep(data, [self.code(whole)])

    def moved(self, pointer: Any, offset: Length) -> Any:
        """Return a pointer moved by some bytes."""
        if isinstance(offset, int) and offset == 0:
            return pointer
        first = self.builder.bitcast(pointer, _BYTE.as_pointer())
        return self.builder.bitcast(self.builder.gep(first, [self.code(offset)]), pointer.type)

    def load(self, pointer: Any, dtype: np.dtype[Any], group: AccessGroup | None = None) -> Number:
        """Return the number at a pointer, in a read of a ``group``."""
        code = self.builder.load(pointer)
        if group is not None:
            group.add(code)
        if dtype == np.bool_:
            return Number(self.builder.icmp_unsigned("!=", code, code.type(0)), dtype)
        return Number(code, dtype)

    def store(
        self,
        number: Number,
        pointer: Any,
        dtype: np.dtype[Any],
        group: AccessGroup | None = None,
    ) -> None:
        """Write a number, as one of ``dtype``, where a pointer says, in a write of a ``group``."""
        code = self.cast(number, dtype).code
        if dtype == np.bool_:
            code = self.builder.zext(code, _BYTE)
        stored = self.builder.store(code, pointer)
        if group is not None:
            group.add(stored)

    def variable(self, number: Number) -> Any:
        """Return the place of a number that changes; LLVM keeps it in a register."""
        return cgutils.alloca_once_value(self.builder, number.code)

    # Numbers.

    def number(self, value: Any, dtype: Any) -> Number:
        """Return a number that is known."""
        dtype = np.dtype(dtype)
        kind = numba.from_dtype(dtype)
        return Number(self.context.get_constant(kind, dtype.type(value).item()), dtype)

    def cast(self, number: Number, dtype: Any) -> Number:
        """Return a number as one of another dtype, as Numba casts."""
        dtype = np.dtype(dtype)
        if number.dtype == dtype:
            return number
        if isinstance(number.code, ir.Constant) and number.dtype.kind in "iu":
            known = np.asarray(number.code.constant, number.dtype)
            return self.number(known.astype(dtype)[()], dtype)
        if dtype == np.bool_:
            # Numba's cast looks for `bool` among functions that are registered only for its own.
            return self.called(operator.ne, number, self.number(0, number.dtype))
        target = numba.from_dtype(dtype)
        code = self.context.cast(self.builder, number.code, number.numba_type, target)
        return Number(code, dtype)

    def length(self, number: Number) -> Length:
        """Return an integer as a length."""
        code = self.cast(number, np.int64).code
        return code.constant if isinstance(code, ir.Constant) else code

    def count(self, length: Length) -> Number:
        """Return a length as an int64."""
        return Number(self.code(length), np.dtype(np.int64))

    def called(self, function: Any, *numbers: Number) -> Number:
        """Return a function of numbers that Numba has code for: of ``operator``, NumPy or math."""
        kinds = tuple(number.numba_type for number in numbers)
        code, signature = self._found(function, kinds)
        arguments = [
            self.context.cast(self.builder, number.code, number.numba_type, target)
            for number, target in zip(numbers, signature.args, strict=True)
        ]
        made = code(self.builder, arguments)
        is_reordered = isinstance(made, ir.Instruction) and made.opname in _REORDERED
        if self.keeps_order and is_reordered and not made.flags and config.numba__fastmath:
            made.flags = list(_IN_ORDER)  # an instruction without any is given all of PyTensor's
        return Number(made, np.dtype(as_dtype(signature.return_type)))

    def _found(self, function: Any, kinds: tuple[Any, ...]) -> tuple[Any, Any]:
        """Return what writes a function of numbers, and its signature; Numba searches for long."""
        if (function, kinds) not in self._searched:
            self._searched[function, kinds] = number_function(self.context, function, kinds)
        return self._searched[function, kinds]

    # What Numba's functions take and return.

    def in_numba(self, value: Value) -> Any:
        """Return a value as Numba represents it."""
        assert not isinstance(value, Gathered)
        if not isinstance(value, Array):
            return value.code
        made = self.context.make_array(value.numba_type)(self.context, self.builder)
        arrayobj.populate_array(
            made,
            data=value.data,
            shape=[self.code(n) for n in value.shape],
            strides=[self.code(n) for n in value.strides],
            itemsize=value.dtype.itemsize,
            meminfo=value.memory.info,
        )
        return made._getvalue()

    def from_numba(self, code: Any, kind: Any, *, is_owned: bool, shape: Any = ()) -> Value:
        """Return what Numba represents as a value.

        ``is_owned`` says whether it comes with a reference; ``shape`` are lengths that are known.
        """
        if isinstance(kind, types.Array) and is_real(as_dtype(kind.dtype)):
            view = self.context.make_array(kind)(self.context, self.builder, code)
            dtype = np.dtype(as_dtype(kind.dtype))
            found = cgutils.unpack_tuple(self.builder, view.shape, kind.ndim)
            lengths = self.checked(found, shape or (None,) * kind.ndim)
            is_contiguous = kind.layout == "C" or kind.ndim == 0
            strides = (
                self.row_major(dtype, lengths)
                if is_contiguous
                else cgutils.unpack_tuple(self.builder, view.strides, kind.ndim)
            )
            memory = Memory(view.meminfo, is_owned)
            return Array(dtype, view.data, tuple(lengths), tuple(strides), memory, is_contiguous)
        if isinstance(kind, types.Number | types.Boolean) and is_real(as_dtype(kind)):
            return Number(code, np.dtype(as_dtype(kind)))
        return Other(code, kind, Memory(code, is_owned, kind=kind))

    def checked(self, lengths: Sequence[Length], known: Sequence[int | None]) -> tuple[Length, ...]:
        """Return lengths, after a check that they are those that are known."""
        found = []
        for length, static in zip(lengths, known, strict=True):
            if static is not None:
                self.fail_if(self.differs(length, static), ValueError, _OTHER_SHAPE)
            found.append(length if static is None else static)
        return tuple(found)

    def call(
        self, function: Any, values: Sequence[Value], *, is_cached: bool = True
    ) -> list[Value]:
        """Call a function that Numba compiles, and return what it returns.

        ``is_cached`` says whether it may be kept on disk; else what calls it is not kept either.
        """
        self.functions.append(function)
        if not is_cached:
            self.context.add_dynamic_addr(self.builder, 0, info="called")
        typing = self.context.typing_context
        for register in () if hasattr(function, "py_func") else (self.context, typing):
            register.refresh()  # where PyTensor may just have registered the function
        kinds = tuple(value.numba_type for value in values if not isinstance(value, Gathered))
        kind = typing.resolve_value_type(function)
        signature = typing.resolve_function_type(kind, kinds, {})
        arguments = []
        for i, target in enumerate(signature.args):
            if isinstance(target, types.StarArgTuple | types.StarArgUniTuple):
                packed = [self.in_numba(value) for value in values[i:]]
                arguments.append(self.context.make_tuple(self.builder, target, packed))
            elif isinstance(target, types.Omitted):
                default = self.context.get_constant_generic(self.builder, target, target.value)
                arguments.append(default)
            else:
                given = self.in_numba(values[i])
                arguments.append(self.context.cast(self.builder, given, kinds[i], target))
        code = self.context.get_function(kind, signature)(self.builder, arguments)
        returned: Any = signature.return_type
        if not isinstance(returned, types.BaseTuple):
            return [self.from_numba(code, returned, is_owned=True)]
        several: Any = returned
        parts = cgutils.unpack_tuple(self.builder, code, len(several))
        return [
            self.from_numba(part, one, is_owned=True)
            for part, one in zip(parts, several.types, strict=True)
        ]

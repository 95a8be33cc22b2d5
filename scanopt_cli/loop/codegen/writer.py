"""The instructions that all rules write: lengths, memory, loops, errors, and calls."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.np import arrayobj
from numba.np.numpy_support import as_dtype

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

_LONG = ir.IntType(64)
_BYTE = ir.IntType(8)
_ALIGNMENT = 32
NEGATIVE_LENGTH = "negative dimensions are not allowed"
_COMPARED = {"<": operator.lt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne}
_OTHER_SHAPE = "an array has another shape than its type says"


class Writer:
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
    """

    def __init__(self, context: Any, builder: Any, memo: Any, functions: list[Any]) -> None:
        self.context = context
        self.builder = builder
        self.memo = memo
        self.functions = functions

    # Lengths: what is known is computed now.

    def code(self, length: Length) -> Any:
        """Return a length as an instruction."""
        return _LONG(length) if isinstance(length, int) else length

    def add(self, one: Length, other: Length) -> Length:
        """Return a sum of lengths."""
        if isinstance(one, int) and isinstance(other, int):
            return one + other
        if one == 0 and isinstance(one, int):
            return other
        if other == 0 and isinstance(other, int):
            return one
        return self.builder.add(self.code(one), self.code(other), flags=("nsw",))

    def subtract(self, one: Length, other: Length) -> Length:
        """Return a difference of lengths."""
        if isinstance(one, int) and isinstance(other, int):
            return one - other
        if isinstance(other, int) and other == 0:
            return one
        return self.builder.sub(self.code(one), self.code(other), flags=("nsw",))

    def multiply(self, one: Length, other: Length) -> Length:
        """Return a product of lengths."""
        if isinstance(one, int) and isinstance(other, int):
            return one * other
        for length, rest in ((one, other), (other, one)):
            if isinstance(length, int) and length in (0, 1):
                return rest if length else 0
        return self.builder.mul(self.code(one), self.code(other), flags=("nsw",))

    def product(self, lengths: Sequence[Length]) -> Length:
        """Return the product of lengths."""
        found: Length = 1
        for length in lengths:
            found = self.multiply(found, length)
        return found

    def is_less(self, one: Length, other: Length) -> Any:
        """Return whether a length is less than another one, as a truth value."""
        return self._compared("<", one, other)

    def differs(self, one: Length, other: Length) -> Any:
        """Return whether lengths differ, as a truth value."""
        return self._compared("!=", one, other)

    def is_at_least(self, one: Length, other: Length) -> Any:
        """Return whether a length is not less than another one."""
        return self._compared(">=", one, other)

    def is_zero(self, length: Length) -> Any:
        """Return whether a length is 0."""
        return self._compared("==", length, 0)

    def quotient(self, one: Length, other: Length) -> Length:
        """Return how often one length, which is not negative, contains another, rounded down."""
        if isinstance(one, int) and isinstance(other, int):
            return one // other
        if isinstance(other, int) and other == 1:
            return one
        return self.builder.sdiv(self.code(one), self.code(other))

    def _compared(self, how: str, one: Length, other: Length) -> Any:
        if isinstance(one, int) and isinstance(other, int):
            return ir.IntType(1)(int(_COMPARED[how](one, other)))
        if one is other:
            return ir.IntType(1)(int(how in (">=", "==")))
        return self.builder.icmp_signed(how, self.code(one), self.code(other))

    def chosen(self, condition: Any, one: Length, other: Length) -> Length:
        """Return ``one`` if a condition holds, else ``other``."""
        if isinstance(condition, ir.Constant):
            return one if condition.constant else other
        return self.builder.select(condition, self.code(one), self.code(other))

    def smaller(self, one: Length, other: Length) -> Length:
        """Return the smaller one of two lengths."""
        return self.chosen(self.is_less(one, other), one, other)

    def larger(self, one: Length, other: Length) -> Length:
        """Return the larger one of two lengths."""
        return self.chosen(self.is_less(one, other), other, one)

    # Control.

    def fail_if(self, condition: Any, error: type[Exception], message: str) -> None:
        """Raise an error if a condition holds."""
        if isinstance(condition, ir.Constant) and not condition.constant:
            return
        with self.builder.if_then(condition, likely=False):
            self.context.call_conv.return_user_exc(self.builder, error, (message,))

    @contextmanager
    def loop(self, length: Length) -> Iterator[Length]:
        """Repeat what is written inside for each index below ``length``."""
        if isinstance(length, int) and length == 1:
            yield 0
            return
        with cgutils.for_range(self.builder, self.code(length)) as loop:
            yield loop.index

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
        made = Writer.allocate(self, array.dtype, array.shape)
        self.copy(array, made)
        return made

    def copy(self, array: Array, target: Array) -> None:
        """Copy the entries of an array into another one, which is contiguous and of its shape."""
        if array.is_contiguous:
            size = self.code(self.multiply(self.product(array.shape), array.dtype.itemsize))
            cgutils.raw_memcpy(self.builder, target.data, array.data, size, 1)
            return

        def nest(indices: list[Length]) -> None:
            if len(indices) == array.ndim:
                number = self.builder.load(self.entry(array, indices))
                self.builder.store(number, self.entry(target, indices))
                return
            with self.loop(array.shape[len(indices)]) as index:
                nest([*indices, index])

        nest([])

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

    def load(self, pointer: Any, dtype: np.dtype[Any]) -> Number:
        """Return the number at a pointer."""
        code = self.builder.load(pointer)
        if dtype == np.bool_:
            return Number(self.builder.icmp_unsigned("!=", code, code.type(0)), dtype)
        return Number(code, dtype)

    def store(self, number: Number, pointer: Any, dtype: np.dtype[Any]) -> None:
        """Write a number, as one of ``dtype``, where a pointer says."""
        code = self.cast(number, dtype).code
        if dtype == np.bool_:
            code = self.builder.zext(code, _BYTE)
        self.builder.store(code, pointer)

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
        typing = self.context.typing_context
        kinds = tuple(number.numba_type for number in numbers)
        kind = typing.resolve_value_type(function)
        signature = typing.resolve_function_type(kind, kinds, {})
        arguments = [
            self.context.cast(self.builder, number.code, number.numba_type, target)
            for number, target in zip(numbers, signature.args, strict=True)
        ]
        code = self.context.get_function(kind, signature)(self.builder, arguments)
        return Number(code, np.dtype(as_dtype(signature.return_type)))

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

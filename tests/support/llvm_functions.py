"""The functions that are written in LLVM, for Numba to call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core import cgutils, types
from numba.extending import intrinsic

from scanopt_cli.loop.llvm_math import OF_VALUES
from scanopt_cli.loop.llvm_values import Value, of_codes, replace_numbers


def in_llvm(function: Callable[[Value], Value]) -> Any:
    """Return what Numba calls for ``function`` of a number, or of a tuple, in one vector."""

    @intrinsic
    def code(_context: Any, argument: Any) -> Any:
        count = argument.count if isinstance(argument, types.UniTuple) else None
        kind = types.float64 if count is None else types.UniTuple(types.float64, count)

        def made(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            if count is None:
                return function(Value(builder, arguments[0])).code
            numbers = cgutils.unpack_tuple(builder, arguments[0])
            return cgutils.pack_array(builder, of_codes(builder, function, numbers))

        return kind(kind), made

    return code


def in_place(function: Callable[[Value], Value]) -> Any:
    """Return what Numba calls to replace each number of an array, which is contiguous."""

    @intrinsic
    def code(_context: Any, array: Any) -> Any:
        def made(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            view = context.make_array(array)(context, builder, arguments[0])
            replace_numbers(builder, function, view.data, view.nitems)
            return context.get_dummy_value()

        is_contiguous = isinstance(array, types.Array) and array.layout == "C"
        if not is_contiguous or array.dtype != types.float64:
            raise TypeError("functions are computed in place of contiguous arrays of float64")
        return types.void(array), made

    return code


IN_LLVM = {name: in_llvm(function) for name, function in OF_VALUES.items()}
IN_PLACE = {name: in_place(function) for name, function in OF_VALUES.items()}

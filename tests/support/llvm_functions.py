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
        is_tuple = isinstance(argument, types.UniTuple)

        def made(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            if not is_tuple:
                return of_codes(builder, function, arguments)[0]
            numbers = cgutils.unpack_tuple(builder, arguments[0])
            return cgutils.pack_array(builder, of_codes(builder, function, numbers))

        return argument(argument), made

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
        if not is_contiguous or array.dtype not in (types.float32, types.float64):
            raise TypeError("functions are computed in place of contiguous arrays of floats")
        return types.void(array), made

    return code


IN_LLVM = {name: in_llvm(function) for name, function in OF_VALUES.items()}
IN_PLACE = {name: in_place(function) for name, function in OF_VALUES.items()}

"""Functions of LLVM that are called several times, in place of code written each time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from scanopt_cli.loop.codegen.writer import Writer

_LONG = ir.IntType(64)


def written_apart(
    writer: Writer, name: str, arguments: Sequence[Any], write: Callable[[Sequence[Any]], None]
) -> None:
    """Call a function that ``write`` writes, given what stands for its arguments.

    It is written once for arguments of a kind. What is known of them, lengths and conditions, is
    known inside. ``write`` writes nothing that raises an error. LLVM inlines a function that is
    called once, and what is written for known lengths alone is written in place.
    """
    given = [v for v in arguments if not isinstance(v, int | ir.Constant)]
    if not any(v.type == _LONG for v in given):
        return write(arguments)
    is_given = [not isinstance(v, int | ir.Constant) for v in arguments]
    kinds = (str(v.type if varies else v) for v, varies in zip(arguments, is_given, strict=True))
    key = (name, *kinds)
    function = writer.apart.get(key)
    if function is not None:
        function.attributes.add("noinline")
    else:
        outside = writer.builder
        kind = ir.FunctionType(ir.VoidType(), [v.type for v in given])
        function = ir.Function(outside.module, kind, outside.module.get_unique_name(name))
        function.linkage = "internal"
        own = iter(function.args)
        writer.builder = ir.IRBuilder(function.append_basic_block())
        write([next(own) if varies else v for v, varies in zip(arguments, is_given, strict=True)])
        writer.builder.ret_void()
        writer.builder = outside
        writer.apart[key] = function
    writer.builder.call(function, given)
    return None

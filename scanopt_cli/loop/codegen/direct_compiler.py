"""Numba's compiler for a function whose code is written at once, without what that does not need.

Before Numba compiles a function it registers all that it could compile with: some fifty modules of
lists, dictionaries, strings and random draws, and thousands of functions. Then it looks for the
types of all variables. The function of a graph (`functions`) is one call of what writes its code,
which knows the types. So this compiler asks it for them, and lets it write into a function that
Numba makes for these types, and wraps and links as ever. What the code calls besides, Numba
compiles by its own compiler, which registers everything first.

Numba also makes a wrapper for callers in C, by which functions are handed around as values. No
signature of such a value has a tuple of all arguments, which this form of function takes, so it is
left out. And before Numba optimizes all functions together it optimizes each alone: to simplify
what it writes at length, and to drop pairs of references. The wrapper for callers in Python is
short and runs once a call, so it is optimized with all others only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from numba.core import cgutils
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase
from numba.core.compiler_machinery import FunctionPass, PassManager, register_pass
from numba.core.cpu import CPUContext
from numba.core.lowering import BaseLower
from numba.core.typed_passes import BaseNativeLowering, NoPythonBackend
from numba.core.untyped_passes import FixupArgs, TranslateByteCode

from scanopt_cli.ir.older_objects import older_objects_set_aside
from scanopt_cli.loop.codegen.number_functions import register_number_functions

type Code = Callable[..., tuple[Any, Callable[..., Any]]]
"""Returns the signature of a function for types of arguments, and what writes its code."""


class DirectCompiler(CompilerBase):
    """Compiles functions of the form ``def f(*args): return code(*args)``.

    Parameters
    ----------
    code
        What an intrinsic of Numba's is made of: given a typing context, which it does not use, and
        the types of arguments, it returns the signature and what writes the code.
    typing_context, target_context
        What Numba knows of types, and of a processor.
    others
        What else Numba gives a compiler.
    """

    def __init__(
        self, code: Code, typing_context: Any, target_context: Any, *others: Any, **named: Any
    ) -> None:
        contexts = _AsItIs(typing_context), _AsItIs(target_context)
        super().__init__(*contexts, *others, **named)
        register_number_functions(target_context)
        self.state.typingctx = typing_context
        self.state.targetctx.__class__ = _Target  # it is a copy, for this function
        self.state[_CODE] = code

    def compile_extra(self, func: Any) -> Any:
        """Compile a function, and look at nothing older for objects to collect."""
        with older_objects_set_aside():
            return super().compile_extra(func)

    def define_pipelines(self) -> list[Any]:
        """Return the steps of Numba's that are left, with the code's own in the middle."""
        steps = PassManager("direct")
        steps.add_pass(TranslateByteCode, "analyzing bytecode")
        steps.add_pass(FixupArgs, "fix up args")
        steps.add_pass(_WriteCode, "writing the code of a graph")
        steps.add_pass(NoPythonBackend, "nopython mode backend")
        steps.finalize()
        return [steps]


_CODE = "code_of_graph"
_WRAPPER = "wrapper"
"""The name of the module that Numba writes the wrapper for callers in Python into."""


class _AsItIs:
    """A context of Numba's that registers nothing more when a compiler is made."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def refresh(self) -> None:
        """Leave the context as it is."""


class _Target(CPUContext):
    """Numba's target, which looks once for what makes an array of a type of arrays.

    Numba asks for each array that it takes apart. It has none for its own arrays, and if it finds
    nothing it registers everything there is and looks again.
    """

    def get_function(self, fn: Any, sig: Any, _firstcall: bool = True) -> Any:
        """Return what writes a call of a function."""
        is_of_array = isinstance(fn, str) and fn == "__array__"
        return super().get_function(fn, sig, _firstcall=_firstcall and not is_of_array)


@register_pass(mutates_CFG=True, analysis_only=False)
class _WriteCode(FunctionPass):
    """Asks for the types and the code of a function, and lets Numba make and wrap it."""

    _name = "write_code_of_graph"

    def __init__(self) -> None:
        FunctionPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        """Write the function, for the types of arguments in ``state``."""
        (name,) = state.func_ir.arg_names
        (packed,) = state.args
        signature, write = state[_CODE](None, *packed.types)
        state.typemap = {f"arg.{name}": packed}
        state.calltypes = {}
        state.return_type = signature.return_type
        return bool(_Lowering(partial(_WrittenFunction, signature, write)).run_pass(state))


class _Lowering(BaseNativeLowering):
    """Numba's step from types to machine code, of one function."""

    _name: Any = "lower_code_of_graph"

    def __init__(self, lowering: Callable[..., Any]) -> None:
        super().__init__()
        self._lowering = lowering

    @property
    def lowering_class(self) -> Any:
        """What makes the function in LLVM's language."""
        return self._lowering

    def run_pass(self, state: Any) -> Any:
        """Write the function into a library that optimizes its wrapper once."""
        if state.library is None:
            state.library = state.targetctx.codegen().create_library(state.func_id.func_qualname)
            state.library.enable_object_caching()
            if type(state.library) is JITCodeLibrary:
                state.library.__class__ = _Library
        return super().run_pass(state)


class _Library(JITCodeLibrary):
    """Numba's collection of the functions that are compiled together."""

    def _optimize_functions(self, ll_module: Any) -> None:
        """Optimize each function alone that is written here, but for the wrapper."""
        ll_module.data_layout = self._codegen._data_layout
        if ll_module.name == _WRAPPER:
            return
        for function in ll_module.functions:
            if function.is_declaration:
                continue
            passes, builder = self._codegen._function_pass_manager()
            with self._recorded_timings.record(f"Function passes on {function.name!r}", builder):
                passes.run(function, builder)


class _WrittenFunction(BaseLower):
    """Makes a function in LLVM's language of what writes its code."""

    def __init__(
        self, signature: Any, write: Callable[..., Any], *others: Any, **named: Any
    ) -> None:
        super().__init__(*others, **named)
        self._signature = signature
        self._write = write

    def lower_normal_function(self, fndesc: Any) -> None:
        """Take the arguments apart, write the code, and return what it computes."""
        self.setup_function(fndesc)
        (packed,) = self.extract_function_arguments()
        self.pre_lower()
        count = len(self._signature.args)
        arguments = cgutils.unpack_tuple(self.builder, packed, count)
        made = self._write(self.context, self.builder, self._signature, arguments)
        kind = self._signature.return_type
        self.call_conv.return_value(
            self.builder, self.context.get_return_value(self.builder, kind, made)
        )
        self.post_lower()

    def create_cfunc_wrapper(self) -> None:
        """Make no wrapper for callers in C."""

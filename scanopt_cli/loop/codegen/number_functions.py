"""What Numba writes for functions of numbers, found without all else that it can compile.

Numba finds the code of a function once it has registered everything it knows, which takes longer
than to compile a short loop. Arithmetic of numbers needs little of it: the conversions of numbers,
and the operators and ufuncs themselves, which are looked up here. What is not found among them is
looked for as Numba does.
"""

from __future__ import annotations

from typing import Any

from numba.core import imputils, types
from numba.core.runtime.nrt import rtsys
from numba.core.typing import builtins as _operators  # noqa: F401  # they are registered by it
from numba.core.typing import mathdecl, npydecl, templates


def register_number_functions(context: Any) -> None:
    """Register with one of Numba's targets what writes arithmetic of numbers, and memory."""
    rtsys.initialize(context)
    from numba.cpython import builtins, mathimpl, numbers  # noqa: F401
    from numba.np import npyimpl

    for registry in (mathimpl.registry, npyimpl.registry, imputils.builtin_registry):
        context.install_registry(registry)


def number_function(context: Any, function: Any, kinds: tuple[Any, ...]) -> tuple[Any, Any]:
    """Return what writes a function of numbers of Numba's ``kinds``, and its signature."""
    typing = context.typing_context
    kind = _kind_of(function) if all(map(_is_number, kinds)) else None
    signature = None if kind is None else kind.get_call_type(typing, kinds, {})
    if signature is None:
        context.refresh()
        typing.refresh()
        kind = typing.resolve_value_type(function)
        signature = typing.resolve_function_type(kind, kinds, {})
    return context.get_function(kind, signature), signature


def _is_number(kind: Any) -> bool:
    return isinstance(kind, types.Number | types.Boolean)


def _kind_of(function: Any) -> Any:
    """Return the type of an operator or ufunc, which knows its signatures."""
    found: Any = None
    for registry in (npydecl.registry, mathdecl.registry, templates.builtin_registry):
        for value, kind in registry.globals:
            if value is function:
                found = kind if found is None else found.augment(kind)
    return found

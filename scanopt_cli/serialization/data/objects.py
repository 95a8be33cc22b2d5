"""Functions and classes that parameters of Ops refer to, by names of a closed table.

They are PyTensor's functions from types to types, classes of exceptions that checks raise, classes
of NumPy's numbers, and the gradients of a few Ops.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scanopt_cli.serialization.unpickler.allowlist import LAZY_OBJECTS, OBJECTS, Allowlist, Refusal

_OBJECTS: Mapping[str, Any] = {name: thing for (_, name), thing in OBJECTS.items()}
_NAMES: Mapping[int, str] = {id(thing): name for name, thing in _OBJECTS.items()}
_LAZY: Mapping[str, tuple[str, str]] = {name: (module, name) for module, name in LAZY_OBJECTS}
_ALLOWLIST = Allowlist(())


def object_name(thing: Any) -> str | None:
    """Return the name that files have for ``thing``; ``None`` if there is none."""
    if id(thing) in _NAMES:
        return _NAMES[id(thing)]
    place = (getattr(thing, "__module__", None), getattr(thing, "__qualname__", None))
    return place[1] if place in LAZY_OBJECTS else None


def named_object(name: Any) -> Any:
    """Return what files call ``name``.

    Raises
    ------
    ValueError
        If there is no such name, or its library is not installed.
    """
    if type(name) is str and name in _OBJECTS:
        return _OBJECTS[name]
    if type(name) is not str or name not in _LAZY:
        raise ValueError(f"{str(name)[:80]!r} is no function or exception that Ops refer to")
    found = _ALLOWLIST.resolve(*_LAZY[name])
    if isinstance(found, Refusal):
        raise ValueError(f"{name}: {found.reason}")
    return found

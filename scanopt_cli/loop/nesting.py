"""Nested tuples, lists and dictionaries of variables, as flat lists and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


def leaves(nest: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what a nest holds, each with its path: ``[0]['h']``. `None` holds nothing."""
    if isinstance(nest, dict):
        for key, part in nest.items():
            yield from leaves(part, f"{path}[{key!r}]")
    elif isinstance(nest, tuple | list):
        for position, part in enumerate(nest):
            yield from leaves(part, f"{path}[{position}]")
    elif nest is not None:
        yield path, nest


def rebuilt(nest: Any, values: Iterator[Any]) -> Any:
    """Return a nest of the form of ``nest`` that holds ``values``, in the order of `leaves`."""
    if isinstance(nest, dict):
        return {key: rebuilt(part, values) for key, part in nest.items()}
    if isinstance(nest, tuple | list):
        parts = [rebuilt(part, values) for part in nest]
        is_named = hasattr(nest, "_fields")
        return type(nest)(*parts) if is_named else type(nest)(parts)
    return None if nest is None else next(values)


def mapped(function: Callable[[Any], Any], nest: Any) -> Any:
    """Return a nest of what ``function`` returns for each leaf."""
    return rebuilt(nest, (function(leaf) for _, leaf in leaves(nest)))


def form(nest: Any) -> Any:
    """Return what two nests of the same form have in common: a star for each leaf."""
    return mapped(lambda _: "*", nest)

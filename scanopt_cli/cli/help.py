"""Commands whose help omits the types of flags and arguments: ``<bool>`` is of no use there."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup


class _Untyped:
    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, as Typer does, without the types that its help would print."""
        # A mixin: the other base class has the method.
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = ""
            elif param.param_type_name == "argument":
                # Typer passes ``ctx`` by name.
                param.display_type_rich = lambda ctx: None  # noqa: ARG005
        return params


class Command(_Untyped, TyperCommand):
    """A command."""


class Group(_Untyped, TyperGroup):
    """The program, with its commands."""

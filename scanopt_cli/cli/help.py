"""Commands whose help suits the terminal, and omits the types of flags and arguments.

``<bool>`` is of no use there. Nor are the ends of the lines of a docstring, which Typer keeps.
"""

from __future__ import annotations

import re
from inspect import cleandoc
from typing import Any

from typer.core import TyperCommand, TyperGroup

from scanopt_cli.cli.console import is_without_colour, out

_ENDS_OF_LINES = re.compile(r"(?<!\n)\n(?!\n)")


class _Untyped:
    help: str | None

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, as Typer does, as wide as the terminal and in its colours or in none."""
        from typer import rich_utils

        self.help = _ENDS_OF_LINES.sub(" ", cleandoc(self.help or ""))
        rich_utils.COLOR_SYSTEM = None if is_without_colour() else "auto"
        if out().file.isatty():
            rich_utils.MAX_WIDTH = out().width
        # A mixin: the other base class has the method.
        super().format_help(ctx, formatter)  # type: ignore[misc]

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, as Typer does, without the types that its help would print."""
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

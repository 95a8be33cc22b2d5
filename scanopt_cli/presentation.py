"""How results show themselves: in one line, as the text that their command prints, and as HTML.

What they say is in `scanopt_cli.reports`, which builds on the packages of the results. So it is
imported by name, when a result is first shown.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType


class Presented:
    """A result that shows itself, for the texts of `scanopt_cli.reports.result_reports`.

    A dataclass says ``repr=False``, so that it does not write out all of its fields.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return str(_reports().line(self))

    def __str__(self) -> str:
        return str(_reports().text(self))

    def __rich__(self) -> RenderableType:
        renderable: RenderableType = _reports().renderable(self)
        return renderable

    def _repr_html_(self) -> str:
        return str(_reports().html(self))


def line_of(result: Presented) -> str:
    """Return what a result says, in one line without its type."""
    return str(_reports().in_short(result))


def html_of(result: object) -> str:
    """Return a result, or several of one kind, as HTML for a notebook."""
    return str(_reports().html(result))


def show(result: Presented) -> None:
    """Print a result: in colour at a terminal, as plain text elsewhere."""
    _reports().show(result)


def _reports() -> Any:
    return import_module("scanopt_cli.reports.result_reports")

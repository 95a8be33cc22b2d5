"""Passes and their manuals, for a person at a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.markdown import Markdown
from rich.table import Table
from rich.text import Text

from scanopt_cli.pipeline.grammar import PRESETS
from scanopt_cli.pipeline.manual import Manual


def listing(manuals: Sequence[Manual]) -> RenderableType:
    """Return the passes, one on each line, and what the presets stand for."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("pass", no_wrap=True, style="bold")
    table.add_column("what it does")
    for manual in manuals:
        table.add_row(usage(manual), manual.summary)
    presets = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    presets.add_column("preset", no_wrap=True, style="bold")
    presets.add_column("stands for")
    for name, pipeline in PRESETS.items():
        presets.add_row(name, pipeline.replace(",", ", ") or "nothing")
    return Group(table, presets, Text("`scanopt passes NAME` prints a pass's manual."))


def page(manual: Manual) -> RenderableType:
    """Return the whole manual of one pass."""
    text = manual.text.replace("``", "`")
    return Group(Text(usage(manual), style="bold"), "", Markdown(text))


def usage(manual: Manual) -> str:
    """Return the pass as a pipeline names it, with the defaults of its options."""
    options = ",".join(f"{option.name}={option.default}" for option in manual.options)
    return f"{manual.name}{{{options}}}" if options else manual.name

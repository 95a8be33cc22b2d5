"""``scanopt passes``: the list of all passes, and the manual of one."""

from __future__ import annotations

from typing import Annotated

import typer

from scanopt_cli.cli.console import out
from scanopt_cli.cli.exits import ExitCode
from scanopt_cli.cli.options import Format, OutputFormat, complete_pipeline


def passes(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="A pass, or a preset.", autocompletion=complete_pipeline
        ),
    ] = None,
    output_format: OutputFormat = Format.RICH,
) -> ExitCode:
    """List the passes and presets, the passes of one preset, or print the manual of one pass."""
    from scanopt_cli.pipeline.grammar import PRESETS
    from scanopt_cli.pipeline.manual import manual, manuals
    from scanopt_cli.reports import passes_rich
    from scanopt_cli.reports.as_json import to_json
    from scanopt_cli.reports.passes_markdown import render as render_markdown

    found = manuals(name) if name is None or name in PRESETS else (manual(name),)
    match output_format:
        case Format.JSON:
            out().out(to_json("passes", {"passes": found}))
        case Format.MARKDOWN:
            out().out(render_markdown(found))
        case Format.RICH if name is None or name in PRESETS:
            out().print(passes_rich.listing(found))
        case Format.RICH:
            out().print(passes_rich.page(found[0]))
    return ExitCode.CLEAN

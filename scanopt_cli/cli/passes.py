"""``scanopt passes``: the list of all passes, and the manual of one."""

from __future__ import annotations

from typing import Annotated

import typer

from scanopt_cli.cli.completion import complete_pass
from scanopt_cli.cli.console import plug_in_warnings
from scanopt_cli.cli.exits import ExitCode
from scanopt_cli.cli.options import Format, OutputFormat
from scanopt_cli.cli.results import print_result


def passes(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="A pass, or a preset.", autocompletion=complete_pass),
    ] = None,
    output_format: OutputFormat = Format.RICH,
) -> ExitCode:
    """List the passes and presets, the passes of one preset, or print the manual of one pass."""
    from scanopt_cli.pipeline.grammar import PRESETS
    from scanopt_cli.pipeline.manual import manual, manuals
    from scanopt_cli.reports.passes_report import passes_report

    # Who asks for Markdown gets all manuals.
    whole = output_format is Format.MARKDOWN
    with plug_in_warnings():
        if name is None or name in PRESETS:
            found = manuals(name)
        else:
            found, whole = (manual(name),), True
    print_result(output_format, "passes", {"passes": found}, passes_report(found, whole=whole))
    return ExitCode.CLEAN

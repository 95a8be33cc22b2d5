"""``scanopt rules``: the list of what `check` looks for, and the manual of one rule."""

from __future__ import annotations

from typing import Annotated

import typer

from scanopt_cli.cli.completion import complete_rule
from scanopt_cli.cli.console import plug_in_warnings
from scanopt_cli.cli.exits import ExitCode
from scanopt_cli.cli.options import Format, OutputFormat
from scanopt_cli.cli.results import print_result


def rules(
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="CODE", help="A rule, by its code or its name.", autocompletion=complete_rule
        ),
    ] = None,
    output_format: OutputFormat = Format.RICH,
) -> ExitCode:
    """List the rules of `check`, or print the manual of one rule."""
    from scanopt_cli.reports.rules_report import rules_report
    from scanopt_cli.rules.rule_manuals import rule_manual, rule_manuals

    with plug_in_warnings():
        found = rule_manuals() if code is None else (rule_manual(code),)
    whole = code is not None or output_format is Format.MARKDOWN
    print_result(output_format, "rules", {"rules": found}, rules_report(found, whole=whole))
    return ExitCode.CLEAN

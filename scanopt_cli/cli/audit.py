"""``scanopt audit``: what a file refers to, and whether it would be loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scanopt_cli.cli.console import out
from scanopt_cli.cli.exits import ExitCode, finding
from scanopt_cli.cli.limits import limited
from scanopt_cli.cli.options import AllowPackages, Format, OutputFormat


def audit(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A pickle, plain or gzipped.")],
    output_format: OutputFormat = Format.RICH,
    allow_package: AllowPackages = None,
) -> ExitCode:
    """List what a file refers to, running none of it; exit 1 if loading would refuse it."""
    from scanopt_cli.reports import audit_markdown, audit_rich
    from scanopt_cli.reports.as_json import to_json
    from scanopt_cli.serialization.auditing import audit as audit_file

    with limited(file):
        report = audit_file(file, allow_packages=allow_package or ())
    match output_format:
        case Format.JSON:
            out().out(to_json("audit", report))
        case Format.MARKDOWN:
            out().out(audit_markdown.render(report))
        case Format.RICH:
            out().print(audit_rich.render(report))
    return finding(not report.safe)

"""``scanopt audit``: what a file refers to, and whether it would be loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scanopt_cli.cli.exits import ExitCode, finding
from scanopt_cli.cli.limits import limited
from scanopt_cli.cli.options import AllowPackages, Format, OutputFormat
from scanopt_cli.cli.results import print_result


def audit(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A graph file: .scanopt or a pickle.")
    ],
    output_format: OutputFormat = Format.RICH,
    allow_package: AllowPackages = None,
) -> ExitCode:
    """List what a file refers to, running none of it; exit 1 if loading would refuse it."""
    from scanopt_cli.reports.audit_report import audit_report
    from scanopt_cli.serialization.auditing import audit as audit_file

    with limited(file):
        report = audit_file(file, allow_packages=allow_package or ())
    print_result(output_format, "audit", report, audit_report(report))
    return finding(not report.safe)

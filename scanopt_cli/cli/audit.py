"""``scanopt audit``: what files refer to, and whether they would be loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scanopt_cli.cli.batch import Batch
from scanopt_cli.cli.exits import ExitCode, finding
from scanopt_cli.cli.file_work import Done, Task
from scanopt_cli.cli.graph_files import graph_files
from scanopt_cli.cli.limits import limited, patience
from scanopt_cli.cli.options import (
    AllowPackages,
    FilesFrom,
    Format,
    Jobs,
    ListFormat,
    ListOutputFormat,
)
from scanopt_cli.cli.results import json_of, print_blocks, print_result
from scanopt_cli.cli.session import Session
from scanopt_cli.serialization.files import Blob
from scanopt_cli.text import plural

if TYPE_CHECKING:
    from scanopt_cli.reports.as_json import JsonList
    from scanopt_cli.reports.document import Paragraph
    from scanopt_cli.serialization.auditing import AuditReport


def audit(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE|DIR...",
            help="Graph files (.scanopt or pickles), directories of them, or patterns.",
            show_default=False,
            readable=False,
        ),
    ] = None,
    files_from: FilesFrom = None,
    output_format: ListOutputFormat = ListFormat.RICH,
    jobs: Jobs = None,
    allow_package: AllowPackages = None,
) -> ExitCode:
    """List what files refer to, running none of it; exit 1 if loading would refuse any."""
    found = graph_files(files, files_from)
    is_one = files_from is None and list(found) == files and len(found) == 1
    json = json_of(output_format, "audit", is_one=is_one)
    task = _Auditing(is_one, json, output_format, tuple(allow_package or ()))
    summed = _Summed()
    batch = Batch(found, jobs, json)
    batch.run(lambda _path: task, summed.take)
    if not is_one and json is None and summed.files:
        print_blocks(Format(output_format.value), [summed.total()])
    return batch.finish()


@dataclass
class _Summed:
    """What is summed up of all files."""

    files: int = 0
    loaded: int = 0

    def take(self, _path: Path, is_safe: bool) -> None:
        """Add a file."""
        self.files += 1
        self.loaded += is_safe

    def total(self) -> Paragraph:
        """Return how many of the files would be loaded."""
        from scanopt_cli.reports.document import Paragraph

        return Paragraph(f"{self.loaded} of {plural(self.files, 'file')} would be loaded")


@dataclass(frozen=True, slots=True)
class _Auditing(Task[bool]):
    """What is done with a file: all is shown of one alone, of several what would be refused."""

    is_one: bool
    json: JsonList | None
    output_format: ListFormat
    allow_packages: tuple[str, ...]

    def work(self, _path: Path, files: Sequence[Blob], _title: str, /) -> Done[bool]:
        """Audit a file, print what was found, and return whether it would be loaded."""
        from scanopt_cli.reports.audit_report import audit_report
        from scanopt_cli.serialization.auditing import audit_blob

        (file,) = files
        with limited(file):
            report = audit_blob(file, allow_packages=self.allow_packages)
        if self.json is None:
            blocks = audit_report(report, only_refused=not self.is_one)
            print_result(Format(self.output_format.value), "audit", report, blocks)
        entry = None if self.json is None else self.json.entry(_entry(report))
        return Done(report.safe, entry, finding(not report.safe))

    def permissions(self) -> Session:
        """Return what may be loaded."""
        return Session(False, self.allow_packages)

    def patience(self, path: Path) -> float | None:
        """Return how many seconds it may take."""
        return patience(path, trust=False, only_read=True)


def _entry(report: AuditReport) -> dict[str, Any]:
    """Return a report as an entry in JSON; as in all of these, the file is its ``source``."""
    from scanopt_cli.reports.as_json import plain

    told = plain(report)
    return {"source": told.pop("path"), **told}

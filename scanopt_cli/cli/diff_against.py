"""``scanopt diff --against``: graph files beside what they are in git at a revision."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from scanopt_cli.cli.batch import Batch
from scanopt_cli.cli.console import out, tell
from scanopt_cli.cli.exits import ExitCode, finding
from scanopt_cli.cli.graph_files import graph_files
from scanopt_cli.cli.options import Format, GateFormat
from scanopt_cli.cli.pages import require_page, write_page
from scanopt_cli.cli.results import add_to_step_summary, print_blocks, print_json
from scanopt_cli.cli.session import Session, session
from scanopt_cli.errors import LoadError, ScanoptError
from scanopt_cli.serialization.files import read_bytes
from scanopt_cli.serialization.revisions import Blob, Revision, StoredFile

if TYPE_CHECKING:
    from scanopt_cli.diff.budgets import Budget
    from scanopt_cli.diff.file_diffs import FileDiff
    from scanopt_cli.page.contents.parts import Part


@dataclass(frozen=True, slots=True)
class _Pair:
    """A graph file, and what git has of it: each may be missing."""

    path: Path
    revision: Revision
    earlier: tuple[Path, StoredFile] | None
    exists: bool
    problem: ScanoptError | None = None


def diff_against(
    name: str,
    paths: Sequence[Path],
    limits: Budget | None,
    *,
    only_budget: bool,
    stat: bool,
    lines: int,
    names: bool,
    html: Path | None,
    output_format: GateFormat,
    trust: bool,
    allow_package: Sequence[str] | None,
) -> ExitCode:
    """Compare graph files with what they are at the revision ``name``, as `diff` was asked to."""
    from scanopt_cli.diff.file_diffs import FileDiff
    from scanopt_cli.reports import file_diffs_report

    pairs = _pairs(paths, name)
    require_page(html, [pair.path for pair in pairs])
    batch = Batch([pair.path for pair in pairs])
    parts: list[Part] = []
    for pair in pairs:
        with batch.attempt(pair.path):
            if pair.problem is not None:
                raise pair.problem
            found = _compared(
                pair,
                lambda *files: session(*files, trust=trust, allow_packages=allow_package),
                limits,
                parts if html is not None else None,
                names=names,
            )
            batch.results.append(found)
    diffs = [each for each in batch.results if isinstance(each, FileDiff)]
    _print(diffs, batch, name, output_format, stat=stat, lines=lines)
    if html is not None:
        write_page(html, parts, batch, verdict=file_diffs_report.total(diffs, name))
    is_over = any(each.violations for each in diffs)
    return batch.finish(finding(is_over or (not only_budget and any(d.is_other for d in diffs))))


def _pairs(paths: Sequence[Path], name: str) -> list[_Pair]:
    """Return the files that are named, and those in directories, here or in git, once each."""
    pairs: dict[Path, _Pair] = {}
    revisions: dict[str, Revision] = {}
    for path in paths:
        folder = os.path.realpath(path if os.path.isdir(path) else path.parent)
        revision = revisions.setdefault(folder, revisions.get(folder) or Revision.of(path, name))
        stored = revision.files(path)
        present = graph_files([path]) if os.path.isdir(path) else {}
        if os.path.isdir(path):
            # A directory may have graphs in git alone.
            present = {file: why for file, why in present.items() if file != path or not stored}
        elif os.path.lexists(path):
            present[path] = None
        if not (stored or present):
            where = f"neither here nor in {name}"
            raise ScanoptError(f"is {where}", where=str(path), hint="check the path")
        for file in sorted({*stored, *present}):
            earlier = (file, stored[file]) if file in stored else None
            pair = _Pair(file, revision, earlier, file in present, present.get(file))
            if earlier is None or not (earlier[1].is_link and file.is_symlink()):
                pairs[file] = pair
    return _renamed(list(pairs.values()))


def _renamed(pairs: list[_Pair]) -> list[_Pair]:
    """Return pairs in which a file that is new and has the content of one that is gone is both."""
    gone = {
        pair.earlier[1].oid: pair for pair in pairs if not pair.exists and pair.earlier is not None
    }
    found = []
    for pair in pairs:
        is_new = pair.earlier is None and pair.problem is None
        data = _content(pair.path) if gone and is_new else None
        oid = next((oid for oid in gone if data is not None and _holds(gone[oid], data)), None)
        found.append(pair if oid is None else replace(pair, earlier=gone.pop(oid).earlier))
    taken = {pair.earlier[0] for pair in found if pair.earlier is not None and pair.exists}
    return [pair for pair in found if pair.exists or pair.path not in taken]


def _content(path: Path) -> bytes | None:
    """Return what a file holds; if it cannot be read, that is told when it is compared."""
    try:
        return read_bytes(path)
    except LoadError:
        return None


def _holds(pair: _Pair, data: bytes) -> bool:
    return pair.earlier is not None and pair.earlier[1].holds(data)


def _compared(
    pair: _Pair,
    opened: Callable[..., AbstractContextManager[Session]],
    limits: Budget | None,
    parts: list[Part] | None,
    *,
    names: bool,
) -> FileDiff:
    """Return what became of a file. Graphs are loaded only if it is not enough to compare bytes."""
    from scanopt_cli.diff.file_diffs import FileDiff, FileFate

    path, source = pair.path, str(pair.path)
    if not pair.exists:
        return FileDiff(source=source, fate=FileFate.GONE)
    data = read_bytes(path)
    needs_graphs = limits is not None or parts is not None
    fate, before, earlier = FileFate.NEW, None, None
    if pair.earlier is not None:
        place, stored = pair.earlier
        is_renamed = place != path
        earlier = str(place) if is_renamed else None
        is_same = stored.holds(data)
        if needs_graphs or not is_same:
            before = pair.revision.read(place, stored)
            is_same |= before.data == data
        fate = FileFate.RENAMED if is_renamed else FileFate.SAME if is_same else FileFate.DIFFERS
    found = FileDiff(source=source, fate=fate, earlier=earlier)
    if fate is not FileFate.DIFFERS and not needs_graphs:
        return found

    from scanopt_cli.diff.budgets import check
    from scanopt_cli.diff.comparing import diff

    files: list[Path | Blob] = [path] if before is None else [before, path]
    with opened(*files) as work:
        graphs = [*map(work.load, files)]
        violations = check(limits, graphs[-1]) if limits is not None else ()
        found = replace(found, violations=violations)
        if len(graphs) == 2:
            told = diff(graphs[0], graphs[1], names=names)
            fate = FileFate.SAME if told.same and fate is FileFate.DIFFERS else fate
            found = replace(found, diff=told, fate=fate)
            if parts is not None:
                from scanopt_cli.page.contents.diff_page import Compared, diff_part

                compared = Compared(
                    found=told, violations=violations, graphs=(graphs[0], graphs[1])
                )
                parts.append(diff_part(compared, f"{before} → {path}"))
    return found


def _print(
    diffs: Sequence[FileDiff],
    batch: Batch,
    name: str,
    output_format: GateFormat,
    *,
    stat: bool,
    lines: int,
) -> None:
    from scanopt_cli.reports import file_diffs_report as report

    for found in diffs:
        for note in () if found.diff is None else found.diff.notes:
            tell(f"note: {found.source}: {note}")
    match output_format:
        case GateFormat.JSON:
            entries = [report.as_json(e) if e in diffs else e for e in batch.results]
            print_json("diff", {"against": name, "graphs": entries})
        case _ if not diffs:
            return  # each file has an error of its own
        case GateFormat.GITHUB:
            for line in report.workflow_commands(diffs, name):
                out().out(line)
            add_to_step_summary(report.file_diffs_report(diffs, name, stands_alone=True))
        case _:
            stands_alone = output_format is GateFormat.MARKDOWN
            blocks = report.file_diffs_report(
                diffs,
                name,
                stat=stat,
                lines=0 if stands_alone else lines,
                stands_alone=stands_alone,
            )
            print_blocks(Format(output_format.value), blocks)

"""``scanopt diff`` of several graphs: files beside what they were, in git or in a directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scanopt_cli.cli.batch import Batch
from scanopt_cli.cli.console import out, tell
from scanopt_cli.cli.exits import ExitCode, finding
from scanopt_cli.cli.file_work import Done, Task
from scanopt_cli.cli.graph_pairs import FilePair
from scanopt_cli.cli.limits import patience
from scanopt_cli.cli.options import Format, GateFormat
from scanopt_cli.cli.pages import require_page, write_page
from scanopt_cli.cli.results import add_to_step_summary, entries_of, print_blocks, print_json
from scanopt_cli.cli.session import Session, session
from scanopt_cli.cli.where import Where
from scanopt_cli.errors import LoadError, ScanoptError
from scanopt_cli.serialization.files import Blob, read_blob, read_bytes

if TYPE_CHECKING:
    from scanopt_cli.diff.budgets import Budget
    from scanopt_cli.diff.file_diffs import FileDiff
    from scanopt_cli.page.contents.parts import Part


def diff_files(
    pairs: Sequence[FilePair[Any]],
    name: str,
    limits: Budget | None,
    *,
    only_budget: bool,
    stat: bool,
    lines: int,
    names: bool,
    html: Path | None,
    output_format: GateFormat,
    where: Where,
    trust: bool,
    allow_package: Sequence[str] | None,
) -> ExitCode:
    """Compare graph files with what they were in ``name``, as `diff` was asked to."""
    from scanopt_cli.reports import file_diffs_report

    require_page(html, [pair.path for pair in pairs])
    tasks = {
        pair.path: _Comparing(
            pair, limits, names, html is not None, trust, tuple(allow_package or ())
        )
        for pair in pairs
    }
    found: dict[Path, FileDiff] = {}
    parts: list[Part] = []

    def take(path: Path, made: tuple[FileDiff, Part | None]) -> None:
        found[path] = made[0]
        if made[1] is not None:
            parts.append(made[1])

    # To compare bytes takes less than to have a worker do it.
    for path, task in tasks.items():
        if (told := task.by_bytes()) is not None:
            found[path] = told
    batch = Batch({pair.path: pair.problem for pair in pairs if pair.path not in found}, where)
    batch.run(tasks.__getitem__, take)
    diffs = [found[path] for path in tasks if path in found]
    _print(list(tasks), found, batch.failures, name, output_format, stat=stat, lines=lines)
    if html is not None:
        verdict = file_diffs_report.total(diffs, name)
        write_page(html, parts, batch.failures, verdict=verdict)
    is_over = any(each.violations for each in diffs)
    return batch.finish(finding(is_over or (not only_budget and any(d.is_other for d in diffs))))


def content(path: Path) -> bytes | None:
    """Return what a file holds; if it cannot be read, that is told when it is compared."""
    try:
        return read_bytes(path)
    except LoadError:
        return None


@dataclass(frozen=True, slots=True)
class _Comparing(Task[tuple["FileDiff", "Part | None"]]):
    """What is done with a pair; the names of variables count, and a page is drawn, if asked for."""

    pair: FilePair[Any]
    limits: Budget | None
    names: bool
    draws: bool
    trust: bool
    allow_packages: tuple[str, ...]

    def by_bytes(self) -> FileDiff | None:
        """Return what became of a file where that needs no graph, ``None`` where it does."""
        from scanopt_cli.diff.file_diffs import FileDiff, FileFate

        pair = self.pair
        if pair.problem is not None:
            return None
        if not pair.exists:
            return FileDiff(source=str(pair.path), fate=FileFate.GONE)
        if self._needs_graphs or (data := content(pair.path)) is None:
            return None
        try:
            before = self._before(data)
        except ScanoptError:  # that is told in its turn
            return None
        found = self._fate(Blob(str(pair.path), data), before)
        return None if found.fate is FileFate.DIFFERS else found

    def read(self, path: Path) -> Sequence[Blob]:
        """Return what a file was, if it was there, and the content of the file."""
        now = read_blob(path)
        before = self._before(now.data)
        return (now,) if before is None else (before, now)

    def work(
        self, path: Path, files: Sequence[Blob], _title: str, /
    ) -> Done[tuple[FileDiff, Part | None]]:
        """Compare a file with what it was."""
        from scanopt_cli.diff.budgets import check
        from scanopt_cli.diff.comparing import diff
        from scanopt_cli.diff.file_diffs import FileFate

        before = files[0] if len(files) > 1 else None
        found = self._fate(files[-1], before)
        if found.fate is not FileFate.DIFFERS and not self._needs_graphs:
            return Done((found, None))
        with session(*files, trust=self.trust, allow_packages=self.allow_packages) as work:
            graphs = [*map(work.load, files)]
            violations = check(self.limits, graphs[-1]) if self.limits is not None else ()
            found = replace(found, violations=violations)
            if len(graphs) == 1:
                return Done((found, None))
            told = diff(graphs[0], graphs[1], names=self.names)
            is_same = told.same and found.fate is FileFate.DIFFERS
            found = replace(found, diff=told, fate=FileFate.SAME if is_same else found.fate)
            if not self.draws:
                return Done((found, None))
            from scanopt_cli.page.contents.diff_page import Compared, diff_part

            compared = Compared(found=told, violations=violations, graphs=(graphs[0], graphs[1]))
            return Done((found, diff_part(compared, f"{before} → {path}")))

    @property
    def is_kept(self) -> bool:
        """Nothing is: differences are as large as graphs."""
        return False

    def permissions(self) -> Session:
        """Return what may be loaded."""
        return Session(self.trust, self.allow_packages)

    def patience(self, path: Path) -> float | None:
        """Return how many seconds it may take."""
        return patience(path, trust=self.trust)

    @property
    def _needs_graphs(self) -> bool:
        return self.limits is not None or self.draws

    def _before(self, data: bytes) -> Blob | None:
        """Return what a file was that holds ``data`` now; git is asked only where it must be."""
        earlier = self.pair.earlier
        if earlier is None:
            return None
        return Blob(str(earlier), data) if earlier.holds(data) else earlier.read()

    def _fate(self, now: Blob, before: Blob | None) -> FileDiff:
        """Return what became of a file, as far as its bytes tell."""
        from scanopt_cli.diff.file_diffs import FileDiff, FileFate

        source = str(self.pair.path)
        if before is None:
            return FileDiff(source=source, fate=FileFate.NEW)
        if self.pair.renamed is not None:
            return FileDiff(source=source, fate=FileFate.RENAMED, earlier=str(self.pair.renamed))
        is_same = before.facts == now.facts
        return FileDiff(source=source, fate=FileFate.SAME if is_same else FileFate.DIFFERS)


def _print(
    paths: Sequence[Path],
    found: Mapping[Path, FileDiff],
    failures: Mapping[Path, str],
    name: str,
    output_format: GateFormat,
    *,
    stat: bool,
    lines: int,
) -> None:
    from scanopt_cli.reports import file_diffs_report as report

    diffs = [found[path] for path in paths if path in found]
    for each in diffs:
        for note in () if each.diff is None else each.diff.notes:
            tell(f"note: {each.source}: {note}")
    match output_format:
        case GateFormat.JSON:
            entries = entries_of(paths, found, failures, report.as_json)
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

"""The work of ``scanopt optimize`` on one graph, and what is summed up of all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from shlex import join
from time import perf_counter
from typing import TYPE_CHECKING, Any

from scanopt_cli.cli.console import out, status, tell
from scanopt_cli.cli.exits import ExitCode, code_of
from scanopt_cli.cli.file_work import Done, Task
from scanopt_cli.cli.limits import patience
from scanopt_cli.cli.options import Format, ListFormat
from scanopt_cli.cli.results import print_blocks, print_to_stderr
from scanopt_cli.cli.session import Session, session
from scanopt_cli.errors import PassFailedError
from scanopt_cli.serialization.files import Blob, read_blob
from scanopt_cli.text import plural

if TYPE_CHECKING:
    from scanopt_cli.gates.passes_gate import PassesGate
    from scanopt_cli.ir.graph import Graph
    from scanopt_cli.page.contents.parts import Part
    from scanopt_cli.page.contents.stages import Stages
    from scanopt_cli.pipeline.contract import Pass
    from scanopt_cli.pipeline.optimizing import OptimizeResult, Snapshot
    from scanopt_cli.reports.as_json import JsonList
    from scanopt_cli.reports.check_totals import Tally
    from scanopt_cli.reports.document import Block
    from scanopt_cli.rules.graph_checking import CheckResult


class DiffKind(StrEnum):
    """How changes are shown."""

    TREE = "tree"
    STRUCTURAL = "structural"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What is printed of a result."""

    format: ListFormat
    diff: DiffKind
    stat: bool
    lines: int
    depth: int | None
    quiet: bool
    verbose: bool

    def blocks(
        self, graph: Graph, result: OptimizeResult, left: CheckResult, target: Path | None
    ) -> Iterable[Block]:
        """Yield the report of a result in which ``left`` is found, written to ``target``."""
        from scanopt_cli.reports.changes_report import changes_report
        from scanopt_cli.reports.check_report import finding_items
        from scanopt_cli.reports.document import Heading
        from scanopt_cli.reports.headline import headline
        from scanopt_cli.reports.optimize_report import next_steps, optimize_report

        if self.quiet:
            if left.findings:
                yield Heading(graph.source)
            yield from finding_items(left.findings, verbose=self.verbose)
            return
        changes: Iterable[Block] = ()
        if result.changed and (self.stat or self.diff is not DiffKind.NONE):
            changes = changes_report(
                graph,
                result.graph,
                structural=self.stat or self.diff is DiffKind.STRUCTURAL,
                depth=self.depth,
                lines=self.lines,
                stat=self.stat,
            )
        if self.stat:
            yield Heading(graph.source, headline(result, len(left.findings)))
            yield from changes
            return
        yield from optimize_report(
            graph.source, result, left.findings, tuple(changes), verbose=self.verbose
        )
        if self.format is ListFormat.RICH:
            written = None if target is None else (graph.source, str(target))
            yield from next_steps(result, left, written)


@dataclass(frozen=True, slots=True)
class Optimized:
    """What is summed up of a graph: what is found in the result, and by --check; the page."""

    is_changed: bool
    left: Tally
    gate: Tally | None
    part: Part | None


@dataclass
class Summed:
    """What is summed up of all graphs."""

    graphs: int = 0
    changed: int = 0
    left: Tally = field(default_factory=lambda: _no_graph())
    gate: Tally | None = None
    parts: list[Part] = field(default_factory=list)

    def take(self, _path: Path, one: Optimized) -> None:
        """Add a graph."""
        self.graphs += 1
        self.changed += one.is_changed
        self.left += one.left
        if one.gate is not None:
            self.gate = one.gate if self.gate is None else self.gate + one.gate
        if one.part is not None:
            self.parts.append(one.part)

    @property
    def lines(self) -> tuple[str, ...]:
        """How many graphs were changed, and what is left to be found in them."""
        from scanopt_cli.reports.check_totals import total

        return f"changed {self.changed} of {plural(self.graphs, 'graph')}", total(self.left)


def _no_graph() -> Tally:
    from scanopt_cli.reports.check_totals import Tally

    return Tally()


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizing(Task[Optimized]):
    """What is done with a graph."""

    passes: str
    gate: PassesGate | None
    verify: bool
    modes: tuple[str, ...]
    limit: int | None
    place: Path | None
    draws: bool
    code: bool
    print_changed: bool
    time_passes: bool
    shown: Shown
    json: JsonList | None
    trust: bool
    allow_packages: tuple[str, ...]

    @property
    def is_kept(self) -> bool:
        """Whether the same file leads to the same: not if times are shown, or passes print."""
        of_this_run = self.draws or self.time_passes or self.print_changed
        return self.permissions().is_strict and not of_this_run

    def read(self, path: Path) -> Sequence[Blob]:
        """Return the content of the file, with recorded values if it is verified."""
        return (read_blob(path, recorded=self.verify),)

    def work(self, path: Path, files: Sequence[Blob], title: str, /) -> Done[Optimized]:
        """Run the passes on a graph; print what they did, and write the result."""
        from scanopt_cli.pipeline.grammar import parse
        from scanopt_cli.pipeline.optimizing import optimize
        from scanopt_cli.reports.check_totals import Tally
        from scanopt_cli.rules.graph_checking import check
        from scanopt_cli.verification.modes import DEFAULT

        with session(*files, trust=self.trust, allow_packages=self.allow_packages) as work:
            with status(title, "optimizing") as show_progress:
                started = perf_counter()
                sequence, (graph,) = parse(self.passes), map(work.load, files)
                loaded = perf_counter()
                stages, changes = self._watches(graph)
                with _how_to_report(path, sequence):
                    result = optimize(
                        graph,
                        sequence,
                        verify=self.verify,
                        modes=self.modes or DEFAULT,
                        limit=self.limit,
                        watch=_watching(stages, changes),
                        progress=show_progress,
                    )
                optimized = perf_counter()
                left = check(result.graph)
                mendable = None if self.gate is None else self.gate.check(graph, path, sequence)
                seconds = {
                    "loading": loaded - started,
                    "optimizing": optimized - loaded,
                    "checking": perf_counter() - optimized,
                }
            if self.json is None:
                self._print(graph, result, left, mendable)
            if self.time_passes:
                print_to_stderr(_times(result))
            _print_warnings(path, result, self.limit)
            code = _code(path, result, self.place)
            written = _file_if_verified(result, self.place, trust=self.trust)
            part = (
                None
                if stages is None
                else self._part(path, result, left, mendable, stages, seconds)
            )
        found = Optimized(
            result.changed,
            Tally.of(left),
            None if mendable is None else Tally.of(mendable),
            part,
        )
        entry = _entry(path, result, left, mendable) if self.json is not None else {}
        told = None if self.json is None else self.json.entry(entry)
        return Done(found, told, code, written, is_kept=_is_the_same_each_time(result))

    def permissions(self) -> Session:
        """Return what may be loaded."""
        return Session(self.trust, self.allow_packages)

    def patience(self, path: Path) -> float | None:
        """Return how many seconds it may take."""
        from scanopt_cli.verification.verifying import TIMEOUT

        return patience(path, trust=self.trust, more=TIMEOUT if self.verify else 0)

    def _watches(self, graph: Graph) -> tuple[Stages | None, Callable[[Snapshot], None] | None]:
        """Return what keeps what each pass changes in a graph, and what prints it."""
        stages, changes = None, None
        if self.draws:
            from scanopt_cli.page.contents.stages import Stages

            stages = Stages(graph)
        if self.print_changed:
            from scanopt_cli.reports.changes_report import showing_changes

            changes = showing_changes(
                print_to_stderr,
                graph,
                structural=self.shown.diff is DiffKind.STRUCTURAL,
                depth=self.shown.depth,
                lines=self.shown.lines,
            )
        return stages, changes

    def _print(
        self,
        graph: Graph,
        result: OptimizeResult,
        left: CheckResult,
        mendable: CheckResult | None,
    ) -> None:
        from scanopt_cli.reports.check_report import gate

        form = Format(self.shown.format.value)
        print_blocks(form, self.shown.blocks(graph, result, left, self.place))
        if form is Format.MARKDOWN:
            out().out()  # the next file's heading is apart from the last item
        if mendable is not None:
            print_blocks(form, gate(Path(graph.source), mendable))

    def _part(
        self,
        path: Path,
        result: OptimizeResult,
        left: CheckResult,
        mendable: CheckResult | None,
        stages: Stages,
        seconds: Mapping[str, float],
    ) -> Part:
        from scanopt_cli.page.contents import optimize_page
        from scanopt_cli.page.contents.step_code import code_sections

        done = optimize_page.Optimized(
            result=result,
            left=left,
            mendable=mendable,
            stages=stages,
            seconds=dict(seconds),
            more=tuple(code_sections(result.graph)) if self.code else (),
        )
        return optimize_page.optimize_part(done, str(path))


def _watching(
    stages: Stages | None, changes: Callable[[Snapshot], None] | None
) -> Callable[[Snapshot], None] | None:
    """Return what is called after each pass that changes a graph: what keeps, and what prints."""
    watches = [*([stages.watch] if stages is not None else []), *([changes] if changes else [])]

    def watch(snapshot: Snapshot) -> None:
        for each in watches:
            each(snapshot)

    return watch if watches else None


def _is_the_same_each_time(result: OptimizeResult) -> bool:
    """Whether nothing failed, for which time or memory may be the reason."""
    from scanopt_cli.reports.remark_text import failures
    from scanopt_cli.verification.result import Verdict

    verification = result.verification
    could_run = verification is None or verification.verdict is not Verdict.COULD_NOT_RUN
    return could_run and not failures(result.passes)


def _times(result: OptimizeResult) -> Iterator[Block]:
    from scanopt_cli.reports.optimize_report import timings
    from scanopt_cli.reports.times_report import times_report

    yield timings(result.passes)
    if result.verification is not None and result.verification.times is not None:
        yield from times_report(result.verification.times)


def _entry(
    path: Path, result: OptimizeResult, left: CheckResult, found: CheckResult | None
) -> dict[str, Any]:
    """Return a result as an entry in JSON, with what --check ``found``."""
    from scanopt_cli.reports.as_json import plain

    check = {} if found is None else {"check": plain(found.findings)}
    return {"source": str(path), **plain(result), "findings": plain(left.findings), **check}


def _print_warnings(path: Path, result: OptimizeResult, limit: int | None) -> None:
    """Print warnings on stderr: of the graph, of passes that failed, of a limit that was met."""
    from scanopt_cli.reports.remark_text import failures, text_of

    for remark in result.warnings:
        tell(f"warning: {path}: {remark.scan}: {text_of(remark)}")
    failed = failures(result.passes)
    for remark in failed:
        tell(f"warning: {path}: {text_of(remark)} (pass {remark.pass_name}, {remark.scan})")
    if failed:
        tell(f"to report it, a script: {_reporting(path, result.pipeline)}")
    if limit is not None and sum(run.rewrites for run in result.passes) >= limit:
        tell(f"stopped after {plural(limit, 'rewrite')}, as --limit says")


@contextmanager
def _how_to_report(path: Path, passes: Sequence[Pass]) -> Iterator[None]:
    """Let the error of a pass that ends the work say how to report it."""
    from scanopt_cli.pipeline.grammar import print_pipeline

    try:
        yield
    except PassFailedError as error:
        how = f"a script that shows it: {_reporting(path, print_pipeline(passes))}"
        error.hint = f"{error.hint}; {how}" if error.hint else how
        raise


def _reporting(path: Path, pipeline: str) -> str:
    """Return the command that finds the rewrite and writes a script on which the pass fails."""
    words = ["scanopt", "bisect", str(path), "-p", pipeline, "--mode", "plain", "--repro", "bug.py"]
    return join(words)


def _file_if_verified(
    result: OptimizeResult, target: Path | None, *, trust: bool
) -> dict[Path, bytes]:
    """Return the file that a result is written to, unless its verification failed."""
    from scanopt_cli.serialization.saving import file_of

    if target is None or not (result.verification is None or result.verification.ok):
        return {}
    return {target: file_of(result.graph, target, trust=trust)}


def _code(source: Path, result: OptimizeResult, target: Path | None) -> ExitCode:
    """Return the exit code; tell of a verification that failed, after which nothing is written."""
    from scanopt_cli.verification.result import Verdict

    verification = result.verification
    if verification is not None and not verification.ok:
        kept = f"; {target} is not written" if target is not None else ""
        if verification.verdict is not Verdict.DIFFERS:
            outcome = "could not be verified"
        elif all(item.rewrite is not None for item in verification.differences):
            outcome = "makes PyTensor's rewrites fail, and the original does not"
        else:
            outcome = "differs from the original"
        tell(f"the result {outcome}{kept}")
        if verification.verdict is Verdict.DIFFERS:
            mode = next((item.mode for item in verification.differences if item.mode), "plain")
            words = ["scanopt", "bisect", str(source), "-p", result.pipeline, "--mode", mode]
            tell(f"which rewrite it is: {join(words)}")
        return code_of(verification.verdict)
    return ExitCode.CLEAN

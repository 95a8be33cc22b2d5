"""Check the graphs that are compiled while a test runs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytensor.compile.io import SymbolicOutput
from pytensor.configdefaults import config
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.errors import brief
from scanopt_cli.gates.known_findings import read_baseline
from scanopt_cli.integration.capture.hooks import FirstCall, listen, stop_listening
from scanopt_cli.integration.capture.origin import origin
from scanopt_cli.integration.scan_calls import begin, end
from scanopt_cli.ir.graph import GraphLike
from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.ir.scan_view import is_loop
from scanopt_cli.reports.check_report import told
from scanopt_cli.rules.graph_checking import Baseline, CheckResult, check
from scanopt_cli.rules.rule_contract import Finding
from scanopt_cli.rules.rule_registry import selected
from scanopt_cli.rules.settings import Settings, settings_from_pyproject


@dataclass(frozen=True)
class Codes:
    """The rules that a test is checked by: codes, or what they begin with."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()


@dataclass
class CheckSession:
    """What the tests of one process share: the settings, and what was found in each graph."""

    settings: Settings
    baseline: Baseline
    _results: dict[tuple[str, Codes], CheckResult] = field(default_factory=dict, init=False)

    @classmethod
    def of(cls, root: Path) -> CheckSession:
        """Return the session by ``[tool.scanopt.check]`` of the pyproject.toml at ``root``.

        Raises
        ------
        ScanoptError
            If the settings or the baseline cannot be read.
        """
        settings = settings_from_pyproject(root)
        return cls(settings, read_baseline(settings.baseline))

    def codes(self, path: Path, select: Sequence[str], ignore: Sequence[str]) -> Codes:
        """Return the rules for a test in the file ``path``: what it says itself, or the settings.

        Raises
        ------
        ScanoptError
            If a code is of no rule.
        """
        more = (*self.settings.ignore, *self.settings.ignored_in(path))
        found = Codes(tuple(select) or self.settings.select, (*ignore, *more))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            selected(found.select, found.ignore)
        return found

    def check(self, graph: GraphLike, codes: Codes) -> CheckResult:
        """Return what is found in a graph, which no warning disturbs."""
        with warnings.catch_warnings(), config.change_flags(traceback__limit=0):
            warnings.simplefilter("ignore")
            return check(graph, select=codes.select, ignore=codes.ignore, baseline=self.baseline)

    def check_once(self, graph: FunctionGraph, codes: Codes) -> CheckResult:
        """Return what is found in a graph; equal graphs are checked once."""
        key = digest(graph), codes
        if key not in self._results:
            self._results[key] = self.check(graph, codes)
        return self._results[key]


class CompilationCheck:
    """Keeps the graphs with loops that are compiled from `start` to `stop`, and checks them."""

    def __init__(self, session: CheckSession, codes: Codes) -> None:
        self.session = session
        self.codes = codes
        self._graphs: list[tuple[str, FunctionGraph]] = []
        self._failures: list[str] = []
        self._listens = False

    def start(self) -> None:
        """Keep what is compiled from now on."""
        if not self._listens:
            listen(self)
            begin()
            self._listens = True

    def stop(self) -> None:
        """Keep no more."""
        if self._listens:
            stop_listening(self)
            end()
            self._listens = False

    def compiling(
        self, fgraph: FunctionGraph, _outputs: Sequence[SymbolicOutput], name: str | None
    ) -> FirstCall | None:
        """Keep a copy of the graph if it has a loop: PyTensor rewrites the graph itself."""
        try:
            if any(is_loop(node) for node in walk(fgraph)):
                caller = origin()
                copied, _ = fgraph.clone_get_equiv(check_integrity=False, attach_feature=False)
                self._graphs.append((f"{caller.what(name)}, compiled at {caller.place}", copied))
        except Exception as error:
            self._failures.append(f"a graph could not be kept: {brief(error)}")
        return None

    def report(self) -> Report:
        """Return what is found in the graphs kept so far, which are dropped."""
        kept, self._graphs = self._graphs, []
        found: dict[str, tuple[Finding, ...]] = {}
        for title, graph in kept:
            try:
                result = self.session.check_once(graph, self.codes)
            except Exception as error:
                self._failures.append(f"{title} could not be checked: {brief(error)}")
                continue
            if result.findings:
                found[title] = (*found.get(title, ()), *result.findings)
        return Report(found, tuple(self._failures))


@dataclass(frozen=True)
class Report:
    """The findings by what was compiled, and what could not be checked."""

    findings: dict[str, tuple[Finding, ...]]
    failures: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.findings or self.failures)

    def lines(self) -> Iterator[str]:
        """Yield the findings as `scanopt check` tells them, below what was compiled."""
        codes = dict.fromkeys(f.code for found in self.findings.values() for f in found)
        yield f"scanopt check: {', '.join(codes) or 'failed'}"
        for title, findings in self.findings.items():
            yield f"  {title}"
            yield from (f"    {told(finding)}" for finding in findings)
        yield from (f"  {failure}" for failure in self.failures)

    def distinct(self) -> list[list[str]]:
        """Return the key and the text of each distinct finding, as workers send them."""
        every = (finding for findings in self.findings.values() for finding in findings)
        return [[key, text] for key, text in {f.key: told(f) for f in every}.items()]

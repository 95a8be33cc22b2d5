"""`optimize --check`: what `check` finds that the passes of a pipeline mend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from scanopt_cli.errors import ScanoptError
from scanopt_cli.gates.known_findings import read_baseline
from scanopt_cli.ir.graph import GraphLike
from scanopt_cli.pipeline.contract import Pass
from scanopt_cli.rules.graph_checking import Baseline, CheckResult, check
from scanopt_cli.rules.rule_registry import mended_by, selected
from scanopt_cli.rules.settings import Settings, settings_from_pyproject


@dataclass(frozen=True)
class PassesGate:
    """The rules that are looked for, the passes that mend them, and what the user ignores."""

    names: frozenset[str]
    codes: tuple[str, ...]
    settings: Settings
    baseline: Baseline = field(default_factory=dict)

    @classmethod
    def of(cls, passes: Sequence[Pass]) -> PassesGate:
        """Return the gate of a pipeline, by ``[tool.scanopt.check]`` of pyproject.toml.

        Raises
        ------
        ScanoptError
            If the passes mend what no rule looks for, or the settings cannot be read.
        """
        codes = mended_by(passes)
        if not codes:
            raise ScanoptError(
                "no rule is mended by these passes",
                where="--check",
                hint="`scanopt rules` says which passes mend what",
            )
        settings = settings_from_pyproject(Path.cwd())
        known = read_baseline(settings.baseline)
        return cls(frozenset(item.name for item in passes), codes, settings, known)

    def check(self, graph: GraphLike, path: Path) -> CheckResult:
        """Return the findings in the graph of a file that the passes mend."""
        ignored = (*self.settings.ignore, *self.settings.ignored_in(path))
        wanted = {rule.code for rule in selected(self.settings.select, ignored)}
        codes = [code for code in self.codes if code in wanted]
        if not codes:
            return CheckResult(())
        result = check(graph, select=codes, baseline=self.baseline)
        mended = [f for f in result.findings if f.fix is not None and f.fix.names <= self.names]
        return replace(result, findings=tuple(mended))

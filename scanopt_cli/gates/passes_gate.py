"""`optimize --check`: what `check` finds that the passes of a pipeline mend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from scanopt_cli.errors import ScanoptError
from scanopt_cli.gates.known_findings import read_baseline
from scanopt_cli.rules.settings import Settings, settings_from_pyproject

if TYPE_CHECKING:
    from scanopt_cli.ir.graph import GraphLike
    from scanopt_cli.pipeline.contract import Pass
    from scanopt_cli.rules.graph_checking import Baseline, CheckResult


@dataclass(frozen=True)
class PassesGate:
    """What the user ignores and what is known, by ``[tool.scanopt.check]`` of pyproject.toml."""

    settings: Settings
    baseline: Baseline = field(default_factory=dict)

    @classmethod
    def here(cls) -> PassesGate:
        """Return the gate by the settings in the working directory.

        Raises
        ------
        ScanoptError
            If the settings, or the lock file that they name, cannot be read.
        """
        settings = settings_from_pyproject(Path.cwd())
        return cls(settings, read_baseline(settings.baseline))

    def check(self, graph: GraphLike, path: Path, passes: Sequence[Pass]) -> CheckResult:
        """Return the findings in the graph of a file that the passes mend."""
        from scanopt_cli.rules.graph_checking import CheckResult, check
        from scanopt_cli.rules.rule_registry import mended_by, selected

        names = {item.name for item in passes}
        ignored = (*self.settings.ignore, *self.settings.ignored_in(path))
        wanted = {rule.code for rule in selected(self.settings.select, ignored)}
        codes = [code for code in mended_by(passes) if code in wanted]
        if not codes:
            return CheckResult(())
        result = check(graph, select=codes, baseline=self.baseline)
        mended = [f for f in result.findings if f.fix is not None and f.fix.names <= names]
        return replace(result, findings=tuple(mended))


def require_mended(passes: Sequence[Pass]) -> None:
    """Check that there are rules for what passes mend.

    Raises
    ------
    ScanoptError
        If there is none.
    """
    from scanopt_cli.rules.rule_registry import mended_by

    if not mended_by(passes):
        raise ScanoptError(
            "no rule is mended by these passes",
            where="--check",
            hint="`scanopt rules` says which passes mend what",
        )

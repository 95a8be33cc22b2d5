"""What `lock` and `status` share: which graphs they are about, and what is known of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from scanopt_cli.cli.console import plug_in_warnings
from scanopt_cli.cli.limits import patience
from scanopt_cli.cli.session import session
from scanopt_cli.serialization.revisions import Blob

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scanopt_cli.gates.lock_file import LockedGraph
    from scanopt_cli.rules.settings import Settings


@dataclass
class Looking:
    """Finds what is known of a graph, by the rules of ``[tool.scanopt.check]``.

    PyTensor is imported when the first graph is looked at. It is plain data, for workers.
    """

    trust: bool
    allow_packages: Sequence[str]
    _settings: Settings | None = field(default=None, init=False)

    def at(self, path: Path, data: bytes, budget: Mapping[str, int]) -> LockedGraph:
        """Return what is known of the graph in a file, whose content is ``data``.

        Raises
        ------
        ScanoptError
            If it holds no graph, or the settings cannot be read.
        """
        from scanopt_cli.gates.locking import locked_graph

        settings = self._checked_settings()
        ignore = (*settings.ignore, *settings.ignored_in(path))
        file = Blob(str(path), data)
        with session(file, trust=self.trust, allow_packages=self.allow_packages) as work:
            graph = work.load(file)
            return locked_graph(graph, data, select=settings.select, ignore=ignore, budget=budget)

    def patience(self, path: Path) -> float | None:
        """Return how many seconds it may take for a file."""
        return patience(path, trust=self.trust)

    def _checked_settings(self) -> Settings:
        if self._settings is None:
            from scanopt_cli.rules.rule_registry import selected
            from scanopt_cli.rules.settings import settings_from_pyproject

            self._settings = settings_from_pyproject(Path.cwd())
            with plug_in_warnings():
                selected(self._settings.select, self._settings.ignore)
        return self._settings


def limits_of_all() -> Mapping[str, int]:
    """Return the budget in pyproject.toml, which holds for every graph; PyTensor if there is one.

    Raises
    ------
    ScanoptError
        If the file cannot be read, or its table is not a budget.
    """
    from scanopt_cli.serialization.pyproject import table_in_pyproject

    if table_in_pyproject(Path.cwd(), "budget") is None:
        return {}
    from scanopt_cli.diff.budgets import budget_from_pyproject

    return budget_from_pyproject(Path.cwd()) or {}

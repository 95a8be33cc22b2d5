"""What `lock` and `status` share: which graphs they are about, and what is known of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scanopt_cli.cli.console import plug_in_warnings
from scanopt_cli.cli.limits import patience
from scanopt_cli.cli.session import Session, session
from scanopt_cli.serialization.files import Blob

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scanopt_cli.gates.lock_file import LockedGraph
    from scanopt_cli.rules.settings import Settings


@dataclass(frozen=True, slots=True)
class Looking:
    """Finds what is known of a graph, by the rules of ``[tool.scanopt.check]``. Of plain data."""

    settings: Settings
    trust: bool
    allow_packages: tuple[str, ...]

    @classmethod
    def here(cls, *, trust: bool, allow_packages: Sequence[str] | None) -> Looking:
        """Return what looks at graphs by the pyproject.toml of the working directory.

        Raises
        ------
        ScanoptError
            If the settings cannot be read.
        """
        from scanopt_cli.rules.settings import settings_from_pyproject

        return cls(settings_from_pyproject(Path.cwd()), trust, tuple(allow_packages or ()))

    def require_rules(self) -> None:
        """Check that the settings name rules that there are; PyTensor is imported for that.

        Raises
        ------
        ScanoptError
            If they do not.
        """
        from scanopt_cli.rules.rule_registry import selected

        with plug_in_warnings():
            selected(self.settings.select, self.settings.ignore)

    def at(self, path: Path, file: Blob, budget: Mapping[str, int]) -> LockedGraph:
        """Return what is known of the graph in a file.

        Raises
        ------
        ScanoptError
            If it holds no graph.
        """
        from scanopt_cli.gates.locking import locked_graph

        select = self.settings.select
        ignore = (*self.settings.ignore, *self.settings.ignored_in(path))
        with session(file, trust=self.trust, allow_packages=self.allow_packages) as work:
            graph = work.load(file)
            how: Any = {"select": select, "ignore": ignore, "budget": budget}
            return locked_graph(graph, file.facts.sha256, **how)

    def permissions(self) -> Session:
        """Return what may be loaded."""
        return Session(self.trust, self.allow_packages)

    def patience(self, path: Path) -> float | None:
        """Return how many seconds it may take for a file."""
        return patience(path, trust=self.trust)


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

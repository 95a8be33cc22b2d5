"""What is known of graphs, which `check` leaves out: the findings in a lock file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from scanopt_cli.gates.lock_file import read_lock

if TYPE_CHECKING:
    from scanopt_cli.rules.graph_checking import Baseline


def read_baseline(path: Path | None) -> Baseline:
    """Return the findings that a lock file holds, and how many of each; none without a file.

    Those of all of its graphs, since findings are the same in a graph of another name.

    Raises
    ------
    ScanoptError
        If the file cannot be read, or is no lock file.
    """
    if path is None:
        return {}
    lock = read_lock(path)
    return Counter(found.key for graph in lock.graphs.values() for found in graph.findings)

"""Loading for commands: one call, with warnings as lines on stderr."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from scanopt_cli.cli.console import err

if TYPE_CHECKING:
    from scanopt_cli.graphs.graph import Graph


def load_graph(path: Path, *, trust: bool, allow_packages: Sequence[str] | None) -> Graph:
    """Load ``path``; tell its notes and warnings on stderr."""
    from scanopt_cli.graphs.loading import load
    from scanopt_cli.reports.text import printable

    with warnings.catch_warnings(record=True) as caught:
        # What PyTensor thinks of its own calls does not concern the file.
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        graph = load(path, trust=trust, allow_packages=allow_packages or ())
    for note in [*(str(warning.message) for warning in caught), *graph.notes]:
        err().print(f"scanopt: note: {printable(str(path))}: {printable(note)}", soft_wrap=True)
    return graph

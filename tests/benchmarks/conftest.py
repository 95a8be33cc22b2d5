"""The table of `test_beside_pytensor` is printed when all tests are done."""

from __future__ import annotations

from typing import Any

from support.benchmarks.beside import ROWS


def pytest_terminal_summary(terminalreporter: Any, config: Any) -> None:
    """Print the rows as Markdown, as docs/figures has them."""
    rows = config.stash.get(ROWS, [])
    heads = ("beside PyTensor alone", "PyTensor, µs", "default", "grad", "loop", "MiB", "growth")
    lines = [] if not rows else [heads, ("---", *["---:"] * (len(heads) - 1)), *rows]
    for line in lines:
        terminalreporter.write_line(f"| {' | '.join(line)} |")

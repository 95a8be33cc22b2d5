"""Report failures of PyTensor's own rewriters as one line.

PyTensor logs the traceback of a rewriter that fails, and prints some; they may contain names from
the graph.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from scanopt_cli.cli.console import harmless_stderr, tell

_FAILURE = "Rewrite failure due to: "


class _Failures(logging.Handler):
    """Keeps the names of the rewriters that failed."""

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[str, None] = {}

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text.startswith(_FAILURE):
            self.names[text.removeprefix(_FAILURE).partition("(")[0][:100]] = None


@contextmanager
def reported_failures() -> Iterator[None]:
    """Keep PyTensor's log off stderr, and print at the end which of its rewriters failed."""
    logger = logging.getLogger("pytensor")
    failures = _Failures()
    handlers, propagate = logger.handlers, logger.propagate
    logger.handlers, logger.propagate = [failures], False
    try:
        with harmless_stderr():
            yield
    finally:
        logger.handlers, logger.propagate = handlers, propagate
        if failures.names:
            names = ", ".join(failures.names)
            tell(f"note: rewriters of PyTensor's failed on this graph, and were left out: {names}")

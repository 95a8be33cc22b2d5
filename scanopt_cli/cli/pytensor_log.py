"""Report failures of PyTensor's own rewriters as one line.

PyTensor logs the traceback of a rewriter that fails, and prints some; they may contain names from
the graph.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from scanopt_cli.cli.console import harmless_stderr, tell
from scanopt_cli.verification.rewrite_failures import RewriteFailures


@contextmanager
def reported_failures() -> Iterator[None]:
    """Keep PyTensor's log off stderr, and print at the end which of its rewriters failed."""
    logger = logging.getLogger("pytensor")
    failures = RewriteFailures()
    handlers, propagate = logger.handlers, logger.propagate
    logger.handlers, logger.propagate = [failures], False
    try:
        with harmless_stderr():
            yield
    finally:
        logger.handlers, logger.propagate = handlers, propagate
        if failures.errors:
            names = ", ".join(failures.errors)
            tell(f"note: rewriters of PyTensor's failed on this graph, and were left out: {names}")

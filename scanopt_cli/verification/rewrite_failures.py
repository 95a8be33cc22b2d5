"""Which of PyTensor's rewrites fail while a graph is compiled.

PyTensor logs the failure of a rewrite and compiles without it: the values are right, but the
function may be slow, or take much memory.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Of one node, and of a whole graph.
_FAILURE = re.compile(r"(?:Rewrite failure due to: |SequentialGraphRewriter apply )(.+)", re.DOTALL)
# How Python shows an object that has no name, with its address.
_OBJECT = re.compile(r"<(?:\w+\.)*(\w+) object at 0x\w+>")
_LONGEST = 100


class RewriteFailures(logging.Handler):
    """Keeps the names of the rewrites that failed, each with the error that it raised first."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: dict[str, BaseException | None] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Keep what a record says of a failure."""
        told = _FAILURE.fullmatch(record.getMessage())
        if told is not None:
            name = _OBJECT.sub(r"\1", told[1]).partition("(")[0]
            # PyTensor logs a failure while it handles the error.
            self.errors.setdefault(name[:_LONGEST], sys.exc_info()[1])


@contextmanager
def failing_rewrites() -> Iterator[RewriteFailures]:
    """Let PyTensor compile without the rewrites that fail, and keep which these are."""
    from pytensor.configdefaults import config  # `--help` does without PyTensor

    logger = logging.getLogger("pytensor")
    failures = RewriteFailures()
    logger.addHandler(failures)
    try:
        with config.change_flags(on_opt_error="warn"):
            yield failures
    finally:
        logger.removeHandler(failures)

"""Ask the child process for a trace or a comparison, and read what it wrote."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from scanopt_cli.errors import ScanoptError, VerificationError
from scanopt_cli.tracing.requests import DifferenceRequest, NanRequest, TraceRequest
from scanopt_cli.verification.spawning import run_child

FACTS = "traced.json"
VALUES = "traced.npz"
"""The files that the child writes beside its record."""
_WORKER = "scanopt_cli.tracing.worker"


def answer(
    request: TraceRequest | DifferenceRequest | NanRequest,
    source: str,
    progress: Callable[[str], None] | None = None,
) -> tuple[Any, Mapping[str, np.ndarray]]:
    """Return the facts and the arrays that the child found.

    Raises
    ------
    ScanoptError
        If it found none; ``source`` says of what.
    """
    if request.timeout <= 0:
        raise VerificationError("timeout must be positive")
    found: list[tuple[Any, Mapping[str, np.ndarray]]] = []

    def read(directory: Path) -> None:
        if (directory / FACTS).exists():
            found.append((json.loads((directory / FACTS).read_text()), _arrays(directory)))

    record = run_child(request, progress, worker=_WORKER, doing="tracing", then=read)
    if record.failure is not None or not found:
        raise VerificationError(record.failure or "nothing was found", where=source)
    return found[0]


def _arrays(directory: Path) -> dict[str, np.ndarray]:
    try:
        # The child evaluates foreign graphs: nothing in its files may run code.
        with np.load(directory / VALUES, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except Exception as error:
        raise ScanoptError(f"the values cannot be read: {error}") from None

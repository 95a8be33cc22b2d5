"""A graph written as a Python script, with the arrays that stand beside it."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from scanopt_cli.errors import ScanoptError
from scanopt_cli.presentation import Presented
from scanopt_cli.serialization.writing import write_atomically

ARRAYS = ".npz"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PythonScript(Presented):
    """A script that builds a graph: running it gives the variables ``inputs`` and ``outputs``.

    Attributes
    ----------
    text
        The script. If there are ``constants``, it reads them from the file of its own name with the
        ending ``.npz``.
    constants
        Long arrays, by name; and recorded values, if these were asked for.
    source
        The name of the graph.
    """

    text: str
    constants: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    source: str = "<memory>"

    def __str__(self) -> str:
        return self.text.rstrip("\n")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the script to ``path`` and its constants beside it, each whole or not at all.

        Raises
        ------
        ScanoptError
            If a file cannot be written, or ``path`` ends in ``.npz``.
        """
        target = Path(path)
        beside = target.with_suffix(ARRAYS)
        if beside == target:
            raise ScanoptError(
                "is the name of the constants",
                where=str(target),
                hint="name the script, as model.py",
            )
        if self.constants:
            stream = io.BytesIO()
            np.savez(stream, allow_pickle=False, **self.constants)
            write_atomically(beside, stream.getvalue())
        write_atomically(target, self.text.encode())

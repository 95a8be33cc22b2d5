"""A command's work on files: they are loaded, rewritten and compared inside of a session."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scanopt_cli.cli.console import tell
from scanopt_cli.cli.limits import limited
from scanopt_cli.cli.pytensor_log import reported_failures
from scanopt_cli.serialization.files import Blob
from scanopt_cli.text import plural

if TYPE_CHECKING:
    from scanopt_cli.ir.graph import Graph


@dataclass(frozen=True, slots=True)
class Session:
    """What a command may load, by the options ``--trust`` and ``--allow-package``."""

    trust: bool
    allow_packages: Sequence[str]

    @property
    def is_strict(self) -> bool:
        """Whether nothing runs but what is installed with scanopt, so that files tell all."""
        return not (self.trust or self.allow_packages)

    def load(self, path: Path | Blob, *, recorded: bool = False) -> Graph:
        """Load a graph; print notes and warnings on stderr. Of a path, ``recorded`` calls as well.

        Without trust, processor time and memory are limited: to read a file takes less than what
        the session may do with it.
        """
        from scanopt_cli.analysis.provenance.locating import locate
        from scanopt_cli.ir.graph import listed_names
        from scanopt_cli.serialization.loading import load, load_blob

        how: Any = {"trust": self.trust, "allow_packages": self.allow_packages}
        with warnings.catch_warnings(record=True) as caught, limited(path, trust=self.trust):
            warnings.simplefilter("always", UserWarning)
            graph = (
                load_blob(path, **how)
                if isinstance(path, Blob)
                else load(path, recorded=recorded, **how)
            )
        locate(graph.fgraph)
        shared = graph.shared
        found = (
            [f"{plural(len(shared), 'shared variable')}: {listed_names(shared)}"] if shared else []
        )
        for note in [*(str(warning.message) for warning in caught), *graph.notes, *found]:
            tell(f"note: {path}: {note}")
        return graph


@contextmanager
def session(
    *paths: Path | Blob, trust: bool, allow_packages: Sequence[str] | None, only_read: bool = False
) -> Iterator[Session]:
    """Limit processor time and memory while ``paths`` are worked on, unless ``trust``.

    Constant folding is bounded, warnings are ignored, and PyTensor's log of failed rewriters
    becomes one line.
    """
    from pytensor.configdefaults import config

    from scanopt_cli.ir.folding import bounded_folding

    with (
        bounded_folding(),
        reported_failures(),
        # Where scanopt makes a variable is of no interest, and recording it takes half of the time.
        config.change_flags(traceback__limit=0),
        # PyTensor's warnings about this machine or about its own calls do not concern the file.
        warnings.catch_warnings(action="ignore"),
        limited(*paths, trust=trust, only_read=only_read),
    ):
        yield Session(trust, allow_packages or ())

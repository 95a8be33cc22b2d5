"""What the work on files asks of a cluster, whichever it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol


class LostError(Exception):
    """A worker died, or was cut off, before it handed a result over."""


class Workers(Protocol):
    """What is asked of a cluster."""

    @property
    def usable(self) -> Mapping[str, int]:
        """How many threads each worker has that can be used now, by its address; 0 if it pauses."""

    def look(self) -> None:
        """Find out which workers there are now; `ClusterError` if none is, or will be."""

    def start(self, worker: str, order: bytes, call: Callable[[Any], None]) -> Any:
        """Let a worker do what is ordered; then ``call``, in some thread, with what is returned."""

    def result(self, work: Any) -> bytes:
        """Return the result of what is done; `LostError` if it was lost with its worker."""

    def cancel(self, work: Any) -> None:
        """Forget what was started."""

    def end(self, run: str) -> None:
        """Let the workers end what they have for a command, and leave them."""

"""The ``with scanopt_cli.enabled():`` blocks that a program is in.

They apply to the whole process, like PyTensor's own flags: a thread started inside a block compiles
with the passes too. Blocks of several threads may end in any order.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scanopt_cli.integration.compilation.enabling import Enabled

_blocks: list[Enabled] = []
_lock = threading.Lock()


def enter(block: Enabled) -> None:
    """Make ``block`` the innermost one, until it is left or another is entered."""
    with _lock:
        _blocks.append(block)


def leave(block: Enabled) -> None:
    """Undo `enter`."""
    with _lock:
        _blocks[:] = [other for other in _blocks if other is not block]


def innermost() -> Enabled | None:
    """Return the block that was entered last; ``None`` outside of all blocks."""
    with _lock:
        return _blocks[-1] if _blocks else None

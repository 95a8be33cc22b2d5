"""Lists of readers from which one is removed without a search through all.

A FunctionGraph keeps the readers of a variable in a list. Whoever gives a reader another input
removes it from there, and `list.remove` compares it with all that come before. Rewriting the n
readers of one variable then takes the square of n. But readers are rewritten in the order of the
list, or again right after they were added: the one to remove is near the last one removed, or near
an end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Shorter lists are searched from the front. In longer ones, so many places are tried first around
# the last removal and at the end.
_SHORT = 64
_NEAR = 16


class _Readers(list[Any]):
    """A list that looks for what to remove where it probably is. Each reader is in it once."""

    _last = 0

    def remove(self, reader: Any) -> None:
        length = len(self)
        if length <= _SHORT:
            super().remove(reader)
            return
        for first in (length - _NEAR, 0, max(self._last - _NEAR // 2, 0)):
            near = self[first : first + _NEAR]
            if reader in near:
                place = first + near.index(reader)
                break
        else:
            if reader not in self:  # The error of `index` would write out the graph of the reader.
                raise ValueError("list.remove(x): x not in list")
            place = self.index(reader)
        del self[place]
        if place < length - _NEAR:
            # A walk over the list goes on here, whatever it adds to the end and removes again.
            self._last = place


class Clients(dict[Any, Any]):
    """The readers of variables, each in a `_Readers`."""

    def __init__(self, clients: Mapping[Any, Any]) -> None:
        super().__init__((variable, _Readers(readers)) for variable, readers in clients.items())

    def __setitem__(self, variable: Any, readers: Any) -> None:
        super().__setitem__(variable, _Readers(readers))

    def setdefault(self, variable: Any, default: Any = None) -> Any:
        """Return the readers of a variable, or make its list of ``default``."""
        if variable not in self:
            self[variable] = default
        return self[variable]

"""Keys that identify variables and nodes across both sides."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from pytensor.graph.basic import Apply, Variable

from scanopt_cli.diff.matching.indexed_graph import IndexedGraph

type Token = Callable[[Variable], Hashable]
"""Returns the key of a variable that both sides share."""


@dataclass(frozen=True, slots=True)
class SharedKeys:
    """One side with keys that both share: variables of equal tokens correspond so far.

    ``partner`` maps a matched node to one object, the same on both sides, and an unmatched node to
    ``None``.
    """

    side: IndexedGraph
    token: Token
    partner: Callable[[Apply], Apply | None]

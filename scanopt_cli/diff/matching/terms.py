"""What the variables and nodes of one side are known as on both sides."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from pytensor.graph.basic import Apply, Variable

from scanopt_cli.diff.matching.indexed_graph import IndexedGraph

type Token = Callable[[Variable], Hashable]
"""What a variable is known as on both sides."""


@dataclass(frozen=True, slots=True)
class SharedTerms:
    """A side in terms of both: equal tokens are for what is the same so far.

    ``partner`` stands for a matched node, by the same object on both sides; it is ``None`` for one
    that is not matched.
    """

    side: IndexedGraph
    token: Token
    partner: Callable[[Apply], Apply | None]

"""What a Scan comes from: it is a loop of a user, the pullback of one, or carries its tangents."""

from __future__ import annotations

from dataclasses import dataclass

from pytensor.graph.basic import Apply


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a Scan.

    Attributes
    ----------
    parent
        The Scan that it is the pullback of; ``None`` for a loop that is no pullback, and for a
        pullback whose parent is not known.
    generation
        How many times a loop was differentiated to get it: 0 for a loop, 1 for its pullback, 2 for
        the pullback of that; ``None`` if not known.
    reason
        Why ``parent`` is ``None`` though the Scan is a pullback, or looks like one.
    tangents_of
        For a loop with tangents: the name of the original loop. The Scan computes what that loop
        computed, and replaces it.
    """

    parent: Apply | None = None
    generation: int | None = 0
    reason: str | None = None
    tangents_of: str | None = None

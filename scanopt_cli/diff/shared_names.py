"""Common names for the parts that two graphs share: those of the graph before.

Loops of one name and slots without a name are distinguished by numbers, which shift when one is
dropped. Matched parts therefore get one name on both sides, and new parts a name of their own.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping

from scanopt_cli.diff.matching.correspondence import Matching

_NUMBER = re.compile(r"(#|\[)\d+\]?$")


def share_names(matching: Matching) -> None:
    """Give matched loops and slots of the graph after the names of their partners."""
    before, after = matching.graphs
    pairs = [matching.pairs[node] for node in before.titles if node in matching.pairs]
    after.titles = _shared(before.titles, after.titles, {pair.other: pair.node for pair in pairs})
    for pair in pairs:
        if pair.slots is not None:
            slots, others = before.view(pair.node).slots, after.view(pair.other).slots
            partners = {others[second]: slots[first] for first, second in pair.slots}
            names = _shared(before.slot_names(pair.node), after.slot_names(pair.other), partners)
            after.rename_slots(pair.other, names)


def _shared[K: Hashable](
    names: Mapping[K, str], others: Mapping[K, str], partners: Mapping[K, K]
) -> dict[K, str]:
    """Return names for the keys of ``others``, whose ``partners`` have ``names``.

    A key takes its partner's name if the two differ at most in a number. A key without a partner
    whose own name is taken becomes ``new ...``.
    """
    called = {}
    for key, name in others.items():
        partner = names[partners[key]] if key in partners else name
        called[key] = partner if _unnumbered(partner) == _unnumbered(name) else name
    taken = {called[key] for key in partners}
    for key in others.keys() - partners.keys():
        if called[key] in taken:
            called[key] = f"new {called[key]}"
    return called


def _unnumbered(name: str) -> str:
    return _NUMBER.sub("", name)

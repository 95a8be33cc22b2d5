"""Common names for the parts that two graphs share: those of the first graph.

Loops of one name and slots without a name are distinguished by numbers, which shift when one is
dropped. Matched parts therefore get one name on both sides, and new parts a name of their own.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping

from scanopt_cli.diff.matching.correspondence import Matching

_NUMBER = re.compile(r"(#|\[)\d+\]?$")


def call_alike(matching: Matching) -> None:
    """Give matched loops and slots of the second side the names of their partners."""
    first, second = matching.first, matching.second
    pairs = [(n, matching.nodes[n]) for n in first.titles if n in matching.nodes]
    second.titles = _shared(first.titles, second.titles, {other: node for node, other in pairs})
    for node, other in pairs:
        slots = matching.alignments[node].slots
        if slots is not None:
            ours, theirs = first.view(node).slots, second.view(other).slots
            partners = {theirs[place]: ours[own] for own, place in slots}
            names = _shared(first.slot_names(node), second.slot_names(other), partners)
            second.rename_slots(other, names)


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
        called[key] = partner if _base(partner) == _base(name) else name
    taken = {called[key] for key in partners}
    for key in others.keys() - partners.keys():
        if called[key] in taken:
            called[key] = f"new {called[key]}"
    return called


def _base(name: str) -> str:
    return _NUMBER.sub("", name)

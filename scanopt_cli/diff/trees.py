"""A diff of dprint trees: the text that PyTensor prints, without ids, which would shift."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import unified_diff
from itertools import islice
from typing import Any

from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.printing import debugprint

from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.text import printable

# debugprint recurses a few frames a level; deeper than this it would run out of stack.
_DEEPEST = 150
_CONTEXT = 2
# For each change, difflib visits all places of a line in the other text again.
_MOST_PLACES = 2_000_000


def tree_diff(
    before: FunctionGraph, after: FunctionGraph, depth: int | None = None
) -> tuple[str, ...]:
    """Return the unified diff of the dprint trees of two graphs, inner graphs included, by lines.

    ``depth`` cuts the trees; very deep trees are cut in any case, and a last line says so. Ids are
    left out, so only what changed differs. Empty if the trees print alike, except for that line if
    they are cut.
    """
    old, new = tree(before, depth), tree(after, depth)
    if _is_too_long(old, new):
        return ("@@ trees are too long to compare; see --diff structural @@",)
    # The first two lines name the files.
    lines = tuple(islice(unified_diff(old, new, n=_CONTEXT, lineterm=""), 2, None))
    if (depth is None or depth > _DEEPEST) and any(map(_is_deep, (before, after))):
        return (*lines, f"@@ trees are cut at {_DEEPEST} levels @@")
    return lines


def _is_too_long(old: list[str], new: list[str]) -> bool:
    """Whether the lines of one tree have more places in the other than difflib can visit."""
    if old == new:
        return False
    counts = Counter(new)
    return sum(counts[line] for line in old) > _MOST_PLACES


def tree(fgraph: FunctionGraph, depth: int | None = None) -> list[str]:
    """Return the lines of a graph's dprint tree, without ids, ``depth`` levels deep at most."""
    with _names_on_one_line(fgraph):
        printed: Any = debugprint(
            fgraph.outputs, id_type="", file="str", depth=min(depth or _DEEPEST, _DEEPEST)
        )
    return str(printed).split("\n")[:-1]


@contextmanager
def _names_on_one_line(fgraph: FunctionGraph) -> Iterator[None]:
    """Escape names that would end a line of the tree and begin one of their own."""
    names = {v: v.name for v in fgraph.variables if v.name is not None and "\n" in v.name}
    try:
        for variable, name in names.items():
            variable.name = printable(name)
        yield
    finally:
        for variable, name in names.items():
            variable.name = name


def _is_deep(fgraph: FunctionGraph) -> bool:
    """Whether a tree of ``fgraph``, or of a graph inside, has more levels than are printed."""
    levels: dict[Variable, int] = {}
    for node in walk(fgraph):
        level = 1 + max((levels.get(variable, 1) for variable in node.inputs), default=1)
        levels.update(dict.fromkeys(node.outputs, level))
        if level > _DEEPEST:
            return True
    return False

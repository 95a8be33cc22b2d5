"""Groups the boxes of a large level, so that a page can show it folded.

Operations between the same loops, those that depend on the same ones and that the same ones depend
on, are one group: a path from one to another has only such operations on it. What is still long is
cut into runs of a topological order, whose edges go forward only. So there is no cycle among
groups.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import batched, count

from scanopt_cli.page.picture import Box, BoxKind, Group
from scanopt_cli.text import enumerated, plural

MOST = 36
"""A level of at most so many boxes, or a group of at most so many members, is shown as it is."""
_FEW = 12
"""The same of a level with loops, between which operations are details."""
_FEWEST = 4
_NAMED = 3


def grouped(boxes: Sequence[Box]) -> tuple[int | Group, ...]:
    """Return boxes, which are in topological order, and groups of those that the page folds."""
    most = _FEW if any(box.ports for box in boxes) else MOST
    if len(boxes) <= most:
        return tuple(box.id for box in boxes)
    return _Grouping(boxes).shown()


class _Grouping:
    def __init__(self, boxes: Sequence[Box]) -> None:
        self._boxes = {box.id: box for box in boxes}

    def shown(self) -> tuple[int | Group, ...]:
        """Return the members of a level."""
        runs: dict[Hashable, list[int]] = defaultdict(list)
        for box_id, key in self._keys().items():
            runs[key].append(box_id)
        inputs = [n for n in self._boxes if self._boxes[n].kind is BoxKind.INPUT]
        outputs = [n for n in self._boxes if self._boxes[n].kind is BoxKind.OUTPUT]
        middle = [
            part
            for run in self._in_order(list(runs.values()))
            for part in (run if len(run) < _FEWEST else [self._group(self._cut(run))])
        ]
        return (
            *self._few(inputs, "input"),
            *(self._cut(middle) if len(middle) > MOST else middle),
            *self._few(outputs, "output"),
        )

    def _few(self, ends: Sequence[int], noun: str) -> Sequence[int | Group]:
        if len(ends) <= MOST:
            return ends
        label, members = plural(len(ends), noun), tuple(ends)
        return [Group(id=_name(members), label=label, members=members, count=len(ends))]

    def _keys(self) -> Mapping[int, Hashable]:
        """Return, for each box between inputs and outputs, a key that equals those of its group."""
        above: dict[int, int] = {}
        below: dict[int, int] = defaultdict(int)
        bits = count()
        own: dict[int, int] = {}
        for box in self._boxes.values():
            sets = (above[e.box] | own.get(e.box, 0) for e in box.edges)
            above[box.id] = _union(sets)
            if box.ports:
                own[box.id] = 1 << next(bits)
        for box in reversed(self._boxes.values()):
            reads = below[box.id] | own.get(box.id, 0)
            for edge in box.edges:
                below[edge.box] |= reads
        ends = (BoxKind.INPUT, BoxKind.OUTPUT)
        return {
            n: n if n in own else (above[n], below[n])
            for n, box in self._boxes.items()
            if box.kind not in ends
        }

    def _in_order(self, runs: Sequence[list[int]]) -> list[list[int]]:
        """Return runs in topological order, near to those that they read."""
        run_of = {n: place for place, run in enumerate(runs) for n in run}
        done: set[int] = set()
        order: list[list[int]] = []
        for last in range(len(runs)):
            waiting = [last]
            while waiting:
                place = waiting[-1]
                if place in done:
                    waiting.pop()
                    continue
                reads = {
                    run_of[edge.box]
                    for n in runs[place]
                    for edge in self._boxes[n].edges
                    if edge.box in run_of
                }
                left = [read for read in sorted(reads) if read not in done and read != place]
                if left:
                    waiting += left
                else:
                    done.add(place)
                    order.append(runs[place])
                    waiting.pop()
        return order

    def _cut(self, members: Sequence[int | Group]) -> list[int | Group]:
        """Return at most `MOST` members: those given, or groups of members next to each other."""
        while len(members) > MOST:
            size = max(_FEWEST, min(MOST, -(-len(members) // MOST)))
            members = [self._group(part) for part in batched(members, size)]
        return list(members)

    def _group(self, members: Iterable[int | Group]) -> Group:
        members = tuple(members)
        inside = [n for member in members for n in _leaves(member)]
        label = self._label(inside)
        return Group(id=_name(members), label=label, members=members, count=len(inside))

    def _label(self, inside: Sequence[int]) -> str:
        """Return what is in a group: ``12 nodes: 1 loop, 8 mul and 3 Subtensor``."""
        boxes = [self._boxes[n] for n in inside]
        n_holders = sum(bool(box.ports) for box in boxes)
        counts = Counter(box.label for box in boxes if not box.ports).most_common()
        texts = [plural(n_holders, "loop")] if n_holders else []
        texts += [f"{times} {label}" for label, times in counts]
        return f"{plural(len(inside), 'node')}: {enumerated(texts, _NAMED)}"


def _name(members: Sequence[int | Group]) -> str:
    """Return the name of a group, which it keeps from stage to stage if its first box stays."""
    first = next(iter(_leaves(members[0])))
    return f"group{first}.{max(map(_height, members))}"


def _height(member: int | Group) -> int:
    return 0 if isinstance(member, int) else 1 + max(map(_height, member.members))


def _leaves(member: int | Group) -> Iterable[int]:
    if isinstance(member, int):
        return (member,)
    return (n for inside in member.members for n in _leaves(inside))


def _union(sets: Iterable[int]) -> int:
    found = 0
    for one in sets:
        found |= one
    return found

"""The order of the boxes of a level, which stays as it is from stage to stage as far as it can.

The layout keeps boxes of one column in this order. So what a pass leaves alone stays where it is
beside the rest, and the eye follows what changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush

from scanopt_cli.page.picture import Box


def in_earlier_order(boxes: Sequence[Box], earlier: Mapping[int, int]) -> list[Box]:
    """Return boxes, which are in topological order, in another one that is near an earlier order.

    ``earlier`` has the places of boxes, by number, in the stage before. A box that was not there
    comes behind the one that it is behind in ``boxes``. Where edges do not allow the earlier order,
    a box comes as soon as all that it reads is there.
    """
    if not earlier:
        return list(boxes)
    ranks: dict[int, tuple[int, int]] = {}
    last = -1
    for place, box in enumerate(boxes):
        last = earlier.get(box.id, last)
        ranks[box.id] = (last, -1 if box.id in earlier else place)
    of_id = {box.id: box for box in boxes}
    readers: dict[int, list[int]] = {}
    waits: dict[int, int] = {}
    for box in boxes:
        reads = {edge.box for edge in box.edges if edge.box in of_id}
        waits[box.id] = len(reads)
        for read in reads:
            readers.setdefault(read, []).append(box.id)
    ready = [(ranks[n], n) for n, count in waits.items() if not count]
    heapify(ready)
    order: list[Box] = []
    while ready:
        _, number = heappop(ready)
        order.append(of_id[number])
        for reader in readers.get(number, ()):
            waits[reader] -= 1
            if not waits[reader]:
                heappush(ready, (ranks[reader], reader))
    return order

"""Loops and states that PyTensor takes for equal, since they start equal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from pytensor.graph.traversal import ancestors
from pytensor.scan.rewriting.merge import ScanMerge, scan_merge_inouts

from scanopt_cli.analysis.named_loops import NamedLoop
from scanopt_cli.equivalence.digests import Digests
from scanopt_cli.equivalence.loop_forms import condition_key, trajectories
from scanopt_cli.equivalence.sameness import Sameness
from scanopt_cli.ir.slots import SlotKind
from scanopt_cli.rules.miscompiled.upstream_answers import Misread, RewriteError, asked


def merged_while_loops(loops: Sequence[NamedLoop]) -> Iterator[tuple[NamedLoop, Misread]]:
    """Yield the while loops that ``ScanMerge`` gives the stop condition of another one.

    The conditions read states that start equal, and that the two steps update differently.
    """
    merge = ScanMerge()
    candidates = [
        loop for loop in loops if loop.view.condition is not None and not loop.view.batch_ndim
    ]
    above = {loop: _above(loop) for loop in candidates} if len(candidates) > 1 else {}
    for first, second in combinations(candidates, 2):
        if first.graph is not second.graph:
            continue
        one, other = first.view.node, second.view.node
        if one in above[second] or other in above[first]:
            continue
        if not merge.belongs_to_set(other, [one]):
            continue
        digests = Digests(first.graph.inputs, Sameness(gradients=True, exact=True))
        if condition_key(digests, first.view) == condition_key(digests, second.view):
            continue
        text = (
            f"compiled, it stops when {first.title} stops: ScanMerge takes their conditions, "
            "which only start equal, for one"
        )
        yield second, Misread(text)


def merged_states(loop: NamedLoop) -> Iterator[Misread]:
    """Yield the outputs that ``scan_merge_inouts`` takes for equal, since their states start so."""
    view = loop.view
    starts = [slot.outer_input for slot in view.of_kind(SlotKind.MIT_SOT, SlotKind.MIT_MOT)]
    if len(set(starts)) == len(starts) or view.batch_ndim:
        return
    try:
        replaced = asked(scan_merge_inouts, loop.graph, view.node)
    except RewriteError:
        return
    digests = Digests(loop.graph.inputs, Sameness(gradients=True, exact=True))
    trajectory_of = trajectories(digests, view)
    slots = [slot for slot in view.outputs() if slot.outer_output in replaced]
    for first, second in combinations(slots, 2):
        if replaced[first.output] is not replaced[second.output]:
            continue
        if trajectory_of[first].values != trajectory_of[second].values:
            text = (
                f"compiled, `{loop.names[second]}` is `{loop.names[first]}`: scan_merge_inouts "
                "takes states for equal that only start equal"
            )
            yield Misread(text, (second, first))


def _above(loop: NamedLoop) -> set[object]:
    """Return the nodes that a loop depends on."""
    return {v.owner for v in ancestors(loop.view.node.inputs) if v.owner is not None}

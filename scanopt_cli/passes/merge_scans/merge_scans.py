"""Merge independent loops with equal trip counts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from pytensor.graph.basic import Apply
from pytensor.graph.replace import graph_replace
from pytensor.tensor.blockwise import Blockwise

from scanopt_cli.ir.inner_graphs import PULLBACK
from scanopt_cli.ir.levels import levels
from scanopt_cli.ir.scan_view import batch_ndim, scan_op, view_of
from scanopt_cli.ir.slots import SlotKind, SlotView
from scanopt_cli.loop import TracedLoop
from scanopt_cli.passes.merge_scans.fusion_criteria import FusionAnalysis, FusionCriteria
from scanopt_cli.passes.merge_scans.trip_counts import StepCounts, loop_free
from scanopt_cli.pipeline.contract import Pass, PassContext, Rewrite
from scanopt_cli.remarks import Code

# The most names that the name of a merged loop holds.
_NAMES = 4


@dataclass(frozen=True)
class MergeScans(Pass):
    """Merge independent loops with equal trip counts into one loop.

    Legal cases, of Scans with Scans, and of TracedLoops with TracedLoops:

    1. Loops with the same trip count become one loop with the slots of all, whatever they carry,
       compute and are called. Loops that depend on one another become as few as the longest chain
       of them has loops.
    2. While loops merge likewise if they stop by the same condition: the values that it reads are
       fed and updated equally, whatever else the loops carry, and in whatever order.
    3. Batched loops (``Blockwise{Scan}``) merge likewise if their batches provably have one shape.
    4. Loops with trimmed buffers, as ``save-mem`` leaves them, merge only with each other: each
       slot keeps its own buffer, and PyTensor differentiates a merged loop correctly only if all
       buffers are whole.

    Two trip counts are the same if they are the same affine expression: the length of ``x`` and
    that of ``exp(x)``, the minimum of two lengths in any order, the steps of a loop and those of
    its gradient.

    Preconditions: ``truncate_gradient``, ``mode``, ``profile`` and ``allow_gc`` are equal. All
    buffers of a loop provably hold every step, or one is provably trimmed. Nothing in the graph or
    in a step works in place. Every loop is always computed: merged, a loop that only a branch of an
    IfElse reads would run, and might raise, where it did not before.

    Values are those of the separate loops, and so are errors if all outputs are computed; if two
    loops raise, a different one may raise first. A caller that computes the outputs of one loop
    only now computes all merged loops and gets their errors (``remove-unused`` drops outputs that
    are never read). A loop that ``save-mem`` would run for fewer steps, since only its first rows
    are read, runs for all. Differentiate first: PyTensor differentiates a merged loop as a whole,
    so an infinite or missing derivative of one part reaches the others, once they share inputs.

    Equal inputs, states and outputs of the parts are left to ``merge-duplicates`` and
    ``merge-states``. The pass does not use PyTensor's ``ScanMerge``, which runs when a graph is
    compiled. ``ScanMerge`` treats stop conditions as equal if they start equal, however they go on;
    compares trip counts by variable; takes ``profile`` and ``allow_gc`` from the first loop; makes
    loops run that only an untaken branch of an IfElse reads; ignores batched loops; and compares
    every loop with every group of loops.

    Out of scope: loops with different trip counts, and merging a loop with the loop that it feeds.
    """

    name: ClassVar[str] = "merge-scans"
    repeats: ClassVar[bool] = True

    def rewrites(self, context: PassContext) -> Iterator[Rewrite]:
        """Merge the loops of equal trip counts, batch dimensions, terms and levels."""
        nodes = context.fgraph.toposort()
        free = loop_free(nodes)
        counts = StepCounts(context.same, free)
        by_count: dict[Hashable, list[Apply]] = defaultdict(list)
        for node in nodes:
            if scan_op(node) is not None or isinstance(node.op, TracedLoop):
                form = batch_ndim(node) if isinstance(node.op, Blockwise) else type(node.op)
                by_count[counts.of(node.inputs[0]), form].append(node)
        candidates = [loops for loops in by_count.values() if len(loops) > 1]
        if not candidates or context.is_in_place():
            return
        judge = FusionAnalysis(
            context, counts, [node for loops in by_count.values() for node in loops]
        )
        classes = [{node: judge.terms(node) for node in loops} for loops in candidates]
        for terms in classes:
            by_terms: dict[FusionCriteria, list[Apply]] = defaultdict(list)
            for node, own in terms.items():
                by_terms[own].append(node)
            for own, equal in by_terms.items():
                if own.obstacle is None:
                    for rewrite in self._merged(equal, counts, free, context):
                        yield rewrite
                        if rewrite.count:
                            terms[next(iter(rewrite.replacements.values())).owner] = own
        present = context.fgraph.apply_nodes
        for terms in classes:
            _explain({node: own for node, own in terms.items() if node in present}, free, context)

    def _merged(
        self, loops: Sequence[Apply], counts: StepCounts, free: set[Apply], context: PassContext
    ) -> Iterator[Rewrite]:
        """Merge ``loops``, which have equal trip counts and terms.

        The level of a node is the largest number of these loops on a path to it. It increases along
        each path from loop to loop, so loops of one level do not depend on one another. Merging the
        loops of each level keeps it increasing along all paths, so there is no cycle, whatever
        other nodes are on the paths. Other groups of loops may be merged into a node on such a
        path, so each group has its own levels, computed after the groups before it are merged.
        """
        by_level: dict[int, list[Apply]] = defaultdict(list)
        for node, level in levels(loops, free).items() if len(loops) > 1 else ():
            by_level[level].append(node)
        for group in by_level.values():
            if len(group) > 1:
                group.sort(key=context.title)
                yield Rewrite(counts.unified([node.inputs[0] for node in group]), count=0)
                views = [view_of(node) for node in group]
                joined = _joined(views, _joined_name([view.op.name or "" for view in views]))
                others = tuple(context.title(node) for node in group[1:])
                context.passed(joined, Code.SCANS_MERGED, others=others)
                replacements = joined.rebuild()
                for old in (count for view in views for count in view.counts):
                    replacements[old] = replacements[joined.counts[0]]
                yield Rewrite(replacements)


def _joined(views: Sequence[SlotView], name: str) -> SlotView:
    """Return one view with the slots of all ``views``, unfrozen; ``name`` is the new loop's.

    All else is taken from the first: the step count, the condition and the settings.
    """
    for view in views:
        view.unfreeze()
    slots = [slot for view in views for slot in view.slots]
    joined = replace(views[0], slots=slots, new_name=name)
    indices = [slot.inner_inputs[0] for slot in joined.of_kind(SlotKind.INDEX)]
    if indices:
        same = dict.fromkeys(indices[1:], indices[0])
        joined.set_inner_outputs(graph_replace(joined.inner_outputs(), same, strict=False))
    return joined


def _explain(terms: Mapping[Apply, FusionCriteria], free: set[Apply], context: PassContext) -> None:
    """Remark why independent loops with equal trip counts were not merged.

    There is one remark for each way to differ from the first loop of a level, so at most one for a
    loop.
    """
    if len(set(terms.values())) == 1 and not any(own.obstacle for own in terms.values()):
        return  # they depend on one another, or the budget is spent
    found = levels(terms, free)
    first: dict[int, Apply] = {}
    reported: set[tuple[int, FusionCriteria]] = set()
    for node in sorted(terms, key=lambda node: (_rank(terms[node]), context.title(node))):
        level, own = found[node], terms[node]
        other = first.setdefault(level, node)
        reason = None if other is node else own.against(terms[other])
        if reason is not None and (level, own) not in reported:
            reported.add((level, own))
            view = view_of(node)
            context.missed(view, Code.SCANS_NOT_MERGED, reason, other=context.title(other))


def _rank(terms: FusionCriteria) -> str:
    return "" if terms.obstacle is None else terms.obstacle.code


def _joined_name(names: Collection[str]) -> str:
    """Return the names in alphabetical order, each once, joined by ``&`` as PyTensor does.

    The merged pullbacks of ``f`` and ``g`` have the name of the pullback of ``f&g``.
    """
    if all(name.startswith(PULLBACK) for name in names):
        return PULLBACK + _joined_name([name.removeprefix(PULLBACK) for name in names])
    parts = sorted({part for name in names for part in name.split("&")} - {"", "..."})
    return "&".join(parts if len(parts) <= _NAMES else [*parts[:_NAMES], "..."])

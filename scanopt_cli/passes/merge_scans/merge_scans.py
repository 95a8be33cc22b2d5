"""Run independent loops of equally many steps as one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pytensor.graph.basic import Apply
from pytensor.tensor.blockwise import Blockwise

from scanopt_cli.analysis.trip_counts import StepCounts, loop_free
from scanopt_cli.ir.levels import levels
from scanopt_cli.ir.naming import PULLBACK
from scanopt_cli.ir.scan_view import ScanView, batch_ndim, scan_op
from scanopt_cli.passes.merge_scans.loop_terms import Judge, LoopTerms
from scanopt_cli.pipeline.contract import Pass, PassContext

# How many names the name of a merged loop holds, and how many a remark tells.
_NAMES = 4


@dataclass(frozen=True)
class MergeScans(Pass):
    """Merge loops of equally many steps that do not depend on one another into one Scan.

    Legal cases:

    1. Loops over the same number of steps become one Scan with the slots of all, whatever they
       carry, compute and are called. Loops that depend on one another become as few Scans as the
       longest chain of them has loops.
    2. So do while loops that stop by the same condition: what it reads is fed and updated equally,
       whatever else the loops carry, and in whatever order.
    3. So do batched loops (``Blockwise{Scan}``), if their batches are shown to have one shape.
    4. So do loops with trimmed buffers, as ``save-mem`` leaves them, but only with each other: each
       slot keeps its own buffer, and a merged loop is differentiated right only if all are whole.

    The same number of steps is the same affine expression: the length of ``x`` and that of
    ``exp(x)``, the minimum of two lengths in any order, the steps of a loop and those of its
    gradient.

    Preconditions: ``truncate_gradient``, ``mode``, ``profile`` and ``allow_gc`` are equal. Every
    buffer is shown to hold every step, or to be trimmed. Nothing in the graph or in a step works in
    place. Every loop is always computed: what only a branch of an IfElse reads would run, and may
    raise, where it did not.

    Values are those of the loops alone, and so are errors when all outputs are asked for; if two
    loops raise, which one is met first may change. Who asks for the outputs of one loop only
    computes, and meets the errors of, all (``remove-unused`` drops what is never asked for). A loop
    that ``save-mem`` would run for fewer steps, since only its first are read, runs for all.
    Differentiate first: PyTensor differentiates a merged loop as a whole, so that an infinite or
    missing derivative of one part reaches the others, once they share inputs.

    Equal inputs, states and outputs of the parts are left to ``merge-duplicates`` and
    ``merge-states``. PyTensor's ``ScanMerge``, which runs when a graph is compiled, is not used: it
    takes stop conditions for the same that start the same, however they go on; tells step counts by
    the variable; takes ``profile`` and ``allow_gc`` from the first loop; makes loops run that an
    IfElse does not ask for; sees no batched loops; and compares every loop with every kind of loop.

    Out of scope: loops over different numbers of steps, and a loop with the loop that it feeds.
    """

    name: ClassVar[str] = "merge-scans"

    def run(self, context: PassContext) -> bool:
        """Merge, one key after the other, what has one key and one level."""
        nodes = context.fgraph.toposort()
        free = loop_free(nodes)
        counts = StepCounts(context.same, free)
        by_run: dict[Hashable, list[Apply]] = defaultdict(list)
        for node in nodes:
            if scan_op(node) is not None:
                batch = batch_ndim(node) if isinstance(node.op, Blockwise) else None
                by_run[counts.of(node.inputs[0]), batch].append(node)
        candidates = [loops for loops in by_run.values() if len(loops) > 1]
        if not candidates:
            return False
        if context.is_in_place("merged"):
            return False
        judge = Judge(context, counts, [node for loops in by_run.values() for node in loops])
        classes = [{node: judge.terms(node) for node in loops} for loops in candidates]
        for terms in classes:
            by_terms: dict[LoopTerms, list[Apply]] = defaultdict(list)
            for node, own in terms.items():
                by_terms[own].append(node)
            for own, alike in by_terms.items():
                if own.obstacle is None:
                    terms |= dict.fromkeys(self._merged(alike, counts, free, context), own)
        there = context.fgraph.apply_nodes
        for terms in classes:
            _explain({node: own for node, own in terms.items() if node in there}, free, context)
        return any(node not in there for terms in classes for node in terms)

    def _merged(
        self, loops: Sequence[Apply], counts: StepCounts, free: set[Apply], context: PassContext
    ) -> list[Apply]:
        """Merge loops of one key; return the new ones.

        The level of a node is the largest number of these loops on a path to it. It grows along
        each path from loop to loop, so loops of one level do not depend on one another. Making one
        node of each level keeps it growing along all paths: there can be no cycle, whatever else
        the paths pass. Loops of other keys may meet on such a path, so every key has levels of its
        own, which are found when the keys before it are merged.
        """
        merged: list[Apply] = []
        by_level: dict[int, list[Apply]] = defaultdict(list)
        for node, level in levels(loops, free).items() if len(loops) > 1 else ():
            by_level[level].append(node)
        for group in by_level.values():
            if len(group) > 1 and context.budget.spend():
                group.sort(key=context.title)
                counts.unify(context.fgraph, [node.inputs[0] for node in group], self.name)
                views = [ScanView.of(node) for node in group]
                joined = ScanView.joined(views, _joined_name([view.name for view in views]))
                others = _told([context.title(node) for node in group[1:]])
                context.changed(joined, f"merged with {others}")
                replacements = joined.rebuild()
                context.fgraph.replace_all(list(replacements.items()), reason=self.name)
                merged.append(next(iter(replacements.values())).owner)
        return merged


def _explain(terms: Mapping[Apply, LoopTerms], free: set[Apply], context: PassContext) -> None:
    """Say why loops that run equally often and are independent were not merged.

    One remark for each way to differ from the first, so at most one for a loop.
    """
    if len(set(terms.values())) == 1 and not any(own.obstacle for own in terms.values()):
        return  # they depend on one another, or the budget is spent
    found = levels(terms, free)
    first: dict[int, Apply] = {}
    told: set[tuple[int, LoopTerms]] = set()
    for node in sorted(terms, key=lambda node: (terms[node].obstacle or "", context.title(node))):
        level, own = found[node], terms[node]
        other = first.setdefault(level, node)
        reason = None if other is node else own.against(terms[other])
        if reason is not None and (level, own) not in told:
            told.add((level, own))
            context.kept(ScanView.of(node), f"not merged with `{context.title(other)}`: {reason}")


def _joined_name(names: Collection[str]) -> str:
    """Names in alphabetical order, each once, joined by ``&`` as PyTensor does it.

    The pullbacks of ``f`` and ``g`` are called what the pullback of ``f&g`` is.
    """
    if all(name.startswith(PULLBACK) for name in names):
        return PULLBACK + _joined_name([name.removeprefix(PULLBACK) for name in names])
    parts = sorted({part for name in names for part in name.split("&")} - {"..."})
    return "&".join(parts if len(parts) <= _NAMES else [*parts[:_NAMES], "..."])


def _told(titles: Sequence[str]) -> str:
    names = [f"`{title}`" for title in titles[:_NAMES]]
    if len(titles) > _NAMES:
        names.append(f"{len(titles) - _NAMES} others")
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)

"""Write slices plainly, and read rows where they come from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import vars_between

from scanopt_cli.graphs.bodies import op_name
from scanopt_cli.graphs.constants import has_negative_zero
from scanopt_cli.graphs.levels import IfElse
from scanopt_cli.passes.base import Pass, Site
from scanopt_cli.passes.slice_counts import counted
from scanopt_cli.passes.slice_facts import Facts
from scanopt_cli.passes.slice_reads import behind_write, element, merged
from scanopt_cli.passes.slice_writes import nested, plainer, whole
from scanopt_cli.scans.lengths import Lengths
from scanopt_cli.scans.view import ScanView, scan_op

# One rewrite frees the next; a chain of slices takes about one sweep a link.
_SWEEPS = 20

type Rule = Callable[[Apply, Facts], Variable | None]

_RULES: tuple[tuple[str, str, Rule], ...] = (
    ("counted {}", "length", counted),
    ("did without {} where all of it is written", "buffer", whole),
    ("joined {} into zeros with what it is written to", "write", nested),
    ("gave {} a plainer index", "write", plainer),
    ("read {} where it comes from", "slice", behind_write),
    ("made {} plain", "slice", merged),
    ("read {} instead of a sum or of an axis of length 1", "row", element),
)


@dataclass(frozen=True)
class CleanSlices(Pass):
    """TODO."""

    name: ClassVar[str] = "clean-slices"
    everywhere: ClassVar[bool] = True

    def run(self, site: Site) -> bool:
        """Rewrite ``site.fgraph`` node by node, until nothing changes."""
        if in_place := [node for node in site.fgraph.apply_nodes if node.op.destroy_map]:
            site.kept(None, f"cleaned nothing: {op_name(in_place[0].op)} works in place")
            return False
        done: Counter[int] = Counter()
        for _ in range(_SWEEPS):
            swept = _sweep(site)
            if not swept:
                break
            done += swept
        for place, count in sorted(done.items()):
            told, what, _ = _RULES[place]
            site.changed(None, told.format(f"{count} {what}{'s' if count > 1 else ''}"))
        return bool(done)


def _sweep(site: Site) -> Counter[int]:
    """Try every rule once on each node, and return how often each was used."""
    done: Counter[int] = Counter()
    facts: dict[Variable | None, Facts] = {}
    steps: dict[Apply, Variable | None] = {}
    for node in site.fgraph.toposort():
        known = steps[node] = _steps_before(node, steps)
        if node not in site.fgraph.apply_nodes or len(node.outputs) != 1:
            continue
        if known not in facts:
            facts[known] = Facts(Lengths(known))
        for place, (_, _, rule) in enumerate(_RULES):
            new = rule(node, facts[known])
            if new is None or not _fits(node.outputs[0], new, site):
                continue
            if not site.budget.spend():
                return done
            site.fgraph.replace_all([(node.outputs[0], new)], reason=CleanSlices.name)
            done[place] += 1
            break
    return done


def _steps_before(node: Apply, steps: dict[Apply, Variable | None]) -> Variable | None:
    """The step count of a loop that has run, if ``node`` runs: it is not negative."""
    if scan_op(node) is not None:
        return ScanView.of(node).n_steps
    if isinstance(node.op, IfElse):
        return None
    before = (steps.get(part.owner) for part in node.inputs if part.owner is not None)
    return next((count for count in before if count is not None), None)


def _fits(old: Variable, new: Variable, site: Site) -> bool:
    """Whether ``new`` may stand for ``old``: its type, and what it is made of."""
    fgraph: FunctionGraph = site.fgraph
    if new is old or not old.type.is_super(new.type) or has_negative_zero(new):
        return False
    if site.path and old in fgraph.outputs and new.type != old.type:
        # What a body returns has the type that the loop around it expects.
        return False
    fresh = [part for part in vars_between(fgraph.variables, [new]) if part not in fgraph.variables]
    return all(isinstance(part, Constant) for part in fresh if part.owner is None)

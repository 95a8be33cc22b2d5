"""The contract of a pass, its remarks, and the walk over Scans that passes share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, ClassVar

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.analysis.buffers import trimmed
from scanopt_cli.equivalence.canonical import Digests
from scanopt_cli.equivalence.sameness import Sameness
from scanopt_cli.ir.inner_graphs import op_name
from scanopt_cli.ir.naming import slot_names, titles
from scanopt_cli.ir.scan_view import ScanView, Slot, scan_op


class RemarkKind(StrEnum):
    """Whether a pass did something or left something alone."""

    CHANGED = "changed"
    KEPT = "kept"


@dataclass(frozen=True, slots=True)
class Remark:
    """A note that a pass changed a Scan, or examined it and left it alone, and why.

    ``scan`` is the name of the Scan after the names of the loops and graphs around it, outermost
    first, joined by ``/``. For a remark on a whole graph, it holds only the names around that
    graph, or ``graph`` if there are none.
    """

    pass_name: str
    scan: str
    kind: RemarkKind
    message: str


class RewriteBudget:
    """Counts rewrites against a limit; without a limit, any number is allowed."""

    def __init__(self, limit: int | None = None) -> None:
        self.left = limit
        self.spent = 0

    @property
    def is_left(self) -> bool:
        """Whether another rewrite is allowed."""
        return self.left is None or self.spent < self.left

    def spend(self) -> bool:
        """Take one rewrite from the budget; return whether one was left."""
        if not self.is_left:
            return False
        self.spent += 1
        return True


@dataclass(slots=True)
class PassContext:
    """One graph that a pass works on: the outer graph, or a body.

    ``path`` names the loops and graphs around it, and ``around`` names the graph's inputs as the
    loop around it does. ``is_inlined`` marks a body that PyTensor inlines in place of its
    OpFromGraph. The pass appends to ``remarks``. ``settled`` holds the digests of graphs in which
    the pass has nothing to do, for as long as the pipeline runs: a pass that is slow to find that
    out looks there first, and adds to it.
    """

    fgraph: FunctionGraph
    pass_name: str
    budget: RewriteBudget
    remarks: list[Remark]
    path: tuple[str, ...] = ()
    around: Mapping[Variable, str] = field(default_factory=dict)
    is_inlined: bool = False
    settled: set[str] = field(default_factory=set)
    _digests: Digests | None = field(default=None, init=False)
    _titles: dict[Apply, str] = field(default_factory=dict, init=False)

    def changed(self, view: ScanView | None, message: str) -> None:
        """Add a remark that a Scan was changed, or the graph if ``view`` is ``None``."""
        self._remark(view, RemarkKind.CHANGED, message)

    def kept(self, view: ScanView | None, message: str) -> None:
        """Add a remark that something in a Scan, or in the graph, was left alone, and why."""
        self._remark(view, RemarkKind.KEPT, message)

    def scans(self, *, from_the_end: bool = False) -> Iterator[ScanView]:
        """Yield each Scan that is still in the graph when its turn comes, in topological order."""
        nodes = self.fgraph.toposort()
        for node in reversed(nodes) if from_the_end else nodes:
            if scan_op(node) is not None and node in self.fgraph.apply_nodes:
                yield ScanView.of(node)

    def clients(self, variable: Variable | None) -> list[tuple[Any, int]]:
        """Return the uses of ``variable``: pairs of a node and the position of its input."""
        return [] if variable is None else list(self.fgraph.clients.get(variable, ()))

    def title(self, node: Apply) -> str:
        """Return the name of a node that holds a graph; changes to the graph do not alter it."""
        if node not in self._titles:
            self._titles = {**titles(self.fgraph.outputs), **self._titles}
        return self._titles.setdefault(node, op_name(node.op))

    def keep_title(self, node: Apply, new_node: Apply) -> None:
        """Give ``new_node``, which replaces ``node``, the name of ``node``."""
        self._titles[new_node] = self.title(node)

    def names(self, view: ScanView) -> dict[Slot, str]:
        """Return a name for each slot of a Scan, for remarks; call before changing the slots."""
        return dict(zip(view.slots, slot_names(view, self.clients, self.around), strict=True))

    @property
    def digests(self) -> Digests:
        """Exact keys of variables: equal keys mean equal values.

        Valid for variables upstream of the Scan at hand: a pass walks its graph in topological
        order, so nothing upstream changes once its key is computed.
        """
        if self._digests is None:
            self._digests = Digests(
                self.fgraph.inputs, sameness=Sameness(gradients=True, exact=True)
            )
        return self._digests

    def same(self, variable: Variable) -> bytes:
        """Return the key of ``variable``: equal only for variables of equal values."""
        return self.digests.of(variable)

    def condition(self, view: ScanView) -> bytes | None:
        """Return the key of a loop's stop condition, ``None`` if it has none.

        Keys are equal only for loops that always stop after equally many steps.
        """
        return None if view.condition is None else self.digests.of_condition(view)

    def is_in_place(self, done: str) -> bool:
        """Whether a node of the graph works in place; if so, remark that nothing was ``done``."""
        node = next((node for node in self.fgraph.apply_nodes if node.op.destroy_map), None)
        if node is not None:
            self.kept(None, f"{done} nothing: {op_name(node.op)} works in place")
        return node is not None

    def tell_doubts(self) -> None:
        """Remark on anything compared by identity or by state, not by declared properties."""
        if self._digests is None:
            return
        sameness = self._digests.sameness
        for text, names in (
            ("compared by identity", sameness.opaque),
            ("Ops without __props__, compared by all their state", sameness.by_state),
        ):
            if names:
                self.kept(None, f"{text}: {', '.join(sorted(set(names)))}")

    def _remark(self, view: ScanView | None, kind: RemarkKind, message: str) -> None:
        names = self.path if view is None else (*self.path, self.title(view.node))
        self.remarks.append(Remark(self.pass_name, "/".join(names) or "graph", kind, message))


@dataclass(frozen=True)
class Pass(ABC):
    """A rewrite of graphs. Subclasses are frozen dataclasses; their fields are the pass's options.

    The pipeline runs a pass on every body before it runs it on the graph that holds the body, so a
    pass sees one flat graph. A subclass's docstring is its manual: it lists the legal cases by
    number, states the preconditions and ends with what is out of scope.
    """

    name: ClassVar[str]
    trims: ClassVar[bool] = False
    """Whether the pass trims buffers, so that they do not hold every step."""
    everywhere: ClassVar[bool] = False
    """Whether the pass also works on graphs without a loop."""

    @abstractmethod
    def run(self, context: PassContext) -> bool:
        """Rewrite ``context.fgraph`` in place; return whether anything changed."""

    def options(self) -> dict[str, Any]:
        """Return the options that differ from their defaults."""
        return {
            option.name: getattr(self, option.name)
            for option in fields(self)
            if getattr(self, option.name) != option.default
        }


class ScanPass(Pass):
    """A pass that rewrites one Scan at a time, in topological order or its reverse."""

    takes_trimmed: ClassVar[bool] = True
    """Whether the pass is valid on a Scan whose buffers do not hold every step."""
    takes_in_place: ClassVar[bool] = True
    """Whether the pass is valid on a Scan whose body works in place."""
    from_the_end: ClassVar[bool] = False
    """Whether to visit later Scans first, since changing one may enable changes in its operands."""

    @abstractmethod
    def rewrite(self, view: ScanView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for the outputs of a Scan and their readers, ``None`` for none.

        `run` replaces all keys at once. If a rewrite rebuilds the Scan, every output that is
        missing from the keys must have no reader, or the old Scan stays alive. A pass asks
        ``context.budget.spend()`` before it decides to change anything.
        """

    def run(self, context: PassContext) -> bool:
        """Call `rewrite` once on every Scan of ``context.fgraph`` that the pass takes."""
        changed = False
        for view in context.scans(from_the_end=self.from_the_end):
            if not self.takes_trimmed and (short := trimmed(view)):
                names = ", ".join(slot.label for slot in short)
                context.kept(view, f"the buffers of {names} are not proved to hold every step")
                continue
            if not self.takes_in_place and works_in_place(view):
                context.kept(view, "a step works in place")
                continue
            replacements = self.rewrite(view, context)
            if replacements:
                context.fgraph.replace_all(list(replacements.items()), reason=self.name)
                changed = True
        return changed


def works_in_place(view: ScanView) -> bool:
    """Whether a node of a loop's body overwrites an operand."""
    return any(node.op.destroy_map for node in view.op.fgraph.toposort())

"""The contract of a pass, and what the pipeline gives it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, ClassVar, Self, cast

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.scan.op import Scan

from scanopt_cli.equivalence.digests import Digests
from scanopt_cli.equivalence.loop_forms import condition_key
from scanopt_cli.equivalence.sameness import Sameness
from scanopt_cli.errors import PassError, ScanoptError, brief
from scanopt_cli.facts import Fact
from scanopt_cli.ir.inner_graphs import core_op, op_name
from scanopt_cli.ir.levels import always_computed
from scanopt_cli.ir.naming import slot_names, titles
from scanopt_cli.ir.remembered_order import notes_on
from scanopt_cli.ir.scan_view import ScanView, inner_slots, is_loop, scan_op, view_of
from scanopt_cli.ir.slots import HasSlots, Slot, SlotKind, SlotView
from scanopt_cli.ir.written import place_of
from scanopt_cli.remarks import Code, Detail, Reason, Remark, RemarkKind, Why, because

_TITLES = "titles"  # the key of a note


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One rewrite of a graph, which leaves the values of its outputs as they are.

    ``replacements`` map variables to those that replace them wherever they are read; ``inputs``
    replace inputs of single nodes. It counts as ``count`` rewrites; with 0 it only prepares another
    one, and alone is no change.
    """

    replacements: Mapping[Variable, Variable] = field(default_factory=dict)
    inputs: Sequence[tuple[Apply, int, Variable]] = ()
    count: int = 1

    def apply(self, fgraph: FunctionGraph, reason: str) -> None:
        """Apply it to ``fgraph``. If types do not fit, it raises and leaves the graph as it is."""
        pairs = [
            (old, old.type.filter_variable(new, allow_convert=True))
            for old, new in self.replacements.items()
            if old is not new
        ]
        fgraph.replace_all(pairs, reason=reason)
        for node, position, new in self.inputs:
            fgraph.change_node_input(node, position, new, reason=reason)


@dataclass(frozen=True, slots=True)
class Fixpoint:
    """A rewrite of a whole graph, to be repeated until the graph takes a form that it had before.

    ``rewritten`` returns another form of a graph, with nodes of its own over the same inputs. It
    may lead from one form to another and back: then the driver takes the smallest of these. If no
    form recurs within ``attempts`` rewrites, it leaves the graph alone.
    """

    rewritten: Callable[[FunctionGraph], FunctionGraph]
    attempts: int


class WholeGraph:
    """The graph that a run of a pass works on, with all its bodies, and what it found there."""

    def __init__(self, fgraph: FunctionGraph) -> None:
        self._fgraph = fgraph
        self._found: dict[object, object] = {}

    def found[T](self, search: Callable[[FunctionGraph, Sameness], T], sameness: Sameness) -> T:
        """Return what ``search`` found in the graph as it was when the run first asked for it.

        A pass that asks before its first rewrite so learns of the graph as the run found it.
        """
        if search not in self._found:
            self._found[search] = search(self._fgraph, sameness)
        return cast(T, self._found[search])


@dataclass(slots=True)
class PassContext:
    """One graph that a pass works on: the outer graph, or a body.

    ``path`` names the loops and graphs around it, and ``around`` names the graph's inputs as the
    loop around it does; ``holder`` is the Op that holds it, ``None`` of the outer graph.
    ``is_inlined`` marks a body that PyTensor inlines in place of its
    OpFromGraph. The pass appends to ``remarks``. With ``strict``, an error of the pass is raised.
    ``sameness`` is what makes exact keys; it may know Ops and loops of graphs before. ``whole`` is
    the graph that holds the body, at any depth.
    """

    fgraph: FunctionGraph
    pass_name: str
    remarks: list[Remark]
    whole: WholeGraph
    path: tuple[str, ...] = ()
    around: Mapping[Variable, str] = field(default_factory=dict)
    holder: Op | None = None
    is_inlined: bool = False
    strict: bool = True
    sameness: Sameness = field(default_factory=lambda: Sameness(gradients=True, exact=True))
    _digests: Digests | None = field(default=None, init=False)
    _titles: dict[Apply, str] = field(default_factory=dict, init=False)
    _places: dict[Apply, str | None] = field(default_factory=dict, init=False)
    _always: set[Apply] | None = field(default=None, init=False)

    def passed(
        self, view: SlotView | None, code: Code, *slots: str, count: int = 1, **details: Detail
    ) -> None:
        """Add a remark on a rewrite of a loop, or of the graph if ``view`` is ``None``."""
        self._remark(view, code, RemarkKind.PASSED, slots, details, count=count)

    def missed(
        self,
        view: SlotView | None,
        code: Code,
        why: Reason | Why | None,
        *slots: str,
        **details: Detail,
    ) -> None:
        """Add a remark on what was not rewritten in a loop, or in the graph, and why.

        There is no reason to give if the code says it.
        """
        reason = Fact(why) if isinstance(why, Why) else why
        self._remark(view, code, RemarkKind.MISSED, slots, details, reason)

    def found(
        self,
        view: SlotView | None,
        code: Code,
        *slots: str,
        why: Reason | None = None,
        **details: Detail,
    ) -> None:
        """Add a remark on what was found out about a loop, or about the graph."""
        self._remark(view, code, RemarkKind.ANALYSIS, slots, details, why)

    def failed(self, view: SlotView | None, error: Exception) -> None:
        """Remark that the pass raised ``error``, so that a loop, or the graph, stays as it is.

        Raises
        ------
        Exception
            ``error``, if the context is ``strict`` or it is an error for the user.
        """
        if self.strict or isinstance(error, ScanoptError):
            raise error
        self.missed(view, Code.PASS_FAILED, None, error=brief(error))

    def invariants(self) -> set[Variable]:
        """Return the inputs of a loop's body that are the same at each step."""
        op = None if self.holder is None else core_op(self.holder)
        if not isinstance(op, Scan | HasSlots):
            return set()
        inputs = dict(zip(cast("Scan", op).fgraph.inputs, self.fgraph.inputs, strict=True))
        kinds = (SlotKind.NON_SEQ, SlotKind.CONSTANT)
        slots = (slot for slot in inner_slots(op) if slot.kind in kinds)
        return {inputs[variable] for slot in slots for variable in slot.inner_inputs}

    def scans(self, *, from_the_end: bool = False) -> Iterator[ScanView]:
        """Yield each Scan that is still in the graph when its turn comes, in topological order."""
        return (ScanView.of(node) for node in self._nodes(from_the_end) if scan_op(node))

    def loops(self, *, from_the_end: bool = False) -> Iterator[SlotView]:
        """Yield each loop, Scan, TracedLoop or Loop, as `scans` does."""
        return (view_of(node) for node in self._nodes(from_the_end) if is_loop(node))

    def _nodes(self, from_the_end: bool) -> Iterator[Apply]:
        nodes = self.fgraph.toposort()
        ordered = reversed(nodes) if from_the_end else nodes
        return (node for node in ordered if node in self.fgraph.apply_nodes)

    def clients(self, variable: Variable | None) -> list[tuple[Any, int]]:
        """Return the uses of ``variable``: pairs of a node and the position of its input."""
        return [] if variable is None else list(self.fgraph.clients.get(variable, ()))

    def title(self, node: Apply) -> str:
        """Return the name of a node that holds a graph; changes to the graph do not alter it."""
        if node not in self._titles:
            notes = notes_on(self.fgraph)
            if _TITLES not in notes:
                notes[_TITLES] = titles(self.fgraph.outputs)
            self._titles = {**notes[_TITLES], **self._titles}
        return self._titles.setdefault(node, op_name(node.op))

    def keep_title(self, node: Apply, new_node: Apply) -> None:
        """Give ``new_node``, which replaces ``node``, the name of ``node``."""
        self._titles[new_node] = self.title(node)

    def names(self, view: SlotView) -> dict[Slot, str]:
        """Return a name for each slot of a loop, for remarks; call before changing the slots."""
        return dict(zip(view.slots, slot_names(view, self.clients, self.around), strict=True))

    @property
    def digests(self) -> Digests:
        """Exact keys of variables: equal keys mean equal values.

        Valid for variables upstream of the loop at hand: a pass walks its graph in topological
        order, so nothing upstream changes once its key is computed. The next pass goes on with
        them if this one changes nothing.
        """
        if self._digests is None:
            notes = notes_on(self.fgraph)
            self._digests = notes.get(self.sameness)
            if self._digests is None:
                self.sameness.begin()
                self._digests = notes[self.sameness] = Digests(self.fgraph.inputs, self.sameness)
        return self._digests

    def same(self, variable: Variable) -> bytes:
        """Return the key of ``variable``: equal only for variables of equal values."""
        return self.digests.of(variable)

    def condition(self, view: SlotView) -> bytes | None:
        """Return the key of a loop's stop condition, ``None`` if it has none.

        Keys are equal only for loops that always stop after equally many steps.
        """
        return None if view.condition is None else condition_key(self.digests, view)

    def is_conditional(self, node: Apply) -> bool:
        """Whether a branch of an IfElse decides if ``node`` is computed.

        Nodes that the pass added always count as conditional.
        """
        if self._always is None:
            self._always = always_computed(self.fgraph.outputs)
        return node not in self._always

    def is_in_place(self) -> bool:
        """Whether a node of the graph works in place; if so, remark that nothing is rewritten."""
        node = next((node for node in self.fgraph.apply_nodes if node.op.destroy_map), None)
        if node is not None:
            self.missed(None, Code.GRAPH_LEFT, because(Why.IN_PLACE, what=op_name(node.op)))
        return node is not None

    def _place(self, node: Apply) -> str | None:
        """Return where a loop was written: found once, since each of its outputs is asked."""
        if node not in self._places:
            self._places[node] = place_of(node)
        return self._places[node]

    def remark_on_comparisons(self) -> None:
        """Remark on anything compared by identity or by state, not by declared properties."""
        if self._digests is None:
            return
        sameness = self._digests.sameness
        for code, names in (
            (Code.OPS_BY_IDENTITY, sameness.opaque),
            (Code.OPS_BY_STATE, sameness.by_state),
        ):
            if names:
                self.found(None, code, ops=tuple(sorted(set(names))))

    def _remark(
        self,
        view: SlotView | None,
        code: Code,
        kind: RemarkKind,
        slots: tuple[str, ...],
        details: Mapping[str, Detail],
        reason: Reason | None = None,
        count: int = 1,
    ) -> None:
        names = self.path if view is None else (*self.path, self.title(view.node))
        self.remarks.append(
            Remark(
                pass_name=self.pass_name,
                code=code,
                kind=kind,
                scan="/".join(names) or "graph",
                slots=slots,
                details=details,
                place=None if view is None else self._place(view.node),
                reason=reason,
                count=count,
            )
        )


@dataclass(frozen=True, slots=True)
class CompilationTarget:
    """What passes know of the mode that PyTensor compiles a graph by.

    Attributes
    ----------
    linker
        ``numba``, ``jax``, ``c``, or the class of another linker.
    preallocates
        Whether steps write into a row of a buffer that is kept for them.
    excluded
        The tags and names of the rewrites that the mode leaves out.
    """

    linker: str
    preallocates: bool
    excluded: frozenset[str] = frozenset()

    @property
    def raises(self) -> bool:
        """Whether errors that depend on values can be raised, which JAX cannot."""
        return self.linker != "jax"

    @property
    def is_compiled(self) -> bool:
        """Whether a whole step is compiled. If not, each operation of it takes long."""
        return self.linker in ("numba", "jax")


def check_from_zero(**options: float) -> None:
    """Raise a `PassError` that names the first of the options of a pass that is below 0.

    NaN and infinity are refused as well.
    """
    for name, value in options.items():
        if not 0 <= value < inf:
            raise PassError(f"{name} is a number from 0 on, not {value}")


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
    of_graphs: ClassVar[bool] = False
    """Whether the pass is about OpFromGraphs, and about all nodes that apply one: it does not run
    where there is none, and what it does in a body may depend on the graph around it."""
    undoes: ClassVar[str | None] = None
    """The pass that this one reverses, so that a pipeline may have one of them only."""
    starts_phase: ClassVar[bool] = False
    """Whether the pass waits until those before it in the pipeline have nothing left to do."""
    repeats: ClassVar[bool] = False
    """Whether the pass runs in both stages of a compilation: PyTensor makes more of a graph equal,
    unused or constant in between."""
    sweeps: ClassVar[int] = 1
    """How often the pass may run on a graph in a row, as one of its rewrites enables the next."""

    def adapted(self, target: CompilationTarget) -> Self:  # noqa: ARG002
        """Return the pass with the options that fit what a graph is compiled for."""
        return self

    @abstractmethod
    def rewrites(self, context: PassContext) -> Iterator[Rewrite | Fixpoint]:
        """Yield rewrites of ``context.fgraph``, which the driver applies before it asks for more.

        A pass does not change the graph itself. If the budget is spent, the driver does not ask
        again, so a pass adds the remark on a rewrite before it yields it.
        """

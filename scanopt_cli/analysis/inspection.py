"""Reports every loop of a graph and its slots; nested loops follow their outer loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import AbstractFunctionGraph, Output
from pytensor.tensor.subtensor import Subtensor

from scanopt_cli.analysis.affine import AffineExpr
from scanopt_cli.analysis.body_lengths import BodyLengths
from scanopt_cli.analysis.buffers import is_trimmed, is_whole
from scanopt_cli.analysis.expression_text import describe, loop_results, titled
from scanopt_cli.analysis.formulas import Formula
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.loop_lengths import rows
from scanopt_cli.analysis.named_loops import NamedLoop, named_loops
from scanopt_cli.analysis.same_draws import is_fixed_generator
from scanopt_cli.analysis.statistics import buffer_bytes, has_buffer
from scanopt_cli.analysis.step_costs import StepCost, step_cost
from scanopt_cli.equivalence.digests import Digests
from scanopt_cli.equivalence.sameness import Sameness
from scanopt_cli.ir.naming import entry_of, titles
from scanopt_cli.ir.scan_view import ScanView, is_loop, loop_op
from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.presentation import Presented

_WITHOUT_SOURCE = (SlotKind.NIT_SOT, SlotKind.TRACED, SlotKind.INDEX)


@dataclass(frozen=True, slots=True)
class Entry:
    """Which entry of which array a slot is, where an array was split into numbers."""

    array: str
    place: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SlotReport(Presented):
    """One slot of a loop, as text.

    ``dtype`` and ``shape`` are those of what a step reads or computes: of one row, with lengths
    that may be formulas. ``rows`` is the buffer's length, and ``bytes`` the memory that it takes,
    as a formula (``None`` for slots without a buffer). ``whole`` says whether the buffer provably
    holds every step, ``trimmed`` whether it is trimmed (see `is_trimmed`); it may be neither.
    ``inside`` is what the body reads or computes. ``entry`` says of which array it is an entry, if
    a pass split one into numbers. ``same_draws`` says that it is a generator from which every step
    draws the same numbers.
    """

    kind: str
    name: str
    taps: tuple[int, ...]
    out_taps: tuple[int, ...]
    dtype: str
    shape: tuple[str, ...] = ()
    fed_by: str
    inside: str
    read_by: tuple[str, ...]
    rows: str | None
    bytes: str | None = None
    whole: bool
    trimmed: bool
    entry: Entry | None = None
    same_draws: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ScanReport(Presented):
    """One loop, a Scan or a TracedLoop.

    Attributes
    ----------
    kind
        ``Scan`` or ``TracedLoop``.
    name
        Its name, numbered where its graph has more loops of that name.
    path
        The names of the loops and graphs around it.
    depth
        How many loops are around it.
    place
        Where it was written (``model.py:41 in step``), if that is known.
    steps
        How many steps it runs, at most.
    stops_when
        The condition of a Scan.
    runs_while
        The condition of a TracedLoop.
    batch_ndim
        The number of its batch axes.
    truncate_gradient
        After how many steps its gradient is truncated; -1 for never.
    inner_nodes
        How many nodes its body has.
    bytes
        The memory that its buffers take, in one run of the loop, as a formula.
    step
        What one step computes.
    digest
        What it computes, whatever it is applied to: equal for equal loops, the one that `hash
        --inner` prints.
    fed_digest
        The digest of the loop together with its inputs: loops of which this is equal, too, have
        equal results.
    occurrences
        How many loops of the graph have its `digest`.
    slots
        Its slots.
    """

    kind: str
    name: str
    path: tuple[str, ...]
    depth: int
    place: str | None
    steps: str
    stops_when: str | None
    runs_while: str | None
    batch_ndim: int
    truncate_gradient: int
    inner_nodes: int
    bytes: str
    step: StepCost
    digest: str
    fed_digest: str
    occurrences: int = 1
    slots: tuple[SlotReport, ...]

    @property
    def title(self) -> str:
        """The name of the loop after those around it, joined by ``/``."""
        return "/".join((*self.path, self.name))


@dataclass(frozen=True, slots=True, repr=False)
class Inspection(Presented):
    """Every loop of a graph, outer ones before those in their bodies.

    ``shared`` has the names of the graph's shared variables, and ``bytes`` is the memory that the
    buffers of all loops take, as a formula; those of nested loops count once, not once for each
    step of the loop around them.
    """

    scans: tuple[ScanReport, ...]
    shared: tuple[str | None, ...] = ()
    bytes: str = "0"


def inspect_graph(fgraph: AbstractFunctionGraph) -> Inspection:
    """Report every loop in ``fgraph``; the same body in two places is reported twice."""
    shared = tuple(v.name for v in fgraph.inputs if isinstance(v, SharedVariable))
    found = list(reported_loops(fgraph, each_place=True))
    times = Counter(reported.report.digest for reported in found)
    scans = tuple(replace(one.report, occurrences=times[one.report.digest]) for one in found)
    return Inspection(scans, shared, str(Formula.total(s for one in found for s in one.sizes)))


@dataclass(frozen=True, slots=True)
class ReportedLoop:
    """A loop with its report, and the memory that the buffer of each slot takes, in bytes."""

    loop: NamedLoop
    report: ScanReport
    sizes: tuple[Formula, ...]


def reported_loops(
    fgraph: AbstractFunctionGraph, *, each_place: bool = False
) -> Iterator[ReportedLoop]:
    """Yield the loops that `named_loops` yields, each with its report."""
    inspector = _Inspector()
    for loop in named_loops(fgraph, each_place=each_place):
        yield inspector.report(loop)


class _Inspector:
    """Reports the loops of one graph, each after those around it."""

    def __init__(self) -> None:
        # These hold for the whole graph, wherever a loop runs: no trip count is assumed.
        self._lengths = Lengths()
        self._steps: dict[NamedLoop, BodyLengths] = {}
        self._sameness = Sameness()
        self._digests: dict[int, Digests] = {}

    def report(self, loop: NamedLoop) -> ReportedLoop:
        """Return a loop with its report."""
        view, parent = loop.view, loop.parent
        is_in_body = parent is not None and loop.graph is parent.view.op.fgraph
        around = self._steps[parent] if parent is not None and is_in_body else None
        steps = BodyLengths(view.node, self._lengths, around, loop.inner_names)
        self._steps[loop] = steps
        naming = _Naming(loop, steps, around or self._lengths)
        lengths = Lengths(view.n_steps)
        tell = _as_it_is if around is None else around.in_outer_terms
        slots, sizes = [], []
        for slot, name in loop.names.items():
            slot_report, size = _slot(slot, name, naming, lengths, tell)
            slots.append(slot_report)
            sizes.append(size)
        condition = None if view.condition is None else naming.describe_inside(view.condition)
        is_scan = isinstance(view, ScanView)
        report = ScanReport(
            kind=view.design,
            name=loop.path[-1],
            path=loop.path[:-1],
            depth=_depth(loop),
            place=loop.place,
            steps=str(Formula.of(tell(lengths.steps))),
            stops_when=condition if is_scan else None,
            runs_while=None if is_scan else condition,
            batch_ndim=view.batch_ndim,
            truncate_gradient=int(view.op.truncate_gradient) if is_scan else -1,
            inner_nodes=len(view.op.fgraph.apply_nodes),
            bytes=str(Formula.total(sizes)),
            step=step_cost(view, steps),
            digest=self._sameness.of_op(view.op).hex(),
            fed_digest=self._fed_digest(loop),
            slots=tuple(slots),
        )
        return ReportedLoop(loop, report, tuple(sizes))

    def _fed_digest(self, loop: NamedLoop) -> str:
        graph = loop.graph
        if id(graph) not in self._digests:
            self._digests[id(graph)] = Digests(graph.inputs, self._sameness)
        digests = self._digests[id(graph)]
        results = sorted(map(digests.of, loop.view.node.outputs))
        return self._sameness.key("loop", results).hex()


def _as_it_is(length: AffineExpr) -> AffineExpr:
    return length


def _depth(loop: NamedLoop) -> int:
    depth = 0
    while loop.parent is not None:
        loop, depth = loop.parent, depth + 1
    return depth


class _Naming:
    """Describes the outer and inner variables of a loop, and the readers of the outer ones."""

    def __init__(
        self, loop: NamedLoop, inside: BodyLengths, outside: BodyLengths | Lengths
    ) -> None:
        self.loop = loop
        self._inside, self._outside = inside, outside
        results = loop_results(titles(loop.view.op.fgraph.outputs))
        self._inner_names: Mapping[Variable, str] = {**loop.inner_names, **results}

    def shape(self, variable: Variable) -> tuple[str, ...]:
        return tuple(map(str, self._inside.shape(variable)))

    def describe_outside(self, variable: Variable) -> str:
        return describe(variable, self.loop.outer_names, lengths=self._outside, longest=None)

    def describe_inside(self, variable: Variable) -> str:
        return describe(variable, self._inner_names, lengths=self._inside, longest=None)

    def readers(self, variable: Variable) -> Iterator[str]:
        for node, position in self.loop.clients(variable):
            yield self._reader(node, position)

    def _reader(self, node: Apply, position: int) -> str:
        if isinstance(node.op, Output):
            return f"output {node.op.idx}"
        if is_loop(node):
            return titled(type(loop_op(node)).__name__, self.loop.titles[node])
        if position == 0 and isinstance(node.op, Subtensor):
            names = {node.inputs[0]: ""}
            return describe(node.outputs[0], names, depth=1, lengths=self._outside)
        return str(node.op).partition("{")[0]


def _slot(
    slot: Slot,
    name: str,
    naming: _Naming,
    lengths: Lengths,
    tell: Callable[[AffineExpr], AffineExpr],
) -> tuple[SlotReport, Formula]:
    """Return the report of a slot, and the memory that its buffer takes."""
    view = naming.loop.view
    is_kept = has_buffer(slot, lambda output: bool(naming.loop.graph.clients.get(output)))
    size = buffer_bytes(view, [slot], lengths).substituted(tell) if is_kept else Formula()
    read_by = [
        f"{reader}{_of_last(slot, output)}"
        for output in slot.outer_outputs
        for reader in naming.readers(output)
    ]
    row = (slot.inner_outputs or slot.inner_inputs)[0]
    entry = entry_of(slot)
    report = SlotReport(
        kind=slot.kind.value,
        name=name,
        taps=slot.taps,
        out_taps=slot.out_taps,
        dtype=_dtype(row.type),
        shape=naming.shape(row),
        fed_by="" if slot.kind in _WITHOUT_SOURCE else naming.describe_outside(slot.outer_input),
        inside=_inside(slot, naming),
        read_by=tuple(read_by),
        rows=str(Formula.of(tell(rows(view, slot, lengths)))) if is_kept else None,
        bytes=str(size) if is_kept else None,
        whole=is_whole(view, slot, lengths),
        trimmed=is_trimmed(view, slot, lengths),
        entry=None if entry is None else Entry(*entry),
        same_draws=is_fixed_generator(view, slot),
    )
    return report, size


def _dtype(kind: Any) -> str:
    return str(getattr(kind, "dtype", None) or type(kind).__name__)


def _of_last(slot: Slot, output: Variable) -> str:
    """Say of a reader of a state of a TracedLoop what it reads, the last value or the trace."""
    if slot.last is None:
        return ""
    return " (last)" if output is slot.last else " (trace)"


def _inside(slot: Slot, naming: _Naming) -> str:
    """What a step computes for the slot, or the names of its inner inputs if it has no outputs."""
    body = naming.loop.view.op.fgraph
    if not slot.inner_outputs and not any(map(body.clients.get, slot.inner_inputs)):
        return "no step reads it"
    return ", ".join(map(naming.describe_inside, slot.inner_outputs or slot.inner_inputs))

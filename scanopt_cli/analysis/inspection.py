"""Reports every loop of a graph as a table of its slots; nested loops follow their outer loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import AbstractFunctionGraph, Output
from pytensor.tensor.subtensor import Subtensor

from scanopt_cli.analysis.buffers import is_trimmed, is_whole
from scanopt_cli.analysis.expression_text import describe, inner_names, loop_results, titled
from scanopt_cli.analysis.formulas import Formula
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.provenance.locating import places
from scanopt_cli.analysis.same_draws import is_fixed_generator
from scanopt_cli.analysis.scan_lengths import rows
from scanopt_cli.ir.inner_graphs import inner_graphs
from scanopt_cli.ir.naming import Clients, slot_names, titles
from scanopt_cli.ir.scan_view import ScanView, is_loop, loop_op, view_of
from scanopt_cli.ir.slots import TRACED, Slot, SlotKind, SlotView
from scanopt_cli.presentation import Presented

_WITH_BUFFER = TRACED | {SlotKind.MIT_MOT, SlotKind.STATE, SlotKind.TRACED}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SlotReport(Presented):
    """One slot of a loop, as text.

    ``rows`` is the buffer's length (``None`` for slots without a buffer). ``whole`` says whether
    the buffer provably holds every step, ``trimmed`` whether it is trimmed (see `is_trimmed`); it
    may be neither. ``inside`` is what the body reads or computes. ``same_draws`` says that it is a
    generator from which every step draws the same numbers.
    """

    kind: str
    name: str
    taps: tuple[int, ...]
    out_taps: tuple[int, ...]
    dtype: str
    fed_by: str
    inside: str
    read_by: tuple[str, ...]
    rows: str | None
    whole: bool
    trimmed: bool
    same_draws: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ScanReport(Presented):
    """One loop, a Scan or a TracedLoop.

    ``name`` is its name, numbered where its graph has more loops of that name; ``path`` holds the
    names of the loops and graphs around it, ``place`` is where it was written (``model.py:41 in
    step``), if that is known, and ``batch_ndim`` is the number of its batch axes. The condition of
    a Scan is in ``stops_when``, that of a TracedLoop in ``runs_while``.
    """

    kind: str
    name: str
    path: tuple[str, ...]
    place: str | None
    steps: str
    stops_when: str | None
    runs_while: str | None
    batch_ndim: int
    truncate_gradient: int
    inner_nodes: int
    slots: tuple[SlotReport, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Inspection(Presented):
    """Every loop of a graph, outer ones before those in their bodies.

    ``shared`` has the names of the graph's shared variables.
    """

    scans: tuple[ScanReport, ...]
    shared: tuple[str | None, ...] = ()


def inspect_graph(fgraph: AbstractFunctionGraph) -> Inspection:
    """Report every loop in ``fgraph``; the same body in two places is reported twice."""
    shared = tuple(v.name for v in fgraph.inputs if isinstance(v, SharedVariable))
    return Inspection(tuple(_scans(fgraph, (), {}, Lengths())), shared)


def _scans(
    fgraph: AbstractFunctionGraph,
    path: tuple[str, ...],
    around: Mapping[Variable, str],
    lengths: Lengths,
) -> Iterator[ScanReport]:
    """Yield the reports of ``fgraph``; ``around`` names its inputs as the loop around it does."""

    def clients(variable: Variable) -> list[tuple[Any, int]]:
        return list(fgraph.clients.get(variable, ()))

    called = titles(fgraph.outputs)
    outside = {**around, **loop_results(called)}
    found = places(fgraph)
    for node, name in called.items():
        names: dict[Variable, str] = {}
        if is_loop(node):
            view = view_of(node)
            slots = slot_names(view, clients, around)
            names = inner_names(view, slots)
            inside = {**names, **loop_results(titles(view.op.fgraph.outputs))}
            naming = _Naming(called, outside, inside, clients, lengths)
            place = found[node].place if node in found else None
            yield _report(view, slots, (*path, name), place, naming)
        for inner in inner_graphs(node.op):
            yield from _scans(inner, (*path, name), names, lengths)


@dataclass(frozen=True, slots=True)
class _Naming:
    """The names of a loop's outer and inner variables, and the readers of the outer ones.

    ``lengths`` holds for the whole graph, wherever a loop runs: no trip count is assumed.
    """

    titles: Mapping[Apply, str]
    outside: Mapping[Variable, str]
    inside: Mapping[Variable, str]
    clients: Clients
    lengths: Lengths

    def describe_outside(self, variable: Variable) -> str:
        return describe(variable, self.outside, lengths=self.lengths)

    def describe_inside(self, variable: Variable) -> str:
        return describe(variable, self.inside, lengths=self.lengths)

    def describe_reader(self, node: Apply, position: int) -> str:
        if isinstance(node.op, Output):
            return f"output {node.op.idx}"
        if is_loop(node):
            return titled(type(loop_op(node)).__name__, self.titles[node])
        if position == 0 and isinstance(node.op, Subtensor):
            return describe(node.outputs[0], {node.inputs[0]: ""}, depth=1, lengths=self.lengths)
        return str(node.op).partition("{")[0]


def _report(
    view: SlotView, names: list[str], path: tuple[str, ...], place: str | None, naming: _Naming
) -> ScanReport:
    lengths = Lengths(view.n_steps)
    condition = None if view.condition is None else naming.describe_inside(view.condition)
    is_scan = isinstance(view, ScanView)
    return ScanReport(
        kind=view.design,
        name=path[-1],
        path=path[:-1],
        place=place,
        steps=str(lengths.value_of(view.n_steps)),
        stops_when=condition if is_scan else None,
        runs_while=None if is_scan else condition,
        batch_ndim=view.batch_ndim,
        truncate_gradient=int(view.op.truncate_gradient) if is_scan else -1,
        inner_nodes=len(view.op.fgraph.apply_nodes),
        slots=tuple(
            _slot(view, slot, name, naming, lengths)
            for slot, name in zip(view.slots, names, strict=True)
        ),
    )


def _slot(view: SlotView, slot: Slot, name: str, naming: _Naming, lengths: Lengths) -> SlotReport:
    has_buffer = slot.kind in _WITH_BUFFER
    has_source = slot.kind not in (SlotKind.NIT_SOT, SlotKind.TRACED, SlotKind.INDEX)
    read_by = [
        f"{naming.describe_reader(*reader)}{_of_last(slot, output)}"
        for output in slot.outer_outputs
        for reader in naming.clients(output)
    ]
    return SlotReport(
        kind=slot.kind.value,
        name=name,
        taps=slot.taps,
        out_taps=slot.out_taps,
        dtype=str((slot.inner_outputs or slot.inner_inputs)[0].type),
        fed_by=naming.describe_outside(slot.outer_input) if has_source else "",
        inside=_inside(view, slot, naming),
        read_by=tuple(read_by),
        rows=str(Formula.of(rows(view, slot, lengths))) if has_buffer else None,
        whole=is_whole(view, slot, lengths),
        trimmed=is_trimmed(view, slot, lengths),
        same_draws=is_fixed_generator(view, slot),
    )


def _of_last(slot: Slot, output: Variable) -> str:
    """Say of a reader of a state of a TracedLoop what it reads, the last value or the trace."""
    if slot.last is None:
        return ""
    return " (last)" if output is slot.last else " (trace)"


def _inside(view: SlotView, slot: Slot, naming: _Naming) -> str:
    """What a step computes for the slot, or the names of its inner inputs if it has no outputs."""
    if not slot.inner_outputs and not any(map(view.op.fgraph.clients.get, slot.inner_inputs)):
        return "no step reads it"
    computed = slot.inner_outputs or slot.inner_inputs
    return ", ".join(map(naming.describe_inside, computed))

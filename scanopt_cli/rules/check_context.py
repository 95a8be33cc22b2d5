"""What a check knows of a graph, worked out once for all rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors

from scanopt_cli.analysis.named_loops import NamedLoop, named_loops
from scanopt_cli.analysis.provenance.inference import infer
from scanopt_cli.analysis.provenance.nearest_scans import NearestScans
from scanopt_cli.analysis.provenance.scan_origin import Origin
from scanopt_cli.equivalence.sameness import Sameness
from scanopt_cli.ir.graph import copy_nodes
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import STATES, Slot
from scanopt_cli.pipeline.grammar import parse
from scanopt_cli.pipeline.runner import run_pipeline
from scanopt_cli.remarks import Remark
from scanopt_cli.rules.compiled_loops import CompiledLoops, compiled_loops
from scanopt_cli.rules.lowered_loops import LoweredLoop, lowered_loops, may_run_on_numbers


@dataclass
class CheckContext:
    """One graph that is checked. It is not changed."""

    fgraph: FunctionGraph
    _remarks: dict[str, tuple[Remark, ...]] = field(default_factory=dict, init=False)
    _compiled: dict[str | None, CompiledLoops | None] = field(default_factory=dict, init=False)
    _sameness: Sameness = field(default_factory=Sameness, init=False)

    @cached_property
    def loops(self) -> tuple[NamedLoop, ...]:
        """All loops, those of a body after the loop; each distinct body once."""
        return tuple(named_loops(self.fgraph))

    @cached_property
    def scans(self) -> tuple[NamedLoop, ...]:
        """Those of all loops that are Scans."""
        return tuple(loop for loop in self.loops if isinstance(loop.view, ScanView))

    @cached_property
    def written(self) -> tuple[NamedLoop, ...]:
        """Those of all loops that are derivatives of no other: those that a person wrote."""
        return tuple(
            loop
            for loop in self.loops
            if loop.view.node not in self.origins or self.origins[loop.view.node].parent is None
        )

    @cached_property
    def _by_title(self) -> Mapping[str, NamedLoop]:
        return {loop.title: loop for loop in self.loops}

    def loop(self, title: str) -> NamedLoop | None:
        """Return the loop of that name, if there is one."""
        return self._by_title.get(title)

    def is_read(self, loop: NamedLoop) -> bool:
        """Whether the loop around a loop computes something of it that is read, or a state.

        PyTensor drops the other outputs before it looks at the step.
        """
        around = loop.parent
        if around is None or loop.graph is not around.view.op.fgraph:
            return True
        view = around.view
        read = [
            variable
            for slot in view.outputs()
            if slot.kind in STATES or any(map(around.graph.clients.get, slot.outer_outputs))
            for variable in slot.inner_outputs
        ]
        condition = [] if view.condition is None else [view.condition]
        return not set(loop.view.node.outputs).isdisjoint(ancestors([*read, *condition]))

    @cached_property
    def origins(self) -> Mapping[Apply, Origin]:
        """Of each Scan, what it comes from."""
        graphs = {id(loop.graph): loop.graph for loop in self.loops}
        return {
            node: origin
            for graph in graphs.values()
            for node, origin in infer(NearestScans(graph.inputs, graph.toposort())).items()
        }

    @cached_property
    def lowered(self) -> Mapping[str, LoweredLoop]:
        """What those Scans of `written` that compute on small arrays become, by title.

        Arrays of unknown shape may be small.
        """
        written = set(self.written)
        on_arrays = [
            loop for loop in self.scans if loop in written and may_run_on_numbers(loop.view)
        ]
        return lowered_loops(self.fgraph, on_arrays) if on_arrays else {}

    def remarks(self, passes: str) -> tuple[Remark, ...]:
        """Return what ``passes`` would do to the graph, and what they would not, and why."""
        if passes not in self._remarks:
            runs = run_pipeline(copy_nodes(self.fgraph), parse(passes), rounds=1)
            self._remarks[passes] = tuple(remark for run in runs for remark in run.remarks)
        return self._remarks[passes]

    def compiled(self, passes: str | None = None) -> CompiledLoops | None:
        """Return what PyTensor leaves of `scans`, by title, after ``passes``.

        ``None`` if it takes too long.
        """
        if passes not in self._compiled:
            self._compiled[passes] = compiled_loops(self.fgraph, self.scans, passes)
        return self._compiled[passes]

    def digest(self, loop: NamedLoop | None) -> str:
        """Return what is equal for loops that compute the same; of the graph, if there is none."""
        if loop is None:
            return self._sameness.of_graph(self.fgraph).hex()[:16]
        return self._sameness.form(loop.view.op).key.hex()[:16]

    def place(self, loop: NamedLoop, slot: Slot) -> int:
        """Return the place of a slot in an order that is that of all loops that compute the same.

        Slots that only what feeds them tells apart have one place.
        """
        form = self._sameness.form(loop.view.op)
        own = form.signatures[loop.view.slots.index(slot)]
        alike = zip(form.signatures, form.ranks, strict=True)
        return min(rank for signature, rank in alike if signature == own)

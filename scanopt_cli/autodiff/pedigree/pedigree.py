"""The pedigree of a graph's Scans: whose pullback or tangents each computes, and what it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pytensor.graph.basic import Apply
from pytensor.graph.fg import AbstractFunctionGraph

from scanopt_cli.analysis.provenance.inference import TimeDirection
from scanopt_cli.analysis.provenance.scan_origin import Origin
from scanopt_cli.analysis.statistics import COUNTED
from scanopt_cli.autodiff.pedigree.scan_instances import ScanInstance, collect
from scanopt_cli.autodiff.printing import scan_text
from scanopt_cli.autodiff.selecting import input_names, position_of
from scanopt_cli.errors import GradientError
from scanopt_cli.ir.graph import GraphLike, as_graph
from scanopt_cli.presentation import Presented


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ScanRecord(Presented):
    """One Scan of a graph, and its origin.

    Attributes
    ----------
    name
        The name of the Scan, numbered if its graph has more Scans of that name.
    path
        Names of the Scans and graphs around it, outermost first.
    generation
        0 for a loop, 1 for its pullback, 2 for the pullback of that; ``None`` if not known.
    parent
        The name of the Scan that it is the pullback of, or the `full_name` if that has another
        path; ``None`` for a loop, or if not known.
    reason
        Why ``parent`` is not known, for a Scan that is a pullback or looks like one.
    tangents_of
        For a loop with tangents: the name of the loop that it replaces, whose values and tangents
        it computes.
    direction
        Its direction in time, relative to the loops that were differentiated.
    depends_on
        Scans of the same graph or body whose results reach it without passing another Scan.
    reads_inputs
        Inputs of the same graph (in a body: slots of the enclosing loop) that reach it without
        passing another Scan.
    design
        ``Scan``, or ``TracedLoop``.
    seqs, mit_mot, mit_sot, sit_sot, nit_sot, untraced, non_seqs, states, traced, constants
        How many slots of each kind it has; the last three are a TracedLoop's.
    nodes
        How many nodes its body has, without those of inner graphs.
    place
        Where it was written, or the loop that it is the pullback of: ``model.py:41 in step``.
    """

    name: str
    path: tuple[str, ...]
    generation: int | None
    parent: str | None
    reason: str | None
    tangents_of: str | None
    direction: TimeDirection
    depends_on: tuple[str, ...]
    reads_inputs: tuple[str, ...]
    seqs: int
    mit_mot: int
    mit_sot: int
    sit_sot: int
    nit_sot: int
    untraced: int
    non_seqs: int
    nodes: int
    design: str = "Scan"
    states: int = 0
    traced: int = 0
    constants: int = 0
    place: str | None = None

    @property
    def full_name(self) -> str:
        """The names of ``path`` and its own, joined by slashes: unique in a graph."""
        return "/".join((*self.path, self.name))


@dataclass(frozen=True, slots=True, repr=False)
class Pedigree(Presented):
    """The records of all Scans of a graph, each followed by those in its body.

    ``members`` are the Scans themselves, aligned with ``scans``.
    """

    scans: tuple[ScanRecord, ...]
    members: tuple[ScanInstance, ...] = field(
        repr=False, compare=False, metadata={"as_json": False}
    )

    def show(self, name: str) -> str:
        """Return one Scan as text: its outer inputs, and what a step computes.

        ``name`` is its name, if no other Scan has it, or its full name, such as ``rows/elements``.

        Raises
        ------
        GradientError
            If no Scan has that name, or several have.
        """
        full_names = [record.full_name for record in self.scans]
        alike = [record.full_name for record in self.scans if record.name == name]
        if name in full_names:
            position = full_names.index(name)
        elif len(alike) > 1:
            raise GradientError(
                f"{len(alike)} Scans are called {name}",
                hint=f"choose one by its full name: {', '.join(alike)}",
            )
        else:
            position = position_of(name, [record.name for record in self.scans], "Scan", None)
        member = self.members[position]
        return scan_text(member.view, member.clients, member.results)


def pedigree(graph: GraphLike) -> Pedigree:
    """Infer the pedigree of a graph from the names and the structure of its Scans.

    A parent that these do not determine is unknown, with a reason. `scanopt_cli.grad` records the
    pedigree of the derivatives it builds instead.
    """
    return pedigree_of(as_graph(graph).fgraph)


def pedigree_of(
    fgraph: AbstractFunctionGraph, origins: Mapping[Apply, Origin] | None = None
) -> Pedigree:
    """Return the pedigree of ``fgraph``; without ``origins``, those of outer Scans are inferred."""
    names = dict(zip(fgraph.inputs, input_names(fgraph.inputs), strict=True))
    members = collect(fgraph, names, origins)
    return Pedigree(tuple(map(_record, members)), tuple(members))


def _record(member: ScanInstance) -> ScanRecord:
    return ScanRecord(
        name=member.title,
        path=member.path,
        generation=member.origin.generation,
        parent=None if member.parent is None else _parent_name(member, member.parent),
        reason=member.origin.reason,
        tangents_of=member.origin.tangents_of,
        direction=member.direction,
        depends_on=tuple(other.title for other in member.depends_on),
        reads_inputs=tuple(dict.fromkeys(member.input_names)),
        nodes=len(member.view.op.fgraph.apply_nodes),
        design=member.view.design,
        place=member.place,
        **{name: len(member.view.of_kind(kind)) for kind, name in COUNTED.items()},
    )


def _parent_name(member: ScanInstance, parent: ScanInstance) -> str:
    is_beside = parent.path == member.path
    return parent.title if is_beside else "/".join((*parent.path, parent.title))

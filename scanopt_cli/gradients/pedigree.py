"""The pedigree of a graph's Scans: which is the pullback of which, and what each depends on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pytensor.graph.basic import Apply
from pytensor.graph.fg import AbstractFunctionGraph

from scanopt_cli.gradients.inference import Direction
from scanopt_cli.gradients.lineage import Origin
from scanopt_cli.gradients.members import Member, collect
from scanopt_cli.gradients.printing import scan_text
from scanopt_cli.gradients.selecting import position_of
from scanopt_cli.graphs.graph import GraphLike, as_graph
from scanopt_cli.scans.view import SlotKind


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRecord:
    """One Scan of a graph, and where it comes from.

    Attributes
    ----------
    name
        What the Scan is called here: its own name, made unique by ``#2`` where names repeat.
    path
        Names of the Scans and graphs around it, outermost first.
    generation
        0 for a loop, 1 for its pullback, 2 for the pullback of that; ``None`` if not known.
    parent
        The Scan that it is the pullback of; ``None`` for a loop, or if not known.
    reason
        Why ``parent`` is not known, for a Scan that is a pullback or looks like one.
    direction
        Which way it goes through time, seen from the loops that were differentiated.
    depends_on
        Scans of the same graph or body whose results reach it without passing another Scan.
    reads_inputs
        Inputs of the same graph (in a body: slots of the loop around it) that reach it that way.
    nodes
        Nodes of its body, those of inner graphs not counted.
    """

    name: str
    path: tuple[str, ...]
    generation: int | None
    parent: str | None
    reason: str | None
    direction: Direction
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


@dataclass(frozen=True, slots=True)
class Pedigree:
    """Every Scan of a graph, each followed by those in its body.

    ``members`` are the Scans themselves, aligned with ``scans``.
    """

    scans: tuple[ScanRecord, ...]
    members: tuple[Member, ...] = field(repr=False, compare=False, metadata={"as_json": False})

    def show(self, name: str) -> str:
        """Return one Scan as text: what feeds it, and what a step computes.

        Raises
        ------
        GradientError
            If no Scan has that name.
        """
        position = position_of(name, [record.name for record in self.scans], "Scan", None)
        member = self.members[position]
        return scan_text(member.view, member.clients)


def pedigree(graph: GraphLike) -> Pedigree:
    """Return the pedigree of a graph as it is, from the names and the structure of its Scans.

    What these do not decide is left open, with a reason. `scanopt_cli.grad` records the pedigree
    of what it builds and needs no inference.
    """
    return pedigree_of(as_graph(graph).fgraph)


def pedigree_of(
    fgraph: AbstractFunctionGraph, origins: Mapping[Apply, Origin] | None = None
) -> Pedigree:
    """Return the pedigree of ``fgraph``, where the origins of its outer Scans may be known."""
    members = collect(fgraph, origins)
    names = dict(zip(members, _unique([member.base_name for member in members]), strict=True))
    return Pedigree(tuple(_record(member, names) for member in members), tuple(members))


def _record(member: Member, names: Mapping[Member, str]) -> ScanRecord:
    def count(kind: SlotKind) -> int:
        return len(member.view.of_kind(kind))

    return ScanRecord(
        name=names[member],
        path=_path(member, names),
        generation=member.origin.generation,
        parent=None if member.parent is None else names[member.parent],
        reason=member.origin.reason,
        direction=member.direction,
        depends_on=tuple(names[other] for other in member.depends_on),
        reads_inputs=tuple(dict.fromkeys(member.input_names)),
        seqs=count(SlotKind.SEQ),
        mit_mot=count(SlotKind.MIT_MOT),
        mit_sot=count(SlotKind.MIT_SOT),
        sit_sot=count(SlotKind.SIT_SOT),
        nit_sot=count(SlotKind.NIT_SOT),
        untraced=count(SlotKind.UNTRACED),
        non_seqs=count(SlotKind.NON_SEQ),
        nodes=len(member.view.op.fgraph.apply_nodes),
    )


def _path(member: Member, names: Mapping[Member, str]) -> tuple[str, ...]:
    if member.holder is None:
        return member.via
    return (*_path(member.holder, names), names[member.holder], *member.via)


def _unique(names: Sequence[str]) -> list[str]:
    """``names`` with ``#2``, ``#3`` and so on behind those that stood before."""
    taken: dict[str, None] = {}
    for name in names:
        new, number = name, 1
        while new in taken:
            number += 1
            new = f"{name}#{number}"
        taken[new] = None
    return list(taken)

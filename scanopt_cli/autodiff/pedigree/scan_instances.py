"""All Scans of a graph and of its bodies, with their origins: the data behind a pedigree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import AbstractFunctionGraph

from scanopt_cli.analysis.expression_text import loop_results
from scanopt_cli.analysis.provenance.inference import TimeDirection, infer, time_directions
from scanopt_cli.analysis.provenance.locating import places
from scanopt_cli.analysis.provenance.nearest_scans import NearestScans
from scanopt_cli.analysis.provenance.scan_origin import Origin
from scanopt_cli.autodiff.selecting import input_names
from scanopt_cli.ir.inner_graphs import PULLBACK, inner_graphs
from scanopt_cli.ir.naming import Clients, slot_names, titles
from scanopt_cli.ir.scan_view import view_of
from scanopt_cli.ir.slots import SlotView


@dataclass(slots=True, eq=False)
class ScanInstance:
    """A Scan at one place of a graph.

    ``title`` is its name in its graph, and ``path`` holds the titles of the nodes whose bodies it
    is in, outermost first; ``place`` is where it was written. ``results`` names the results of
    Scans in its graph. ``holder`` is the innermost Scan whose body it is in, ``inside`` are the
    Scans in its own body, ``depends_on`` the nearest Scans before it, and ``input_names`` the names
    of the graph's inputs that it reads.
    """

    view: SlotView
    title: str
    path: tuple[str, ...]
    results: Mapping[Variable, str]
    clients: Clients
    origin: Origin
    direction: TimeDirection
    holder: ScanInstance | None
    place: str | None = None
    parent: ScanInstance | None = None
    depends_on: list[ScanInstance] = field(default_factory=list)
    input_names: list[str] = field(default_factory=list)
    inside: list[ScanInstance] = field(default_factory=list)


def collect(
    graph: AbstractFunctionGraph,
    names: Mapping[Variable, str],
    origins: Mapping[Apply, Origin] | None = None,
    holder: ScanInstance | None = None,
    path: tuple[str, ...] = (),
) -> list[ScanInstance]:
    """Return every Scan of ``graph``, each followed by those in its body.

    ``names`` are those of the graph's inputs. ``origins`` are those of the outer Scans. If it is
    ``None`` they are inferred, as the origins of Scans in bodies always are. ``holder`` and
    ``path`` are those of the Scans.
    """

    def clients(variable: Variable) -> list[tuple[Apply, int]]:
        return list(graph.clients.get(variable, ()))

    nearest = NearestScans(graph.inputs, graph.toposort())
    known = infer(nearest) if origins is None else origins
    direction_of, title_of = time_directions(nearest.scans, known), titles(graph.outputs)
    results, written = loop_results(title_of), places(graph, known)
    members = {
        node: ScanInstance(
            view=view_of(node),
            title=title_of[node],
            path=path,
            results=results,
            clients=clients,
            origin=known[node],
            direction=direction_of[node],
            holder=holder,
            place=written[node].place if node in written else None,
        )
        for node in nearest.scans
    }
    for node, member in members.items():
        if member.origin.parent is not None:
            member.parent = members[member.origin.parent]
        elif member.origin.reason is not None:
            _look_in_parent_of(holder, member)
        member.depends_on = [members[scan] for scan in nearest.scans_feeding(node)]
        member.input_names = [names[variable] for variable in nearest.inputs_feeding(node)]
    found: list[ScanInstance] = []
    for node, title in title_of.items():
        own = members.get(node)
        if own is not None:
            found.append(own)
        for body in inner_graphs(node.op):
            inner_names = _inner_names(node, body, own)
            inside = collect(body, inner_names, None, own or holder, (*path, title))
            if own is not None:
                own.inside = [member for member in inside if member.holder is own]
            found.extend(inside)
    return found


def _look_in_parent_of(holder: ScanInstance | None, member: ScanInstance) -> None:
    """Find the parent of a pullback in the body of the Scan that ``holder`` is the pullback of.

    The body of a pullback may run the pullback of an inner loop without the inner loop itself.
    """
    name = member.view.name
    if holder is None or holder.parent is None or not name.startswith(PULLBACK):
        return
    alike = [m for m in holder.parent.inside if m.view.op.name == name.removeprefix(PULLBACK)]
    if len(alike) == 1:
        (member.parent,) = alike
        generation = member.parent.origin.generation
        member.origin = Origin(None, None if generation is None else generation + 1)
        member.direction = member.parent.direction.opposite


def _inner_names(
    node: Apply, body: AbstractFunctionGraph, member: ScanInstance | None
) -> dict[Variable, str]:
    """The names of a body's inputs, from outside of it."""
    if member is None:
        # The condition of a LazyIfElse precedes the inputs of its branches.
        taken = node.inputs[len(node.inputs) - len(body.inputs) :]
        return dict(zip(body.inputs, input_names(taken), strict=True))
    slots = zip(member.view.slots, slot_names(member.view, member.clients), strict=True)
    return {variable: name for slot, name in slots for variable in slot.inner_inputs}

"""Which loops an output comes from, so that a difference says where to look."""

from __future__ import annotations

from collections.abc import Sequence

from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.analysis.provenance.locating import places
from scanopt_cli.analysis.provenance.nearest_scans import NearestScans
from scanopt_cli.equivalence.digests import Digests
from scanopt_cli.equivalence.sameness import Sameness
from scanopt_cli.ir.naming import titles
from scanopt_cli.verification.result import LoopAt


def loops_behind(a: FunctionGraph, b: FunctionGraph) -> list[tuple[LoopAt, ...]]:
    """Return the loops of ``b`` behind each of its outputs, by name and place.

    The inputs of ``a`` and ``b`` correspond by position. Of the loops behind an output, those are
    returned that ``a`` does not compute, without those that read others of them: there the two
    graphs part. If ``a`` computes all, it is the loops that are nearest to the output.
    """
    nearest = NearestScans(b.inputs, b.toposort())
    if not nearest.scans:
        return [()] * len(b.outputs)
    known = _computed(a)
    digests = Digests(b.inputs, Sameness())
    new = [node for node in nearest.scans if _digest(digests, node) not in known]
    names, written = titles(b.outputs), places(b)
    found = []
    for output in b.outputs:
        close = nearest.scans_before(output)
        behind = close.union(*(nearest.ancestors(node) for node in close))
        parting = [node for node in new if node in behind]
        first = [node for node in parting if nearest.ancestors(node).isdisjoint(parting)]
        loops: Sequence[Apply] = first or [node for node in nearest.scans if node in close]
        found.append(
            tuple(
                LoopAt(name=names[node], place=written[node].place if node in written else None)
                for node in loops
            )
        )
    return found


def _computed(graph: FunctionGraph) -> set[tuple[bytes, ...]]:
    digests = Digests(graph.inputs, Sameness())
    return {_digest(digests, node) for node in NearestScans(graph.inputs, graph.toposort()).scans}


def _digest(digests: Digests, node: Apply) -> tuple[bytes, ...]:
    return tuple(sorted(map(digests.of, node.outputs)))

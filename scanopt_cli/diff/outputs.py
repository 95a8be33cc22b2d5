"""Pairs the outputs of two graphs."""

from __future__ import annotations

from collections.abc import Hashable

from pytensor.graph.basic import Variable

from scanopt_cli.diff.matching.indexed_graph import IndexedGraph
from scanopt_cli.diff.matching.match import match
from scanopt_cli.diff.matching.pairing import Evidence, Pairs, pair_up


def pair_outputs(
    before: IndexedGraph, after: IndexedGraph, inputs: Pairs, *, swapped: bool
) -> Pairs:
    """Pair outputs by place; if one side has more, by digest, then by weaker evidence.

    That is their names, then a matching of the graphs, then the Ops that make them, and last their
    types, in order.
    """
    ours, theirs = before.outputs, after.outputs
    if len(ours) == len(theirs):
        return [(place, place) for place in range(len(ours))]
    known = [(before.digest, after.digest), (_name, _name)]
    clear = pair_up(ours, theirs, *known)
    matching = match(before, after, inputs, clear, swapped=swapped)
    made = matching.token, matching.other_token
    ops = _maker(before), _maker(after)
    return pair_up(ours, theirs, *known, made, ops, (_type, _type), repeats=True)


def _maker(side: IndexedGraph) -> Evidence[Variable]:
    def key(variable: Variable) -> Hashable | None:
        return None if variable.owner is None else side.op_digest(variable.owner.op)

    return key


def _name(variable: Variable) -> str | None:
    return variable.name or None


def _type(variable: Variable) -> str:
    return str(variable.type)

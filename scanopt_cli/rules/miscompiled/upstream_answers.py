"""Asks PyTensor's rewrites what they would do to a loop, which stays as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.features import ReplaceValidate
from pytensor.graph.fg import FrozenFunctionGraph, FunctionGraph

from scanopt_cli.ir.slots import Slot


@dataclass(frozen=True, slots=True)
class Misread:
    """What PyTensor does to a loop that changes values: one sentence, and the slots it is about."""

    text: str
    slots: tuple[Slot, ...] = ()


class RewriteError(Exception):
    """A rewrite of PyTensor's raised an AssertionError, which ends the compilation."""


def asked(
    rewriter: Any, graph: Any, node: Apply, *, changes_graph: bool = False
) -> Mapping[Variable, Variable]:
    """Return what ``rewriter`` replaces outputs of ``node`` by, and what reads them.

    Parameters
    ----------
    rewriter
        A rewriter of PyTensor's for nodes.
    graph, node
        The loop, and the graph that it is in.
    changes_graph
        Whether the rewriter may also change the graph. Then it is asked on a copy, as it is of a
        frozen graph, of which nothing can be computed.

    Raises
    ------
    RewriteError
        If an assertion of the rewriter fails.
    """
    memo: Mapping[Any, Any] = {}
    if changes_graph or isinstance(graph, FrozenFunctionGraph):
        graph_asked, memo = _copied(graph)
    else:
        graph_asked = graph
    twin = memo.get(node, node)
    try:
        found = rewriter.transform(graph_asked, twin)
    except AssertionError as error:
        raise RewriteError from error
    except Exception:
        return {}  # PyTensor logs it, and goes on
    if not found:
        return {}
    pairs = found.items() if isinstance(found, dict) else zip(twin.outputs, found, strict=True)
    readers = [
        variable
        for output in node.outputs
        for client, _ in graph.clients.get(output, ())
        for variable in client.outputs
    ]
    known = {memo.get(old, old): old for old in (*node.outputs, *readers)}
    return {known[old]: new for old, new in pairs if old in known}


def _copied(graph: Any) -> tuple[FunctionGraph, Mapping[Any, Any]]:
    """Return a copy of a graph that rewrites may change, and the copy of each node and variable."""
    if isinstance(graph, FrozenFunctionGraph):
        copy, memo = graph.unfreeze(return_memo=True)
    else:
        copy, memo = graph.clone_get_equiv()
    copy.attach_feature(ReplaceValidate())
    return copy, memo


def changes_reads(rewriter: Any, node: Apply, reads: Mapping[int, Any], steps: Variable) -> bool:
    """Whether a rewrite lets a shorter loop be read, if a loop is read by ``reads`` alone.

    ``reads`` has, for each place of an output, the indices by which it is read.
    """
    fresh: dict[Variable, Variable] = {node.inputs[0]: steps}
    for variable in node.inputs:
        fresh.setdefault(variable, variable.type())
    twin = node.op.make_node(*(fresh[v] for v in node.inputs))
    outputs = [twin.outputs[place][index] for place, found in reads.items() for index in found]
    graph = FunctionGraph(outputs=outputs, clone=False)
    graph.attach_feature(ReplaceValidate())
    try:
        found = rewriter.transform(graph, twin)
    except Exception:
        return False
    return isinstance(found, dict) and any(output in found for output in outputs)

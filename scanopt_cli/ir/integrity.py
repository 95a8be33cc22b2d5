"""Integrity: a graph's own bookkeeping, and nodes that are what their Ops make."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, AtomicVariable, Constant, Variable
from pytensor.graph.fg import FunctionGraph, Output
from pytensor.graph.traversal import io_toposort
from pytensor.tensor.type import TensorType
from pytensor.typed_list.basic import MakeList

from scanopt_cli.errors import PassError, brief
from scanopt_cli.ir.inner_graphs import op_name

_LONGEST_SHAPE = 64
"""How many dimensions an array may have, and so how long a shape may be."""


def check_integrity(fgraph: FunctionGraph) -> None:
    """See that ``fgraph`` knows its nodes, who reads what, and all its inputs, in linear time.

    ``FunctionGraph.check_integrity`` looks for each reader of a variable in the list of its
    readers, which takes time that grows with their square.

    Raises
    ------
    PassError
        If it does not.
    """
    nodes = io_toposort(fgraph.inputs, fgraph.outputs)
    if fgraph.apply_nodes != set(nodes):
        raise PassError("its nodes are not those that its outputs need")
    readers: dict[Variable, set[tuple[Apply, int]]] = defaultdict(set)
    for node in nodes:
        for place, variable in enumerate(node.inputs):
            readers[variable].add((node, place))
    ends: dict[Variable, set[int]] = defaultdict(set)
    for place, variable in enumerate(fgraph.outputs):
        ends[variable].add(place)
    inputs = set(fgraph.inputs)
    for variable in {*readers, *ends}:
        clients = fgraph.clients[variable]
        known = {(node, place) for node, place in clients if not isinstance(node.op, Output)}
        known_ends = {node.op.idx for node, _ in clients if isinstance(node.op, Output)}
        if known != readers[variable] or known_ends != ends[variable]:
            raise PassError(f"it does not know who reads {variable}")
        is_root = variable.owner is None and variable not in inputs
        if is_root and not isinstance(variable, AtomicVariable):
            raise PassError(f"{variable} is neither computed nor an input")


def misfit(nodes: Iterable[Apply]) -> str | None:
    """Return what is wrong with the first of ``nodes`` that its Op would not make of its inputs.

    A file may declare any inputs and outputs for any Op, and what evaluates a node believes them.
    An Op decides by the types of its inputs, so of nodes of one Op and equal types one is enough.
    """
    seen = set()
    for node in nodes:
        types = [_broad(variable.type) for variable in node.inputs]
        signature = (node.op, *types, *map(_kind, node.outputs))
        if signature in seen:
            continue
        seen.add(signature)
        # On inputs of their own, so that nothing upstream is looked at, let alone computed.
        inputs = [
            variable if _is_short(variable) else kind.make_variable()
            for variable, kind in zip(node.inputs, types, strict=True)
        ]
        arguments = [inputs] if isinstance(node.op, MakeList) else inputs
        try:
            made = node.op.make_node(*arguments)
        except Exception as error:
            return f"{op_name(node.op)} does not take its inputs: {brief(error)}"
        if list(map(_kind, made.inputs)) != list(map(_kind, node.inputs)):
            return f"{op_name(node.op)} does not take its inputs as they are"
        if list(map(_kind, made.outputs)) != list(map(_kind, node.outputs)):
            return f"{op_name(node.op)} has outputs that it does not make of its inputs"
    return None


def _is_short(variable: Variable) -> bool:
    """Whether ``variable`` is a constant that is no longer than a shape."""
    return isinstance(variable, Constant) and np.size(variable.data) <= _LONGEST_SHAPE


def _broad(kind: Any) -> Any:
    """Return the type of a tensor without the static lengths that no Op decides by.

    A vector of integers may be a shape, whose length is a number of dimensions.
    """
    if not isinstance(kind, TensorType):
        return kind
    most = _LONGEST_SHAPE if kind.ndim == 1 and kind.dtype.startswith(("int", "uint")) else 1
    shape = [None if length is None or length > most else length for length in kind.shape]
    return kind.clone(shape=tuple(shape))


def _kind(variable: Variable) -> tuple[Any, ...]:
    """The type of a variable but for static lengths, of which more may be known."""
    kind: Any = variable.type
    return type(kind), *(getattr(kind, name, None) for name in ("dtype", "ndim", "dims"))

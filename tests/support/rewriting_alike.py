"""Graphs written otherwise that compute the same, bit for bit, and graphs that do not."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from random import Random
from typing import Any

import numpy as np
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.scalar import basic as ps
from pytensor.tensor.elemwise import Elemwise

from scanopt_cli.equivalence.operands import commutes
from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.ir.scan_view import ScanView, scan_op

# How many copies of one node there may be, so that copies of copies come to an end.
_COPIES = 3


def written_otherwise(graph: Graph, random: Random) -> Graph:
    """Return ``graph`` with other names, another order of construction, swapped operands, repeated
    nodes and constants, and loops whose slots stand in another order."""
    writer = _Writer(random, size=len(graph.fgraph.apply_nodes))
    inputs = [variable.type(name=f"other{place}") for place, variable in enumerate(graph.inputs)]
    return from_io(inputs, writer.write(graph.inputs, inputs, graph.fgraph.outputs))


def mutated(graph: Graph, random: Random) -> Graph | None:
    """Return ``graph`` with one node changed that an output needs, ``None`` if none can be."""
    fgraph = graph.copy().fgraph
    nodes = list(fgraph.toposort())
    random.shuffle(nodes)
    for node in nodes:
        if (change := _mutant(node, random)) is not None:
            fgraph.replace_all(list(zip(node.outputs, change, strict=True)))
            return from_io(fgraph.inputs, fgraph.outputs)
    return None


class _Writer:
    """Writes one graph again; each variable may come to be written several times."""

    def __init__(self, random: Random, size: int) -> None:
        self._random = random
        self._written: dict[Variable, list[Variable]] = {}
        self._repeats = size

    def write(
        self, inputs: Sequence[Variable], others: Sequence[Variable], outputs: Sequence[Variable]
    ) -> list[Variable]:
        self._written = {old: [new] for old, new in zip(inputs, others, strict=True)}
        order = list(enumerate(outputs))
        self._random.shuffle(order)
        found = {place: self._variable(output) for place, output in order}
        return [found[place] for place in range(len(outputs))]

    def _variable(self, variable: Variable) -> Variable:
        known = self._written.setdefault(variable, [])
        node = variable.owner
        if node is None:
            if isinstance(variable, Constant):
                return variable.clone(name=f"constant{self._random.random()}")
            return known[0]
        repeat = known and len(known) < _COPIES and self._repeats and self._random.random() < 0.3
        if known and not repeat:
            return self._random.choice(known)
        self._repeats -= bool(repeat)
        order = list(enumerate(node.inputs))
        self._random.shuffle(order)
        read = {place: self._variable(part) for place, part in order}
        new = self._node(node, [read[place] for place in range(len(node.inputs))])
        for old, output in zip(node.outputs, new, strict=True):
            output.name = f"name{self._random.random()}"
            self._written.setdefault(old, []).append(output)
        return new[node.outputs.index(variable)]

    def _node(self, node: Apply, inputs: list[Variable]) -> list[Variable]:
        if scan_op(node) is not None:
            return self._loop(node.op.make_node(*inputs))
        op = node.op
        if isinstance(op, OpFromGraph):
            fgraph = op.fgraph.unfreeze()
            outputs = self._body(fgraph.inputs, fgraph.outputs)
            op = op.clone_with_inner_graph(FunctionGraph(fgraph.inputs, outputs, clone=False))
            op.name = "another name"
        elif commutes(node) and self._random.random() < 0.5:
            inputs[:2] = reversed(inputs[:2])
        return list(op.make_node(*inputs).outputs)

    def _loop(self, node: Apply) -> list[Variable]:
        view = ScanView.of(node)
        view.op = copy(view.op)
        view.op.name = f"loop{self._random.random()}"
        view.unfreeze()
        inner = [variable for slot in view.slots for variable in slot.inner_inputs]
        view.set_inner_outputs(self._body(inner, view.inner_outputs()))
        self._random.shuffle(view.slots)
        replacements = view.rebuild()
        return [replacements[output] for output in node.outputs]

    def _body(self, inputs: Sequence[Variable], outputs: Sequence[Variable]) -> list[Variable]:
        return _Writer(self._random, size=10).write(inputs, inputs, outputs)


def _mutant(node: Apply, random: Random) -> list[Variable] | None:
    """Return other outputs of the same types for ``node``."""
    if scan_op(node) is not None:
        return _mutant_loop(node, random)
    swaps: dict[type, Any] = {ps.Add: ps.sub, ps.Sub: ps.add, ps.Mul: ps.add, ps.Exp: ps.sin}
    if isinstance(node.op, Elemwise) and type(node.op.scalar_op) in swaps:
        new = Elemwise(swaps[type(node.op.scalar_op)])
        if len(node.inputs) <= 2:
            outputs = list(new(*node.inputs, return_list=True))
            return outputs if _types(outputs) == _types(node.outputs) else None
    for place, variable in enumerate(node.inputs):
        if isinstance(variable, Constant) and getattr(variable.type, "dtype", "") == "float64":
            inputs = list(node.inputs)
            inputs[place] = variable.type.make_constant(np.asarray(variable.data + 1))
            return list(node.op.make_node(*inputs).outputs)
    return None


def _mutant_loop(node: Apply, random: Random) -> list[Variable] | None:
    view = ScanView.of(node)
    view.unfreeze()
    outputs = view.inner_outputs()
    fgraph = FunctionGraph(
        [variable for slot in view.slots for variable in slot.inner_inputs], outputs, clone=False
    )
    nodes = list(fgraph.toposort())
    random.shuffle(nodes)
    for inner in nodes:
        if (change := _mutant(inner, random)) is not None:
            fgraph.replace_all(list(zip(inner.outputs, change, strict=True)))
            view.set_inner_outputs(list(fgraph.outputs))
            replacements = view.rebuild()
            return [replacements[output] for output in node.outputs]
    return None


def _types(variables: Sequence[Variable]) -> list[object]:
    return [(variable.type.dtype, variable.type.ndim) for variable in variables]

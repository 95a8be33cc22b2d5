"""What PyTensor computes for the slots of loops when they are outputs, beside what is traced."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor
from numpy.testing import assert_allclose, assert_array_equal
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Variable

from scanopt_cli.ir.graph import Graph
from scanopt_cli.ir.scan_view import is_loop, view_of
from scanopt_cli.ir.slots import Slot, SlotKind, SlotView
from scanopt_cli.tracing.result import LoopTrace, SlotTrace
from scanopt_cli.tracing.tracing import trace
from scanopt_cli.tracing.values import as_array
from scanopt_cli.verification.arguments import Setting, attempts, draw
from scanopt_cli.verification.input_constraints import input_constraints


def assert_traced_as_computed(graph: Graph, arguments: dict[str, Any]) -> int:
    """Check all outer loops of a graph; return how many slots with outputs were compared."""
    traced = trace(graph, arguments)
    nodes = [node for node in graph.fgraph.toposort() if is_loop(node)]
    views = [view_of(node) for node in nodes]
    by_loop = {loop.title: loop for loop in traced.loops}
    assert len(by_loop) == len(views)
    compared = 0
    for view, loop in zip(views, traced.loops, strict=True):
        slots = [slot for slot in view.slots if slot.outer_outputs]
        wanted = [v for slot in slots for v in (*slot.outer_outputs, slot.outer_input)]
        values = iter(computed(graph, wanted, arguments))
        for slot in slots:
            outputs = {v: next(values) for v in slot.outer_outputs}
            _assert_slot(view, slot, loop, outputs, next(values))
            compared += 1
    return compared


def drawn(graph: Graph) -> dict[str, Any]:
    """Return the first of the drawn arguments on which a graph can be evaluated, by name."""
    inputs = graph.fgraph.inputs
    constraints, rng = input_constraints([graph.fgraph]), np.random.default_rng(0)
    for way in attempts(Setting(contents=True), recorded=False):
        values = draw(way, constraints, [v.type for v in inputs], graph.values, (), rng)
        arguments = {str(v.name): value for v, value in zip(inputs, values, strict=True)}
        try:
            computed(graph, list(graph.outputs), arguments)
        except (ValueError, IndexError, np.linalg.LinAlgError):
            continue
        return arguments
    raise AssertionError("the graph accepts no arguments")


def computed(graph: Graph, variables: list[Variable], arguments: dict[str, Any]) -> list[Any]:
    """Evaluate variables of a graph as PyTensor does without rewrites of its own choice."""
    mode = Mode("vm", "minimum_compile")
    function = pytensor.function(graph.inputs, variables, mode=mode, on_unused_input="ignore")
    found: list[Any] = function(*(arguments[str(v.name)] for v in graph.inputs))
    return found


def _assert_slot(
    view: SlotView, slot: Slot, loop: LoopTrace, outputs: dict[Variable, Any], fed: Any
) -> None:
    series = _series(view, slot, loop)
    n = loop.n_steps
    batch = (0,) * view.batch_ndim
    if slot.kind is SlotKind.MIT_MOT:
        buffer = fed[batch].copy()
        first = -min(slot.taps)
        for step in range(n):
            for tap, one in zip(slot.out_taps, series, strict=True):
                buffer[(step + first + tap) % len(buffer)] = one.rows[step]
        assert_allclose(buffer, outputs[slot.output][batch])
        return
    (one,) = series
    if slot.kind is SlotKind.UNTRACED:
        last = (one.rows or list(one.initial))[-1]
        assert_array_equal(last, as_array(outputs[slot.output]))
        return
    if slot.last is not None:
        last = (one.rows or list(one.initial))[-1]
        final = as_array(outputs[slot.last])
        if one.dtype == "text":  # its trace is a list
            assert_array_equal(last, final)
            return
        assert_allclose(last, final)
    if slot.outer_output is None:
        return
    rows = outputs[slot.output][batch]
    if n:
        assert_allclose(np.stack(one.rows), rows[slot.n_initial :][:n])
    for place, value in enumerate(one.initial):
        assert_allclose(value, rows[place] if slot.kind is not SlotKind.STATE else rows[0])


def _series(view: SlotView, slot: Slot, loop: LoopTrace) -> list[SlotTrace]:
    """Return the traces of a slot, by where they are: constants and all others have one each."""
    counts = [
        0 if each.kind is SlotKind.INDEX else max(1, len(each.out_taps)) for each in view.slots
    ]
    place = sum(counts[: view.slots.index(slot)])
    return list(loop.slots[place : place + max(1, len(slot.out_taps))])

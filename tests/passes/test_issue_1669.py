"""The seven bullets of PyTensor issue 1669, second gradient of a simple Scan, after `grad`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.scalar import basic as ps
from pytensor.tensor.basic import Alloc, AllocEmpty
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Sum
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.subtensor import IncSubtensor, Subtensor, get_idx_list

from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.ir.scan_view import scan_op
from scanopt_cli.ir.slots import SlotKind
from support.graph_building import graph_of, optimized, outputs_of, power, scan, scan_views

N = pt.lscalar("n")
STEPS = pytest.mark.parametrize("steps", [4, 20, None], ids=["4", "20", "n"])


@cache
def second_gradient(steps: int | None) -> Graph:
    x, ys = power(N if steps is None else steps)
    return graph_of(pt.grad(pt.grad(ys[-1], x), x))


@cache
def clean(steps: int | None) -> Graph:
    return optimized(second_gradient(steps), "grad")[0]


@cache
def by_pytensor(steps: int | None) -> Graph:
    """As PyTensor leaves it."""
    graph = second_gradient(steps).copy()
    outputs = rewrite_graph(
        graph.outputs, include=("fast_run",), exclude=("inplace", "fusion", "scan_pushout")
    )
    return from_io(graph.inputs, list(outputs))


type Finder = Callable[[Graph], list[Any]]


def finder(find: Callable[[Graph], Iterator[Any]]) -> Finder:
    return lambda graph: list(find(graph))


def nodes(graph: Graph) -> list[Apply]:
    return list(graph.fgraph.toposort())


def bodies(graph: Graph) -> list[AbstractFunctionGraph]:
    return [view.op.fgraph for view in scan_views(graph.fgraph)]


@finder
def unused_sequences(graph: Graph) -> Iterator[Any]:
    for view in scan_views(graph.fgraph):
        clients = view.op.fgraph.clients
        for slot in view.of_kind(SlotKind.SEQ):
            yield from (part for part in slot.inner_inputs if not clients.get(part))


@finder
def repeats(graph: Graph) -> Iterator[Any]:
    """Equal nodes of a body, and sums of equal terms.

    Two products may still have two factors in common: a step that computed ``2*a`` by itself would
    hide which states are equal, and compilers see to it.
    """
    for body in bodies(graph):
        seen: set[Any] = set()
        for node in body.toposort():
            parts = [p.data.item() if isinstance(p, Constant) else p for p in node.inputs]
            if (node.op, *parts) in seen:
                yield node
            seen.add((node.op, *parts))
            is_sum = isinstance(getattr(node.op, "scalar_op", None), ps.Add)
            if is_sum and len(set(node.inputs)) < len(node.inputs):
                yield node


@finder
def nested_writes(graph: Graph) -> Iterator[Any]:
    for node in nodes(graph):
        if isinstance(node.op, IncSubtensor):
            behind = node.inputs[1].owner
            while behind is not None and isinstance(behind.op, Subtensor):
                behind = behind.inputs[0].owner
            if behind is not None and isinstance(behind.op, IncSubtensor):
                yield node


@finder
def expanded_values(graph: Graph) -> Iterator[Any]:
    for node in nodes(graph):
        if isinstance(node.op, IncSubtensor):
            value = node.inputs[1].owner
            if value is not None and isinstance(value.op, DimShuffle):
                yield node


@finder
def cryptic_slices(graph: Graph) -> Iterator[Any]:
    """``x[3:-6:-1]``, and slices of slices."""
    for node in nodes(graph):
        if isinstance(node.op, Subtensor):
            behind = node.inputs[0].owner
            if behind is not None and isinstance(behind.op, Subtensor):
                yield node
            for index in get_idx_list(node.inputs, node.op.idx_list):
                if isinstance(index, slice) and index.step is not None and index.stop is not None:
                    yield node


@finder
def writes_into_zeros(graph: Graph) -> Iterator[Any]:
    for node in nodes(graph):
        if isinstance(node.op, IncSubtensor):
            base = node.inputs[0].owner
            if base is not None and isinstance(base.op, Alloc):
                yield node


@finder
def sums(graph: Graph) -> Iterator[Any]:
    yield from (node for node in nodes(graph) if isinstance(node.op, Sum))


@STEPS
def test_bullet_1_no_sequence_is_unused(steps: int | None) -> None:
    """PyTensor 3.3.7 leaves none here any more; a gradient's simplification may free one."""
    assert not unused_sequences(clean(steps))


@STEPS
def test_bullet_2_nothing_is_computed_twice_in_a_step(steps: int | None) -> None:
    assert not repeats(clean(steps))


def test_repeats_are_found() -> None:
    x = pt.dscalar("x")
    assert repeats(graph_of(scan(lambda y: y + y, outputs_info=[x], n_steps=3)))


@STEPS
def test_bullet_3_no_write_of_a_write(steps: int | None) -> None:
    assert nested_writes(second_gradient(steps))
    assert nested_writes(by_pytensor(steps))
    assert not nested_writes(clean(steps))


@STEPS
def test_bullet_4_no_axis_is_put_in_to_write(steps: int | None) -> None:
    """But for the start of a long loop: see `clean-slices`."""
    assert expanded_values(by_pytensor(steps))
    left = expanded_values(clean(steps))
    assert steps != 4 or not left
    for node in left:
        assert isinstance(node.inputs[0].owner.op, AllocEmpty)
        assert all(scan_op(reader) for reader, _ in clean(steps).fgraph.clients[node.outputs[0]])


@STEPS
def test_bullet_5_slices_are_plain(steps: int | None) -> None:
    assert cryptic_slices(by_pytensor(steps))
    assert not cryptic_slices(clean(steps))


@STEPS
def test_bullet_6_nothing_is_written_into_zeros(steps: int | None) -> None:
    assert writes_into_zeros(by_pytensor(steps))
    assert not writes_into_zeros(clean(steps))


@STEPS
def test_bullet_7_no_sum(steps: int | None) -> None:
    assert sums(by_pytensor(steps))
    assert not sums(clean(steps))


def test_counts() -> None:
    views = scan_views(clean(4).fgraph)
    assert not any(view.of_kind(SlotKind.MIT_MOT) for view in views)
    assert len(nodes(clean(4))) <= 14 < len(nodes(by_pytensor(4)))
    assert not any(isinstance(node.op, SpecifyShape) for node in nodes(clean(None)))


@pytest.mark.deep
@STEPS
@pytest.mark.parametrize("mode", ["NUMBA", "CVM"])
def test_values(steps: int | None, mode: str) -> None:
    """Compiled by PyTensor after our passes, against the derivative of ``x ** 2 ** n``."""
    graph = clean(steps)
    compiled = pytensor.function(graph.inputs, graph.outputs, mode=mode)
    for count in (steps,) if steps else (1, 2, 5):
        values = {"x": np.float64(0.9 if count < 9 else 1.0), "n": np.int64(count)}
        power_of = 2.0**count
        expected = power_of * (power_of - 1) * values["x"] ** (power_of - 2)
        (got,) = compiled(*(values[str(variable)] for variable in graph.inputs))
        np.testing.assert_allclose(got, expected, rtol=1e-10)


def test_no_steps() -> None:
    """Where nothing reads the last state any more, that there is none is no error any more."""
    (before,) = outputs_of(second_gradient(None), x=0.9, n=0)
    (after,) = outputs_of(clean(None), x=0.9, n=0)
    assert isinstance(before, IndexError)
    assert isinstance(after, IndexError) or after == 0.0


@STEPS
def test_settled(steps: int | None) -> None:
    again, remarks = optimized(clean(steps), "grad")
    assert digest(again.fgraph) == digest(clean(steps).fgraph)
    assert not any(remark.startswith("passed") for remark in remarks)

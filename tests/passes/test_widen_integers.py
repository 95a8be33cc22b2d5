"""`widen-integers`: what may wrap in 8 or 16 bits is counted in 64, for those that can tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import applys_between
from pytensor.scalar import basic as ps

from scanopt_cli.analysis.state_changes import change
from scanopt_cli.analysis.value_ranges import Range, ValueRanges
from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.ir.scan_view import is_loop, view_of
from scanopt_cli.ir.slots import STATES
from scanopt_cli.passes.widen_integers import _wide_update
from support.compiled_ways import VM, compiled
from support.evaluating import PLAIN
from support.graph_building import optimized, scan

v = pt.dvector("v")
w = pt.dscalar("w")
n = pt.lscalar("n")
small = pt.bscalar("small")
INPUTS: list[Variable] = [v, w, n, small]


def dtypes(graph: Graph) -> list[str]:
    """The dtypes of the states of all loops outside of bodies."""
    return [
        slot.inner_inputs[0].type.dtype
        for node in graph.fgraph.toposort()
        if is_loop(node)
        for slot in view_of(node).of_kind(*STATES)
    ]


def widened(*outputs: Any, form: str = "") -> Graph:
    return optimized(from_io(INPUTS, list(outputs)), f"{form}widen-integers")[0]


def counting(step: Callable[..., Any], *starts: Any, **more: Any) -> Any:
    return scan(step, outputs_info=list(starts), n_steps=n, **more)


def by(number: Any) -> Callable[[Any], Any]:
    return lambda c: c + number


ZERO = np.int8(0)
PLAIN_CASES: dict[str, tuple[list[Any], str]] = {
    "last": ([counting(by(np.int8(1)), ZERO)[-1] * w], "int64"),
    "trace": ([(counting(by(np.int8(1)), ZERO) * w).sum()], "int64"),
    "sum": ([counting(by(np.int8(1)), ZERO).sum(dtype="int64")], "int64"),
    "rows": ([counting(by(np.int8(1)), ZERO)[-3:][::-1] * w], "int64"),
    "compared": ([counting(by(np.int8(1)), ZERO)[-1] > 50], "int64"),
    "down": ([counting(lambda c: c - np.int16(500), np.int16(0))[-1] * w], "int64"),
    "unsigned": ([counting(lambda c: c + np.uint8(9), np.uint8(0))[-1] * w], "int64"),
    "product": ([counting(lambda c: c * np.int8(3), np.int8(1))[-1] * w], "int64"),
    "switch": (
        [counting(lambda c: pt.switch(w > 0, c + np.int8(1), c), ZERO)[-1] * w],
        "int64",
    ),
    "cast": ([counting(lambda c: (c + np.int64(2)).astype("int8"), ZERO)[-1] * w], "int64"),
    "start": ([counting(by(np.int8(1)), small)[-1] * w], "int64"),
    "vector": ([(counting(by(np.int8(1)), pt.zeros(2, dtype="int8"))[-1] * w).sum()], "int64"),
}


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize("name", PLAIN_CASES)
@pytest.mark.parametrize("mode", [PLAIN, VM], ids=["plain", "vm"])
@pytest.mark.parametrize("form", ["", "scan-to-loop,"], ids=["Scan", "TracedLoop"])
def test_case_1(name: str, form: str, mode: Any) -> None:
    outputs, dtype = PLAIN_CASES[name]
    graph = widened(*outputs, form=form)
    assert dtypes(graph) == [dtype]
    assert [o.type for o in graph.outputs] == [o.type for o in outputs]
    before, after = (
        compiled(*pair, mode) for pair in ((INPUTS, outputs), (graph.inputs, graph.outputs))
    )
    for steps in (0, 1, 4):
        if not steps and outputs[0].type.ndim == 0 and name not in ("trace", "sum"):
            continue  # there is no last row
        arguments = [np.ones(2), 0.5, steps, 3]
        np.testing.assert_array_equal(after(*arguments)[0], before(*arguments)[0])


@pytest.mark.parametrize("form", ["", "scan-to-loop,"], ids=["Scan", "TracedLoop"])
@pytest.mark.parametrize(("steps", "wrapped", "right"), [(127, 127, 127), (130, -126, 130)])
def test_only_what_wrapped_is_another_value(
    steps: int, wrapped: int, right: int, form: str
) -> None:
    last = counting(by(np.int8(1)), ZERO)[-1]
    outputs = [last * w, last > 100, last, pt.cast(last, "int64")]
    graph = widened(*outputs, form=form)
    arguments = [np.ones(2), 1.0, steps, 0]
    assert compiled(INPUTS, outputs, VM)(*arguments)[:2] == [wrapped, wrapped > 100]
    found = compiled(graph.inputs, graph.outputs, VM)(*arguments)
    # Who wants an int8 gets one.
    assert found == [right, right > 100, wrapped, right]
    assert found[2].dtype == "int8"


def test_readers_in_the_step_read_the_wide_number_too() -> None:
    counts, means = counting(
        lambda c, mean: [c + np.int8(1), mean + (w - mean) / (c + 1.0)], ZERO, pt.zeros(())
    )
    outputs = [means[-1], counts[-1]]
    graph = widened(*outputs)
    assert dtypes(graph) == ["int64", "float64"]
    found = compiled(graph.inputs, graph.outputs, VM)(np.ones(2), 3.0, 300, 0)
    np.testing.assert_allclose(found[0], 3.0)
    with np.errstate(all="ignore"):
        assert not np.isfinite(compiled(INPUTS, outputs, VM)(np.ones(2), 3.0, 300, 0)[0])


def test_a_state_that_reads_another_one() -> None:
    one, two = counting(
        lambda c, d: [c + np.int8(1), d + np.int8(2) + pt.cast(w > 0, "int8")], ZERO, ZERO
    )
    outputs = [one[-1] * w, two[-1] * w, (one * two)[-1]]
    graph = widened(*outputs)
    assert dtypes(graph) == ["int64", "int64"]
    for steps in (1, 5):
        arguments = [np.ones(2), 0.5, steps, 0]
        wanted = compiled(INPUTS, outputs, PLAIN)(*arguments)
        assert compiled(graph.inputs, graph.outputs, VM)(*arguments) == wanted


def test_float32_readers_compute_in_float32() -> None:
    third = pt.constant(np.float32(1 / 3))
    outputs = [counting(by(np.int8(1)), ZERO)[-1] * third]
    graph = widened(*outputs)
    assert graph.outputs[0].type.dtype == "float32"
    arguments = [np.ones(2), 0.5, 101, 0]
    wanted = compiled(INPUTS, outputs, PLAIN)(*arguments)
    assert compiled(graph.inputs, graph.outputs, PLAIN)(*arguments) == wanted


def test_gradients_beside_it_stay() -> None:
    counts, ys = counting(lambda c, y: [c + np.int8(1), y * w], ZERO, w)
    cost = counts[-1] * ys[-1]
    outputs = [cost, pt.grad(cost, w)]
    graph = widened(*outputs)
    assert "int64" in dtypes(graph)
    arguments = [np.ones(2), 0.9, 4, 0]
    np.testing.assert_allclose(
        compiled(graph.inputs, graph.outputs, VM)(*arguments),
        compiled(INPUTS, outputs, PLAIN)(*arguments),
    )


NOT: dict[str, Any] = {
    "few steps": scan(by(np.int8(1)), outputs_info=[ZERO], n_steps=127)[-1] * w,
    "bounded": counting(lambda c: pt.minimum(c + np.int8(1), np.int8(5)), ZERO)[-1] * w,
    "no wide reader": counting(by(np.int8(1)), ZERO)[-1],
    "only small ones": counting(by(np.int8(1)), ZERO)[-1] + np.int8(2),
    "wide already": counting(by(np.int64(1)), np.int64(0))[-1] * w,
    "32 bits": counting(by(np.int32(1)), np.int32(0))[-1] * w,
    "a float, cut off": counting(lambda c: (c + 0.5).astype("int8"), ZERO)[-1] * w,
    "of two taps": scan(
        lambda c2, c1: c1 + np.int8(1) + np.int8(0) * c2,
        outputs_info=[{"initial": pt.zeros(2, dtype="int8"), "taps": [-2, -1]}],
        n_steps=n,
    )[-1]
    * w,
}


@pytest.mark.parametrize("form", ["", "scan-to-loop,"], ids=["Scan", "TracedLoop"])
@pytest.mark.parametrize("name", NOT)
def test_twin_states_that_stay(name: str, form: str) -> None:
    before, _ = optimized(from_io(INPUTS, [NOT[name]]), f"{form}remove-unused")
    after = widened(NOT[name], form=form)
    if form and name == "of two taps":  # in a TracedLoop the last of them is a state of its own
        assert dtypes(after) == ["int8", "int64"]
        arguments = [np.ones(2), 0.5, 100, 0]
        wanted = compiled(before.inputs, before.outputs, VM)(*arguments)
        assert compiled(after.inputs, after.outputs, VM)(*arguments) == wanted
    else:
        assert dtypes(after) == dtypes(before)


def test_a_second_run_changes_nothing() -> None:
    graph = widened(*PLAIN_CASES["rows"][0])
    assert len(optimized(graph, "widen-integers")[0].fgraph.apply_nodes) == len(
        graph.fgraph.apply_nodes
    )


@pytest.mark.parametrize("kind", [ps.Add, ps.Mul])
def test_choices_of_choices_take_no_time(kind: type[ps.ScalarOp]) -> None:
    """The branches of each switch meet again: there are 2^200 ways through them."""
    state, count = small.type(), 200
    update: Any = state
    for place in range(count):
        more = update + np.int8(1) if kind is ps.Add else update * np.int8(2)
        update = pt.switch(v[0] > place, update, more)
    wanted = Range(0, count) if kind is ps.Add else Range(1, 2**count)
    assert change(update, state, ValueRanges(), kind) == wanted
    wide = state.type.clone(dtype="int64")()
    # A switch and its condition, a sum or product, and the cast of its other operand.
    nodes = list(applys_between([wide], [_wide_update(update, state, wide)]))
    assert len(nodes) <= 6 * count


def test_a_boolean_counts_no_further() -> None:
    y = pt.dscalar()
    assert change(y.astype("bool").astype("float64"), y, ValueRanges(), ps.Mul) is None

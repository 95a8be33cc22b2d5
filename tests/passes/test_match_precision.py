"""match-precision: its legal cases by number, and a twin that must not fire for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.replace import vectorize_graph
from pytensor.scan.utils import until
from pytensor.tensor.elemwise import Elemwise

import scanopt_cli as so
from scanopt_cli.ir.graph import from_io
from scanopt_cli.rules.graph_checking import check
from scanopt_cli.rules.rule_contract import Fix
from support.compiled_ways import NUMBA, VM
from support.evaluating import PLAIN
from support.graph_building import optimized, scan
from support.mixed_precision import (
    EXACT,
    HALF,
    IDS,
    INPUTS,
    MODES,
    WIDE,
    D,
    E,
    F,
    G,
    N,
    S,
    as_double,
    as_single,
    assert_exact,
    assert_left,
    bit_patterns,
    casts,
    double_state,
    dtypes,
    graph_of,
    run,
    same_bits,
    single_state,
    values,
)
from support.tiers import deep

# Case 1.

ONE_OPERATION: dict[str, Callable[[Any, Any], Any]] = {
    "a sum": lambda f, g: as_double(f) + as_double(g),
    "a difference": lambda f, g: as_double(f) - as_double(g),
    "a product": lambda f, g: as_double(f) * as_double(g),
    "a quotient": lambda f, g: as_double(g) / as_double(f),
    "a square root": lambda f, g: pt.sqrt(as_double(f)),
    "a constant": lambda f, g: f * HALF,
    "a power of two divides": lambda f, g: f / np.float64(4),
    "what does not round before": lambda f, g: abs(as_double(f)) * -pt.minimum(as_double(g), 3.0),
    "what does not round after": lambda f, g: abs(-(as_double(f) + as_double(g))),
    "a choice": lambda f, g: pt.switch(f > g, as_double(f) + as_double(g), as_double(g)),
    "integers of 16 bits": lambda f, g: as_double(f) * pt.constant(np.int16(3)),
    "only what does not round": lambda f, g: pt.maximum(as_double(f), as_double(g)),
}


def stepping(name: str) -> Any:
    """A loop in which the state meets all numbers."""
    return scan(lambda f: as_single(ONE_OPERATION[name](f, G)), outputs_info=[F], n_steps=N)


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize("mode", MODES, ids=IDS[: len(MODES)])
@pytest.mark.parametrize("name", ONE_OPERATION)
def test_case_1_one_operation_between_casts(name: str, mode: Any) -> None:
    after = assert_exact(stepping(name), mode=mode)
    assert casts(after) == (name == "integers of 16 bits")
    assert dtypes(after) == ["float32"]
    findings = check(graph_of(stepping(name)), select=["N003"]).findings
    assert [finding.fix for finding in findings] == [Fix(EXACT)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ONE_OPERATION)
def test_case_1_other_numbers(name: str, seed: int) -> None:
    graph = graph_of(stepping(name))
    after, _ = optimized(graph, EXACT)
    given = values(seed * 10 + 1, n=1)
    for old, new in zip(run(graph, PLAIN, given), run(after, PLAIN, given), strict=True):
        same_bits(old, new)


TWO_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "two operations": lambda g, f: as_double(f) * as_double(g) + as_double(f),
    "a sum of three": lambda g, f: pt.add(as_double(f), as_double(g), as_double(f)),
    "a constant that float32 rounds": lambda g, f: f * np.float64(0.9),
    "a function": lambda g, f: pt.exp(as_double(f)) * 1.0,
    "a divisor whose reciprocal is rounded": lambda g, f: f / np.float64(3),
    "a divisor that does not vary": lambda g, f: as_double(f) / as_double(F),
    "integers of 32 bits": lambda g, f: as_double(f) * pt.cast(g, "int32"),
    "a power": lambda g, f: as_double(f) ** as_double(g),
    "a product that PyTensor would join": lambda g, f: as_double(f * g) * as_double(g),
    "a sum that PyTensor would join": lambda g, f: as_double(f - g) + as_double(g),
    "an operand of float64": lambda g, f: as_double(f) * D[0],
}


@pytest.mark.parametrize("name", TWO_OPERATIONS)
def test_case_1_twins_that_round_twice(name: str) -> None:
    step = TWO_OPERATIONS[name]
    assert_left(single_state(step), why="in one precision its values would be other ones")


def test_case_1_two_operations_would_differ() -> None:
    """What must not fire is not only unproved."""
    f, g = bit_patterns(3000, 5), bit_patterns(3000, 6)
    with np.errstate(all="ignore"):
        double = (f.astype("float64") * g + f).astype("float32")
        single = f * g + f
    assert np.isfinite(double).any()
    assert not np.array_equal(double, single, equal_nan=True)


def test_case_1_twin_the_float64_is_read_as_well() -> None:
    def step(f: Any) -> Any:
        wide = as_double(f) * as_double(G)
        return as_single(wide), wide

    assert_left(*scan(step, outputs_info=[F, None], n_steps=N))


def test_case_1_twin_a_reader_that_pytensor_would_join() -> None:
    def step(f: Any) -> Any:
        product = as_single(as_double(f) * as_double(G))
        return product * G

    graph = graph_of(scan(step, outputs_info=[F], n_steps=N))
    assert casts(optimized(graph, EXACT)[0]) == casts(graph)


def test_case_1_in_a_traced_loop() -> None:
    graph = so.optimize((INPUTS, [stepping("a product")]), "scan-to-loop").graph
    after, _ = optimized(graph, EXACT)
    assert casts(graph)
    assert not casts(after)
    for n in (0, 1, 3):
        given = values(n=n)
        (old,), (new,) = run(graph, VM, given), run(after, VM, given)
        same_bits(old, new)


# Case 2.


def small(n: int) -> list[Any]:
    return [np.float32([0.3]), np.float32([1.0]), *values(n=n)[2:]]


def nonzero(n: int) -> list[Any]:
    return small(max(n, 1))


@pytest.mark.parametrize("mode", MODES, ids=IDS[: len(MODES)])
@pytest.mark.parametrize(
    "read",
    [
        lambda ys: ys,
        lambda ys: ys[::-1],
        lambda ys: pt.sum(ys[1:], axis=0) + ys.shape[0],
        lambda ys: pt.exp(ys) * E,
    ],
)
def test_case_2_a_state_of_float64_in_steps_of_float32(read: Any, mode: Any) -> None:
    after = assert_exact(double_state(read=read), mode=mode, arguments=small)
    assert dtypes(after) == ["float32"]
    assert not casts(after)


def test_case_2_its_fix_is_safe_and_mends_it() -> None:
    graph = graph_of(double_state())
    (finding,) = check(graph, select=["N003"]).findings
    assert finding.fix is not None
    assert (finding.fix.passes, finding.fix.is_safe) == (EXACT, True)
    assert not check(optimized(graph, EXACT)[0], select=["N003"]).findings


def test_case_2_taps_and_several_states() -> None:
    starts = pt.stack([D, E])

    def step(a: Any, b: Any, c: Any) -> Any:
        a, b, c = map(as_single, (a, b, c))
        return as_double(pt.sin(a) * b), as_double(pt.cos(c) - a)

    ys, zs = scan(step, outputs_info=[{"initial": starts, "taps": [-2, -1]}, D], n_steps=N)
    after = assert_exact(ys, zs, arguments=small)
    assert dtypes(after) == ["float32"] * 2


def buffer(ys: Any) -> Any:
    """What is read of a loop, with the initial rows."""
    return ys.owner.inputs[0]


def test_case_2_twin_the_initial_row_is_read() -> None:
    assert_left(double_state(read=buffer), why="its initial rows may be read")
    assert_left(double_state(read=lambda ys: buffer(ys)[0] + ys[-1]), why="its initial rows")
    assert_left(double_state(read=lambda ys: buffer(ys)[-1]), why="its initial rows may be read")
    assert_exact(double_state(read=lambda ys: buffer(ys)[-1], steps=4), arguments=small)
    assert_exact(double_state(read=buffer, start=as_double(F)), arguments=small)
    assert_exact(double_state(read=buffer, start=pt.constant([0.5, 2.0])), arguments=small)
    assert_left(double_state(read=buffer, start=pt.constant([0.1, 2.0])))


def test_case_2_twin_a_step_reads_the_float64() -> None:
    assert_left(double_state(lambda d: as_double(as_single(d) * S) + 0 * d))
    both = scan(lambda d: (as_double(pt.tanh(as_single(d))), d), outputs_info=[D, None], n_steps=N)
    assert_left(*both)


def test_case_2_twin_the_next_value_is_no_float32() -> None:
    assert_left(double_state(lambda d: pt.exp(as_double(as_single(d)))))


def test_case_2_while_loops_and_traced_loops() -> None:
    def step(d: Any) -> Any:
        new = as_double(as_single(d) * S)
        return new, until(new[0] < 0.1)

    ys = scan(step, outputs_info=[D], n_steps=N)
    assert_exact(ys, arguments=nonzero)
    for read in (lambda ys: ys, lambda ys: ys[-1]):
        graph = so.optimize((INPUTS, [double_state(read=read, steps=3)]), "scan-to-loop").graph
        after, _ = optimized(graph, EXACT)
        assert casts(graph)
        assert not casts(after)
        (old,), (new,) = run(graph, VM, small(3)), run(after, VM, small(3))
        same_bits(old, new)


def test_case_2_rows_outside_do_not_keep_the_trace() -> None:
    """A cast of the whole trace would."""
    graph = graph_of(double_state(read=lambda ys: ys[-1], steps=9))
    for each in (graph, optimized(graph, EXACT)[0]):
        remarks = optimized(each, "normalize-reads,save-mem")[1]
        assert any("keeps 2 rows of" in remark for remark in remarks)


def test_twin_batched_and_trimmed() -> None:
    batch = pt.dmatrix("batch")
    ys = vectorize_graph(double_state(), {D: batch})
    graph = from_io([*INPUTS, batch], [ys])
    assert casts(optimized(graph, EXACT)[0]) == casts(graph)
    trimmed = so.optimize((INPUTS, [double_state(read=lambda ys: ys[-1])]), "save-mem").graph
    assert casts(optimized(trimmed, EXACT)[0]) == casts(trimmed)
    (finding,) = check(trimmed, select=["N003"]).findings
    assert finding.fix is None


def test_twin_a_step_in_place() -> None:
    tanh = Elemwise(pt.tanh.scalar_op, {0: 0})
    assert_left(double_state(lambda d: as_double(tanh(as_single(d) * S))))


# Case 3.

MIXED: dict[str, Callable[[], Any]] = {
    "two operations": lambda: single_state(lambda g, f: as_double(f) * HALF + as_double(pt.sin(f))),
    "a constant": lambda: single_state(lambda g, f: pt.tanh(f) * np.float64(0.9)),
    "the last row": lambda: single_state(lambda g, f: f * np.float64(0.9), lambda ys: ys[-1]),
    "another output": lambda: scan(
        lambda f: (as_single(pt.exp(f) * np.float64(0.9)), f, f.sum() * 2),
        outputs_info=[F, None, None],
        n_steps=N,
    ),
    "float64 whose start is read": lambda: double_state(read=buffer),
    "taps": lambda: scan(
        lambda a, b: as_single(a * np.float64(0.3) + b * np.float64(0.7)),
        outputs_info=[{"initial": pt.stack([F, F * 2]), "taps": [-2, -1]}],
        n_steps=N,
    ),
    "a product of matrices": lambda: scan(
        lambda f: as_single(pt.dot(pt.outer(F, F), f) * np.float64(0.1)),
        outputs_info=[F],
        n_steps=N,
    ),
}


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize("mode", [VM, *deep(NUMBA)], ids=["vm", "numba"][: len(MODES) - 1])
@pytest.mark.parametrize("name", MIXED)
def test_case_3_in_float64(name: str, mode: Any) -> None:
    made = MIXED[name]()
    graph = graph_of(*(made if isinstance(made, list) else [made]))
    (finding,) = check(graph, select=["N003"]).findings
    assert finding.fix is not None
    assert (finding.fix.passes, finding.fix.is_safe) == (WIDE, False)
    after, remarks = optimized(graph, WIDE)
    assert remarks
    assert set(dtypes(after)) == {"float64"}
    assert not check(after, select=["N003"]).findings
    assert not optimized(after, WIDE)[1]
    for n in (0, 1, 6):
        given = [np.float32([0.3, 0.8]), np.linspace(1, 2, 6).astype("float32")[:, None]]
        given = [given[0], np.float32([0.5] * 6), *values(n=n)[2:]]
        if name == "the last row" and not n:
            continue
        for old, new in zip(run(graph, mode, given), run(after, mode, given), strict=True):
            assert (old.dtype, old.shape) == (new.dtype, new.shape)
            np.testing.assert_allclose(new, old, rtol=1e-5)


def test_case_3_is_nearer_to_float64() -> None:
    """The digits that were dropped in each step are kept."""
    ys = single_state(lambda g, f: f * np.float64(0.999), lambda ys: ys[-1])
    graph = graph_of(ys)
    given = [np.float32([0.7]), np.ones(2000, "float32"), *values(n=2000)[2:]]
    right = np.float32(np.float32(0.7) * np.float64(0.999) ** 2000)
    ((old,), (new,)) = run(graph, VM, given)[0], run(optimized(graph, WIDE)[0], VM, given)[0]
    assert new == right
    assert old != right


def test_case_3_twin_an_exact_state_stays_exact() -> None:
    graph = graph_of(stepping("a product"))
    after, _ = optimized(graph, WIDE)
    assert dtypes(after) == ["float32"]
    assert not casts(after)


def test_gradients_afterwards() -> None:
    graph = graph_of(double_state(read=lambda ys: ys[-1].sum(), steps=5))
    after, _ = optimized(graph, EXACT)
    old, new = (
        run(from_io(g.inputs, [pt.grad(g.outputs[0], g.inputs[2])]), VM, small(5))
        for g in (graph, after)
    )
    np.testing.assert_allclose(new[0], old[0], rtol=1e-5)


def test_a_loop_of_one_precision_stays_without_a_remark() -> None:
    ys = scan(lambda f: pt.tanh(f) * S, outputs_info=[F], n_steps=N)
    zs = scan(lambda d: pt.tanh(d) * HALF, outputs_info=[D], n_steps=N)
    for pipeline in (EXACT, WIDE):
        assert not optimized(graph_of(ys, zs), pipeline)[1]

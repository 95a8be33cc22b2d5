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
from scanopt_cli.analysis.single_precision import is_cast
from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.ir.scan_view import is_loop, view_of
from scanopt_cli.rules.graph_checking import check
from scanopt_cli.rules.rule_contract import Fix
from support.compiled_ways import NUMBA, VM, compiled
from support.evaluating import PLAIN
from support.graph_building import optimized, scan
from support.tiers import deep

EXACT, WIDE = "match-precision", "match-precision{exact=false}"
MODES = [PLAIN, VM, *deep(NUMBA)]
IDS = ["plain", "vm", "numba"]
F, G = pt.fvectors("f", "g")
D, E = pt.dvectors("d", "e")
S = pt.fscalar("s")
N = pt.lscalar("n")
INPUTS = [F, G, D, E, S, N]
HALF = np.float64(0.5)


def as_single(x: Any) -> Any:
    return x.astype("float32")


def as_double(x: Any) -> Any:
    return x.astype("float64")


def single_state(step: Callable[..., Any], read: Callable[[Any], Any] = lambda ys: ys) -> Any:
    """A loop over rows, whose state is a vector of float32."""
    ys = scan(lambda g, f: as_single(step(g, f)), sequences=[G], outputs_info=[F], n_steps=N)
    return read(ys)


def double_state(
    step: Callable[..., Any] | None = None,
    read: Callable[[Any], Any] = lambda ys: ys,
    *,
    start: Any = D,
    steps: Any = N,
) -> Any:
    """A loop whose state is a vector of float64, and whose step is of float32."""
    step = step or (lambda d: as_double(pt.tanh(as_single(d)) * S))
    return read(scan(step, outputs_info=[start], n_steps=steps))


def graph_of(*outputs: Any) -> Graph:
    return from_io(INPUTS, list(outputs))


def casts(graph: Graph) -> int:
    """How many casts between float32 and float64 the steps have."""
    return sum(
        is_cast(inner.outputs[0], to)
        for node in walk(graph.fgraph)
        if is_loop(node)
        for inner in view_of(node).op.fgraph.toposort()
        for to in ("float32", "float64")
    )


def dtypes(graph: Graph) -> list[str]:
    """The dtypes of the states."""
    return [
        slot.inner_inputs[0].type.dtype
        for node in graph.fgraph.toposort()
        if is_loop(node)
        for slot in view_of(node).slots
        if slot.taps
        if slot.inner_outputs
    ]


def bit_patterns(count: int, seed: int) -> np.ndarray:
    """Numbers of every exponent, subnormals and infinities among them."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2**32, count, dtype=np.uint32)
    special = [0.0, -0.0, np.inf, -np.inf, 1e-45, -1e-45, 1.1754942e-38, 3.4028235e38, 1.0, 0.1]
    values = np.concatenate([bits.view(np.float32), np.array(special, "float32")])
    # Subnormals, and numbers with few digits, of which operations end in the middle of two others.
    small = rng.integers(0, 2**23, count, dtype=np.uint32).view(np.float32)
    few = (rng.integers(1, 2**12, count) * 2.0 ** rng.integers(-80, 70, count)).astype("float32")
    return rng.permutation(np.concatenate([values, small, few]))


def values(seed: int = 0, n: int = 3) -> list[Any]:
    f, g = bit_patterns(3000, seed), bit_patterns(3000, seed + 1)
    rng = np.random.default_rng(seed)
    d, e = rng.normal(size=(2, 7))
    return [f, g, d, e, np.float32(0.7), n]


def same_bits(old: np.ndarray, new: np.ndarray) -> None:
    """NaN is NaN, whatever its bits; all else is the same to the last bit, signs of zero too."""
    assert (old.dtype, old.shape) == (new.dtype, new.shape)
    kind = f"u{old.dtype.itemsize}"
    is_nan = np.isnan(old) & np.isnan(new)
    np.testing.assert_array_equal(
        np.where(is_nan, 0, old).astype(old.dtype).view(kind),
        np.where(is_nan, 0, new).astype(old.dtype).view(kind),
    )


def run(graph: Graph, mode: Any, arguments: list[Any]) -> list[np.ndarray]:
    function = compiled(graph.inputs, graph.outputs, mode)
    with np.errstate(all="ignore"):
        return [np.asarray(v) for v in function(*arguments)]


def assert_exact(*outputs: Any, mode: Any = VM, arguments: Any = None) -> Graph:
    graph = graph_of(*outputs)
    after, _ = optimized(graph, EXACT)
    assert casts(after) < casts(graph)
    for n in (0, 1, 3):
        given = arguments(n) if arguments else values(n=n)
        for old, new in zip(run(graph, mode, given), run(after, mode, given), strict=True):
            same_bits(old, new)
    assert not optimized(after, EXACT)[1]
    return after


def assert_left(*outputs: Any, why: str | None = None) -> None:
    graph = graph_of(*outputs)
    after, remarks = optimized(graph, EXACT)
    assert casts(after) == casts(graph)
    assert dtypes(after) == dtypes(graph)
    if why is not None:
        assert [why in remark for remark in remarks] == [True]
    assert all(
        finding.fix is None or not finding.fix.is_safe
        for finding in check(graph, select=["N003"]).findings
    )


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

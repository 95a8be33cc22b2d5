"""Loops of float32 and float64, arguments of all bits, and how their values are compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt

from scanopt_cli.analysis.single_precision import is_cast
from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.ir.scan_view import is_loop, view_of
from scanopt_cli.rules.graph_checking import check
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

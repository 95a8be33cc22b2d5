"""Graphs whose code is written in LLVM: they hold a loop, or are the step of one."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pytensor
import pytensor.tensor as pt
from numba.core.runtime import _nrt_python, rtsys
from pytensor.conditional.op import LazyIfElse
from pytensor.graph.basic import Variable
from pytensor.tensor.subtensor import AdvancedIncSubtensor

import scanopt_cli.loop.codegen.functions  # noqa: F401  # registers what it compiles
from scanopt_cli.loop import scan
from scanopt_cli.loop.codegen.graphs import GraphWriter

type Function = Callable[..., list[np.ndarray]]
type Build = Callable[..., Any]

N_STEPS = 3
# Of loops that may have no steps, and of diagonals that PyTensor writes by their indices.
AROUND = (LazyIfElse, AdvancedIncSubtensor)
LAYOUTS = ("rows", "columns", "reversed", "strided", "wide")


def laid_out(array: np.ndarray, layout: str) -> np.ndarray:
    """Return the same entries in another layout of the last axes, at most two."""
    axes = [axis for axis in (-2, -1) if array.ndim + axis >= 0]
    match layout:
        case "columns" if array.ndim > 1:
            return np.ascontiguousarray(array.swapaxes(-1, -2)).swapaxes(-1, -2)
        case "reversed":
            return np.flip(np.flip(array, axes).copy(), axes)
        case "strided" | "wide":
            step = 2 if layout == "strided" else 1
            shape, part = list(array.shape), [slice(None)] * array.ndim
            for axis in axes:
                shape[axis] = step * shape[axis] + 3
                part[axis] = slice(1, 1 + step * array.shape[axis], step)
            whole = np.full(shape, np.nan).astype(array.dtype)
            whole[tuple(part)] = array
            return whole[tuple(part)]
    return array


@contextmanager
def only_rules() -> Iterator[None]:
    """Fail if a node has no rule, but for those around what is tested."""
    original = GraphWriter._called

    def called(self: GraphWriter, node: Any, inputs: Any) -> Any:
        assert isinstance(node.op, AROUND), f"{node.op} has no rule"
        return original(self, node, inputs)

    with mock.patch.object(GraphWriter, "_called", called):
        yield


def outside(inputs: Sequence[Variable], build: Build) -> Function:
    """Compile what ``build`` makes of inputs, in a graph that holds a loop as well."""
    start = pt.dscalar("start")
    total, _ = scan(lambda carry, _x: (carry * 2, None), start, max_steps=3)
    outputs = build(*inputs)
    outputs = list(outputs) if isinstance(outputs, list | tuple) else [outputs]
    f = pytensor.function([*inputs, start], [*outputs, total], mode="NUMBA", trust_input=True)

    def run(*values: Any) -> list[np.ndarray]:
        with only_rules():
            *found, last = f(*values, np.array(1.5))
        assert last == 12
        return found

    return run


def inside(inputs: Sequence[Any], build: Build) -> Function:
    """Compile a loop, over the rows of arrays, in whose steps ``build`` makes of them outputs.

    Inputs and outputs of the function have one axis more, of as many entries as there are steps.
    """
    whole = [pt.tensor(dtype=v.type.dtype, shape=(N_STEPS, *v.type.shape)) for v in inputs]

    def step(_carry: Any, rows: Any) -> tuple[Any, Any]:
        made = build(*(v.type.filter_variable(row) for v, row in zip(inputs, rows, strict=True)))
        return pt.constant(0.0), list(made) if isinstance(made, list | tuple) else [made]

    _, outputs = scan(step, pt.constant(0.0), whole)
    f = pytensor.function(whole, outputs, mode="NUMBA", trust_input=True)

    def run(*values: Any) -> list[np.ndarray]:
        with only_rules():
            found: list[np.ndarray] = f(*values)
        return found

    return run


def own(inputs: Sequence[Variable], build: Build) -> Function:
    """Compile the same by PyTensor's own functions."""
    outputs = build(*inputs)
    outputs = list(outputs) if isinstance(outputs, list | tuple) else [outputs]
    f: Function = pytensor.function(list(inputs), outputs, mode="NUMBA", trust_input=True)
    return f


@contextmanager
def counted_memory() -> Iterator[Callable[[], Any]]:
    """Return what tells how many blocks of memory compiled code has taken and given up."""
    gc.collect()  # what other tests left is given up before
    _nrt_python.memsys_enable_stats()
    try:
        yield rtsys.get_allocation_stats
    finally:
        _nrt_python.memsys_disable_stats()


@contextmanager
def no_leaks() -> Iterator[None]:
    """Check that as much memory is given up as is allocated."""
    with counted_memory() as counts:
        before = counts()
        yield
        after = counts()
    assert after.alloc - before.alloc == after.free - before.free
    assert after.mi_alloc - before.mi_alloc == after.mi_free - before.mi_free


def check(
    build: Build,
    types: Sequence[tuple[int | None, ...]],
    cases: Sequence[Sequence[np.ndarray]],
    expected: Callable[..., Any] | None = None,
    layouts: Sequence[str] = LAYOUTS,
) -> None:
    """Compare, outside and inside of a loop, what rules and PyTensor's functions compute."""
    dtypes = [v.dtype for v in cases[0]]
    inputs = [pt.tensor(dtype=d, shape=s) for d, s in zip(dtypes, types, strict=True)]
    direct, stepped, functions = (make(inputs, build) for make in (outside, inside, own))
    for values in cases:
        for i in range(len(layouts)):
            given = [
                laid_out(v, layouts[(i * (1 + j)) % len(layouts)]) for j, v in enumerate(values)
            ]
            stacked = [
                laid_out(np.stack([v, 2 * v, v]), layouts[(i * (1 + j)) % len(layouts)])
                for j, v in enumerate(values)
            ]
            copies = [v.copy() for v in given]
            wanted = functions(*copies)
            compare(direct(*given), wanted)
            if expected is not None:
                compare(wanted, expected(*values))
            found = stepped(*stacked)
            with no_leaks():
                compare(direct(*given), wanted)
                compare(stepped(*stacked), found)
            for step in (0, 2):
                compare([v[step] for v in found], wanted)
            compare([v[1] for v in found], functions(*(2 * v for v in values)))
            for v, before in zip(given, values, strict=True):
                np.testing.assert_array_equal(v, before)


def compare(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> None:
    """Check that arrays are equal, but for rounding."""
    wanted = [np.asarray(v) for v in (wanted if isinstance(wanted, list | tuple) else [wanted])]
    for one, other in zip(found, wanted, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        rtol = 2e-3 if one.dtype == np.float32 else 1e-9
        np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol)

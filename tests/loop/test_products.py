"""Products in the steps of loops that Numba compiles."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot

from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.loop import Body, Loop, TracedLoop
from scanopt_cli.loop.products import Product, drop_unit_dimensions, use_products
from support.tiers import deep

# Below and above the sizes at which BLAS takes over; 4 rows are multiplied at a time.
LENGTHS = (0, 1, 2, 3, 4, 5, 7, 9, 64)
LAYOUTS = ("C", "F", "strided")


def laid_out(array: np.ndarray, layout: str) -> np.ndarray:
    """Return the same entries in another layout."""
    if layout == "F":
        return np.asfortranarray(array)
    if layout == "strided":
        wide = np.zeros([2 * n + 1 for n in array.shape], array.dtype)
        part: np.ndarray = wide[tuple(slice(0, 2 * n, 2) for n in array.shape)]
        part[...] = array
        return part
    return array


def multiplied(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Multiply by the code of `Product`, in a loop of one step."""
    ndim = left.ndim + right.ndim - 2
    start = np.empty((0,) * ndim, left.dtype)
    found: np.ndarray = compiled_product(left.dtype, left.ndim, right.ndim)(start, left, right)
    return found


@cache
def compiled_product(dtype: np.dtype, *ndims: int) -> Any:
    """Return a compiled loop whose step is a product."""
    left, right = (pt.tensor(dtype=dtype, shape=(None,) * ndim) for ndim in ndims)
    product: Any = Product()(left, right)
    start, state = product.type(), product.type()
    body = Body(index=pt.lscalar(), states=[state], next_states=[product])
    (last,) = Loop.over(1, body, [start], {left: left, right: right})
    return pytensor.function([start, left, right], last, mode="NUMBA", trust_input=True)


def check(shapes: Any, dtype: str, layouts: Any) -> None:
    rng = np.random.default_rng(0)
    left, right = (
        laid_out(rng.normal(size=shape).astype(dtype), layout)
        for shape, layout in zip(shapes, layouts, strict=True)
    )
    found, expected = multiplied(left, right), left @ right
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    rtol = 1e-4 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol)


@pytest.mark.deep
@given(st.data())
def test_products_are_right(data: st.DataObject) -> None:
    m, n, p = (data.draw(st.sampled_from(LENGTHS)) for _ in range(3))
    shapes = data.draw(st.sampled_from([((m, n), (n,)), ((n,), (n, p)), ((m, n), (n, p))]))
    layouts = [data.draw(st.sampled_from(LAYOUTS)) for _ in range(2)]
    check(shapes, data.draw(st.sampled_from(["float32", "float64"])), layouts)


@pytest.mark.parametrize("layout", ["C", "F", *deep("strided")])
@pytest.mark.parametrize("shapes", [((7, 5), (5,)), *deep((((5,), (5, 7)),), (((7, 5), (5, 3)),))])
def test_products_of_small_arrays(shapes: Any, layout: str) -> None:
    check(shapes, "float64", (layout, "C"))


@pytest.mark.deep
@pytest.mark.parametrize("layout", ["C", "strided", *deep("F")])
@pytest.mark.parametrize("shapes", [((300, 300), (300,)), *deep((((300,), (300, 300)),))])
def test_products_of_large_arrays(shapes: Any, layout: str) -> None:
    check(shapes, "float64", (layout,) * 2)


@pytest.mark.parametrize("shapes", [((3, 4), (5,)), *deep((((5,), (4, 3)),), (((3, 4), (5, 3)),))])
def test_lengths_that_differ_are_an_error(shapes: Any) -> None:
    with pytest.raises(ValueError, match="not aligned"):
        multiplied(*(np.zeros(shape) for shape in shapes))


def test_not_a_number_is_kept() -> None:
    left = np.array([[0.0, 1.0], [np.inf, 0.0]])
    for right in (np.array([np.nan, 1.0]), np.array([1.0, np.inf])):
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(multiplied(left, right), left @ right)


M, V = pt.dmatrix("m"), pt.dvector("v")
COLUMN, ROW = pt.dmatrix("c", shape=(None, 1)), pt.dmatrix("r", shape=(1, None))
DOTS: dict[str, tuple[Any, int]] = {
    "matrix and vector": (lambda: pt.dot(M, V), 1),
    "vector and matrix": (lambda: pt.dot(V, M), 1),
    "two matrices": (lambda: pt.dot(M, M), 2),
    "a column": (lambda: pt.dot(M, COLUMN), 1),
    "a row": (lambda: pt.dot(ROW, M), 1),
    "outer": (lambda: pt.dot(COLUMN, ROW), 2),
    "inner": (lambda: pt.dot(ROW, COLUMN), 1),
}


@pytest.mark.parametrize("name", DOTS)
def test_what_is_replaced(name: str) -> None:
    build, ndim = DOTS[name]
    inputs = [M, V, COLUMN, ROW]
    graph = FunctionGraph(inputs, [build()], clone=True)
    before = graph.outputs[0].type
    use_products(graph)
    (product,) = (node for node in graph.toposort() if isinstance(node.op, Product))
    assert product.outputs[0].type.ndim == ndim
    assert not any(isinstance(node.op, Dot) for node in graph.toposort())
    assert before.is_super(graph.outputs[0].type)
    rng = np.random.default_rng(1)
    values = [rng.normal(size=shape) for shape in ((3, 3), (3,), (3, 1), (1, 3))]
    found, expected = (
        pytensor.function(given, made, mode="FAST_COMPILE", on_unused_input="ignore")(*values)
        for given, made in ((list(graph.inputs), graph.outputs[0]), (inputs, build()))
    )
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["int64", "complex128"])
def test_other_dtypes_stay(dtype: str) -> None:
    m = pt.matrix(dtype=dtype)
    graph = FunctionGraph([m], [pt.dot(m, m)], clone=False)
    use_products(graph)
    assert [type(node.op) for node in graph.toposort()] == [Dot]


def test_rows_and_columns_become_vectors() -> None:
    w = pt.dmatrix("w")
    column = pt.tanh(pt.dot(w, V[:, None]) + V[:, None])
    graph = FunctionGraph([w, V], [pt.dot(w, column)[:, 0]], clone=False)
    use_products(graph)
    arithmetic = [node for node in graph.toposort() if isinstance(node.op, Elemwise)]
    assert {node.outputs[0].type.ndim for node in arithmetic} == {1}
    assert sum(isinstance(node.op, Product) for node in graph.toposort()) == 2


def test_dimensions_that_may_be_broadcast_stay() -> None:
    """The second has one entry in one operand only."""
    graph = FunctionGraph([M, COLUMN], [M + COLUMN], clone=False)
    drop_unit_dimensions(graph)
    assert graph.outputs[0].owner.inputs == [M, COLUMN]


def test_all_dimensions_of_one_entry_stay() -> None:
    one = pt.tensor(shape=(1, 1))
    graph = FunctionGraph([one], [pt.exp(one)], clone=False)
    drop_unit_dimensions(graph)
    assert not any(isinstance(node.op, DimShuffle) for node in graph.toposort())


@pytest.mark.deep
def test_loops_in_numba_use_them() -> None:
    index, h, w = pt.lscalar(), pt.dvector(), pt.dmatrix()
    body = Body(index=index, states=[h], next_states=[pt.tanh(w @ h) @ w])
    m, x = pt.dmatrix("m"), pt.dvector("x")
    last = TracedLoop.over(pt.constant(6), body, [x], {w: m})[0]
    f = pytensor.function([m, x], last, mode="NUMBA")
    (node,) = (node for node in f.maker.fgraph.apply_nodes if isinstance(node.op, Loop))
    assert sum(isinstance(inner.op, Product) for inner in walk(node.op.fgraph)) == 2
    rng = np.random.default_rng(2)
    for size in (1, 3, 10):
        values = rng.normal(size=(size, size)), rng.normal(size=size)
        expected = values[1]
        for _ in range(6):
            expected = np.tanh(values[0] @ expected) @ values[0]
        np.testing.assert_allclose(f(*values), expected, rtol=1e-10)

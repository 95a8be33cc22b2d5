"""Ops are written by public functions where there are some, and by their constructors where not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.sparse as sparse
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.ops import as_op
from pytensor.conditional.op import ifelse
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.raise_op import Assert
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.random.type import random_generator_type
from pytensor.tensor.type import TensorType

import scanopt_cli as so
from scanopt_cli.ir.graph import from_io
from support.foreign_ops import Scaled
from support.graph_building import scan
from support.python_scripts import assert_rebuilt

X, Y = pt.dvector("x"), pt.dvector("y")
M, A = pt.dmatrix("m"), pt.dmatrix("a")
S, J = pt.dscalar("s"), pt.lscalar("i")
V = pt.lvector("v")
P = ps.float64("p")
RNG = random_generator_type("rng")

# What is written, and by which text.
WRITTEN: dict[str, tuple[Any, str]] = {
    "sum": (X + Y, "x + y"),
    "sum of three": (pt.add(X, Y, X), "pt.add(x, y, x)"),
    "order of operations": ((X + Y) * X - (Y - (X - Y)), "(x + y) * x - (y - (x - y))"),
    "signs": (-((X + Y) ** 2) - (-X) ** Y, "-(x + y) ** 2 - (-x) ** y"),
    "powers": ((X**Y) ** X - X ** (Y**X), "(x ** y) ** x - x ** y ** x"),
    "division": (X / (Y / S) // X % Y, "x / (y / s) // x % y"),
    "number": (X * 2 + 0.5 - S, "x * 2 + 0.5 - s"),
    "comparison": (pt.switch(X < Y, X >= 0, pt.eq(X, Y)), "pt.switch(x < y, x >= 0, pt.eq(x, y))"),
    "bits": ((V & 3) | (V ^ ~V), "v & 3 | v ^ ~v"),
    "functions": (pt.exp(pt.log1p(X)) + pt.sigmoid(Y), "pt.log1p(x)) + pt.sigmoid(y)"),
    "cast": (X.astype("float32"), 'x.astype("float32")'),
    "reductions": (M.sum() + M.max() + M.prod(axis=0).sum(), "m.sum() + m.max()"),
    "axis": (M.sum(axis=1), "m.sum(axis=1)"),
    "any": (pt.any(X > 0), "(x > 0).any()"),
    "argmax": (M.argmax(axis=1), "m.argmax(axis=1)"),
    "new axes": (X[:, None] + Y, "x[:, None] + y"),
    "transposed": (M.T, "m.T"),
    "moved axes": (pt.tensor3("t").dimshuffle(2, 0, 1), "t.dimshuffle(2, 0, 1)"),
    "row": (X[1:] + X[:-1], "x[1:] + x[:-1]"),
    "entry": (M[J, 0] + M[-1, J + 1], "m[i, 0] + m[-1, i + 1]"),
    "steps": (X[::-1][J::2], "x[::-1][i::2]"),
    "set": (X[1:].set(Y), "x[1:].set(y)"),
    "inc": (M[J].inc(Y), "m[i].inc(y)"),
    "indices": (X[V], "x[v]"),
    "constant indices": (M[[0, 2]], "m[[0, 2]]"),
    "indices written": (X[V].inc(Y), "x[v].inc(y)"),
    "mask": (X[X > 0], "x["),
    "shape": (M.shape[0] + M.shape[1], "m.shape[0] + m.shape[1]"),
    "joined": (pt.concatenate([X, Y, X]), "pt.concatenate([x, y, x])"),
    "joined, axis": (pt.concatenate([M, A], axis=1), "pt.concatenate([m, a], axis=1)"),
    "stacked": (pt.stack([S, S * 2]), "pt.stack([s, s * 2])"),
    "filled": (pt.zeros((J, 3)), 'pt.zeros((i, 3), dtype="float64")'),
    "alloc": (pt.alloc(S, J, 2), "pt.alloc(s, i, 2)"),
    "empty": (pt.empty((J,)), 'pt.empty((i,), dtype="float64")'),
    "reshaped": (M.reshape((J, -1)), "m.reshape((i, -1))"),
    "flat": (M.flatten(), "m.reshape((-1,))"),
    "known shape": (pt.specify_shape(M, (3, None)), "pt.specify_shape(m, (3, None))"),
    "dot": (pt.dot(X, M), "pt.dot(x, m)"),
    "matmul": (M @ A, "m @ a"),
    "eye": (pt.eye(J), "pt.eye(i, i"),
    "cholesky": (pt.linalg.cholesky(M), "pt.linalg.cholesky(m)"),
    "solve": (pt.linalg.solve(M, X), "solve"),
    "triangular": (pt.linalg.solve_triangular(M, X, lower=True), "lower=True"),
    "inverse": (pt.linalg.inv(M), "pt.linalg.inv(m)"),
    "qr": (pt.linalg.qr(M)[0], "qr(m"),
    "svd": (pt.linalg.svd(M)[1], "svd(m"),
    "eigh": (pt.linalg.eigh(M)[0], "eigh(m"),
    "det": (pt.linalg.det(M), "det(m)"),
    "batch": (pt.linalg.cholesky(pt.dtensor3("t")), "cholesky(t)"),
    "cumulative": (pt.cumsum(X), "cumsum(x"),
    "sorted": (pt.sort(X), "sort"),
    "repeated": (pt.repeat(X, V), "repeat(x"),
    "split": (pt.split(X, [2, 3], n_splits=2)[1], "split"),
    "nonzero": (pt.nonzero(X)[0], "nonzero"),
    "range": (pt.arange(J), "pt.arange("),
    "choice": (ifelse(S > 0, X, Y), "ifelse(s > 0, x, y)"),
    "choices": (ifelse(S > 0, [X, S], [Y, S + 1])[1], "ifelse(s > 0, [x, s], [y, s + 1])"),
    "assert": (Assert("positive '\n\"")(X, S > 0), "Assert("),
    "clip": (pt.clip(X, 0, S), "pt.clip(x, 0, s)"),
    "logsumexp": (pt.logsumexp(X), "logsumexp"),
    "softmax": (pt.special.softmax(M, axis=1), "Softmax"),
    "einsum": (pt.einsum("ij,jk->ik", M, A), "m"),
    "in place": (Elemwise(ps.add, {0: 0})(X, Y), "inplace_pattern={0: 0}"),
    "composite": (Elemwise(ps.Composite([P], [ps.exp(P) * P]))(X), "Composite("),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_text(name: str) -> None:
    output, wanted = WRITTEN[name]
    assert wanted in assert_rebuilt(from_io(None, [output]))


DRAWN: dict[str, Callable[[], list[Any]]] = {
    "normal": lambda: pt.random.normal(X, S, rng=RNG, return_next_rng=True),
    "size": lambda: pt.random.normal(0.0, S, size=(J, 3), rng=RNG, return_next_rng=True),
    "known size": lambda: pt.random.uniform(size=(2, 3), rng=RNG, return_next_rng=True),
    "float32": lambda: pt.random.normal(dtype="float32", rng=RNG, return_next_rng=True),
    "categorical": lambda: pt.random.categorical(M, rng=RNG, return_next_rng=True),
    "integers": lambda: pt.random.integers(0, J, size=(4,), rng=RNG, return_next_rng=True),
    "multivariate": lambda: pt.random.multivariate_normal(X, M, rng=RNG, return_next_rng=True),
    "dirichlet": lambda: pt.random.dirichlet(X, size=(2,), rng=RNG, return_next_rng=True),
}


@pytest.mark.parametrize("name", DRAWN)
def test_random_variables(name: str) -> None:
    generator, draw = DRAWN[name]()
    assert "pt.random." in assert_rebuilt(from_io(None, [draw]))
    for outputs in ([generator], [draw, generator], [pt.random.poisson(S, rng=generator)]):
        assert_rebuilt(from_io(None, outputs))


def test_what_is_read_twice_has_a_name_and_short_numbers_stand_where_they_are() -> None:
    once = pt.exp(X)
    twice = pt.log(Y)
    text = assert_rebuilt(from_io([X, Y], [once * twice + twice * 2, twice]))
    assert "v = pt.log(y)\n" in text
    assert "outputs = [pt.exp(x) * v + v * 2, v]" in text


def test_graphs_in_ops() -> None:
    x, y = pt.dvectors("x", "y")
    inner = OpFromGraph([x, y], [x * 2, (y - x).sum()], name="layer")
    text = assert_rebuilt(from_io([X, Y], [*inner(X, Y), *inner(Y, X)]))
    assert text.count("OpFromGraph(") == 1
    assert "def layer_outputs(x, y):" in text
    for options in ({"inline": True}, {"connection_pattern": [[True, True], [False, True]]}):
        other = OpFromGraph([x, y], [x * 2, (y - x).sum()], **options)
        rebuilt = assert_rebuilt(from_io([X, Y], other(X, Y)))
        assert next(iter(options)) in rebuilt
    nested = OpFromGraph([x], [inner(x, x)[0] + 1])
    assert_rebuilt(from_io([X], [nested(X), pt.grad(nested(X).sum(), X)]))


def test_a_derivative_of_its_own_is_mentioned() -> None:
    x = pt.dscalar("x")
    own = OpFromGraph([x], [x * 2], pullback=lambda inputs, outputs, gs: [gs[0] * 3])
    text = assert_rebuilt(from_io([S], [own(S)]))
    assert "# It is differentiated by its graph, not in its own way." in text


def test_inputs_of_other_types() -> None:
    matrix = sparse.csr_matrix("matrix", dtype="float32")
    number = ps.int16("number")
    graph = from_io([matrix, number], [sparse.transpose(matrix), ps.add(number, number)])
    text = assert_rebuilt(graph)
    assert 'number = ps.int16("number")' in text


@pytest.mark.deep
def test_deep_graphs() -> None:
    value = X
    for _ in range(3_000):
        value = pt.sin(value) + 1
    assert_rebuilt(from_io([X], [value.sum()]))
    wide = [X * number for number in range(800)]
    assert_rebuilt(from_io([X], [pt.add(*wide)]))


def test_a_class_of_another_package_is_imported() -> None:
    text = assert_rebuilt(from_io([X], [Scaled(3)(X), Scaled(0.5, labels=("a\n",))(X)]))
    assert "from support.foreign_ops import Scaled" in text


class _Closed(Op):
    """An Op that no constructor makes."""

    __props__ = ("function",)

    def __init__(self, function: Any) -> None:
        self.function = function

    def make_node(self, x: Any) -> Apply:
        return Apply(self, [x], [x.type()])

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        output_storage[0][0] = self.function(inputs[0])


def test_ops_that_cannot_be_written_are_named() -> None:
    with pytest.raises(so.ScanoptError, match=r"the Op _Closed.* cannot be written as Python"):
        so.to_python(from_io([X], [_Closed(lambda value: value)(X) + 1], source="model.pkl"))

    @as_op([TensorType("float64", (None,))], [TensorType("float64", (None,))])
    def local(value: Any) -> Any:
        return value

    with pytest.raises(so.ScanoptError, match="cannot be written"):
        so.to_python(from_io([X], [local(X)]))
    trace = scan(lambda s: _Closed(lambda value: value)(s), outputs_info=[X], n_steps=3)
    with pytest.raises(so.ScanoptError, match=r"the Op _Closed.* cannot be written as Python"):
        so.to_python(from_io([X], [trace[-1]]))
    assert "sin" in assert_rebuilt(from_io([X], [_Closed(np.sin)(X)]))

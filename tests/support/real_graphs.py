"""Graphs as people write them, one function each: every kind of op that a file may hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.sparse as ps
import pytensor.tensor as pt
import pytensor.xtensor as px
from pytensor import ifelse, scan
from pytensor.assumptions import assume
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.printing import Print
from pytensor.raise_op import Assert
from pytensor.scalar.basic import Composite, float64
from pytensor.scan.utils import until
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import MulWithoutZeros
from pytensor.tensor.random.type import random_generator_type
from pytensor.tensor.random.utils import RandomStream

type Pair = tuple[Sequence[Variable], Sequence[Variable]]

GRAPHS: dict[str, Callable[[], Pair]] = {}


def graph(build: Callable[[], Pair]) -> Callable[[], Pair]:
    GRAPHS[build.__name__] = build
    return build


def powers(x: Any, steps: int = 4) -> Any:
    return scan(
        lambda h, x: h * x,
        outputs_info=[pt.ones(())],
        non_sequences=[x],
        n_steps=steps,
        return_updates=False,
        name="powers",
    )


@graph
def arithmetic() -> Pair:
    x, y = pt.vector("x"), pt.matrix("y")
    z = pt.sqrt(pt.abs(x * y + 1.5)) - pt.sign(x) ** 2 + pt.switch(x > 0, x, -x) % 3 // 2
    return [x, y], [z, pt.clip(x, 0, 1), pt.round(x), pt.cast(x, "int32"), pt.isnan(x) | (x < 1)]


@graph
def special_functions() -> Pair:
    x = pt.vector("x")
    named = (pt.erf, pt.erfcinv, pt.gammaln, pt.psi, pt.sigmoid, pt.softplus, pt.log1mexp)
    more = (pt.tri_gamma, pt.i0, pt.expm1, pt.log1p, pt.arctan, pt.cosh, pt.erfcx)
    two = pt.betainc(x, x, x) + pt.gammainc(x, x) + pt.polygamma(2, x) + pt.jv(1, x)
    return [x], [*(function(x) for function in (*named, *more)), two, pt.hyp2f1(x, x, x, x)]


@graph
def gradients_of_special_functions() -> Pair:
    x = pt.scalar("x")
    loops = pt.gammainc(x, 2.0) + pt.betainc(x, 2.0, 0.5) + pt.hyp2f1(x, 1.0, 2.0, 0.5)
    return [x], [pt.grad(loops, x)]


@graph
def complex_numbers() -> Pair:
    z = pt.zvector("z")
    return [z], [pt.real(z), pt.conj(z), pt.abs(z), pt.complex(pt.real(z), pt.imag(z))]


@graph
def reductions() -> Pair:
    x = pt.tensor3("x")
    sums = [x.sum(), x.sum(axis=(0, 2)), x.prod(axis=1), x.max(axis=0), x.min(), x.mean()]
    return [x], [
        *sums,
        x.argmax(axis=1),
        pt.any(x > 0),
        pt.all(x, axis=0),
        pt.logsumexp(x),
        x.std(),
    ]


@graph
def shapes_and_indices() -> Pair:
    x, i = pt.matrix("x"), pt.iscalar("i")
    cut = [x[1:, ::-1], x[i], x[:, i:], x[[0, 1]], x[x > 0], pt.set_subtensor(x[0], 1.0)[::2]]
    more = [pt.inc_subtensor(x[[0, 0]], 1.0), x.reshape((-1,)), x.T, x[None], pt.tile(x, (2, 2))]
    joined = [pt.concatenate([x, x]), *pt.split(x, [1, 1], axis=0), pt.stack([x, x])]
    kinds = [pt.eye(3), pt.arange(i), pt.alloc(1.0, i), pt.diag(x), pt.repeat(x, 2, axis=0)]
    return [x, i], [*cut, *more, *joined, *kinds, x.shape, pt.specify_shape(x, (2, 3)), pt.triu(x)]


@graph
def sorting_and_searching() -> Pair:
    x = pt.vector("x")
    outputs = [pt.sort(x), pt.argsort(x), pt.cumsum(x), pt.unique(x), pt.searchsorted(x, 1.0)]
    return [x], [
        *outputs,
        pt.pad(x, 2),
        pt.diff(x),
        pt.bincount(pt.cast(x, "int64")),
        *pt.nonzero(x),
    ]


@graph
def linear_algebra() -> Pair:
    a, b = pt.tensor3("a"), pt.matrix("b")
    solved = [
        pt.linalg.solve(b, b),
        pt.linalg.solve_triangular(b, b[0]),
        pt.linalg.cho_solve((b, True), b),
    ]
    more = [
        pt.linalg.cholesky(a),
        pt.linalg.inv(a),
        pt.linalg.det(b),
        *pt.linalg.svd(b),
        *pt.linalg.qr(b),
    ]
    other = [*pt.linalg.eigh(b), pt.linalg.slogdet(b)[1], pt.linalg.expm(b), pt.linalg.kron(b, b)]
    return [a, b], [*solved, *more, *other, a @ b, pt.dot(b, b), pt.einsum("ij,jk->ik", b, b)]


@graph
def gradients_of_linear_algebra() -> Pair:
    a = pt.matrix("a")
    cost = pt.linalg.cholesky(a).sum() + pt.linalg.slogdet(a)[1] + pt.linalg.inv(a @ a).sum()
    return [a], [pt.grad(cost, a)]


@graph
def softmax_and_convolution() -> Pair:
    x = pt.matrix("x")
    outputs = [
        pt.special.softmax(x, axis=-1),
        pt.special.log_softmax(x, axis=0),
        pt.special.xlogy(x, x),
    ]
    return [x], [*outputs, pt.signal.convolve1d(x[0], x[1])]


@graph
def random_draws() -> Pair:
    rng = random_generator_type("rng")
    drawn = [pt.random.normal(0, 1, rng=rng, size=(3,)), pt.random.gamma(2.0, 1.0, rng=rng)]
    mv = pt.random.multivariate_normal(np.zeros(2), np.eye(2), rng=rng)
    return [rng], [
        *drawn,
        mv,
        pt.random.categorical(np.ones(3) / 3, rng=rng),
        *pt.random.integers(0, 5, rng=rng).owner.outputs,
    ]


@graph
def random_stream() -> Pair:
    draws = RandomStream(7).normal(size=(3,))
    return [], [draws]


@graph
def shared_variables() -> Pair:
    x, s = pt.vector("x"), pytensor.shared(np.arange(3.0), "s")
    return [x], [x * s]


@graph
def scan_powers() -> Pair:
    x = pt.scalar("x")
    return [x], [powers(x)[-1]]


@graph
def scan_second_derivative() -> Pair:
    x = pt.scalar("x")
    return [x], [pt.grad(pt.grad(powers(x)[-1], x), x)]


@graph
def scan_with_taps() -> Pair:
    x0 = pt.vector("x0")
    ar = scan(
        lambda b, a: 0.5 * a + 0.2 * b,
        outputs_info=[{"initial": x0, "taps": [-2, -1]}],
        n_steps=5,
        return_updates=False,
    )
    return [x0], [ar, pt.grad(ar.sum(), x0)]


@graph
def while_scan() -> Pair:
    x = pt.scalar("x")
    out = scan(
        lambda h: (h * 2, until(h > 100)), outputs_info=[x], n_steps=50, return_updates=False
    )
    return [x], [out]


@graph
def nested_scans() -> Pair:
    x, n = pt.vector("x"), pt.iscalar("n")

    def inner(row: Any) -> Any:
        return scan(
            lambda h, r: pt.tanh(h + r),
            outputs_info=[row],
            non_sequences=[row],
            n_steps=n,
            return_updates=False,
        )[-1]

    out = scan(inner, sequences=[x], return_updates=False)
    return [x, n], [out, pt.grad(out.sum(), x)]


@graph
def scan_with_rng() -> Pair:
    rng = pytensor.shared(np.random.default_rng(3), name="rng")

    def step(h: Any, rng: Any) -> Any:
        new_rng, draw = pt.random.normal(h, 1, rng=rng).owner.outputs
        return draw, new_rng

    out = scan(step, outputs_info=[pt.zeros(()), rng], n_steps=4, return_updates=False)
    return [], [out[0]]


@graph
def graph_op() -> Pair:
    x, y = pt.vector("x"), pt.vector("y")
    op = OpFromGraph([x, y], [pt.exp(x) * y], name="scaled")
    a, b = pt.vector("a"), pt.vector("b")
    out = op(a, b)
    return [a, b], [out, pt.grad(out.sum(), a)]


@graph
def vectorized_hessian() -> Pair:
    x = pt.vector("x")
    return [x], [pt.vectorize(lambda v: pt.grad(powers(v)[-1], v), "()->()")(x)]


@graph
def blockwise_op() -> Pair:
    a, b = pt.tensor3("a"), pt.tensor3("b")
    x, y = pt.matrix("x"), pt.matrix("y")
    op = Blockwise(OpFromGraph([x, y], [x @ y]), signature="(m,n),(n,p)->(m,p)")
    return [a, b], [op(a, b)]


@graph
def blockwise_of_many_operands() -> Pair:
    vectors = [pt.vector(f"x{i}") for i in range(12)]
    op = OpFromGraph(vectors, [sum(vectors[1:], vectors[0])])
    matrices = [pt.matrix(f"a{i}") for i in range(12)]
    return matrices, [vectorize_graph(op(*vectors), dict(zip(vectors, matrices, strict=True)))]


@graph
def fused_elemwise() -> Pair:
    x, y = float64("x"), float64("y")
    op = Elemwise(Composite([x, y], [x * y + 1.0, x - y]))
    a, b = pt.vector("a"), pt.vector("b")
    return [a, b], [*op(a, b), Elemwise(MulWithoutZeros(pytensor.scalar.upcast_out))(a, b)]


@graph
def control_flow() -> Pair:
    x, c = pt.vector("x"), pt.bscalar("c")
    checked = Assert('x must be "positive"')(x, pt.all(x > 0))
    return [x, c], [ifelse(c, x, 2 * x), checked, Print("x", attrs=("shape",))(x)]


@graph
def gradient_helpers() -> Pair:
    x = pt.vector("x")
    g = pytensor.gradient
    return [x], [
        g.disconnected_grad(x),
        g.zero_grad(x),
        g.grad_clip(x, -1, 1),
        g.grad_scale(x, 2.0),
    ]


@graph
def assumptions() -> Pair:
    a = pt.matrix("a")
    return [a], [assume(a, symmetric=True)]


@graph
def sparse_matrices() -> Pair:
    x, d = ps.csc_matrix("x"), pt.matrix("d")
    held = ps.as_sparse_variable(__import__("scipy.sparse").sparse.csc_matrix(np.eye(2)))
    outputs = [ps.dot(x, d), ps.dense_from_sparse(held), ps.sp_sum(x, axis=0)]
    return [x, d], [*outputs, ps.dense_from_sparse(ps.cast(x, "float32"))]


@graph
def sparse_slices() -> Pair:
    x, i = ps.csc_matrix("x"), pt.lscalar("i")
    return [x, i], [ps.dense_from_sparse(part) for part in (x[:i, 1:], x[1:], x[::2, :])]


@graph
def sparse_rows() -> Pair:
    d, v, rows = pt.matrix("d"), pt.matrix("v"), pt.lvector("rows")
    return [d, v, rows], [ps.dense_from_sparse(ps.construct_sparse_from_list(d, v, rows))]


@graph
def choices() -> Pair:
    i, x = pt.lvector("i"), pt.matrix("x")
    return [i, x], [pt.choose(i, [x[0], x[1]]), pt.choose(i, x)]


@graph
def named_dimensions() -> Pair:
    x = px.xtensor("x", dims=("a", "b"), shape=(2, None))
    outputs = [x.sum("a"), x + x.transpose("b", "a"), x.rename(a="c"), px.math.exp(x), x.isel(a=0)]
    return [x], [
        *outputs,
        px.concat([x, x], dim="a"),
        x.stack(dim={"ab": ["a", "b"]}),
        px.dot(x, x),
    ]


@graph
def typed_lists() -> Pair:
    import pytensor.typed_list as tl

    xs, x = tl.TypedListType(pt.dvector)("xs"), pt.dvector("x")
    return [xs, x], [tl.length(xs), xs[0], tl.make_list([x, x + 1])[1]]


@graph
def optimization() -> Pair:
    from pytensor.tensor.optimize import minimize

    x, a = pt.scalar("x"), pt.scalar("a")
    return [x, a], [*minimize((x - a) ** 2, x, method="BFGS")]

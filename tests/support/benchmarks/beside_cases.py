"""Loops to compare with PyTensor alone: as users reported them, and as PyTensor measures itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.gradient import hessian
from pytensor.graph.basic import Variable
from pytensor.scan.utils import until
from pytensor.tensor.linalg import cholesky, solve

from support.benchmarks.batch_cases import batch
from support.graph_building import scan

type Built = tuple[Sequence[Variable], Sequence[Variable]]

_LENGTH = pt.lscalar("n_steps")


@dataclass(frozen=True)
class Case:
    """A graph, and arguments for it.

    ``arguments`` makes them at a scale: 1, and the ``larger`` by which growth is measured, if the
    graph takes arguments of other sizes.
    """

    name: str
    build: Callable[[], Built]
    arguments: Callable[[int], list[Any]]
    larger: int | None = None

    def __str__(self) -> str:
        return self.name


def _rng() -> np.random.Generator:
    return np.random.default_rng(0)


# Last rows: a state, a map, several taps, a stop condition; of symbolic and of known lengths.

_READS: dict[str, Callable[[Any], Any]] = {
    "[-1]": lambda rows: rows[-1],
    "[-2:]": lambda rows: rows[-2:],
    "[-3:]": lambda rows: rows[-3:],
    "whole": lambda rows: rows,
    "whole with start": lambda rows: rows.owner.inputs[0],
}


def _state(n_steps: Any, start: Any) -> Any:
    return scan(lambda x: x + 0.001 * (1 - x), outputs_info=[start], n_steps=n_steps)


def _two_taps(n_steps: Any, start: Any) -> Any:
    taps = {"initial": pt.stack([start, start]), "taps": [-2, -1]}
    return scan(lambda a, b: b + 0.5 * (b - a) + 0.001, outputs_info=[taps], n_steps=n_steps)


def _map(n_steps: Any, start: Any) -> Any:
    return scan(lambda x: (x + 0.001, x * 2), outputs_info=[start, None], n_steps=n_steps)[1]


def _stopping(loop: str) -> Callable[[Any, Any], Any]:
    def first(x: Any) -> Any:
        return x if x.type.ndim == 0 else first(x[0])

    def build(n_steps: Any, start: Any) -> Any:
        if loop == "map":
            return scan(
                lambda x: ((x + 0.001, x * 2), until(first(x) > 1e9)),
                outputs_info=[start, None],
                n_steps=n_steps,
            )[1]
        taps = {"initial": pt.stack([start, start]), "taps": [-2, -1]}
        return scan(
            lambda a, b: (b + 0.5 * (b - a) + 0.001, until(first(b) > 1e9)),
            outputs_info=[taps],
            n_steps=n_steps,
        )

    return build


_LOOPS: dict[str, Callable[[Any, Any], Any]] = {
    "state": _state,
    "two taps": _two_taps,
    "map": _map,
    "stopping, two taps": _stopping("taps"),
    "stopping map": _stopping("map"),
}


def _last_rows(loop: str, read: str, shape: tuple[int, ...], steps: int | None) -> Case:
    def build() -> Built:
        start = pt.tensor("start", dtype="float64", shape=(None,) * len(shape))
        known = steps is not None
        rows = _READS[read](_LOOPS[loop](steps if known else _LENGTH, start))
        return [start] if known else [start, _LENGTH], [rows]

    def arguments(scale: int) -> list[Any]:
        start = np.zeros(shape)
        return [start] if steps is not None else [start, np.array(500 * scale)]

    kind = f"{steps} steps" if steps is not None else "n steps"
    sizes = "x".join(map(str, shape)) or "a number"
    name = f"{loop} of {sizes}, {read}, {kind}"

    return Case(name, build, arguments, None if steps is not None else 8)


LAST_ROWS = [
    *(_last_rows(loop, "[-1]", (200, 200), None) for loop in _LOOPS),
    *(_last_rows(loop, "[-3:]", (200, 200), None) for loop in ("state", "two taps", "map")),
    *(_last_rows("state", read, (2,), 512) for read in _READS),
    *(_last_rows("state", read, (256,), 512) for read in _READS),
    *(_last_rows("two taps", "[-1]", (), steps) for steps in (1, 1000, None)),
]


# Steps that write a row, solve, or multiply.


def _written_rows(*, known: bool) -> Case:
    def build() -> Built:
        matrix, row = pt.dmatrix("matrix"), pt.dvector("row")
        rows = scan(
            lambda k, m, row: pt.set_subtensor(m[k], m[k] * 0.5 + row),
            sequences=[pt.arange(300 if known else row.shape[0])],
            outputs_info=[matrix],
            non_sequences=[row],
        )
        return [matrix, row], [rows[-1]]

    def arguments(scale: int) -> list[Any]:
        n = 300 * scale
        return [np.ones((n, n)), np.arange(float(n))]

    name = f"a row of a matrix written, {'300' if known else 'n'} steps"
    return Case(name, build, arguments, None if known else 3)


def _solved(assumed: str) -> Case:
    def build() -> Built:
        matrix, start = pt.dmatrix("matrix"), pt.dvector("start")
        xs = scan(
            lambda x, a: solve(a, x, assume_a=assumed),
            outputs_info=[start],
            non_sequences=[matrix],
            n_steps=100,
        )
        return [matrix, start], [xs[-1]]

    def arguments(scale: int) -> list[Any]:
        n = 100 * scale
        drawn = _rng().normal(size=(n, n))
        return [drawn @ drawn.T / n + np.eye(n), np.ones(n)]

    return Case(f"solve of a fixed matrix, {assumed}", build, arguments, 3)


def _outer_products() -> Case:
    def build() -> Built:
        a, b = pt.dmatrices("a", "b")
        total = scan(
            lambda a, b, total: total + pt.outer(a, b),
            sequences=[a, b],
            outputs_info=[pt.zeros((a.shape[1], b.shape[1]))],
        )[-1]
        return [a, b], [total]

    def arguments(scale: int) -> list[Any]:
        return [_rng().normal(size=(500 * scale, 50)) for _ in range(2)]

    return Case("sum of outer products", build, arguments, 4)


def _invariant_map() -> Case:
    def build() -> Built:
        h, a, b = pt.dvector("h"), *pt.dmatrices("a", "b")
        rows = scan(lambda h, a, b: pt.dot(h, a + b), non_sequences=[h, a, b], n_steps=2000)
        return [h, a, b], [rows]

    def arguments(scale: int) -> list[Any]:
        n = 50 * scale
        return [_rng().normal(size=n), *(_rng().normal(size=(n, n)) for _ in range(2))]

    return Case("map of values that no step changes", build, arguments, 4)


def _solved_rows() -> Case:
    def build() -> Built:
        rows, matrix, start = *pt.dmatrices("rows", "matrix"), pt.dvector("start")
        xs = scan(
            lambda row, x, a: pt.tanh(x + solve(a, row)),
            sequences=[rows],
            outputs_info=[start],
            non_sequences=[matrix],
        )
        return [rows, matrix, start], [xs[-1]]

    def arguments(scale: int) -> list[Any]:
        n = 20 * scale
        return [
            _rng().normal(size=(500, n)),
            _rng().normal(size=(n, n)) + n * np.eye(n),
            np.ones(n),
        ]

    return Case("rows solved by a fixed matrix", build, arguments, 3)


def _multiplied_matrices() -> Case:
    def build() -> Built:
        rows, matrix, start = pt.dtensor3("rows"), *pt.dmatrices("matrix", "start")
        xs = scan(
            lambda row, x, w: pt.tanh(x + row @ w),
            sequences=[rows],
            outputs_info=[start],
            non_sequences=[matrix],
        )
        return [rows, matrix, start], [xs[-1]]

    def arguments(scale: int) -> list[Any]:
        n = 4 * scale
        return [_rng().normal(size=(500, n, n)), _rng().normal(size=(n, n)), np.ones((n, n))]

    return Case("matrices of a sequence by a matrix", build, arguments, 4)


def _factored_matrices() -> Case:
    def build() -> Built:
        rows, start = pt.dtensor3("rows"), pt.dvector("start")
        xs = scan(lambda row, x: pt.tanh(cholesky(row) @ x), sequences=[rows], outputs_info=[start])
        slope = pytensor.grad(xs[-1].sum(), rows)
        return [rows, start], [xs[-1], slope]

    def arguments(scale: int) -> list[Any]:
        n = 4 * scale
        roots = _rng().normal(size=(500, n, n))
        return [roots @ roots.transpose(0, 2, 1) + n * np.eye(n), np.ones(n)]

    return Case("factors of a sequence's matrices, gradient", build, arguments, 4)


def _three_levels() -> Case:
    """What depends on no step is two loops further down."""

    def build() -> Built:
        start, matrix = pt.dscalar("start"), pt.dmatrix("matrix")

        def repeated(step: Callable[..., Any], x: Any, w: Any) -> Any:
            return scan(step, outputs_info=[x], non_sequences=[w], n_steps=8)[-1]

        last = repeated(
            lambda x, w: repeated(
                lambda y, w: repeated(lambda z, w: pt.tanh(z * pt.exp(w @ w).sum()), y, w), x, w
            ),
            start,
            matrix,
        )
        return [start, matrix], [last, pytensor.grad(last, start)]

    def arguments(scale: int) -> list[Any]:
        n = 16 * scale
        return [np.asarray(0.5), _rng().normal(size=(n, n)) / n**2 - 1 / n]

    return Case("exp(w @ w).sum() three loops down, gradient", build, arguments, 4)


STEPS = [
    _solved_rows(),
    _multiplied_matrices(),
    _factored_matrices(),
    _three_levels(),
    _written_rows(known=True),
    _written_rows(known=False),
    _solved("gen"),
    _solved("pos"),
    _outer_products(),
    _invariant_map(),
]


# Batches of subjects.


def _batch(kind: str, subjects: int, *, is_gradient: bool = False) -> Case:
    one = batch(kind, subjects, 3)

    def build() -> Built:
        graph = one.graph(gradient=is_gradient)
        return graph.inputs, graph.outputs

    what = "gradient" if is_gradient else "value"
    name = f"{kind}, {subjects} subjects, {what}"
    return Case(name, build, lambda _scale: list(one.values.values()))


BATCHES = [
    *(_batch("Q-learning", 12, is_gradient=is_gradient) for is_gradient in (False, True)),
    *(_batch("Q-learning", n) for n in (4, 100)),
    *(_batch("masked HMM", 15, is_gradient=is_gradient) for is_gradient in (False, True)),
    *(_batch("masked HMM", n) for n in (2, 120)),
]


# What PyTensor's own benchmarks of Scan measure, written anew.


def _epidemic(*, is_gradient: bool) -> Case:
    """Counts of exposed, infected and removed people, with binomial densities."""
    days = 1200

    def build() -> Built:
        cases, deaths = (pt.vector(name, shape=(days,), dtype="int32") for name in ("c", "d"))
        s, e, i, beta, gamma, delta = pt.dscalars("s", "e", "i", "beta", "gamma", "delta")

        def density(n: Any, p: Any, k: Any) -> Any:
            choose = pt.gammaln(n + 1) - pt.gammaln(k + 1) - pt.gammaln(n - k + 1)
            return choose + k * pt.log(p) + (n - k) * pt.log(1 - p)

        def step(c: Any, d: Any, s: Any, e: Any, i: Any, *rates: Any) -> Any:
            beta, gamma, delta = rates
            exposed = s * beta
            return (
                s - exposed,
                e + exposed - c,
                i + c - d,
                density(e, gamma, c),
                density(i, delta, d),
            )

        *_, of_cases, of_deaths = scan(
            step,
            sequences=[cases, deaths],
            outputs_info=[s, e, i, None, None],
            non_sequences=[beta, gamma, delta],
        )
        cost = of_cases.sum() + of_deaths.sum()
        wrt = [s, e, i, beta, gamma, delta]
        outputs = [cost, *pytensor.grad(cost, wrt)] if is_gradient else [cost]
        return [cases, deaths, *wrt], outputs

    def arguments(_scale: int) -> list[Any]:
        cases = np.array([3, 5, 8, 13, 21, 26, 10, 3] * (days // 8), dtype="int32")
        deaths = np.array([1, 2, 3, 7, 9, 11, 5, 1] * (days // 8), dtype="int32")
        return [cases, deaths, *map(np.array, (1e5, 5e4, 2.5e4, 0.28, 0.14, 0.11))]

    what = "value and gradient" if is_gradient else "value"
    return Case(f"epidemic with binomial densities, {what}", build, arguments)


def _two_sequences() -> Case:
    def build() -> Built:
        u, v = (pt.vector(name, shape=(1000,), dtype="float64") for name in "uv")
        start, single = pt.vector("start", shape=(2,), dtype="float64"), pt.dscalar("single")
        outputs = scan(
            lambda u, v, a, b, s: ((a + v + b + u) / 2, (s + (a + v + b + u) / 2) / 1.4),
            sequences=[u, v],
            outputs_info=[{"initial": start, "taps": [-2, -1]}, single],
        )
        return [u, v, start, single], outputs

    def arguments(_scale: int) -> list[Any]:
        rng = _rng()
        return [rng.normal(size=1000), rng.normal(size=1000), rng.normal(size=2), np.array(0.5)]

    return Case("taps of a state, two sequences", build, arguments)


def _network_with_taps() -> Case:
    def build() -> Built:
        u, v, start, before, w = *pt.dmatrices("u", "v"), *pt.dvectors("start", "before"), None
        w = pt.dmatrix("w")

        def step(u: Any, a: Any, b: Any, c: Any, x: Any, last: Any, third: Any, w: Any) -> Any:
            return [
                pt.dot(u, w) + (b + a * c) * 0.5 + pt.tanh(pt.dot(x, w)),
                pt.tanh((last + third) * x.sum()),
                pt.dot(u, w),
            ]

        outputs = scan(
            step,
            sequences=[u, {"input": v, "taps": [-1, 0, 1]}],
            outputs_info=[start, {"initial": before, "taps": [-1, -3]}, None],
            non_sequences=[w],
        )
        return [u, v, start, before, w], outputs

    def arguments(scale: int) -> list[Any]:
        n, rng = 200 * scale, _rng()
        shapes = ((n, 2), (n + 2, 2), (2,), (3,), (2, 2))
        return [rng.uniform(-0.5, 0.5, size=shape) for shape in shapes]

    return Case("network with taps of all kinds", build, arguments, 8)


def _hessian() -> Case:
    def build() -> Built:
        w = pt.vector("w", dtype="float32")

        def outer(total: Any, w: Any) -> Any:
            start = pt.as_tensor(np.float32(0))
            inner = scan(
                lambda total, w: total + (w**2).sum(),
                outputs_info=start,
                non_sequences=[w],
                n_steps=1,
            )
            return total + inner[-1]

        start = pt.as_tensor(np.float32(0))
        cost = scan(outer, outputs_info=start, non_sequences=[w], n_steps=_LENGTH)[-1]
        return [w, _LENGTH], [hessian(cost, w)]

    return Case(
        "Hessian of a loop in a loop",
        build,
        lambda scale: [np.ones(8 * scale, dtype="float32"), np.array(5)],
        4,
    )


def _rows_of_a_recurrence() -> Case:
    def build() -> Built:
        rows, m = pt.dmatrix("rows"), pt.dvector("m")
        steps = scan(
            lambda row, last, m: row + m * last,
            sequences=[rows[1:]],
            outputs_info=rows[0],
            non_sequences=[m],
        )
        return [rows, m], [steps]

    def arguments(scale: int) -> list[Any]:
        n = 200 * scale
        return [np.arange(n * 10.0).reshape(n, 10), -1 / np.arange(1.0, 11)]

    return Case("rows of a linear recurrence", build, arguments, 8)


OF_PYTENSOR = [
    _epidemic(is_gradient=False),
    _epidemic(is_gradient=True),
    _two_sequences(),
    _network_with_taps(),
    _hessian(),
    _rows_of_a_recurrence(),
]


REPORTED = [*LAST_ROWS, *STEPS, *BATCHES, *OF_PYTENSOR]

"""Graphs that load, and would keep busy for ever, or exhaust, whoever evaluates or unfolds them."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.sparse as sparse
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply
from pytensor.scalar.basic import Composite
from pytensor.scalar.loop import ScalarLoop
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.extra_ops import Repeat
from pytensor.tensor.signal.conv import Convolve1d
from pytensor.tensor.subtensor import AdvancedSubtensor

from scanopt_cli import loop as traced
from support.graph_building import scan

HUGE = 2**28


def integer(value: int) -> Any:
    return pt.constant(np.int64(value))


def array(value: Any) -> Any:
    return pt.constant(np.asarray(value, dtype="float64"))


def endless() -> Any:
    state = ps.float64("state")
    loop = ScalarLoop(init=[state], update=[ps.sin(state)])
    return Elemwise(loop)(integer(2**62), array(np.ones(3)))


def wild_sparse_matrix() -> Any:
    indices, ends = (
        pt.constant(np.array(v, dtype="int32")) for v in ([0, 2**30, -(2**30), 5], [0, 2, 4])
    )
    shape = pt.constant(np.array([2, 3], dtype="int32"))
    return sparse.dense_from_sparse(sparse.CSM("csr")(array(np.ones(4)), indices, ends, shape))


def inner_graph() -> Any:
    x = pt.dvector()
    return OpFromGraph([x], [x + 1])(array([1.0]))


def reduction_by_a_loop() -> Any:
    """A sum of two numbers, one of which takes a loop; PyTensor makes a ufunc of such formulas."""
    a, b, state = ps.float64("a"), ps.float64("b"), ps.float64("state")
    loop = ScalarLoop(init=[state], update=[ps.sin(state)])
    slow = Composite([a, b], [ps.add(loop(ps.constant(2**50), a), b)])
    slow.identity, slow.commutative, slow.associative = 0, True, True
    return CAReduce(slow, axis=(0,))(array(np.ones(65)))


def many_operands() -> Any:
    return Apply(Elemwise(ps.add), [array(np.ones(3))] * 33, [pt.vector()]).outputs[0]


def far_apart() -> Any:
    rows, columns = np.zeros((15_000, 1), dtype="int64"), np.zeros((1, 15_000), dtype="int64")
    indices = [pt.constant(rows), pt.constant(columns)]
    return AdvancedSubtensor((0, 1))(array(np.ones((2, 2))), *indices)


def a_draw() -> Any:
    rng = pt.random.type.random_generator_type.make_constant(np.random.default_rng(1))
    return pt.random.normal(size=(3,), rng=rng, return_next_rng=True)[1]


def lying_about_its_type() -> Any:
    column, row = array(np.ones((15_000, 1))), array(np.ones((1, 15_000)))
    return Apply(Elemwise(ps.add), [column, row], [pt.tensor(shape=(1, 1))]).outputs[0]


CONSTANT: dict[str, Callable[[], Any]] = {
    "sum over rows of no length": lambda: array(np.empty((HUGE, 0))).sum(1),
    "alloc": lambda: pt.alloc(array(1.0), integer(HUGE)),
    "arange": lambda: pt.arange(integer(0), integer(HUGE), integer(1)),
    "eye": lambda: pt.eye(integer(15_000), integer(15_000), integer(0)),
    "outer sum": lambda: array(np.ones((15_000, 1))) + array(np.ones((1, 15_000))),
    "repeat": lambda: Repeat(0)(array([1.0, 2.0]), pt.constant(np.array([HUGE, 1]))),
    "outer index": far_apart,
    "product of matrices": lambda: pt.dot(*[array(np.ones((500, 500)))] * 2),
    "convolution": lambda: Convolve1d()(*[array(np.ones(10**6))] * 2, ps.constant(np.bool_(True))),
    "scalar loop": endless,
    "loop": lambda: scan(
        lambda y: pt.sin(y), outputs_info=[array(0.5)], n_steps=10**15
    ).owner.inputs[0],
    "inner graph": inner_graph,
    "sparse matrix": wild_sparse_matrix,
    "reduction by a scalar loop": reduction_by_a_loop,
    "places along many axes": lambda: pt.stack(
        pt.nonzero(pt.constant(np.ones((2**16, *(1,) * 31), dtype="bool")))
    ),
    "draw": a_draw,
    "more operands than Python takes": many_operands,
    "a lie about the shape": lying_about_its_type,
    "slow at such arguments": lambda: pt.hyp2f1(*map(array, (1e10, 1000.0, 1e-5, -20.5))),
    "numbers by Python code": lambda: pt.round(array(np.ones(10**5)), mode="half_away_from_zero"),
}
"""What is made of constants, and must not be computed while a graph is read or rewritten."""

x = pt.dscalar("x")


def doubled(y: Any, _: int) -> Any:
    return pt.sin(y) + pt.cos(y) * y


def nested_loops(depth: int) -> Any:
    def loop(y: Any, left: int) -> Any:
        if left == 0:
            return pt.sin(y)
        return scan(lambda y: loop(y, left - 1), outputs_info=[y], n_steps=2)[-1]

    return loop(x, depth)


def nested_graphs(depth: int) -> Any:
    """Graphs that each hold the one before twice."""
    op = OpFromGraph([x], [pt.sin(x)])
    for _ in range(depth):
        op = OpFromGraph([x], [op(op(x))])
    return op(x)


def nested_composites(depth: int) -> Any:
    """Formulas that each hold the one before twice."""
    s = ps.float64("s")
    op = Composite([s], [ps.sin(s)])
    for _ in range(depth):
        op = Composite([s], [op(op(s))])
    return Elemwise(op)(x)


def long_formula() -> Any:
    """A formula of nine nodes that is written out with 40**9 terms."""
    s = ps.float64("s")
    return Elemwise(Composite([s], [reduce(lambda y, _: ps.add(*[y] * 40), range(9), s)]))(x)


def wide_buffer() -> Any:
    """A state of eight axes, each as long as a sum of eight numbers."""
    numbers = [pt.lscalar(f"n{i}") for i in range(64)]
    lengths = [sum(numbers[i + 1 : i + 8], numbers[i]) for i in range(0, 64, 8)]
    return scan(lambda y: y * 2, outputs_info=[pt.alloc(x, *lengths)], n_steps=5)[-1].sum()


def least_of_many() -> Any:
    n, m = pt.lscalars("n", "m")
    steps = reduce(lambda least, _: pt.minimum(least + m, least * 2 + 1), range(60), n)
    return scan(lambda y: pt.sin(y), outputs_info=[x], n_steps=steps)[-1]


def nested_traced_loops(depth: int) -> Any:
    def loop(y: Any, left: int) -> Any:
        if left == 0:
            return pt.sin(y)
        return traced.scan(lambda s, _: (loop(s, left - 1), None), y, max_steps=2)[0]

    return loop(x, depth)


def states_that_change_places(count: int) -> Any:
    starts = [x + i for i in range(count)]
    return traced.scan(lambda ys, _: ((*ys[1:], ys[0]), None), tuple(starts), max_steps=3)[0][0]


def many_states() -> Any:
    states = scan(
        lambda *ys: [y * 0.5 + ys[0] for y in ys],
        outputs_info=[x + i for i in range(25)],
        n_steps=3,
    )
    return sum(ys[-1] for ys in states)


SHAPED: dict[str, Callable[[], Any]] = {
    "paths without number": lambda: reduce(doubled, range(40), x),
    "a sum of itself and itself": lambda: reduce(lambda y, _: y + y, range(100), x),
    "a number of more than 64 bits": lambda: pt.arange(9)[: integer(2**62) * integer(4)].sum() + x,
    "a long chain": lambda: reduce(lambda y, i: y + i, range(1_000), x),
    "loops in loops": lambda: nested_loops(5),
    "traced loops in traced loops": lambda: nested_traced_loops(12),
    "states that change places": lambda: states_that_change_places(500),
    "graphs that hold graphs twice": lambda: nested_graphs(6),
    "formulas that hold formulas twice": lambda: nested_composites(25),
    "a formula of many terms": long_formula,
    "a buffer of many lengths": wide_buffer,
    "as many steps as the least of many": least_of_many,
    "many states": many_states,
    "a loop of too many steps": lambda: scan(
        lambda y: pt.sin(y), outputs_info=[x], n_steps=integer(2**62)
    )[-1],
    "a loop of no steps": lambda: scan(lambda y: pt.sin(y), outputs_info=[x], n_steps=integer(0))[
        -1
    ],
    "a row far away": lambda: scan(lambda y: pt.sin(y), outputs_info=[x], n_steps=3)[2**40],
    "a sum of many terms": lambda: sum(x**i for i in range(40)),
}
"""What has few nodes and much in it."""

HEAVY: dict[str, Callable[[], Any]] = {
    **{f"a constant {name}": lambda make=make: make().sum() + x for name, make in CONSTANT.items()},
    **SHAPED,
}

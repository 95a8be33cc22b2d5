"""Lengths as affine expressions: what is shown, and what must not be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytensor.graph.basic import Apply
from pytensor.graph.replace import clone_replace
from pytensor.scan.utils import until
from pytensor.tensor.shape import Shape
from pytensor.tensor.subtensor import Subtensor

from scanopt_cli.analysis.affine import AffineExpr
from scanopt_cli.analysis.buffers import is_whole, trimmed
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.loop_lengths import rows
from scanopt_cli.ir.slots import TRACED
from support.graph_building import graph_of, only_scan, power, scan, scan_views

N = pt.lscalar("n")
K = pt.lscalar("k")
X = pt.dvector("x")


@pytest.mark.parametrize(
    ("rows", "steps", "text"),
    [
        (N, N, "n"),
        (N, pt.minimum(N, 2), "n"),
        (N, pt.minimum(N, K), None),
        (pt.constant(1), N, None),
        (pt.constant(1), X.shape[0] + 1, "1"),
        (pt.constant(1), pt.minimum(X.shape[0] + 1, 3), "1"),
        (pt.constant(2), pt.constant(5), "2"),
    ],
    ids=str,
)
def test_a_trace_of_no_steps_has_no_rows(rows: Any, steps: Any, text: str | None) -> None:
    """The buffer's length counts only if it has no rows where the loop runs no steps."""
    view = only_scan(graph_of(scan(lambda: pt.tanh(1.5), n_steps=4)).fgraph)
    view.slots[0].outer_input, view.n_steps = rows, steps
    (output,) = view.rebuild().values()
    assert str(Lengths(steps, static=False).length_of(output)) == (text or "?.shape[0]")


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (pt.zeros((N + 1,)), "n+1"),
        (pt.zeros((2 * N - 1, 3)), "2*n-1"),
        (pt.zeros((N + 1,))[1:], "n"),
        (pt.zeros((N + 3,))[:-2], "n+1"),
        (pt.zeros((N + 3,))[::-1], "n+3"),
        (pt.zeros((N + 3,))[-2::-1], "n+2"),
        (pt.dmatrix("a") @ pt.dvector("b"), "a.shape[0]"),
        ((pt.dmatrix("a") @ pt.dmatrix("b")).T, "b.shape[1]"),
        (pt.dtensor3("a") @ pt.dtensor3("b"), "a.shape[0]"),
        ((pt.dtensor3("a") @ pt.dtensor3("b"))[0], "a.shape[1]"),
        ((pt.dtensor3("a") @ pt.dtensor3("b"))[0, 0], "b.shape[2]"),
        (pt.zeros((N + 3,))[:0:-1], "n+2"),
        (pt.zeros((N + 3,))[N::-1], "n+1"),
        (pt.zeros((5,))[3:-6:-1], "4"),
        (pt.zeros((N,)) + 1, "n"),
        (X[::-1], "x.shape[0]"),
        (pt.set_subtensor(pt.zeros((N + 2,))[:1], 1.0), "n+2"),
        (pt.zeros((pt.minimum(N, N + 1),)), "n"),
        (pt.zeros((pt.minimum(N, K),)), "min(n,k)"),
        (pt.zeros((5,))[1:4], "3"),
        (pt.join(0, pt.zeros((N,)), X, pt.zeros((2,))), "n+x.shape[0]+2"),
    ],
)
def test_length_of(length, text: str) -> None:
    assert str(Lengths(N).length_of(length)) == text


@pytest.mark.parametrize(
    "vector",
    [
        X[2:],  # x may be shorter than 2
        X[:N],  # and shorter than n
        pt.zeros((N + K,))[:K],  # k may be negative: nothing says that it is a count
        X[-2::-1],  # so may a read from behind
        X[:N:-1],
        pt.zeros((N + 3,))[K::-1],
        X[::2],
        X[X > 0],
    ],
)
def test_clipping_that_cannot_be_decided_is_an_atom(vector) -> None:
    form = Lengths(N).length_of(vector)
    assert [atom.variable for atom in form.atoms] == [vector]


def test_deep_questions_come_to_an_end() -> None:
    """A bound asks for a length, which asks for a bound."""
    rows = pt.zeros((N + 3,))
    for _ in range(400):
        rows = rows[: rows.shape[0] - 1 : -1][rows[::-1].shape[0] - 1 :: -1]
    assert Lengths(N).length_of(rows).atoms


def test_floor() -> None:
    """What a read that has not failed shows."""
    floor = Lengths().length_of(X) - AffineExpr(2)
    assert not Lengths().provably_le(AffineExpr(2), Lengths().length_of(X))
    assert Lengths(floor=floor).provably_le(AffineExpr(2), Lengths().length_of(X))
    assert not Lengths(floor=floor).provably_le(AffineExpr(3), Lengths().length_of(X))


def test_order_of_minima() -> None:
    lengths = Lengths(N)
    n, smaller = lengths.value_of(N), lengths.value_of(pt.minimum(3, N))
    assert lengths.provably_le(smaller, n)
    assert lengths.provably_le(smaller, AffineExpr(3))
    assert not lengths.provably_le(n, smaller)
    assert not lengths.provably_le(AffineExpr(1), n)


def test_a_part_as_long_as_another_sequence_has_a_row_for_each_step() -> None:
    """``x[:len(y)]`` of a loop that runs ``min(len(x), len(y))`` steps, or the least of three."""
    one, other, third = (pt.dvector(name) for name in "xyz")
    size = [vector.shape[0] for vector in (one, other, third)]
    two = Lengths(pt.minimum(size[0], size[1]))
    assert two.length_of(one[: size[1]]) == two.steps == two.alone.length_of(one[: size[1]])
    assert two.length_of(one[: size[1]][::-1]) == two.steps
    assert two.length_of(one[: size[2]]) != two.steps
    assert two.length_of(third[: size[1]]) != two.steps
    three = Lengths(pt.minimum(pt.minimum(size[0], size[1]), size[2]))
    assert three.length_of(one[: pt.minimum(size[1], size[2])]) == three.steps
    assert three.length_of(one[: size[1]][: size[2]]) != three.length_of(one[: size[1]])
    assert three.length_of(one[: size[1]]) != three.steps
    assert Lengths(size[0]).length_of(one[: size[1]]) != Lengths(size[0]).steps
    many = pt.minimum(size[0], N)  # may be negative, and then names a row counted from the end
    assert Lengths(many).length_of(one[:N]) != Lengths(many).steps


def test_shared_expressions_stay_linear() -> None:
    """A sum of sums of one variable has 2**60 paths, and is read at once."""
    total = N
    for _ in range(60):
        total = total + total
    Lengths().value_of(total)


@given(st.integers(-6, 6), st.integers(-6, 6), st.integers(0, 8))
def test_slices_of_known_length_agree_with_numpy(start: int, stop: int, size: int) -> None:
    sliced = pt.zeros((N + size,))[start:stop]
    form = Lengths(N).length_of(sliced)
    for n in (0, 1, 7):
        if form.is_constant:
            assert form.constant == len(np.zeros(n + size)[start:stop])
        elif all(atom.variable is N for atom in form.atoms):
            assert form.constant + n * dict(form.terms).popitem()[1] == len(
                np.zeros(n + size)[start:stop]
            )


def test_buffers_of_a_scan_are_whole() -> None:
    n = pt.lscalar("n")
    x, xs = power(n)
    for view in scan_views(graph_of(xs[-1], pt.grad(xs[-1], x)).fgraph):
        assert trimmed(view) == []
    view = only_scan(graph_of(xs[-1]).fgraph)
    (slot,) = view.of_kind(*TRACED)
    assert str(rows(view, slot, Lengths(view.n_steps))) == "n+1"


def test_start_of_unknown_length_is_whole() -> None:
    start = pt.dvector("start")
    xs = scan(
        lambda a, b: a + b,
        outputs_info=[{"initial": start, "taps": [-2, -1]}],
        n_steps=pt.lscalar(),
    )
    assert trimmed(only_scan(graph_of(xs).fgraph)) == []


@pytest.mark.parametrize("rows_kept", [2, pt.minimum(2, N) + 1, N])
def test_shorter_buffer_is_trimmed(rows_kept) -> None:
    _, xs = power(N)
    view = only_scan(graph_of(xs[-1]).fgraph)
    n = view.n_steps
    (slot,) = view.of_kind(*TRACED)
    if not isinstance(rows_kept, int):
        rows_kept = clone_replace(rows_kept, {N: n})
    slot.outer_input = slot.outer_input[:rows_kept]
    assert not is_whole(view, slot, Lengths(n))


def test_length_of_a_while_loop_is_unknown() -> None:
    x = pt.dscalar("x")
    xs = scan(lambda y: (y * 2, until(y > 100)), outputs_info=[x], n_steps=N)
    raw = xs.owner.inputs[0]
    form = Lengths(N).length_of(raw)
    assert [atom.variable for atom in form.atoms] == [raw]


def test_least_of_a_list() -> None:
    """``pt.min`` of a list is written as a maximum of negated numbers."""
    x, y = pt.dvector("x"), pt.dvector("y")
    assert str(Lengths().value_of(pt.min([x.shape[0], y.shape[0]]))) == "min(x.shape[0],y.shape[0])"
    assert str(Lengths().value_of(pt.min([x.shape[0], x.shape[0] + 2]))) == "x.shape[0]"


def test_outputs_of_a_while_loop_stop_together() -> None:
    x = pt.dscalar("x")
    ys, zs, _ = scan(
        lambda y, z: ([y * 2, z + y, y - z], until(y > 5)), outputs_info=[x, x, None], n_steps=N
    )
    ys, zs = ys.owner.inputs[0], zs.owner.inputs[0]
    lengths = Lengths()
    assert lengths.length_of(zs) == lengths.length_of(ys)
    trace = ys.owner.outputs[2]
    assert lengths.length_of(ys) - lengths.length_of(trace) == AffineExpr(1)


def test_outputs_of_a_while_loop_that_keeps_less() -> None:
    """A buffer that was cut says nothing of the steps that ran."""
    x = pt.dscalar("x")
    ys, _ = scan(lambda y, z: ([y * 2, z + y], until(y > 5)), outputs_info=[x, x], n_steps=N)
    node = ys.owner.inputs[0].owner
    short = node.op(node.inputs[0], node.inputs[1], node.inputs[2][:2])
    lengths = Lengths()
    assert lengths.length_of(short[0]) != lengths.length_of(short[1])


def test_counted_ranges() -> None:
    n, s = pt.lscalar("n"), pt.dvector("s")
    lengths = Lengths()
    assert lengths.length_of(pt.arange(4)) == AffineExpr(4)
    assert lengths.length_of(pt.arange(2, 6)) == AffineExpr(4)
    assert lengths.length_of(pt.arange(s.shape[0])) == lengths.length_of(s)
    for unknown in (pt.arange(n), pt.arange(6, 2), pt.arange(0, 6, 2)):
        assert not lengths.length_of(unknown).is_constant or unknown.type.shape != (None,)


@pytest.mark.parametrize("tensor", [pt.dscalar("s"), X])
def test_a_length_of_an_axis_that_is_not_there_is_an_atom(tensor) -> None:
    """Such an index raises an error, wherever the graph is evaluated."""
    shape = Apply(Shape(), [tensor], [pt.lvector()]).outputs[0]
    two = ps.constant(2, dtype="int64")
    row = Apply(Subtensor((0,)), [shape, two], [pt.lscalar()]).outputs[0]
    assert "shape" not in str(Lengths().value_of(row))


def test_entries_of_rows_of_a_matrix_are_numbers_of_their_own() -> None:
    m = pt.lmatrix("m")
    for entry in (m[0][1], m[0, :][1], m[:, 0][0], m[1:, 0][1]):
        (atom,) = Lengths().value_of(entry).atoms
        assert atom.variable is entry


def test_products_of_32_bits_wrap() -> None:
    k = pt.iscalar("k")
    product = Lengths().value_of(k * np.int32(1 << 20))
    assert [count for _, count in product.terms] == [1]
    assert str(Lengths().value_of(k + np.int32(1))) == "k+1"

"""Which arguments grow with the one that is named, and how."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Variable

from scanopt_cli.benchmarking.growing import growth_of
from scanopt_cli.benchmarking.requests import BenchRequest, Way
from scanopt_cli.benchmarking.sized_arguments import SizedArguments
from scanopt_cli.errors import ScanoptError
from scanopt_cli.ir.graph import from_io
from scanopt_cli.tracing.requests import Arguments
from support.graph_building import scan

x, y, h = pt.dvector("x"), pt.dvector("y"), pt.dscalar("h")
m, n = pt.dmatrix("m"), pt.lscalar("n")


def sized(
    inputs: list[Variable], output: Variable, grow: str, values: tuple[Any, ...] | None
) -> SizedArguments:
    fgraph = from_io(inputs, [output]).fgraph
    request = BenchRequest(
        graphs=(),
        which=0,
        modes=("vm",),
        arguments=Arguments(values=values, text="", contents={}, seed=0),
        steps=100,
        growth=growth_of(fgraph.inputs, grow),
        timeout=60.0,
    )
    return SizedArguments(request, [fgraph])


def test_lengths_that_must_be_equal_grow_together() -> None:
    """Rows are repeated from the start, and left out at the end."""
    values = (np.arange(3.0), np.arange(9.0).reshape(3, 3), np.ones(2))
    made = sized([x, m, y], (x + m.sum(axis=0)).sum() + y.sum(), "x=2,5", values)
    larger = made.grown(values, Way(), 5)
    assert larger[0].tolist() == [0, 1, 2, 0, 1]
    assert larger[1].shape == (3, 5)
    assert larger[2].shape == (2,)
    assert made.grown(values, Way(), 2)[0].tolist() == [0, 1]
    assert made.names_of_what_grows(values, Way()) == ["x", "m"]


def test_a_number_of_steps_grows_alone_or_with_its_sequence() -> None:
    last = scan(lambda a, h: h * a, sequences=[x], outputs_info=[h], n_steps=n)[-1]
    values = (np.ones(4), np.float64(1), np.int64(4))
    made = sized([x, h, n], last, "n=10,20", values)
    alone, both = made.ways()
    assert [np.shape(v) for v in made.grown(values, alone, 10)] == [(4,), (), ()]
    together = made.grown(values, both, 10)
    assert (together[0].shape, int(together[2])) == ((10,), 10)
    assert together[2].dtype == "int64"


def test_neighbours_keep_their_distance() -> None:
    """A loop over x[t-1] and x[t] has a step less than x has rows."""
    last = scan(lambda a, b, h: h * a + b, sequences=[x[1:], y], outputs_info=[h], name="two")[-1]
    values = (np.ones(5), np.ones(4), np.float64(1))
    made = sized([x, y, h], last, "x=11,21", values)
    grown = made.grown(values, Way(together=True), 11)
    assert [np.shape(v) for v in grown] == [(11,), (10,), ()]


def test_drawn_arguments_have_the_steps_that_were_asked_for() -> None:
    last = scan(lambda a, h: h * a, sequences=[x], outputs_info=[h])[-1]
    made = sized([x, h], last, "x=10,20", None)
    way = next(made.ways())
    assert made.base(way)[0].shape == (100,)
    assert np.array_equal(made.base(way)[0], made.base(way)[0])
    assert made.described(made.base(way)) == ["x (100)", "h"]


def test_a_length_that_is_fixed() -> None:
    total = (pt.specify_shape(x, (3,)) * 2).sum()
    made = sized([x], total, "x=10,20", (np.ones(3),))
    with pytest.raises(ValueError, match="x cannot grow: the graph wants 3 rows"):
        made.grown((np.ones(3),), Way(), 10)


def test_nothing_to_repeat() -> None:
    made = sized([x], x.sum(), "x=10,20", (np.ones(0),))
    with pytest.raises(ValueError, match="empty"):
        made.grown((np.ones(0),), Way(), 10)


@pytest.mark.parametrize("text", ["x=0,5", f"x=1,{10**12}", "x=5", "x", "x=", "z=1,2", "h=1,2"])
def test_what_cannot_grow(text: str) -> None:
    with pytest.raises(ScanoptError, match="--grow"):
        growth_of([x, h], text)


def test_sizes_in_order_and_as_a_mapping() -> None:
    found = growth_of([h, n], {"n": [100, 10, 100]})
    assert found is not None
    assert (found.place, found.sizes) == (1, (10, 100))

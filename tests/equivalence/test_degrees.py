"""Degrees of sameness: what a digest passes over unless it is asked not to."""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Variable

import scanopt_cli as so
from support.graph_building import graph_of, power


def _layer(**options: Any) -> so.Graph:
    x, y = pt.dscalar("x"), pt.dscalar("y")
    return graph_of(OpFromGraph([x], [x * 2], **options)(y))


def _loop(name: str) -> so.Graph:
    _, xs = power(name=name)
    return graph_of(xs)


PLACES = ("input", "between", "output")


def _named(name: str, where: str) -> so.Graph:
    """One input, one inner variable and one output, of which one has a name."""
    x = pt.dscalar(name if where == "input" else None)
    y = pt.exp(x)
    y.name = name if where == "between" else None
    z = y + 1
    z.name = name if where == "output" else None
    return graph_of(z)


@pytest.mark.parametrize(
    ("one", "same", "other"),
    [
        (_loop("a"), _loop("a"), _loop("b")),
        (_layer(name="a"), _layer(name="a"), _layer(name="b")),
        *((_named("a", at), _named("a", at), _named("b", at)) for at in PLACES),
        (_named("a", "input"), _named("a", "input"), _named("a", "output")),
    ],
    ids=["loop", "OpFromGraph", *PLACES, "elsewhere"],
)
def test_names(one: so.Graph, same: so.Graph, other: so.Graph) -> None:
    assert so.digest(one) == so.digest(other)
    assert so.digest(one, gradients=True) == so.digest(other, gradients=True)
    assert so.digest(one, names=True) != so.digest(other, names=True)
    assert so.digest(one, names=True) == so.digest(same, names=True)
    assert so.digest(one, names=True) != so.digest(one)


def _pullback(inputs: Any, outputs: Any, gradients: Any) -> Any:
    return gradients


@pytest.mark.parametrize(
    "options", [{"inline": True}, {"pullback": _pullback}], ids=["inline", "pullback"]
)
def test_gradients(options: dict[str, Any]) -> None:
    one, other = _layer(), _layer(**options)
    assert so.digest(one) == so.digest(other)
    assert so.digest(one, names=True) == so.digest(other, names=True)
    assert so.digest(one, gradients=True) != so.digest(other, gradients=True)
    assert so.digest(_layer(**options), gradients=True) == so.digest(other, gradients=True)


def test_every_form_of_a_graph() -> None:
    x = pt.dvector("x")
    pair: tuple[list[Variable], list[Variable]] = ([x], [pt.exp(x).sum()])
    graph = graph_of(*pair[1])
    forms = (pair, graph, graph.fgraph, graph.fgraph.freeze())
    assert len({so.digest(form) for form in forms}) == 1
    with pytest.raises(so.ScanoptError, match="expected a graph"):
        so.digest(1)  # type: ignore[arg-type]

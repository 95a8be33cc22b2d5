"""Canonical digests: what is the same, what is not, and in which process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from hypothesis import given, settings
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.scan.utils import until

from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.equivalence.digests import Digests
from scanopt_cli.equivalence.sameness import Sameness
from scanopt_cli.ir.graph import from_io
from scanopt_cli.serialization.loading import load
from scanopt_cli.serialization.saving import save
from support.generated.strategies import GeneratedScan, scan_graphs
from support.graph_building import graph_of, power, scan
from support.tiers import examples


def _loop(
    *,
    steps: Any = 5,
    taps: Any = (-2, -1),
    factor: Any = 2.0,
    name: str = "loop",
    limit: Any = None,
) -> str:
    start = pt.dvector("start")

    def step(a, b):
        new = a * factor + b
        return (new, until(new > limit)) if limit is not None else new

    ys = scan(step, outputs_info=[{"initial": start, "taps": list(taps)}], n_steps=steps, name=name)
    return digest(graph_of(ys[-1]))


def test_names_do_not_count() -> None:
    assert _loop(name="loop") == _loop(name="another")
    (x, xs), (y, ys) = power(name="a"), power(name="b")
    x.name, y.name = "x", "y"
    assert digest(graph_of(xs)) == digest(graph_of(ys))


def test_swapped_operands_and_repeated_nodes_do_not_count() -> None:
    x, y = pt.dvectors("x", "y")
    once = pt.exp(x + y)
    assert digest(([x, y], [once * once])) == digest(([x, y], [pt.exp(y + x) * pt.exp(x + y)]))


MUTATIONS: dict[str, Callable[[], str]] = {
    "constant": lambda: _loop(factor=3.0),
    "dtype of a constant": lambda: _loop(factor=np.float64(2.0)),
    "step count": lambda: _loop(steps=6),
    "symbolic step count": lambda: _loop(steps=pt.lscalar("n")),
    "taps": lambda: _loop(taps=(-3, -1)),
    "condition": lambda: _loop(limit=10.0),
    "limit of the condition": lambda: _loop(limit=11.0),
    "nothing": lambda: _loop(),
}


def test_every_mutation_changes_the_digest() -> None:
    found = {name: make() for name, make in MUTATIONS.items()}
    assert len(set(found.values())) == len(found)


def test_sign_of_zero_counts() -> None:
    """In a plain graph: PyTensor itself takes 0.0 for -0.0 where it freezes a body."""
    x = pt.dscalar("x")
    assert digest(([x], [x * np.float64(0.0)])) != digest(([x], [x * np.float64(-0.0)]))


def test_order_of_three_operands_counts() -> None:
    """Floating-point addition of three numbers rounds by their order."""
    x, y, z = pt.dscalars("x", "y", "z")
    assert digest(([x, y, z], [(x + y) + z])) != digest(([x, y, z], [(x + z) + y]))


def test_inputs_count_by_position_and_type() -> None:
    x, y, f = pt.dscalar("x"), pt.dscalar("y"), pt.fscalar("f")
    assert digest(([x, y], [x - y])) == digest(([y, x], [y - x]))
    assert digest(([x, y], [x - y])) != digest(([y, x], [x - y]))
    assert digest(([x], [x + 1])) != digest(([f], [f + 1]))


def test_overrides_of_gradients_count_only_if_asked_for() -> None:
    x, y = pt.dscalar("x"), pt.dscalar("y")
    plain = OpFromGraph([x], [x * 2])(y)
    other = OpFromGraph([x], [x * 2], pullback=lambda inputs, outputs, grads: grads)(y)
    assert digest(([y], [plain])) == digest(([y], [other]))
    assert digest(([y], [plain]), gradients=True) != digest(([y], [other]), gradients=True)


def test_ops_of_a_local_scope_are_never_taken_for_one_another() -> None:
    def op(factor: float) -> Op:
        class Times(Op):
            def make_node(self, x):
                return Apply(self, [x], [x.type()])

            def perform(self, node, inputs, outputs):
                outputs[0][0] = inputs[0] * factor

        return Times()

    x = pt.dscalar("x")
    two, three = op(2.0), op(3.0)
    digests = Digests([x], Sameness())
    assert digests.of(two(x)) != digests.of(three(x))
    assert digests.of(two(x)) == digests.of(two(x))
    assert digests.sameness.opaque


@settings(max_examples=examples(8, 200))
@given(generated=scan_graphs())
def test_copies_and_saved_graphs_are_the_same(generated: GeneratedScan, tmp_path_factory) -> None:
    graph = from_io(generated.inputs, generated.outputs)
    expected = digest(graph)
    assert digest(graph.copy()) == expected
    path = tmp_path_factory.getbasetemp() / "same.pkl"
    save(graph, path)
    assert digest(load(path)) == expected


class ByName(Op):
    """An Op of another package that computes by its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = getattr(np, self.name)(inputs[0])


def test_names_of_foreign_ops_count() -> None:
    x = pt.dscalar("x")
    digests = Digests([x], Sameness())
    assert digests.of(ByName("sin")(x)) != digests.of(ByName("cos")(x))
    assert digests.of(ByName("sin")(x)) == digests.of(ByName("sin")(x))

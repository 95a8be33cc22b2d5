"""What a compilation is kept by: all that rewriting depends on, and nothing that cannot be told."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.io import In, Out
from pytensor.configdefaults import config
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.rewriting.basic import register_canonicalize

import scanopt_cli as so
from scanopt_cli.equivalence import sources
from scanopt_cli.store import Store
from support.compiled_ways import VM
from support.graph_building import scan
from support.kept import NUMBA, Graph, compiled, count, slope


def _of_other_outputs() -> Graph:
    inputs, outputs = slope()
    return inputs, outputs[:1]


TWINS: dict[str, Callable[[], Any]] = {
    "another constant": lambda: compiled(slope(0.8)),
    "another name": lambda: compiled(slope(name="z")),
    "another mode": lambda: compiled(slope(), VM.excluding("merge")),
    "another linker": lambda: compiled(slope(), NUMBA),
    "other outputs": lambda: compiled(_of_other_outputs()),
}


@pytest.mark.parametrize("twin", [*TWINS])
def test_something_else_is_rewritten(twin: str, store: Store) -> None:
    compiled(slope())
    TWINS[twin]()
    assert count(store) == 2


def test_several_functions_of_a_block(no_passes: Callable[[], None], store: Store) -> None:
    """The second of a block has the key that it has where the first was not rewritten."""
    for _ in range(2):
        with so.enabled():
            for factor in (0.5, 0.6):
                pytensor.function(*slope(factor), mode=VM)
        assert count(store) == 2
        no_passes()


def test_other_flags_are_another_compilation(store: Store) -> None:
    compiled(slope())
    with config.change_flags(cycle_detection="fast"):
        compiled(slope())
    assert count(store) == 2


def test_other_passes_are_another_compilation(store: Store) -> None:
    for passes in ("loop", "default", "grad", "merge-equal,save-mem"):
        with so.enabled(passes):
            pytensor.function(*slope(), mode=VM)
    assert count(store) == 4


def test_how_inputs_and_outputs_may_be_used_is_part_of_it(store: Store) -> None:
    inputs, outputs = slope()
    compiled((inputs, outputs))
    compiled(([In(inputs[0], borrow=True, mutable=True), inputs[1]], outputs))
    compiled((inputs, [Out(one, borrow=True) for one in outputs]))
    assert count(store) == 3


@pytest.mark.parametrize("said", ["lower_triangular", "psd", "symmetric", "upper_triangular"])
def test_what_a_tag_says_of_a_matrix_is_part_of_it(said: str, store: Store) -> None:
    """PyTensor's rewrites rely on it, and compute something else of a matrix that is not so."""

    def solved(says: bool) -> Graph:
        matrix, x = pt.matrix("matrix"), pt.vector("x")
        if says:
            setattr(matrix.tag, said, True)
        sums = scan(lambda v, y: y * 0.9 + v, sequences=[x], outputs_info=[np.float64(0)])
        return [matrix, x], [pt.linalg.solve(matrix, sums)]

    compiled(solved(True))
    function = compiled(solved(False))
    assert count(store) == 2
    matrix, x = np.array([[0.1, 1.0], [0.5, 0.1]]), np.array([1.0, 2.0])
    np.testing.assert_allclose(function(matrix, x)[0], np.linalg.solve(matrix, [1.0, 2.9]))


class Doubled(Op):
    """An Op that only this file knows."""

    __props__ = ()

    def make_node(self, x: Any) -> Apply:
        return Apply(self, [x], [x.type()])

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        outputs[0][0] = inputs[0] * 2


def with_op(op: Op) -> Graph:
    x = pt.vector("x")
    return [x], [scan(lambda y: pt.tanh(y), outputs_info=[op(x)], n_steps=3)]


def test_an_op_of_a_file_is_known_by_the_file(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled(with_op(Doubled()))
    assert count(store) == 1
    sources.source_of.cache_clear()
    monkeypatch.setattr(sources, "stamp", lambda _: (0, 0))
    compiled(with_op(Doubled()))
    assert count(store) == 2
    sources.source_of.cache_clear()


def test_an_op_is_known_by_the_files_that_its_class_comes_from(tmp_path: Path) -> None:
    """Rewrites may call what it inherits, or what its module imports of its package."""
    package = tmp_path / "of_a_test_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "base.py").write_text("class Base:\n    pass\n")
    (package / "ops.py").write_text("from .base import Base\nclass Derived(Base):\n    pass\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        found = importlib.import_module("of_a_test_package.ops").Derived()
    modules = sources.modules_of(found)
    assert modules == {"of_a_test_package.ops", "of_a_test_package.base", "builtins"}
    before = sources.source_of("of_a_test_package.ops")
    sources.source_of.cache_clear()
    (package / "base.py").write_text("class Base:\n    factor = 2\n")
    assert sources.source_of("of_a_test_package.ops") != before


class Times(OpFromGraph):
    """An OpFromGraph that a package's rewrites may know by its class and its attributes."""

    def __init__(self, *args: Any, factor: float = 1.0, **kwargs: Any) -> None:
        self.factor = factor
        super().__init__(*args, **kwargs)


def test_the_class_of_an_inner_graph_is_part_of_it(store: Store) -> None:
    x = pt.vector("x")
    compiled(with_op(OpFromGraph([x], [x + 0])))
    compiled(with_op(OpFromGraph([x], [x + 0], inline=True)))
    compiled(with_op(Times([x], [x + 0])))
    compiled(with_op(Times([x], [x + 0], factor=2.0)))
    assert count(store) == 4


@pytest.mark.parametrize("module", ["__main__", "of_a_notebook"])
def test_an_op_of_no_file_is_not_kept(
    module: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Doubled, "__module__", module)
    compiled(with_op(Doubled()))
    assert count(store) == 0


def test_an_op_that_cannot_be_told_by_value_is_not_kept(store: Store) -> None:
    class Local(Doubled):
        pass

    compiled(with_op(Local()))
    assert count(store) == 0


def test_a_rewrite_that_is_added_is_part_of_it(store: Store) -> None:
    compiled(slope())

    @register_canonicalize
    @node_rewriter([Doubled])
    def of_this_test(_fgraph: Any, _node: Any) -> None:
        return None

    compiled(slope())
    assert count(store) == 2


def test_a_mode_with_a_rewriter_of_its_own_is_not_kept(store: Store) -> None:
    @node_rewriter([Doubled])
    def own(_fgraph: Any, _node: Any) -> None:
        return None

    compiled(slope(), VM.register((pytensor.graph.rewriting.basic.in2out(own), 5)))
    assert count(store) == 0

"""What one process has rewritten and compiled is read by the next, if it compiles the very same.

In one process a second compilation stands for that of another process, where that is enough: the
passes are then made to fail, so a graph that is rewritten again is an error.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.io import In, Out
from pytensor.compile.maker import FunctionMaker
from pytensor.compile.mode import Mode, get_mode
from pytensor.configdefaults import config
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.rewriting.basic import register_canonicalize

import scanopt_cli as so
from scanopt_cli.equivalence import sources
from scanopt_cli.integration.compilation import keeping, optimizing_stage
from scanopt_cli.store import Store
from support.benchmarks.fresh_process import run
from support.compiled_ways import VM
from support.graph_building import scan

NUMBA = get_mode("NUMBA")
MIB = 1 << 20


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    made = Store(tmp_path / "kept", 64 * MIB)
    monkeypatch.setattr(keeping, "user_store", lambda: made)
    monkeypatch.delenv("SCANOPT_CACHE")
    return made


@pytest.fixture
def no_passes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Lets passes run no more, once it is called."""

    def forbid() -> None:
        def fail(*_: Any, **__: Any) -> None:
            raise RuntimeError("the graph is rewritten again")

        monkeypatch.setattr(optimizing_stage, "run_pipeline", fail)

    with config.change_flags(on_opt_error="raise"):
        yield forbid


type Graph = tuple[list[Any], list[Any]]


def slope(factor: float = 0.9, name: str = "x") -> Graph:
    x, start = pt.vector(name), pt.scalar("start")
    ys = scan(lambda v, y: pt.tanh(y * factor + v), sequences=[x], outputs_info=[start])
    value = (ys**2).sum()
    return [x, start], [value, *pytensor.grad(value, [x, start])]


ARGUMENTS = np.linspace(-1, 1, 7), 0.3


def recorded(graph: Graph, mode: Mode = VM, *, cache: bool = True, **how: Any) -> Any:
    """Return a function and the record of its compilation."""
    with so.enabled(cache=cache) as done:
        return pytensor.function(*graph, mode=mode, **how), done


def compiled(graph: Graph, mode: Mode = VM, *, cache: bool = True, **how: Any) -> Any:
    return recorded(graph, mode, cache=cache, **how)[0]


def count(store: Store, kind: str = "graph") -> int:
    if not store.directory.exists():
        return 0
    return sum(path.name.startswith(kind) for path in store.directory.iterdir())


@pytest.mark.parametrize("mode", [VM, NUMBA], ids=["VM", "Numba"])
def test_the_second_compilation_rewrites_nothing(
    mode: Mode, no_passes: Callable[[], None], store: Store
) -> None:
    first, noted = recorded(slope(), mode)
    wanted = first(*ARGUMENTS)
    assert count(store) == 1
    assert count(store, "code") == (mode is NUMBA)
    no_passes()
    second, read = recorded(slope(), mode)
    for one, other in zip(wanted, second(*ARGUMENTS), strict=True):
        np.testing.assert_array_equal(one, other)
    (before,), (after,) = noted.compilations, read.compilations
    assert (after.before, after.after, after.left) == (before.before, before.after, before.left)
    assert [run.remarks for run in after.passes] == [run.remarks for run in before.passes]
    assert before.stages.passes > 0 == before.stages.reading
    assert after.stages.reading > 0 == after.stages.passes == after.stages.rewriting
    assert after.seconds == read.seconds == 0
    if mode is NUMBA:
        assert before.stages.llvm > 0 < before.stages.writing
        assert after.stages.llvm == after.stages.writing == 0


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


def test_updates_stay_with_their_outputs(no_passes: Callable[[], None]) -> None:
    def made() -> tuple[Any, Any]:
        total = pytensor.shared(np.array(1.0), name="total")
        inputs, (value, *_) = slope()
        return compiled((inputs, [value]), updates={total: total + value}), total

    first, one = made()
    no_passes()
    second, other = made()
    for _ in range(2):
        np.testing.assert_array_equal(first(*ARGUMENTS), second(*ARGUMENTS))
    assert one.get_value() == other.get_value() != 1


@pytest.mark.parametrize("mode", [VM, NUMBA], ids=["VM", "Numba"])
def test_an_output_that_is_an_update_too(mode: Mode, no_passes: Callable[[], None]) -> None:
    """Each of several outputs that are one variable has its place."""

    def made() -> tuple[Any, Any]:
        total = pytensor.shared(np.zeros(3), name="total")
        x = pt.vector("x")
        added = total + _sums(x)[-1]
        return compiled(([x], [added, added, x, added * 2]), mode, updates={total: added}), total

    first, one = made()
    no_passes()
    second, other = made()
    for _ in range(2):
        results = first(np.ones(4)), second(np.ones(4))
        for wanted, got in zip(*results, strict=True):
            np.testing.assert_array_equal(wanted, got)
        results[1][0][:] = -1  # what is returned is the caller's
        np.testing.assert_array_equal(one.get_value(), other.get_value())


@pytest.mark.parametrize("mode", [VM, NUMBA], ids=["VM", "Numba"])
def test_what_is_overwritten_is_known(mode: Mode, no_passes: Callable[[], None]) -> None:
    """A node that overwrites an array runs after all that read the array."""

    def made() -> Any:
        x = pt.vector("x")
        ys = scan(lambda y: y * 1.5, outputs_info=[x], n_steps=3)[-1]
        z = pt.exp(x) * 2
        return compiled(([x], [pt.set_subtensor(z[0], 7.0), z.sum() + ys, z[::-1] * ys]), mode)

    values = np.linspace(0, 1, 5)
    wanted = made()(values)
    no_passes()
    again = made()
    for _ in range(2):
        for one, other in zip(wanted, again(values), strict=True):
            np.testing.assert_array_equal(one, other)


def test_what_is_not_written_yet_is_not_checked_for_nan(no_passes: Callable[[], None]) -> None:
    def unchecked() -> int:
        with so.enabled("grad"):
            function = pytensor.function(*slope(), mode=VM)
        made = [v for node in function.maker.fgraph.toposort() for v in node.outputs]
        return sum(not getattr(v.tag, "nan_guard_mode_check", True) for v in made)

    first = unchecked()
    assert first > 0
    no_passes()
    assert unchecked() == first


def _sums(values: Any) -> Any:
    return scan(lambda v, y: y + v, sequences=[values], outputs_info=[np.float64(0)])


def test_equal_constants_may_be_one_array_or_two(no_passes: Callable[[], None]) -> None:
    def made(data: list[np.ndarray]) -> Any:
        x = pt.vector("x")
        rows = [pt.as_tensor(one) for one in data]
        ys = [
            scan(lambda v, y: y + v, sequences=[x * row], outputs_info=[np.float64(0)])
            for row in rows
        ]
        return compiled(([x], ys))

    two = [np.arange(300.0), np.arange(300.0), np.arange(300.0) * 3]
    wanted = made([two[0], two[0], two[2]])(np.ones(300))
    no_passes()
    got = made(two)(np.ones(300))
    for one, other in zip(wanted, got, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_warning_is_given_again(no_passes: Callable[[], None]) -> None:
    def made() -> Any:
        rng = pytensor.shared(np.random.default_rng(3), name="rng")
        x = pt.vector("x")
        return compiled(
            (
                [x],
                [scan(lambda v: v + pt.random.normal(rng=rng), sequences=[x], strict=False)],
            )
        )

    with pytest.warns(UserWarning, match="scanopt") as first:
        made()
    no_passes()
    with pytest.warns(UserWarning, match="scanopt") as second:
        made()
    told = [
        [str(w.message) for w in all_ if "scanopt" in str(w.message)] for all_ in (first, second)
    ]
    assert told[0] == told[1] != []


def _texts(caught: Any) -> list[str]:
    return [text for one in caught if "scanopt" in (text := str(one.message))]


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


def test_a_graph_on_which_a_pass_failed_is_not_kept(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("failed")

    monkeypatch.setattr(optimizing_stage, "run_pipeline", fail)
    with config.change_flags(on_opt_error="ignore"):
        compiled(slope())
    assert count(store) == 0


@pytest.mark.parametrize("off", ["the argument", "the environment", "no passes", "no loop"])
def test_nothing_is_kept(off: str, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    if off == "the environment":
        monkeypatch.setenv("SCANOPT_CACHE", "off")
    if off == "no passes":
        with so.enabled("none"):
            pytensor.function(*slope(), mode=VM)
    elif off == "no loop":
        x = pt.vector("x")
        compiled(([x], [x + 1]))
    else:
        compiled(slope(), NUMBA, cache=off != "the argument")(*ARGUMENTS)
    assert count(store) == count(store, "code") == 0


def test_nothing_is_kept_outside_of_a_block(store: Store) -> None:
    methods = dict(vars(FunctionMaker))
    compiled(slope())
    assert dict(vars(FunctionMaker)) == methods
    pytensor.function(*slope(), mode=VM.including("scanopt"))
    assert count(store) == 1


@pytest.mark.parametrize("content", [b"", b"no pickle", b"\x80\x05]."])
def test_an_entry_that_is_none_is_compiled_again(content: bytes, store: Store) -> None:
    wanted = compiled(slope(), NUMBA)(*ARGUMENTS)
    for path in list(store.directory.iterdir()):
        store.put(path.stem, content)  # whole, but nothing that scanopt has written
    for _ in range(2):
        got = compiled(slope(), NUMBA)(*ARGUMENTS)
        for one, other in zip(wanted, got, strict=True):
            np.testing.assert_array_equal(one, other)
    assert count(store) == count(store, "code") == 1


def test_a_full_disk_compiles(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    wanted = compiled(slope(), NUMBA)(*ARGUMENTS)
    store.clear()
    monkeypatch.setattr("os.replace", fail)
    got = compiled(slope(), NUMBA)(*ARGUMENTS)
    for one, other in zip(wanted, got, strict=True):
        np.testing.assert_array_equal(one, other)
    assert count(store) == 0


def test_code_that_calls_what_is_not_there_is_compiled_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from scanopt_cli.loop.codegen import kept_code

    with monkeypatch.context() as patch:
        patch.setattr(kept_code, "_called", lambda _: ["of_another_library"])
        wanted = compiled(slope(), NUMBA)(*ARGUMENTS)
    function, done = recorded(slope(), NUMBA)
    np.testing.assert_array_equal(wanted[0], function(*ARGUMENTS)[0])
    assert done.compilations[0].stages.llvm > 0


def test_each_signature_has_code_of_its_own(store: Store) -> None:
    function = compiled(slope(), NUMBA)
    wanted = function(*ARGUMENTS)
    backwards = np.ascontiguousarray(ARGUMENTS[0][::-1])[::-1]
    np.testing.assert_array_equal(function(backwards, 0.3)[0], wanted[0])
    assert count(store, "code") == 2


_PROGRAM = """
import json, sys, warnings
warnings.simplefilter("ignore")
import numpy as np
import pytensor
import scanopt_cli as so
from support.zoo.model import outputs_of
from support.zoo.models import MODELS

found = []
for model in MODELS:
    if model.name in sys.argv[1].split(";"):
        with so.enabled() as done:
            f = pytensor.function(*outputs_of(model, 1), mode="NUMBA", on_unused_input="ignore")
        value = [np.asarray(one).tolist() for one in f(*model.fresh_arguments())]
        stages = [one.stages for one in done.compilations]
        found.append([value, stages[0].passes, stages[0].llvm, stages[0].reading])
print(json.dumps(found))
"""


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param("", id="by scanopt"),
        pytest.param("off", id="by PyTensor alone", marks=pytest.mark.deep),
    ],
)
def test_another_process_compiles_nothing(kept: str, tmp_path: Path) -> None:
    """The code calls BLAS and LAPACK, which the second process must know by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCANOPT_CACHE", kept)
        names = "Kalman;GARCH(1,1)"
        first, second = (run(_PROGRAM, names, cache=str(tmp_path), keep=kept) for _ in range(2))
    assert [one[0] for one in first] == [one[0] for one in second]
    assert all(passes > 0 < llvm for _, passes, llvm, _ in first)
    assert all(llvm == 0 < reading for _, _, llvm, reading in second)
    assert all((passes == 0) == (not kept) for _, passes, _, _ in second)


@pytest.mark.deep
def test_twenty_processes_at_once(tmp_path: Path) -> None:
    """Each compiles or reads, as it comes, and all compute the same; one that comes later reads."""

    def once(_: int) -> Any:
        return run(_PROGRAM, "GARCH(1,1)", cache=str(tmp_path))

    with ThreadPoolExecutor(20) as pool:
        found = [value for ((value, *_),) in pool.map(once, range(20))]
    assert all(value == found[0] for value in found)
    ((value, passes, llvm, reading),) = once(20)
    assert value == found[0]
    assert passes == llvm == 0 < reading
    unfinished = [path for path in (tmp_path / "scanopt").iterdir() if path.suffix != ".kept"]
    assert unfinished == []


def test_python_warnings_are_none_for_a_loop_without_draws() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            compiled(slope())

"""Graphs with loops, kept while a program goes about its business."""

from __future__ import annotations

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor import function
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.executor import Function
from pytensor.compile.io import In
from pytensor.compile.maker import FunctionMaker
from pytensor.compile.mode import Mode
from pytensor.compile.ops import FromFunctionOp
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op

from scanopt_cli.errors import ScanoptError
from scanopt_cli.integration.capture import index
from scanopt_cli.integration.capture.recording import capture
from scanopt_cli.ir.graph import Graph
from scanopt_cli.serialization.loading import load
from support.evaluating import assert_same_outcomes, evaluate

MODE = Mode("vm", "fast_compile")
x = pt.vector("x")
n = pt.iscalar("n")


def powers(base: Variable, steps: Variable | int = 3) -> Variable:
    return pytensor.scan(
        lambda h, b: h * b,
        outputs_info=[pt.ones_like(base)],
        non_sequences=[base],
        n_steps=steps,
        return_updates=False,
    )


def only(directory: Path) -> Graph:
    (path,) = directory.glob("*.scanopt")
    return load(path)


def entries(directory: Path) -> list[dict[str, Any]]:
    table = json.loads((directory / "index.json").read_text())
    assert (table["format"], table["version"]) == ("scanopt-captures", 1)
    found: list[dict[str, Any]] = table["graphs"]
    return found


def test_graphs_with_loops_are_kept_and_others_are_not(tmp_path: Path) -> None:
    trace = powers(x)
    trace.name = "trace"
    with capture(tmp_path / "new" / "directory") as kept:
        f = function([x], trace, mode=MODE)
        function([x], x * 2, mode=MODE)
        g = function([x, n], powers(x, n).sum(), mode=MODE, name="total of powers")
    assert [path.name for path in kept.files] == [
        "001_trace.scanopt",
        "002_total_of_powers.scanopt",
    ]
    assert sorted(tmp_path.rglob("*.npz")) == []
    for compiled, path, arguments in (
        (f, kept.files[0], [np.array([2.0, 3.0])]),
        (g, kept.files[1], [np.array([2.0, 3.0]), np.array(4, "int32")]),
    ):
        graph = load(path)
        values = evaluate(graph.inputs, graph.outputs, arguments)
        assert_same_outcomes([compiled(*arguments)], values)


def test_the_program_may_change_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with capture("graphs") as captured:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir("elsewhere")
        function([x], powers(x), mode=MODE, name="powers")
    assert captured.files == (tmp_path / "graphs/001_powers.scanopt",)


def test_the_graph_is_not_optimized(tmp_path: Path) -> None:
    doubled = powers(x + 0) * 1
    with capture(tmp_path):
        function([x], doubled, mode=MODE)
    assert len(only(tmp_path).fgraph.apply_nodes) == len(pt_nodes(doubled))


def pt_nodes(output: Variable) -> set[Apply]:
    found, waiting = set(), [output]
    while waiting:
        node = waiting.pop().owner
        if node is not None and node not in found:
            found.add(node)
            waiting += node.inputs
    return found


def test_the_first_call_is_beside(tmp_path: Path) -> None:
    scale = pytensor.shared(np.array(2.0), name="scale")
    with capture(tmp_path):
        f = function([x, n], powers(x, n) * scale, updates={scale: scale + 1}, mode=MODE)
        with pytest.raises(ValueError, match="Invalid argument"):
            f("not a vector", 1)
        first = f([1.0, 2.0], n=2)
        f([5.0], 1)
    graph = only(tmp_path)
    assert [variable.name for variable in graph.inputs] == ["x", "n"]
    assert [variable.name for variable in graph.shared] == ["scale"]
    ((recorded_x, recorded_n, recorded_scale),) = graph.recorded
    np.testing.assert_array_equal(recorded_x, [1.0, 2.0])
    assert (recorded_n, recorded_scale, graph.values[2]) == (2, 2.0, 2.0)
    values = evaluate(graph.inputs, graph.outputs, graph.recorded[0][:2])
    assert_same_outcomes([first, np.array(3.0)], values)
    assert "Output 1 is the new value of scale." in graph.notes


def test_values_are_those_before_the_function_works_in_place(tmp_path: Path) -> None:
    buffer = np.array([1.0, 2.0])
    with capture(tmp_path):
        f = function(
            [In(x, mutable=True, borrow=True)], [powers(x), x + 1], mode=Mode("vm", "fast_run")
        )
        f(buffer)
    np.testing.assert_array_equal(only(tmp_path).recorded[0][0], [1.0, 2.0])


def test_trusted_input_and_generators(tmp_path: Path) -> None:
    rng = pytensor.shared(np.random.default_rng(3), name="rng")
    state = rng.get_value().bit_generator.state
    following, noise = pt.random.normal(rng=rng, return_next_rng=True)
    with capture(tmp_path):
        f = function([x], powers(x) + noise, updates={rng: following}, mode=MODE, trust_input=True)
        f(np.array([1.0]))
    graph = only(tmp_path)
    assert graph.recorded[0][1].bit_generator.state == state


def test_givens_are_applied(tmp_path: Path) -> None:
    y = pt.vector("y")
    with capture(tmp_path):
        function([y], powers(x), givens={x: y * 2}, mode=MODE)
    assert [variable.name for variable in only(tmp_path).inputs] == ["y"]


def test_loops_inside_other_ops_count(tmp_path: Path) -> None:
    wrapped = OpFromGraph([x], [powers(x)])
    batched = pt.vectorize(lambda row: powers(row), signature="(a)->(b,a)")
    matrix = pt.matrix("matrix")
    with capture(tmp_path) as kept:
        function([x], wrapped(x), mode=MODE, name="wrapped")
        function([matrix], batched(matrix), mode=MODE, name="batched")
    assert [path.name for path in kept.files] == ["001_wrapped.scanopt", "002_batched.scanopt"]


def test_the_same_graph_is_kept_once(tmp_path: Path) -> None:
    with capture(tmp_path) as kept:
        function([x], powers(x), mode=MODE)
        other = pt.vector("other")
        f = function([other], powers(other), mode=Mode("vm", "fast_run"))
        f.copy()
        function([x], powers(x, 4), mode=MODE)
    assert len(kept.files) == 2


def test_files_that_are_there_stay(tmp_path: Path) -> None:
    for name in ("first", "second"):
        with capture(tmp_path):
            function([x], powers(x), mode=MODE, name=name)
    names = [path.name for path in sorted(tmp_path.iterdir())]
    assert names == ["001_first.scanopt", "002_second.scanopt", "index.json"]


def test_values_that_are_there_stay_and_links_are_not_followed(tmp_path: Path) -> None:
    kept, folder = tmp_path / "kept", tmp_path / "folder"
    kept.write_text("precious")
    folder.mkdir()
    (folder / "001_first.values.npz").symlink_to(kept)
    (folder / f"{'9' * 240}_.pkl").touch()
    with capture(folder):
        compiled = function([x], powers(x), mode=MODE, name="first")
        compiled(np.ones(2))
    assert kept.read_text() == "precious"
    assert (folder / "002_first.scanopt").exists()


def test_makers_can_be_used_directly(tmp_path: Path) -> None:
    with capture(tmp_path) as kept:
        FunctionMaker([In(x)], powers(x), MODE).create()
    (path,) = kept.files
    assert re.fullmatch(r"001_test_recording_\d+\.scanopt", path.name)


def test_files_are_named_after_the_line_of_the_program(tmp_path: Path) -> None:
    program = "\n".join(["", "def build(compile, inputs, outputs, mode):",
                         "    return compile(inputs, outputs, mode=mode)"])  # fmt: skip
    scope: dict[str, Any] = {"__name__": "my_model"}
    exec(compile(program, "/somewhere/my_model.py", "exec"), scope)
    with capture(tmp_path) as kept:
        scope["build"](function, [x], powers(x), MODE)
    assert [path.name for path in kept.files] == ["001_my_model_3.scanopt"]
    assert "at my_model.py:3" in load(kept.files[0]).notes[0]


@pytest.mark.parametrize(
    ("method", "name"), [("compile_d2logp", "d2logp"), ("sample", "sample"), ("_hidden", None)]
)
def test_files_are_named_after_what_pymc_was_asked_for(
    method: str, name: str | None, tmp_path: Path
) -> None:
    scope: dict[str, Any] = {"__name__": "pymc.model.core"}
    exec(f"def {method}(call): return call()", scope)
    with capture(tmp_path) as kept:
        scope[method](partial(function, [x], powers(x), mode=MODE))
    (path,) = kept.files
    assert path.name.startswith(f"001_{name or 'test_recording'}")


def test_what_will_not_load_is_told_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    doubled = FromFunctionOp(double, [x.type], [x.type], None)
    with capture(tmp_path) as kept:
        function([x], doubled(powers(x)[-1]), mode=MODE)
    (path,) = kept.files
    assert path.suffix == ".pkl"
    assert "is kept that will not load without --trust" in capsys.readouterr().err
    (entry,) = entries(tmp_path)
    assert (entry["format"], entry["loads"]) == ("pickle", False)
    assert "FromFunctionOp) cannot be written as data" in entry["why_no_data"]


def double(value: Any) -> Any:
    return 2 * value


def hooked() -> tuple[object, ...]:
    return (
        vars(FunctionMaker)["__init__"],
        vars(FunctionMaker)["create_fgraph"],
        vars(FunctionMaker)["create"],
        vars(Function)["__call__"],
    )


def test_pytensor_is_restored(tmp_path: Path) -> None:
    before = hooked()
    with capture(tmp_path):
        f = function([x], powers(x), mode=MODE)
        assert hooked() != before
    assert hooked() == before
    f(np.ones(2))
    assert list(tmp_path.glob("*.npz")) == []

    with pytest.raises(KeyError, match="mine"), capture(tmp_path):
        raise KeyError("mine")
    assert hooked() == before


def test_captures_can_be_nested_and_overlap(tmp_path: Path) -> None:
    before = hooked()
    outer, inner = capture(tmp_path / "outer"), capture(tmp_path / "inner")
    kept_outer, kept_inner = outer.__enter__(), inner.__enter__()
    f = function([x], powers(x), mode=MODE)
    f(np.ones(2))
    outer.__exit__(None, None, None)
    function([x], powers(x, 4), mode=MODE)
    inner.__exit__(None, None, None)
    assert (len(kept_outer.files), len(kept_inner.files)) == (1, 2)
    assert len(list(tmp_path.rglob("*.npz"))) == 2
    assert hooked() == before


class Unsavable(Op):
    __props__ = ()

    def __init__(self) -> None:
        self.code = lambda value: value

    def make_node(self, value: Variable) -> Apply:
        return Apply(self, [value], [value.type()])

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = self.code(inputs[0]).copy()


def test_a_graph_that_cannot_be_saved_costs_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with capture(tmp_path) as kept:
        f = function([x], Unsavable()(powers(x)), mode=MODE, name="odd")
        np.testing.assert_array_equal(f([2.0]), [[2.0], [4.0], [8.0]])
        function([x], powers(x), mode=MODE, name="fine")
    assert [path.name for path in kept.files] == ["001_fine.scanopt"]
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("scanopt: a graph of function odd is not kept: ")


def test_an_error_while_compiling_stays_the_programs_own(tmp_path: Path) -> None:
    class Uncompilable(Unsavable):
        def make_thunk(self, *args, **kwargs):
            raise ZeroDivisionError("mine")

    with capture(tmp_path), pytest.raises(ZeroDivisionError):
        function([x], Uncompilable()(x), mode=MODE)


def test_the_graph_of_a_failed_compilation_is_kept(tmp_path: Path) -> None:
    with capture(tmp_path) as kept, pytest.raises(ValueError, match="too"):
        function([x], powers(x), mode=Mode("vm", _Failing()))
    assert len(kept.files) == 1
    (entry,) = entries(tmp_path)
    assert entry["error"] == {
        "in": "compilation",
        "class": "ValueError",
        "message": "too clever",
    }
    assert entry["compile_seconds"] is None


class _Failing(pytensor.graph.rewriting.basic.GraphRewriter):
    def apply(self, fgraph):
        raise ValueError("too clever")


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ScanoptError, match="no directory for graphs"), capture(tmp_path / "file"):
        pass


# The index


def test_the_index_says_what_each_graph_is(tmp_path: Path) -> None:
    program = "\n".join(["", "def build(compile, inputs, outputs, **options):",
                         "    return compile(inputs, outputs, **options)"])  # fmt: skip
    scope: dict[str, Any] = {"__name__": "my_model"}
    exec(compile(program, "/somewhere/my_model.py", "exec"), scope)
    with capture(tmp_path):
        f = scope["build"](function, [x], powers(x), mode="FAST_COMPILE", name="first")
        scope["build"](function, [x], powers(x, 4) + powers(x, 5), mode=MODE)
        f([2.0])
    first, second = entries(tmp_path)
    for entry, name in ((first, "first"), (second, None)):
        assert (entry["function"], entry["asked_for"]) == (name, None)
        assert (entry["script"], entry["line"]) == ("/somewhere/my_model.py", 3)
        assert (entry["format"], entry["loads"], entry["error"]) == ("data", True, None)
        assert 0 < entry["compile_seconds"] < 100
        assert (tmp_path / entry["file"]).exists()
    assert (first["scans"], second["scans"]) == (1, 2)
    assert first["mode"] == "FAST_COMPILE"
    assert second["mode"] == "Mode(linker=vm)"
    assert 0 < first["first_call_seconds"] < 100
    assert second["first_call_seconds"] is None


def test_an_index_of_others_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("mine", "{}", "[1]", '{"format": "scanopt-captures", "version": 2, "graphs": []}'):
        (tmp_path / "index.json").write_text(text)
        with capture(tmp_path) as kept:
            function([x], powers(x), mode=MODE)
        assert len(kept.files) == 1
        assert (tmp_path / "index.json").read_text() == text
        assert "is no index of captured graphs, and stays as it is" in capsys.readouterr().err


def test_captures_share_an_index(tmp_path: Path) -> None:
    for steps in (2, 3):
        with capture(tmp_path):
            function([x], powers(x, steps), mode=MODE, name="f")
    assert [entry["file"] for entry in entries(tmp_path)] == ["001_f.scanopt", "002_f.scanopt"]


def test_entries_of_many_at_once(tmp_path: Path) -> None:
    """As of processes: each opens the directory, whose lock it takes, for itself."""

    def enter(number: int) -> None:
        index.enter(tmp_path / f"{number}.scanopt", scans=number)
        index.enter(tmp_path / f"{number}.scanopt", loads=True)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(enter, range(40)))
    found = {entry["file"]: (entry["scans"], entry["loads"]) for entry in entries(tmp_path)}
    assert found == {f"{number}.scanopt": (number, True) for number in range(40)}


# Only what is of interest


class _Slow(pytensor.graph.rewriting.basic.GraphRewriter):
    def apply(self, fgraph):
        time.sleep(0.3)


def test_only_slow_compilations(tmp_path: Path) -> None:
    with capture(tmp_path, on_slow=0.3) as kept:
        function([x], powers(x), mode=Mode("vm", None), name="quick")([2.0])
        slow = function([x], powers(x, 4), mode=Mode("vm", _Slow()), name="slow")
        assert [path.name for path in kept.files] == ["001_slow.scanopt"]
        slow([2.0])
    (entry,) = entries(tmp_path)
    assert entry["compile_seconds"] >= 0.3
    assert entry["mode"] == "Mode(linker=vm, optimizer=_Slow)"
    assert load(kept.files[0]).recorded == ((np.array([2.0]),),)


class _Sleeping(Op):
    __props__ = ()

    def make_node(self, value: Variable) -> Apply:
        return Apply(self, [value], [value.type()])

    def perform(self, node, inputs, output_storage):
        if inputs[0].size > 2:
            raise ZeroDivisionError("too many")
        time.sleep(0.3)
        output_storage[0][0] = inputs[0].copy()


def test_a_slow_first_call_counts(tmp_path: Path) -> None:
    with capture(tmp_path, on_slow=0.3) as kept:
        f = function([x], _Sleeping()(powers(x)[-1]), mode=Mode("vm", None), name="slow")
        assert kept.files == ()
        f([2.0])
    (entry,) = entries(tmp_path)
    assert entry["file"] == "001_slow.pkl"
    assert entry["compile_seconds"] < 0.3 <= entry["first_call_seconds"]
    values = load(kept.files[0], allow_packages=[__name__], trust=True).recorded
    assert values == ((np.array([2.0]),),)


def test_only_errors(tmp_path: Path) -> None:
    with capture(tmp_path, on_error=True) as kept:
        function([x], powers(x), mode=MODE, name="fine")([2.0])
        with pytest.raises(ValueError, match="too clever"):
            function([x], powers(x, 4), mode=Mode("vm", _Failing()), name="uncompiled")
        f = function([x], _Sleeping()(powers(x, 5)[-1]), mode=MODE, name="raising")
        later = function([x], _Sleeping()(powers(x, 6)[-1]), mode=MODE, name="later")
        later([2.0])
        for compiled in (f, later):
            with pytest.raises(ZeroDivisionError, match="too many"):
                compiled([1.0, 2.0, 3.0])
    assert [path.name for path in kept.files] == ["001_uncompiled.scanopt", "002_raising.pkl"]
    uncompiled, raising = entries(tmp_path)
    assert uncompiled["error"]["in"] == "compilation"
    assert raising["error"]["in"] == "first call"
    assert raising["error"]["class"] == "ZeroDivisionError"
    assert raising["error"]["message"].startswith("too many")
    (recorded,) = load(kept.files[1], trust=True).recorded
    np.testing.assert_array_equal(recorded[0], [1.0, 2.0, 3.0])


def test_slow_graphs_and_errors(tmp_path: Path) -> None:
    with capture(tmp_path, on_error=True, on_slow=0.3) as kept:
        function([x], powers(x), mode=Mode("vm", None), name="fine")([2.0])
        function([x], powers(x, 4), mode=Mode("vm", _Slow()), name="slow")
        with pytest.raises(ValueError, match="too clever"):
            function([x], powers(x, 5), mode=Mode("vm", _Failing()), name="failing")
    assert [path.name for path in kept.files] == ["001_slow.scanopt", "002_failing.scanopt"]

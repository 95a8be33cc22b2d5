"""What `save` writes, and that it loads anywhere and changes nothing."""

from __future__ import annotations

import gzip
import os
import pickle
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Constant, equal_computations
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op

import scanopt_cli
from scanopt_cli.errors import ScanoptError
from scanopt_cli.ir.graph import Graph, as_graph
from scanopt_cli.serialization import saving
from scanopt_cli.serialization.loading import load
from scanopt_cli.serialization.saving import save
from support.foreign_ops import Opaque
from support.real_graphs import GRAPHS


def tree(outputs: Any) -> str:
    return str(pytensor.dprint(list(outputs), file="str", print_type=True))


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize("name", GRAPHS)
def test_real_graphs_come_back(name: str, file: Path) -> None:
    inputs, outputs = GRAPHS[name]()
    graph = as_graph((list(inputs), list(outputs)))
    save(graph, file)
    again = load(file)
    assert tree(again.outputs) == tree(graph.outputs)
    assert [v.type for v in again.inputs] == [v.type for v in graph.inputs]
    assert again.values.keys() == graph.values.keys()
    assert again.versions["pytensor"] == pytensor.__version__
    assert again.versions["numpy"] == np.__version__
    assert again.versions["scanopt"] == scanopt_cli.__version__


@pytest.mark.deep
def test_chain_of_50000_nodes(file: Path) -> None:
    x = pt.vector("x")
    y = x
    for _ in range(50_000):
        y = pt.sin(y)
    save(FunctionGraph([x], [y], clone=False), file)
    graph = load(file)
    assert len(graph.fgraph.apply_nodes) == 50_000
    save(graph, file)


@pytest.mark.deep
def test_frozen_chain_of_another_tool_loads(file: Path) -> None:
    x = pt.vector("x")
    y = x
    for _ in range(5_000):
        y = pt.sin(y)
    file.write_bytes(pickle.dumps(FunctionGraph([x], [y], clone=False).freeze()))
    assert len(load(file).fgraph.apply_nodes) == 5_000


def test_everything_a_graph_carries_comes_back(file: Path) -> None:
    x, rng = pt.vector("x"), pytensor.shared(np.random.default_rng(1), name="rng")
    middle = x * pt.constant(np.arange(3.0), name="weights")
    middle.name = "middle"
    built = as_graph(([x], [middle + pt.random.normal(0, 1, rng=rng), middle]))
    graph = Graph(
        fgraph=built.fgraph,
        recorded=((np.ones(3), np.random.default_rng(2)),),
        output_names=("a", None),
        notes=("a note",),
    )
    save(graph, file)
    again = load(file)
    assert [v.name for v in again.inputs] == ["x"]
    assert [v.name for v in again.shared] == ["rng"]
    node = again.outputs[1].owner
    assert again.outputs[1].name == "middle"
    assert [v.name for v in node.inputs if isinstance(v, Constant)] == ["weights"]
    assert again.output_names == ("a", None)
    assert again.notes == ("a note",)
    assert again.values[1].normal() == np.random.default_rng(1).normal()
    np.testing.assert_array_equal(again.recorded[0][0], np.ones(3))
    assert again.recorded[0][1].normal() == np.random.default_rng(2).normal()


def test_names_of_equal_constants_stay_apart(file: Path) -> None:
    x = pt.vector("x")
    outputs = [x + pt.constant(np.arange(3.0), name=name) for name in ("a", "b", None)]
    save(([x], outputs), file)
    names = [output.owner.inputs[1].name for output in load(file).outputs]
    assert names == ["a", "b", None]


def test_traces_are_kept_only_if_asked_for(file: Path) -> None:
    x = pt.vector("x")
    with pytensor.config.change_flags(traceback__limit=8):
        y = x + 1
    save(([x], [y]), file)
    assert str(Path(__file__).name).encode() not in file.read_bytes()
    assert not hasattr(load(file).outputs[0].tag, "trace")
    save(([x], [y]), file, keep_traces=True)
    assert load(file).outputs[0].tag.trace == y.tag.trace


def test_caches_stay_behind_at_any_depth_and_in_place(file: Path) -> None:
    x, y = pt.vector("x"), pt.vector("y")
    inner = OpFromGraph([x], [pt.exp(x)])
    outer = OpFromGraph([y], [inner(y)])
    v = pt.vector("v")
    out = outer(v)
    cost = pt.grad(out.sum(), v)
    pytensor.function([v], cost, mode="FAST_COMPILE")
    cached = dict(outer._lop_op_cache)
    assert cached
    save(([v], [out, cost]), file)
    assert outer._lop_op_cache == cached
    graph = load(file)
    assert tree(graph.outputs) == tree([out, cost])
    again = load(file, trust=True).outputs[0].owner.op
    assert isinstance(again, OpFromGraph)
    assert again._lop_op_cache == {}


def test_same_graph_gives_same_bytes(file: Path) -> None:
    for name in ("scan_second_derivative", "graph_op", "fused_elemwise", "linear_algebra"):
        inputs, outputs = GRAPHS[name]()
        pair = (list(inputs), list(outputs))
        save(pair, file)
        first = file.read_bytes()
        pytensor.dprint(outputs, file="str")
        save(pair, file)
        assert file.read_bytes() == first


@pytest.mark.deep
def test_same_program_gives_same_bytes_in_every_process(tmp_path: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from support.real_graphs import GRAPHS; "
        "from scanopt_cli.serialization.saving import save; "
        "save(tuple(map(list, GRAPHS['nested_scans']())), sys.argv[2])"
    )
    written = []
    for seed in ("1", "2"):
        target = tmp_path / f"{seed}.pkl"
        command = [sys.executable, "-c", code, str(Path(__file__).parents[1]), str(target)]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": seed})
        written.append(target.read_bytes())
    assert written[0] == written[1]


def test_gzip_if_the_name_says_so(file: Path) -> None:
    target = file.with_name("graph.pkl.gz")
    save(([], [pt.zeros(3)]), target)
    assert pickle.loads(gzip.decompress(target.read_bytes()))["format"] == "scanopt-graph"
    assert len(load(target).outputs) == 1


def test_callers_graph_is_untouched(file: Path) -> None:
    inputs, outputs = GRAPHS["scan_with_rng"]()
    x = pt.vector("x")
    fgraph = FunctionGraph([x], [x + 1, *[x * 2]], clone=False)
    before = (tree(fgraph.outputs), list(fgraph.inputs), set(fgraph.apply_nodes))
    save(fgraph, file)
    assert before == (tree(fgraph.outputs), list(fgraph.inputs), set(fgraph.apply_nodes))
    save((list(inputs), list(outputs)), file)


def test_plain_pickle_reads_the_file_too(file: Path) -> None:
    inputs, outputs = GRAPHS["nested_scans"]()
    save((list(inputs), list(outputs)), file)
    again = load(file, trust=True)
    assert equal_computations(list(again.outputs), list(outputs), list(again.inputs), list(inputs))


def test_plain_pickle_reads_overrides_too(file: Path) -> None:
    """Caches of an Op are empty in the file, not missing, and each Op has its own."""
    a, sine, cotangent, x = pt.dscalars("a", "sine", "cotangent", "x")

    def sine_of(factor: float) -> OpFromGraph:
        pullback = OpFromGraph([a, sine, cotangent], [cotangent * pt.cos(a) * factor])
        return OpFromGraph([a], [pt.sin(a)], pullback=pullback)

    ops = [sine_of(2.0), sine_of(3.0)]
    outputs = [op(x) for op in ops]
    pytensor.grad(sum(outputs), x)
    save(([x], outputs), file)
    again = load(file, trust=True)
    slopes = [pytensor.grad(output, again.inputs[0]) for output in again.outputs]
    assert [slope.eval({again.inputs[0]: 0.0}) for slope in slopes] == [2.0, 3.0]
    assert [output.owner.op for output in again.outputs] == ops


class SaysHow(Opaque):
    """An Op that is made again by a call, which pickle is told by `__reduce__` alone."""

    def __reduce__(self) -> Any:
        return SaysHow, (f"{self.state} again",)


def test_op_says_itself_how_it_is_pickled(file: Path) -> None:
    x = pt.vector("x")
    save(([x], [SaysHow("made")(x)]), file)
    assert load(file, trust=True).outputs[0].owner.op.state == "made again"


def test_op_that_cannot_be_pickled_is_named(file: Path) -> None:
    class Mine(Op):
        __props__ = ()

        def make_node(self, x: Any) -> Any:
            return Apply(self, [x], [x.type()])

        def perform(self, node: Any, inputs: Any, outputs: Any) -> None:
            outputs[0][0] = inputs[0]

    x = pt.vector("x")
    with pytest.raises(ScanoptError, match=r"op .*Mine.* cannot be pickled"):
        save(([x], [Mine()(x)]), file)
    assert list(file.parent.iterdir()) == []


def test_failed_write_leaves_what_was_there(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_bytes(b"old")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ScanoptError, match="No space left on device"):
        save(([], [pt.zeros(3)]), file)
    assert file.read_bytes() == b"old"
    assert list(file.parent.iterdir()) == [file]


def test_missing_directory_is_a_clear_error(file: Path) -> None:
    with pytest.raises(ScanoptError, match="cannot be written: No such file or directory"):
        save(([], [pt.zeros(3)]), file / "deeper" / "graph.pkl")


def test_permissions(file: Path) -> None:
    previous = os.umask(0o027)
    try:
        save(([], [pt.zeros(3)]), file)
        assert stat.S_IMODE(file.stat().st_mode) == 0o640
        file.chmod(0o600)
        save(([], [pt.zeros(3)]), file)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    finally:
        os.umask(previous)


def test_symbolic_link_stays_one(file: Path) -> None:
    link = file.with_name("link.pkl")
    file.write_bytes(b"")
    link.symlink_to(file)
    save(([], [pt.zeros(3)]), link)
    assert link.is_symlink()
    assert len(load(file).outputs) == 1


def test_not_a_graph(file: Path) -> None:
    with pytest.raises(ScanoptError, match="expected a graph, got int"):
        save(3, file)  # type: ignore[arg-type]


def test_no_temporary_names_remain(file: Path) -> None:
    save(([], [pt.zeros(3)]), file)
    assert list(file.parent.iterdir()) == [file]
    assert saving.save is save

"""A graph as data: what is in the file, what comes back to the bit, and what is refused."""

from __future__ import annotations

import gzip
import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Constant
from pytensor.scan.op import Scan
from pytensor.tensor.basic import constant
from test_corpus import SCHEMA

from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.errors import NotDataError, ScanoptError
from scanopt_cli.ir.graph import Graph, as_graph
from scanopt_cli.ir.written import Written, mark, written
from scanopt_cli.pipeline.optimizing import optimize
from scanopt_cli.serialization.loading import load
from scanopt_cli.serialization.saving import save
from support import tiers
from support.foreign_ops import Opaque, Scaled
from support.generated.strategies import GeneratedScan, scan_graphs
from support.graph_building import power, scan
from support.real_graphs import GRAPHS
from support.round_trips import assert_comes_back
from support.tiers import deep


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "graph.scanopt"


def there_and_back(graph: Any, file: Path) -> Graph:
    save(graph, file)
    return load(file)


# Numbers

DTYPES = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
BITS = st_numpy.arrays(
    np.uint8, st.integers(0, 40).map(lambda n: 16 * n), elements=st.integers(0, 255)
)


@settings(max_examples=tiers.examples(60, 1_000), deadline=None)
@given(bits=BITS, dtype=st.sampled_from(DTYPES))
def test_constants_come_back_to_the_bit(
    bits: np.ndarray, dtype: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Every NaN and every zero among them, in the table and in files of their own."""
    x = pt.scalar("x")
    array = bits.view(dtype)
    graph = as_graph(([x], [pt.as_tensor(array)[:1].astype("complex128").sum() * x]))
    again = there_and_back(graph, tmp_path_factory.mktemp("bits") / "graph.scanopt")
    found = [v.data for v in again.fgraph.variables if isinstance(v, Constant)]
    same = [data for data in found if data.dtype == dtype and data.shape == array.shape]
    assert any(data.tobytes() == array.tobytes() for data in same)


@pytest.mark.parametrize(
    "array",
    [
        np.array(True),
        np.zeros((0, 3)),
        np.zeros((3, 0, 2), dtype="int8"),
        np.asfortranarray(np.arange(40.0).reshape(5, 8)),
        np.arange(40.0)[::-2],
        np.arange(24, dtype=">i4").reshape(2, 3, 4).astype("<i4"),
        np.broadcast_to(np.float32(2), (4, 5)),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_arrays_of_any_layout(array: np.ndarray, file: Path) -> None:
    shared = pytensor.shared(array, "w")
    again = there_and_back(([], [shared.sum(), pt.as_tensor(array).sum()]), file)
    (found,) = again.shared
    assert found.name == "w"
    constants = [v.data for v in again.fgraph.variables if isinstance(v, Constant)]
    assert constants
    for value in (found.get_value(), *constants):
        assert value.dtype == array.dtype
        np.testing.assert_array_equal(value, array)


def test_shared_variables_do_not_share(file: Path) -> None:
    """Contents that are equal, or the same array, are of each variable alone; constants share."""
    numbers = np.arange(100.0)
    one, two = (pytensor.shared(numbers, name, borrow=True) for name in "ab")
    parts = [constant(numbers, name="c"), constant(numbers, name="d")]
    graph = there_and_back(([], [one * 2, two * 3, *(part + 1 for part in parts)]), file)
    left, right = (v.get_value(borrow=True) for v in graph.shared)
    assert not np.shares_memory(left, right)
    held = [v.data for v in graph.fgraph.variables if isinstance(v, Constant) and v.data.size > 9]
    assert len(held) == 2
    assert held[0] is held[1]
    left[:] = 7
    assert right[1] == held[0][1] == 1
    with zipfile.ZipFile(file) as archive:
        assert len(archive.namelist()) == 4


def test_recorded_calls_share_arrays(file: Path) -> None:
    """A thousand calls with the same data take no more than one."""
    x = pt.vector("x")
    data = np.arange(200_000.0)
    graph = replace(as_graph(([x], [x + 1])), recorded=((data,),) * 1_000)
    calls = there_and_back(graph, file).recorded
    assert len(calls) == 1_000
    assert file.stat().st_size < 2 << 20
    np.testing.assert_array_equal(calls[-1][0], data)


def test_generators_are_numbers(file: Path) -> None:
    for kind in (np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64):
        rng = np.random.Generator(kind(5))
        rng.normal(size=3)
        shared = pytensor.shared(rng, "rng")
        graph = there_and_back(([], [pt.random.normal(rng=shared)]), file)
        (found,) = graph.shared
        assert found.get_value().normal() == rng.normal()


@pytest.mark.parametrize("name", ["\ud800", "\x00", "\x1b[31m", "a\nb", "", '"', "\\", "名前"])
def test_any_name_of_a_variable(name: str, file: Path) -> None:
    x = pt.scalar(name)
    y = x + 1
    y.name = name
    graph = there_and_back(([x], [y]), file)
    assert [v.name for v in (*graph.inputs, *graph.outputs)] == [name, name]


def test_a_name_that_is_a_text_of_numpys(file: Path) -> None:
    x = pt.scalar("x")
    graph = there_and_back(([x], [OpFromGraph([x], [x + 1], name=np.str_("own"))(x)]), file)
    (node,) = graph.fgraph.apply_nodes
    assert node.op.name == "own"
    assert type(node.op.name) is str


# The file


@pytest.mark.tiered(every=6)
@pytest.mark.parametrize("name", GRAPHS)
def test_the_table_fits_its_schema(name: str, file: Path) -> None:
    inputs, outputs = GRAPHS[name]()
    save((list(inputs), list(outputs)), file, keep_traces=True)
    with zipfile.ZipFile(file) as archive:
        assert archive.namelist()[0] == "graph.json"
        jsonschema.validate(json.loads(archive.read("graph.json")), SCHEMA)


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.pop("nodes"),
        lambda table: table.update(more=1),
        lambda table: table["nodes"].append([0, [0]]),
        lambda table: table["parts"].append({"class": "Add", "parameters": {}}),
        lambda table: table["constants"].append([0, {"eval": "1"}]),
        lambda table: table["outputs"].append(-1),
    ],
)
def test_the_schema_refuses_what_is_none(change: Callable[[Any], Any], file: Path) -> None:
    save(power(), file)
    with zipfile.ZipFile(file) as archive:
        table = json.loads(archive.read("graph.json"))
    change(table)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(table, SCHEMA)


def test_the_same_graph_gives_the_same_bytes(file: Path) -> None:
    x, last = power()
    save(([x], [last]), file)
    first = file.read_bytes()
    save(([x], [last]), file)
    assert file.read_bytes() == first
    save(([x], [last]), file.with_suffix(".scanopt.gz"))
    assert gzip.decompress(file.with_suffix(".scanopt.gz").read_bytes()) == first


def test_content_tells_the_kind(file: Path) -> None:
    """Data under the name of a pickle, a pickle under that of data, and either gzipped."""
    x, last = power()
    pickled = file.with_suffix(".pkl")
    for name in (file, pickled, file.with_suffix(".scanopt.gz"), file.with_suffix(".pkl.gz")):
        save(([x], [last]), name)
    same = digest(load(file))
    assert [path.read_bytes()[:2] for path in (file, pickled)] == [b"PK", b"\x80\x05"]
    first, second = file.read_bytes(), pickled.read_bytes()
    file.write_bytes(second)
    pickled.write_bytes(first)
    assert all(digest(load(path)) == same for path in file.parent.iterdir())


def test_where_loops_were_written_comes_back(file: Path) -> None:
    """Also of two loops that are equal, and of one inside of another Op."""
    x = pt.scalar("x")
    loops = [scan(lambda h: h * 2, outputs_info=[v], n_steps=3) for v in (x, x + 1)]
    inner = pt.scalar("inner")
    nested = OpFromGraph([inner], [scan(lambda h: h * 3, outputs_info=[inner], n_steps=3)])(x)
    graph = as_graph(([x], [*loops, nested])).copy()
    scans = [node.op for node in graph.fgraph.toposort() if isinstance(node.op, Scan)]
    for line, op in enumerate(scans):
        mark(op, Written("model.py", line + 1, "f", ("h",)))
    again = there_and_back(graph, file)
    found = [written(node.op) for node in again.fgraph.toposort() if isinstance(node.op, Scan)]
    assert found == [written(op) for op in scans]
    assert len(found) == 2


# What is no data


@pytest.mark.parametrize("op", [Scaled(2.0), Opaque(3)])
def test_an_op_of_a_package_is_no_data(op: Any, file: Path) -> None:
    x = pt.vector("x")
    with pytest.raises(NotDataError) as caught:
        save(([x], [op(x)]), file)
    assert str(caught.value) == (
        f"{file}: op {op} (support.foreign_ops.{type(op).__name__}) cannot be written as data: its "
        "class is not one that the format knows; name the file .pkl: a pickle holds such Ops"
    )
    assert list(file.parent.iterdir()) == []
    save(([x], [op(x)]), file.with_suffix(".pkl"))


def test_an_op_in_a_body_is_named(file: Path) -> None:
    x = pt.scalar("x")
    loop = scan(lambda h: Scaled(2.0)(h), outputs_info=[x], n_steps=3)
    with pytest.raises(NotDataError, match=r"op Scaled\{.*\} \(support.foreign_ops.Scaled\)"):
        save(([x], [loop]), file)


def test_what_would_not_load_is_not_written(file: Path) -> None:
    x = pt.scalar("x" * 2_000)
    with pytest.raises(ScanoptError, match="is not written, since it would not load: "):
        save(([x], [x + 1]), file)
    assert list(file.parent.iterdir()) == []


# Size and depth


@pytest.mark.parametrize("length", [2_000, *deep(50_000)])
def test_long_chains(length: int, file: Path) -> None:
    x = pt.scalar("x")
    y = x
    for i in range(length):
        y = y + i % 7
    graph = there_and_back(([x], [y]), file)
    assert len(graph.fgraph.apply_nodes) == length


@pytest.mark.parametrize("length", [2_000, *deep(50_000)])
def test_long_chains_in_bodies(length: int, file: Path) -> None:
    x = pt.scalar("x")
    y = x
    for _ in range(length):
        y = y * x
    graph = there_and_back(([x], [OpFromGraph([x], [y])(x)]), file)
    (node,) = graph.fgraph.apply_nodes
    assert len(node.op.fgraph.apply_nodes) == length


@pytest.mark.parametrize(("depth", "is_read"), [(20, True), (40, False), *deep((400, False))])
def test_deep_nests(depth: int, is_read: bool, file: Path) -> None:
    x = pt.scalar("x")
    y = x + 1
    for _ in range(depth):
        y = OpFromGraph([x], [y])(x)
    if is_read:
        assert_comes_back(([x], [y]), file.with_suffix(".pkl"))
        return
    with pytest.raises(ScanoptError, match=r"inner graphs inside of each other|too deeply"):
        save(([x], [y]), file)


# Values


def outcome(graph: Graph, mode: str) -> Any:
    """What a compiled graph returns for some numbers."""
    numbers = {"f": 0.5, "i": 2}
    arguments = [
        np.full([3] * v.type.ndim, numbers[np.dtype(v.type.dtype).kind], v.type.dtype)
        for v in graph.inputs
    ]
    function = pytensor.function(graph.inputs, graph.outputs, mode=mode, on_unused_input="ignore")
    return [np.asarray(value).tobytes() for value in function(*arguments)]


RUN = ("scan_powers", "scan_second_derivative", "nested_scans", "while_scan", "graph_op")


@pytest.mark.parametrize("mode", ["FAST_RUN", *deep("NUMBA")])
@pytest.mark.parametrize("name", RUN)
def test_computes_the_same(name: str, mode: str, file: Path) -> None:
    inputs, outputs = GRAPHS[name]()
    graph = as_graph((list(inputs), list(outputs)))
    first = outcome(graph, mode)
    assert first
    assert outcome(there_and_back(graph, file), mode) == first


@settings(max_examples=tiers.examples(15, 150), deadline=None)
@given(generated=scan_graphs(generators=True))
def test_generated_graphs_come_back(
    generated: GeneratedScan, tmp_path_factory: pytest.TempPathFactory
) -> None:
    graph = (generated.inputs, generated.outputs)
    folder = tmp_path_factory.mktemp("generated")
    assert_comes_back(graph, folder / "graph.pkl")
    assert_comes_back(optimize(as_graph(graph), "scan-to-loop").graph, folder / "graph.pkl")

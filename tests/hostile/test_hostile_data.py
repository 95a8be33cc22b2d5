"""Files of data that were made to be misread, or to exhaust whoever reads them."""

from __future__ import annotations

import io
import json
import random
import stat
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.errors import LoadError
from scanopt_cli.serialization.archives import packed
from scanopt_cli.serialization.auditing import audit
from scanopt_cli.serialization.loading import load
from scanopt_cli.serialization.saving import save
from support import tiers
from support.data_files import (
    Change,
    change_at_random,
    forged,
    part,
    put_together,
    small_graph,
    written,
)
from support.graph_building import power
from support.tiers import deep

MOST = 400 << 20
LIMIT = 20


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "graph.scanopt"


def refusal(file: Path) -> str:
    """What `load` says of a file that it refuses, in one line, in little time and memory."""
    start = time.process_time()
    tracemalloc.start()
    try:
        with pytest.raises(LoadError) as caught:
            load(file)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MOST
    assert time.process_time() - start < LIMIT
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 600
    return message.removeprefix(f"{file}: ").removeprefix("graph.json: ").partition("; ")[0]


def _tried(read: Callable[[Path], Any], file: Path) -> tuple[Any, str | None]:
    """What is read, or what is said of a file that is refused, which is one line."""
    try:
        return read(file), None
    except LoadError as error:
        problem = str(error)
    assert problem.isprintable()
    return None, problem


# Bytes


@pytest.mark.tiered(every=4)
@pytest.mark.parametrize("part", range(4))
def test_a_changed_byte_is_refused_or_changes_nothing(part: int, file: Path) -> None:
    """Each byte in the deep tier; zip files have bytes that nobody reads, dates for one."""
    x, last = power()
    save(([x], [last]), file)
    data, same = file.read_bytes(), digest(load(file).fgraph)
    step = tiers.IS_DEEP or 7
    for place in range(part, len(data), 4 * int(step)):
        for flip in (1, 128):
            changed = bytearray(data)
            changed[place] ^= flip
            file.write_bytes(changed)
            found, problem = _tried(load, file)
            assert problem is not None or digest(found.fgraph) == same


def test_a_part_of_a_file_is_refused(file: Path) -> None:
    written(file)
    data = file.read_bytes()
    for length in range(0, len(data), 1 if tiers.IS_DEEP else 41):
        file.write_bytes(data[:length])
        with pytest.raises(LoadError):
            load(file)


# Archives


def rezipped(file: Path, change: Callable[[zipfile.ZipFile, dict[str, bytes]], None]) -> None:
    document, members = written(file)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        change(archive, {"graph.json": json.dumps(document).encode(), **members})
    file.write_bytes(stream.getvalue())


def _twice(archive: zipfile.ZipFile, members: dict[str, bytes]) -> None:
    for name, data in (*members.items(), *members.items()):
        archive.writestr(name, data)


def _more(name: str, mode: int = stat.S_IFREG) -> Callable[..., None]:
    def change(archive: zipfile.ZipFile, members: dict[str, bytes]) -> None:
        for member, data in members.items():
            archive.writestr(member, data)
        info = zipfile.ZipInfo(name)
        info.external_attr = (mode | 0o777) << 16
        archive.writestr(info, "/etc/passwd")

    return change


ALONE = "is no file of the format .scanopt: it does not hold graph.json and arrays alone"


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (_twice, "is no file of the format .scanopt: it has two members of one name"),
        (_more("../evil"), ALONE),
        (_more("/etc/evil"), ALONE),
        (_more("arrays/"), ALONE),
        (_more("arrays/\x1b[31m.npy"), ALONE),
        (_more("arrays/00.npy"), ALONE),
        (_more("link", stat.S_IFLNK), ALONE),
    ],
)
def test_members(change: Callable[..., None], problem: str, file: Path) -> None:
    rezipped(file, change)
    assert refusal(file) == problem


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data + b"more",
        lambda data: b"PK\x03\x04" + data,
        lambda data: data[:-2] + b"\x04\x00note",
        lambda data: data.replace(b"PK\x01\x02", b"between PK\x01\x02", 1),
    ],
)
def test_anything_beside_the_members_is_refused(
    change: Callable[[bytes], bytes], file: Path
) -> None:
    written(file)
    file.write_bytes(change(file.read_bytes()))
    assert refusal(file).startswith("is no file of the format .scanopt: ")


def test_a_file_that_zip_has_packed_anew_is_read(file: Path) -> None:
    """Dates, modes and the order of members are of no matter."""
    rezipped(file, lambda archive, members: [*map(archive.writestr, members, members.values())])
    same = digest(load(file).fgraph)
    save(small_graph(), file)
    assert digest(load(file).fgraph) == same


def test_a_bomb_is_not_unpacked(file: Path) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("graph.json", b" " * (100 << 20))
    file.write_bytes(stream.getvalue())
    assert len(stream.getvalue()) < 1 << 20
    assert refusal(file).endswith("it unpacks to far more than its size")


def test_a_member_that_unpacks_to_more_than_it_says(file: Path) -> None:
    written(file)
    data = bytearray(file.read_bytes())
    central = data.index(b"PK\x01\x02")
    for place in (22, central + 24):
        data[place : place + 4] = (100).to_bytes(4, "little")
    file.write_bytes(data)
    assert refusal(file).startswith("is no file of the format .scanopt: ")


# The table


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[" * 1_000_000, "graph.json cannot be read: RecursionError"),
        ('{"a":' * 100_000, "graph.json cannot be read: RecursionError"),
        ("[" + "[]," * 4_000_000 + "[]]", "graph.json cannot be read: it has more than 4,000,000"),
        ("9" * 1_000_000, "graph.json cannot be read: Exceeds the limit"),
        ('{"format": 1, "format": 2}', "graph.json cannot be read: a table with two entries"),
        ('{"format": NaN}', "graph.json cannot be read: NaN is no number of JSON"),
        ("\xff", "graph.json cannot be read: UnicodeDecodeError"),
        ("{}", "graph.json cannot be read: it is not the table of a graph"),
        ("[]", "graph.json cannot be read: it is not the table of a graph"),
    ],
)
def test_text(text: str, problem: str, file: Path) -> None:
    file.write_bytes(packed({"graph.json": text.encode("latin-1")}))
    assert refusal(file).startswith(problem)


def _set(*path: Any, to: Any) -> Change:
    def change(document: dict[str, Any], _: dict[str, bytes]) -> None:
        table: Any = document
        for key in path[:-1]:
            table = table[key]
        table[path[-1]] = to

    return change


def _constant(form: Any) -> Change:
    return _set("constants", 0, 1, to=form)


def _array(*form: Any) -> Change:
    return _constant({"array": form})


def _parameter(name: str, parameter: str, to: Any) -> Change:
    def change(document: dict[str, Any], _: dict[str, bytes]) -> None:
        part(document, name)["parameters"][parameter] = to

    return change


def _self_referring(document: dict[str, Any], _: dict[str, bytes]) -> None:
    number = document["parts"].index(part(document, "tensor.Elemwise"))
    document["parts"][number]["parameters"]["scalar_op"] = {"op": number}


def _unused(_: dict[str, Any], members: dict[str, bytes]) -> None:
    members["arrays/2.npy"] = members["arrays/0.npy"]


def _in_inner_graph(key: str, row: int, to: Any) -> Change:
    def change(document: dict[str, Any], _: dict[str, bytes]) -> None:
        part(document, "graph")[key][row] = to

    return change


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (_set("version", to=2), "written in version 2 of the format .scanopt, this is scanopt"),
        (_set("version", to=True), "written in version of no number"),
        (_set("more", to=1), "graph.json has other keys than those of a graph"),
        (_set("parts", 0, to={"class": "os.system", "parameters": {}}), "parts[0]: 'os.system' is"),
        (_set("parts", 0, to={"class": "\x1b[31m", "parameters": {}}), "parts[0]: '\\x1b[31m' is"),
        (_set("parts", 0, to={"class": "graph.Apply", "parameters": {}}), "parts[0]: 'graph.Appl"),
        (_set("parts", 0, to=3), "parts[0]: it is no table"),
        (_self_referring, "is not the number of a part before it"),
        (
            _parameter("tensor.Elemwise", "scalar_op", {"op": 10**9}),
            "1000000000 is not the number of a part before it",
        ),
        (
            _parameter("tensor.Elemwise", "scalar_op", {"op": -1}),
            "-1 is not the number of a part before it",
        ),
        (
            _parameter("tensor.Elemwise", "scalar_op", {"type": 0}),
            "attribute 'scalar_op' holds a TensorType",
        ),
        (_parameter("tensor.Elemwise", "perform", None), "attribute 'perform' hides a method"),
        (_parameter("tensor.Elemwise", "_fn", None), "its parameters are no table of parameters"),
        (_parameter("tensor.TensorType", "shape", [2**60]), "parts[0] (tensor.TensorType): "),
        (_parameter("tensor.TensorType", "shape", [1] * 100_000), "parts[0] (tensor.TensorType): "),
        (_parameter("tensor.TensorType", "dtype", "object"), "parts[0] (tensor.TensorType): "),
        (_parameter("scan.Scan", "profile", "x'; import os"), "holds text that no op needs"),
        (_parameter("scan.Scan", "name", 3), "attribute 'name' is a int"),
        (
            _parameter("scan.Scan", "truncate_gradient", {"named": "os.system"}),
            "'os.system' is no function or exc",
        ),
        (_in_inner_graph("nodes", 0, [0, [10**9], [0]]), "parts[0] is no Op"),
        (_in_inner_graph("outputs", 0, 77), "variable 77 is not computed before it is read"),
        (_in_inner_graph("inputs", 0, {}), "{} is not the number of a part before it"),
        (_set("inputs", 0, to=[0, "x", {"file": 0}]), "inputs[1]: a shared variable whose array"),
        (_set("inputs", 0, to=[10**6, "x"]), "inputs[0]: 1000000 is not the number of a part"),
        (_set("inputs", 0, to=[0, "n" * 5000]), "inputs[0]: the name 'nnnnnnnnnnnnnnnnnnnn…' has"),
        (_set("inputs", 0, to=[0, ["x"]]), "inputs[0]: a name that is no text"),
        (_set("names", to=[[10**6, "x"]]), "names: variable 1000000 is not the output of a node"),
        (_set("nodes", 0, to=[0, [], []]), "nodes[0]: parts[0] is no Op"),
        (_set("nodes", 0, 1, to=[10**6]), "nodes[0]: variable 1000000 is not computed before"),
        (_set("outputs", 0, to=-1), "outputs[0]: -1 is no number of a row"),
        (_set("outputs", 0, to=10**6), "outputs[0]: there is no variable 1000000"),
        (_array("float64", [10**9], [0.5]), "constants[0]: an arr"),
        (_array("float64", [10**9], "00"), "constants[0]: an array"),
        (_array("object", [], [0]), "constants[0]: what is no dtyp"),
        (_array("float32", [1], [1e300]), "constants[0]: an array"),
        (_array("int8", [1], [300]), "constants[0]: an array with"),
        (_constant({"file": 10**6}), "constants[0]: the number of an array that"),
        (_constant({"file": 0, "list": []}), "constants[0]: a value with more or f"),
        (_constant({"eval": "1"}), "constants[0]: a value of the unknown kind"),
        (_set("recorded", to=[[{"generator": {}}]]), "recorded[0]: not the state of one"),
        (_set("written", to=[[[0], "a.py", 1, "f", []]]), "does not describe a graph: "),
        (_set("nodes", 0, 1, to=[]), "DimShuffle does not take its inputs: "),
        (_unused, "it holds an array that nothing refers to"),
    ],
)
def test_tables(change: Change, problem: str, file: Path) -> None:
    forged(file, change)
    assert problem in refusal(file)
    assert not _is_accepted(file)


def _is_accepted(file: Path) -> bool:
    """Whether `audit` finds nothing wrong."""
    try:
        return audit(file).safe
    except LoadError:
        return False


@pytest.mark.parametrize("shape", ["(1000000000,)", "(1, " * 40 + ")" * 40, "(-1,)", "(3.5,)"])
def test_an_array_that_declares_more_than_it_has(shape: str, file: Path) -> None:
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    data = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + b"\0" * 8

    def change(_: dict[str, Any], members: dict[str, bytes]) -> None:
        members["arrays/0.npy"] = data

    forged(file, change)
    assert len(file.read_bytes()) < 6_000
    assert refusal(file).startswith("inputs[1]: ")


# Small files of much work


FLOATS = {"dtype": "float64", "shape": [], "name": None}


def _graph_op(graph: int) -> dict[str, Any]:
    kinds = {"list": [{"type": 0}]}
    return {
        "class": "compile.OpFromGraph",
        "parameters": {
            "fgraph": {"graph": graph},
            "input_types": kinds,
            "output_types": kinds,
            **dict.fromkeys(("pullback_overrides", "pushforward_overrides", "name")),
            "_connection_pattern": None,
            "is_inline": False,
            "kwargs": {"dict": []},
            "destroy_map": {"dict": []},
        },
    }


def _nest(depth: int) -> Change:
    def change(document: dict[str, Any], members: dict[str, bytes]) -> None:
        _alone(document, members)
        parts = document["parts"]
        parts.append({"inputs": [0], "constants": [], "nodes": [], "outputs": [0]})
        for _ in range(depth):
            parts.append(_graph_op(len(parts) - 1))
            nodes = [[len(parts) - 1, [i], [0]] for i in range(2)]
            parts.append({"inputs": [0], "constants": [], "nodes": nodes, "outputs": [2]})
        document |= {"nodes": [[len(parts) - 2, [0], [0]]], "outputs": [1]}

    return change


def _alone(document: dict[str, Any], members: dict[str, bytes]) -> None:
    members.clear()
    document["parts"] = [{"class": "tensor.TensorType", "parameters": dict(FLOATS)}]
    empty = dict.fromkeys(("constants", "names", "output_names", "stacks", "traces", "written"))
    document |= {name: [] for name in empty} | {"inputs": [[0, "x"]], "nodes": [], "outputs": [0]}


def _many_ops_of_one_graph(document: dict[str, Any], members: dict[str, bytes]) -> None:
    _alone(document, members)
    parts = document["parts"]
    nodes = [[1, [i], [0]] for i in range(3_000)]
    parts.append({"class": "compile.DeepCopyOp", "parameters": {}})
    parts.append({"inputs": [0], "constants": [], "nodes": nodes, "outputs": [3_000]})
    parts += [_graph_op(2)] * 3_000


def _one_array_for_many(document: dict[str, Any], members: dict[str, bytes]) -> None:
    _many_converted(document, members)
    members["arrays/0.npy"] = members["arrays/0.npy"].replace(b"|i1", b"<f8")
    members["arrays/0.npy"] += bytes(7_000_000)
    document["constants"] *= 2


def _many_converted(document: dict[str, Any], members: dict[str, bytes]) -> None:
    """Small numbers in one file, which many constants of a wide type would copy."""
    _alone(document, members)
    document["parts"][0]["parameters"]["shape"] = [None]
    header = b"{'descr': '|i1', 'fortran_order': False, 'shape': (1000000,), }\n"
    members["arrays/0.npy"] = (
        b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(1_000_000)
    )
    document["constants"] = [[0, {"file": 0}]] * 1_000


def _many(count: int, **rows: Any) -> Change:
    """Very many equal rows of tables, of a few letters each."""

    def change(document: dict[str, Any], members: dict[str, bytes]) -> None:
        _alone(document, members)
        for name, row in rows.items():
            document[name] += [row] * count

    return change


def _many_in_a_graph(count: int, key: str, row: Any) -> Change:
    def change(document: dict[str, Any], members: dict[str, bytes]) -> None:
        _alone(document, members)
        graph = {"inputs": [0], "constants": [], "nodes": [], "outputs": [0]}
        copy = {"class": "compile.DeepCopyOp", "parameters": {}}
        document["parts"] += [copy, {**graph, key: [row] * count}]

    return change


EMPTY = {"class": "compile.DeepCopyOp", "parameters": {}}
ZERO = [0, 0]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (_many(200_001, parts=EMPTY), "it has more than 200,000 Ops, Types and inner graphs"),
        (_many(500_001, constants=ZERO), "it has more than 500,000 constants"),
        (_many(5_001, inputs=[0, None]), "more than 5,000 inputs"),
        (_many_in_a_graph(300_001, "nodes", [1, [0], [0]]), "have more than 300,000 nodes"),
        (_many_in_a_graph(500_001, "constants", ZERO), "have more than 500,000 variables"),
        (_many_in_a_graph(500_001, "inputs", 0), "have more than 500,000 variables"),
        (_many_in_a_graph(5_001, "inputs", 0), "more than 5,000 inputs"),
        (_many_in_a_graph(1, "nodes", [1, [0], [0] * 500_001]), "have more than 500,000 variables"),
    ],
)
def test_many_objects_of_few_letters(change: Change, problem: str, file: Path) -> None:
    forged(file, change)
    assert problem in refusal(file)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (_nest(30), "has more than 25 inner graphs inside of each other"),
        *deep((_nest(2_000), "it is nested too deeply")),
        (_nest(60), "it is nested too deeply"),
        (_many_ops_of_one_graph, "it uses the same parts too often"),
        (_one_array_for_many, "its constants refer to more than 1,073,741,824 bytes of arrays"),
        (_many_converted, "constants[0]: a constant whose value is not of its type"),
    ],
)
def test_work(change: Change, problem: str, file: Path) -> None:
    forged(file, change)
    assert len(file.read_bytes()) < 9 << 20
    assert problem in refusal(file)


# At random


@pytest.mark.tiered(every=2)
@pytest.mark.parametrize("seed", range(8))
def test_tables_changed_at_random(seed: int, file: Path) -> None:
    draw = random.Random(seed)
    whole, members = written(file)
    for _ in range(tiers.examples(40, 1_000)):
        document = json.loads(json.dumps(whole))
        for _ in range(draw.randint(1, 3)):
            change_at_random(document, draw)
        put_together(file, document, members)
        start = time.process_time()
        for read in (load, audit):
            _tried(read, file)
        assert time.process_time() - start < LIMIT

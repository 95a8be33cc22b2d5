"""Files that hypothesis makes of opcodes, and of honest files: a graph, or one line.

`make test` tries some; `make fuzz` goes on for ten minutes (or `FUZZ_SECONDS`).
"""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import pickletools
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.graph.traversal import io_toposort
from pytensor.tensor.type import TensorType

from scanopt_cli.analysis.inspection import inspect_graph
from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.errors import LoadError, ScanoptError
from scanopt_cli.ir.graph import Graph
from scanopt_cli.pipeline.optimizing import optimize
from scanopt_cli.serialization.archives import members_of, packed
from scanopt_cli.serialization.auditing import audit
from scanopt_cli.serialization.data.container import to_file
from scanopt_cli.serialization.loading import load
from scanopt_cli.serialization.payload import encode
from support.data_files import change_at_random
from support.generated.drawing import Draw
from support.graph_building import graph_of
from support.real_graphs import GRAPHS

LIMIT = 20
"""Seconds that nothing may take."""

MODELS = ("scan_powers", "while_scan", "nested_scans", "scan_with_rng", "graph_op", "control_flow")
_ACTS = ("os.system", "os.exec", "os.posix_spawn", "os.remove", "subprocess.Popen", "socket.")
_acts: list[str] = []


def _watch(event: str, arguments: Any) -> None:
    if event.startswith(_ACTS) or (event == "open" and _is_written(arguments)):
        _acts.append(f"{event} {arguments}")


def _is_written(arguments: Any) -> bool:
    mode = arguments[1]
    return isinstance(mode, str) and bool(set(mode) & set("wax+"))


def honest_files() -> list[bytes]:
    files = []
    for name in MODELS:
        inputs, outputs = GRAPHS[name]()
        files.append(cloudpickle.dumps((list(inputs), list(outputs))))
        files.append(cloudpickle.dumps(encode(graph_of(*outputs), keep_traces=False)))
    return files


HONEST = honest_files()
DATA = [
    to_file(encode(graph_of(*GRAPHS[name]()[1]), keep_traces=False))
    for name in (*MODELS, "reductions", "softmax_and_convolution", "optimization")
]
TOKENS = sorted({opcode.code.encode("latin-1") for opcode in pickletools.opcodes})
NAMES = [
    *(b"cos\nsystem\n", b"cbuiltins\neval\n", b"cbuiltins\nlist\n", b"cnumpy\ndtype\n"),
    b"cpytensor.tensor.type\nTensorType\n",
    b"cpytensor.tensor.elemwise\nElemwise\n",
    b"cpytensor.scan.op\nScan\n",
    b"cpytensor.graph.basic\nApply\n",
    b"cnumpy._core.multiarray\n_reconstruct\n",
]
OPERANDS = st.one_of(
    st.binary(max_size=9),
    st.sampled_from(NAMES),
    st.text(max_size=5).map(lambda text: pickle.dumps(text, 2)[2:-1]),
    st.integers(-(2**70), 2**70).map(lambda number: pickle.dumps(number, 2)[2:-1]),
    st.sampled_from([b"(", b"t", b"}", b"]", b")", b"R", b"\x81", b"b", b"h\x00", b"\x94", b"o"]),
)
PROGRAMS = st.lists(st.one_of(st.sampled_from(TOKENS), OPERANDS), max_size=40).map(
    lambda parts: b"\x80\x04" + b"".join(parts) + b"."
)


@st.composite
def mutants(draw: Draw) -> bytes:
    """Draw an honest file with some of its bytes changed, cut out, repeated or put elsewhere."""
    data = bytearray(draw(st.sampled_from(HONEST)))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data) - 1))
        end = min(len(data), start + draw(st.integers(1, 30)))
        match draw(st.sampled_from(["flip", "cut", "repeat", "move", "insert"])):
            case "flip":
                data[start] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del data[start:end]
            case "repeat":
                data[start:start] = data[start:end]
            case "move":
                part = bytes(data[start:end])
                del data[start:end]
                place = draw(st.integers(0, len(data)))
                data[place:place] = part
            case "insert":
                data[start:start] = draw(OPERANDS)
        if not data:
            return bytes(data)
    return bytes(data)


@st.composite
def forgeries(draw: Draw) -> bytes:
    """Draw a graph in scanopt's format of which some entries of the tables are others."""
    held = pickle.loads(draw(st.sampled_from(HONEST[1::2])))
    parts = [*held["types"], *held["ops"]]
    for _ in range(draw(st.integers(1, 3))):
        table = draw(st.sampled_from(sorted(held)))
        held[table] = _forged(draw, held[table], parts)
    return cloudpickle.dumps(held)  # type: ignore[no-any-return]


def _forged(draw: Draw, value: Any, others: list[Any]) -> Any:
    if isinstance(value, list | tuple) and value and draw(st.integers(0, 4)):
        parts = list(value)
        place = draw(st.integers(0, len(parts) - 1))
        match draw(st.integers(0, 3)):
            case 0:
                del parts[place]
            case 1:
                parts.append(parts[place])
            case _:
                parts[place] = _forged(draw, parts[place], others)
        return type(value)(parts)
    plain = [0, 1, -1, 2**40, None, "x", (), [], {}, 0.5, b"", [[]]]
    return draw(st.sampled_from([*plain, *others]))


@st.composite
def lies(draw: Draw) -> bytes:
    """Draw a graph of which some computed arrays are declared to be of other lengths."""
    _, outputs = GRAPHS[draw(st.sampled_from(MODELS))]()
    computed = [
        variable
        for node in io_toposort([], outputs)
        for variable in node.outputs
        if isinstance(variable.type, TensorType) and variable.type.ndim
    ]
    for _ in range(draw(st.integers(1, 3)) if computed else 0):
        variable = draw(st.sampled_from(computed))
        lengths = st.sampled_from([None, 0, 1, 2, 3, 40, 2**40])
        shape = [draw(lengths) for _ in range(variable.type.ndim)]
        variable.type = TensorType(variable.type.dtype, shape=tuple(shape))
    return cloudpickle.dumps(encode(graph_of(*outputs), keep_traces=False))  # type: ignore[no-any-return]


@st.composite
def tables(draw: Draw) -> bytes:
    """Draw a file of data of which some entries of the table are others."""
    members = members_of(draw(st.sampled_from(DATA)), 1_000, "many")
    document = json.loads(members["graph.json"])
    source = draw(st.randoms(use_true_random=False))
    for _ in range(draw(st.integers(1, 3))):
        change_at_random(document, source)
    return packed({**members, "graph.json": json.dumps(document).encode()})


def check(data: bytes, folder: Path) -> None:
    """Load a file, and look at the graph if it is one."""
    file = folder / "file.pkl"
    file.write_bytes(data)
    _acts.clear()
    start = time.monotonic()
    errors = []
    try:
        _look_at(load(file))
    except LoadError as error:
        errors.append(str(error))
    try:
        audit(file)
    except LoadError as error:
        errors.append(str(error))
    assert all(map(str.isprintable, errors))
    assert time.monotonic() - start < LIMIT
    assert _acts == []


def _look_at(graph: Graph) -> None:
    """Do what commands do."""
    with suppress(ScanoptError):
        digest(graph.fgraph)
        inspect_graph(graph.fgraph)
        optimize(graph)


KINDS = {
    "programs": PROGRAMS,
    "mutants": mutants(),
    "forgeries": forgeries(),
    "lies": lies(),
    "tables": tables(),
}


@pytest.mark.tiered(every=4)
@pytest.mark.parametrize("kind", KINDS)
def test_files_of_hypothesis(kind: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp(kind)
    seconds = float(os.environ.get("FUZZ_SECONDS", 0)) / len(KINDS)
    examples = 1_000 if seconds else settings.default.max_examples
    end = time.monotonic() + seconds

    @settings(max_examples=examples, derandomize=not seconds, database=None)
    @given(data=KINDS[kind])
    def tried(data: bytes) -> None:
        check(data, folder)

    def run() -> None:
        sys.addaudithook(_watch)
        tried()
        while time.monotonic() < end:
            tried()

    # An audit hook stays, and would slow down every test behind this one.
    child = multiprocessing.get_context("fork").Process(target=run)
    child.start()
    child.join()
    assert child.exitcode == 0, "what is wrong stands in stderr"

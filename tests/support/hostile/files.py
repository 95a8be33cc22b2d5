"""Files that are no graphs, though they begin like them: cut, forged, of absurd sizes."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import zipfile
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

import cloudpickle
import numpy as np
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply
from pytensor.scan.op import Scan, ScanInfo
from pytensor.typed_list import TypedListType
from pytensor.typed_list.basic import make_list

from scanopt_cli.serialization.payload import encode
from support.graph_building import graph_of, power
from support.hostile.graphs import nested_graphs
from support.hostile.running import Calls, called, whole, with_op


def honest() -> bytes:
    """A pickled graph with a loop, as cloudpickle writes it."""
    x, xs = power()
    return cloudpickle.dumps(([x], [xs[-1]]))


def tables(**changed: Any) -> bytes:
    """A graph in scanopt's own format, with some of its tables changed."""
    _, xs = power()
    written = encode(graph_of(xs[-1]), keep_traces=False)
    return pickle.dumps({**written, **changed})


def forged(table: str, change: Callable[[Any], Any]) -> Callable[[], bytes]:
    """Return what makes a graph of which one table is changed."""

    def make() -> bytes:
        _, xs = power()
        written = encode(graph_of(xs[-1]), keep_traces=False)
        return pickle.dumps({**written, table: change(written[table])})

    return make


WRITTEN: dict[str, Any] = {
    "nowhere": ((99,), ("model.py", 1, "f", ())),
    "in a last one": ((-1,), ("model.py", 1, "f", ())),
    "in no loop": ((0,), ("model.py", 1, "f", ())),
    "inside of what holds no graph": ((0, 0, 0), ("model.py", 1, "f", ())),
    "half way in": ((0, 0), ("model.py", 1, "f", ())),
    "in a file of no name": ((0,), (b"model.py", 1, "f", ())),
    "in a long name": ((0,), ("x" * 1_001, 1, "f", ())),
    "in a line of no number": ((0,), ("model.py", "1", "f", ())),
    "in a line before the first": ((0,), ("model.py", -1, "f", ())),
    "with an argument of no name": ((0,), ("model.py", 1, "f", (3,))),
}
"""What tables say of where loops were written, and cannot be so."""


def with_node(change: Callable[[Any, Any, Any], Any], place: int = -1) -> Callable[[], bytes]:
    """Return what makes a graph of which one node is changed: its op, inputs and outputs."""

    def changed(nodes: list[Any]) -> list[Any]:
        nodes = list(nodes)
        nodes[place] = change(*nodes[place])
        return nodes

    return forged("nodes", changed)


def deep(opening: bytes, closing: bytes) -> bytes:
    return b"\x80\x04" + opening * 200_000 + b"N" + closing * 200_000 + b"."


def zipped() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("a", "b")
    return stream.getvalue()


class Array:
    """Pickles as an array with a state of its own."""

    def __init__(self, shape: Any, dtype: Any = "f8", data: Any = bytes(8)) -> None:
        self.state = (1, shape, np.dtype(dtype), False, data)

    def __reduce__(self) -> Any:
        make, *_ = np.zeros(1).__reduce__()
        return make, (np.ndarray, (0,), b"b"), self.state


ARRAYS: Mapping[str, Any] = {
    "long": (10**12,),
    "long and wide": (10**6, 10**6),
    "of negative length": (-1,),
    "longer than numbers": (2**62, 4),
    "as long as a text": ("a",),
    "as long as a float": (1.0,),
    "of many axes": (1,) * 100,
    "of a shape that is no tuple": 3,
}

WIDE = b"N" + b"2\x86" * 60
"""Opcodes of a pair of a pair of a pair, each the same twice."""
wide: Any = None
for _ in range(60):
    wide = (wide, wide)


def loop_of(**info: Any) -> bytes:
    """A loop of one state, whose ScanInfo has other entries."""
    y, z = pt.dscalars("y", "z")
    plain: dict[str, Any] = {
        **dict.fromkeys(("mit_mot_in_slices", "mit_mot_out_slices", "mit_sot_in_slices"), ()),
        **dict.fromkeys(("n_seqs", "n_nit_sot", "n_untraced_sit_sot", "n_non_seqs"), 0),
        "sit_sot_in_slices": ((-1,),),
        "as_while": False,
    }
    made = ScanInfo(**{**plain, **info})
    reads = [y, z][: sum(map(len, made.sit_sot_in_slices))]
    return with_op(Scan(reads, [y + 1], made), pt.as_tensor(3), pt.zeros(5))


def of_length(variable: Any, *shape: int | None) -> bytes:
    """A graph whose output is declared to be of another static shape."""
    variable.type = variable.type.clone(shape=shape)
    return cloudpickle.dumps([variable])


def with_output_types(node: Any) -> bytes:
    """A node whose Op says that its outputs are longer than its inner graph makes them."""
    op = copy(node.op)
    op.output_types = [kind.clone(shape=(2**40,) * kind.ndim) for kind in op.output_types]
    made = Apply(op, node.inputs, [kind() for kind in op.output_types])
    return cloudpickle.dumps([made.outputs[0]])


def longer_elements() -> bytes:
    listed = make_list([pt.vector("x"), pt.vector("y")])
    listed.type = TypedListType(pt.vector(shape=(2**40,)).type)
    return cloudpickle.dumps([listed])


def deep_tuple_in_a_set() -> bytes:
    """A deep tuple, of which each level was made before the next."""
    levels: list[Any] = [()]
    for _ in range(100_000):
        levels.append((levels[-1],))
    return pickle.dumps([levels, Calls(frozenset, [levels[-1]])])


LOOP = 7  # the place of the Scan among the nodes of `power`

FILES: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "text": lambda: b"hello world\n",
    "json": lambda: json.dumps({"a": 1}).encode(),
    "elf": lambda: b"\x7fELF\x02\x01\x01" + bytes(50),
    "zip": zipped,
    "noise": lambda: bytes(range(256)) * 4,
    "truncated gzip": lambda: gzip.compress(honest())[:-20],
    "damaged gzip": lambda: gzip.compress(bytes(1000))[:12] + b"\xff" * 40,
    "gzip of nothing": lambda: gzip.compress(b""),
    "gzip of gzip": lambda: gzip.compress(gzip.compress(honest())),
    "integer": lambda: pickle.dumps(3),
    "None": lambda: pickle.dumps(None),
    "empty list": lambda: pickle.dumps([]),
    "array": lambda: pickle.dumps(np.zeros(3)),
    "text as the value of an input": lambda: tables(values={0: "x"}),
    "a slice in a recorded call": lambda: tables(recorded=((slice(1),) * 2,)),
    "list of numbers": lambda: pickle.dumps([1, 2]),
    "model": lambda: cloudpickle.dumps(type("Model", (), {})()),
    "contains itself": lambda: b"\x80\x04]\x94h\x00a.",
    "deep lists": lambda: deep(b"]", b"a")[:-1] + b".",
    "deep tuples": lambda: b"\x80\x04N" + b"\x85" * 200_000 + b".",
    "deep tuple as a key": lambda: b"\x80\x04}N" + b"\x85" * 200_000 + b"Ns.",
    "deep calls": lambda: (
        b"\x80\x04N" + b"\x94" + b"\x85\x94" * 10 + b"cbuiltins\nlist\nh\x00\x85R" * 9 + b"."
    ),
    "doubling key": lambda: b"\x80\x04}N" + b"2\x86" * 200 + b"Ns.",
    "doubling value": lambda: b"\x80\x04N" + b"2\x86" * 200 + b"\x85.",
    "huge memo index": lambda: b"\x80\x04Nr\xff\xff\xff\x7f.",
    "missing memo entry": lambda: b"\x80\x04h\x05.",
    "huge string": lambda: b"\x80\x04\x8d" + (10**15).to_bytes(8, "little") + b"x.",
    "huge bytearray": lambda: b"\x80\x05\x96" + (10**15).to_bytes(8, "little") + b"x.",
    "huge frame": lambda: b"\x80\x04\x95" + (2**63).to_bytes(8, "little") + b"N.",
    "huge integer": lambda: b"\x80\x04\x8b" + (2**31 - 1).to_bytes(4, "little") + b"\x01.",
    "negative length": lambda: b"\x80\x04\x8b\xff\xff\xff\xff\x01.",
    "integer of many digits": lambda: b"I" + b"9" * 1_000_000 + b"\n.",
    "hexadecimal float": lambda: b"F0x1p9999\n.",
    "text that is no text": lambda: b"\x80\x04\x8c\x02\xff\xfe.",
    "surrogates": lambda: b"\x80\x04\x8c\x03\xed\xa0\x80.",
    "mark without end": lambda: b"\x80\x04((((.",
    "pop of nothing": lambda: b"\x80\x040.",
    "buffers out of band": lambda: b"\x80\x05\x97.",
    "no stop": lambda: b"\x80\x04N",
    "empty stack": lambda: b"\x80\x04.",
    "future protocol": lambda: b"\x80\x63N.",
    "two pickles": lambda: pickle.dumps(None) + honest(),
    **{f"cut after {size} bytes": lambda size=size: honest()[:size] for size in (2, 20, 200, 900)},
    "cut before the end": lambda: honest()[:-1],
    "wrong schema": lambda: tables(schema=99),
    "schema as a text": lambda: tables(schema="1"),
    "no tables": lambda: pickle.dumps({"format": "scanopt-graph", "schema": 1}),
    "tables as numbers": lambda: tables(nodes=3),
    "tables as texts": lambda: tables(types="float64"),
    "an op that is none": forged("ops", lambda ops: [*ops[:-1], "Scan"]),
    "a type that is none": forged("types", lambda types: ["float64", *types[1:]]),
    "an input of a negative type": forged("inputs", lambda _: [(-10_000, "x")]),
    "an input without a name": forged("inputs", lambda inputs: [inputs[0][:1]]),
    "a name that is a number": forged("inputs", lambda inputs: [(inputs[0][0], 3)]),
    "a constant of another type": forged("constants", lambda c: [(c[0][0], "text", None), *c[1:]]),
    "an output out of range": forged("outputs", lambda _: [10**9]),
    "a negative output": forged("outputs", lambda _: [-1]),
    "an output that is a text": forged("outputs", lambda _: ["14"]),
    "a node of no op": with_node(lambda op, i, o: (10**6, i, o)),
    "a node of an op that is a text": with_node(lambda op, i, o: ("add", i, o)),
    "a node that reads itself": with_node(lambda op, i, o: (op, (14, *i[1:]), o)),
    "a node that reads what comes later": with_node(lambda op, i, o: (op, (14,), o), 0),
    "a node that reads a negative number": with_node(lambda op, i, o: (op, (-1, *i[1:]), o)),
    "a node of no outputs": with_node(lambda op, i, o: (op, i, ())),
    "a loop without inputs": with_node(lambda op, i, o: (op, (), o), LOOP),
    "a loop with an input too many": with_node(lambda op, i, o: (op, (*i, i[0]), o), LOOP),
    "a loop with an output too many": with_node(lambda op, i, o: (op, i, o * 2), LOOP),
    "a loop over an integer": with_node(lambda op, i, o: (op, (i[0], i[0]), o), LOOP),
    "an array longer than it is": lambda: of_length(pt.sort(pt.vector()), 2_000_000_000),
    "rows that broadcast, of many": lambda: of_length(pt.join(0, pt.row(), pt.row()), 1, None),
    "an array shorter than a sum says": lambda: of_length(pt.zeros(pt.constant(1) + 2), 2),
    "a longer trace": lambda: of_length(power()[1].owner.outputs[0], 7),
    "a longer draw": lambda: of_length(pt.random.normal(size=(3,)), 2**40),
    "longer elements of a list": longer_elements,
    "rows of a loop that are longer": lambda: with_output_types(power()[1].owner.inputs[0].owner),
    "an output of a graph that is longer": lambda: with_output_types(
        (lambda x: OpFromGraph([x], [pt.sort(x)])(x).owner)(pt.vector("x"))
    ),
    "values at no input": lambda: tables(values={5: np.zeros(3)}),
    "values that are a text": lambda: tables(values="x"),
    "calls that are numbers": lambda: tables(recorded=(3,)),
    "a trace that is a number": lambda: tables(traces=3),
    **{
        f"a loop written {name}": lambda entry=entry: tables(written=[entry])
        for name, entry in WRITTEN.items()
    },
    "a number of loops that were written": lambda: tables(written=3),
    "names that are a number": lambda: tables(output_names=3),
    **{
        f"an array {name}": lambda shape=shape: pickle.dumps([Array(shape)])
        for name, shape in ARRAYS.items()
    },
    "graphs that hold graphs twice": lambda: pickle.dumps(
        encode(graph_of(nested_graphs(60)), keep_traces=False)
    ),
    "a deep tuple in a set": deep_tuple_in_a_set,
    "a wide tuple in a set": lambda: whole(called("builtins", "set", b"](" + WIDE + b"e")),
    "a wide tuple as a key": lambda: whole(
        b"}" + called("builtins", "tuple", b"](" + WIDE + b"e") + b"Ns"
    ),
    "a wide fact": lambda: whole(called("pytensor.assumptions.core", "FactState", WIDE)),
    "a wide assumption": lambda: whole(called("pytensor.assumptions.core", "AssumptionKey", WIDE)),
    "a wide dtype": lambda: whole(called("numpy", "dtype", WIDE) + b"(K\x03X\x01\0\0\0<NNNtb"),
    "a wide bit generator": lambda: whole(
        called("numpy.random._pickle", "__bit_generator_ctor", WIDE)
    ),
    "an array of a wide class": lambda: whole(
        called("numpy._core.multiarray", "_reconstruct", WIDE, b"K\x00\x85", b"C\x01b")
    ),
    "wide notes": lambda: tables(notes=wide),
    "a wide schema": lambda: tables(schema=wide),
    "a schema of many digits": lambda: tables(schema=10**6000),
    "wide versions": lambda: tables(versions={"pytensor": wide}),
    "wide output names": lambda: tables(output_names=(wide,)),
    "a wide output": lambda: tables(outputs=[wide]),
    "a wide constant": forged("constants", lambda c: [(c[0][0], wide, None), *c[1:]]),
    "a loop with a state of two taps": lambda: loop_of(sit_sot_in_slices=((-2, -1),)),
    "a loop that reads what is to come": lambda: loop_of(sit_sot_in_slices=((1,),)),
    "an array of objects": lambda: pickle.dumps([Array((1,), "O", [object])]),
    "an array with too much data": lambda: pickle.dumps([Array((1,), data=bytes(800))]),
    "an array with data that is a text": lambda: pickle.dumps([Array((1,), data="12345678")]),
}
"""Each is refused by every command, in one line."""

"""Small files of much: opcodes, copies of one argument, keys that are hashed again and again."""

from __future__ import annotations

import gzip
import pickle
import struct
from collections.abc import Callable

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.executor import Function
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.reshape import SplitDims
from pytensor.xtensor.type import XTensorType

from scanopt_cli.serialization.payload import encode
from support.graph_building import graph_of
from support.hostile.files import forged, tables
from support.hostile.running import dumps, named, whole, with_op

DROP = b"\x940"  # into the memo, off the stack
MEGABYTES = 4 << 20


def kept(body: bytes) -> bytes:
    """Return the opcodes of something that is only put into the memo."""
    return body + DROP


def again(place: int, *places: int) -> bytes:
    """Return the opcodes that call memo entry ``place`` with others as arguments."""
    return bytes([0x68, place]) + b"(" + b"".join(bytes([0x68, p]) for p in places) + b"tR"


def shared_by_calls(module: str, name: str, *args: bytes, calls: int) -> bytes:
    """Return a list of calls that have all their arguments in common."""
    parts = kept(named(module, name)) + b"".join(map(kept, args))
    call = again(0, *range(1, len(args) + 1))
    return whole(parts + b"](" + call * calls + b"e")


def long_bytes() -> bytes:
    return b"\x8e" + struct.pack("<Q", MEGABYTES) + bytes(MEGABYTES)


def arrays_of_one_buffer() -> bytes:
    dtype = named("numpy", "dtype") + b"X\x02\0\0\0u1\x89\x88\x87R"
    shape, order = b"J" + struct.pack("<i", MEGABYTES) + b"\x85", b"X\x01\0\0\0C"
    return shared_by_calls(
        "numpy._core.numeric", "_frombuffer", long_bytes(), dtype, shape, order, calls=1_500
    )


def texts_encoded_again() -> bytes:
    letters = b"X" + struct.pack("<I", MEGABYTES) + b"a" * MEGABYTES
    return shared_by_calls("_codecs", "encode", letters, b"X\x06\0\0\0latin1", calls=2_000)


def keys_of_one_list() -> bytes:
    parts = kept(named("builtins", "tuple")) + kept(b"](" + b"N" * 1_000 + b"e")
    parts += kept(b"h\x00h\x01\x85R") + kept(b"](" + b"h\x02" * 900 + b"e")
    return whole(parts + b"}(" + b"h\x00h\x03\x85RN" * 20_000 + b"u")


def constants_of_one_list() -> bytes:
    kind = pt.TensorType("float64", shape=(None, None))
    row = [0.0] * 1_000
    constants = []
    for _ in range(200):
        constant = kind.make_constant([[0.0]])
        constant.data = [row] * 1_000
        constants.append(constant)
    return pickle.dumps(constants)


def long_text() -> bytes:
    """Text of one letter a byte, but for one that needs four: so do all in memory."""
    letters = b"a" * (64 << 20) + "\U0001f600".encode()
    return gzip.compress(b"\x80\x04X" + struct.pack("<I", len(letters)) + letters + b".", 1)


def long_lines() -> bytes:
    return gzip.compress(b"V" + b"a" * (64 << 20) + b"\n.", 1)


def long_number() -> bytes:
    return gzip.compress(b"\x80\x04\x8b" + struct.pack("<i", 64 << 20) + bytes(64 << 20) + b".", 1)


def long_name() -> bytes:
    x = pt.dvector("x" * 20_000)
    return pickle.dumps(encode(graph_of(x + 1), keep_traces=False))


def long_name_in_a_pickle() -> bytes:
    return pickle.dumps([pt.dvector("x" * 20_000) + 1])


def many_notes() -> bytes:
    written = encode(graph_of(pt.dvector("x") + 1), keep_traces=False)
    return pickle.dumps(written | {"notes": ("one",) * 10_000})


def shape_of_many_dimensions() -> bytes:
    """An Op that decides by the length of a constant."""
    shape = pt.constant(np.ones(3_000_000, dtype="int64"))
    node = Apply(SplitDims(axis=0), [pt.dvector(), shape], [pt.dmatrix()])
    return gzip.compress(pickle.dumps(encode(graph_of(node.outputs[0]), keep_traces=False)), 1)


def many_inputs() -> bytes:
    x = pt.dscalar("x")
    written = encode(graph_of(x + x), keep_traces=False)
    ((op, _, targets),) = written["nodes"]
    count = 12_000
    changed = {"inputs": written["inputs"] * count, "outputs": [count]}
    nodes = [(op, tuple(range(count)), targets)]
    return pickle.dumps(written | changed | {"nodes": nodes})


def a_length_of_many_digits() -> bytes:
    kind = pt.TensorType("float64", shape=(3,))
    kind.shape = (10**5_000,)
    return with_op(Elemwise(ps.sin), kind.make_variable("h"))


def nodes_in_a_row() -> bytes:
    """A node takes few bytes."""
    x = pt.dscalar("x")
    written = encode(graph_of(pt.sin(x)), keep_traces=False)
    ((op, _, targets),) = written["nodes"]
    nodes = [(op, (place,), targets) for place in range(150_000)]
    return gzip.compress(pickle.dumps(written | {"nodes": nodes, "outputs": [len(nodes)]}), 1)


def axes_of_a_large_array() -> bytes:
    kind = XTensorType("float64", dims=tuple(f"d{i}" for i in range(5_000)))
    return dumps([kind.make_variable("x")])


def nested(depth: int) -> Function:
    """A compiled Function whose graphs each hold the one before twice."""
    x = pt.dscalar("x")
    op = OpFromGraph([x], [pt.sin(x)])
    for _ in range(depth):
        op = OpFromGraph([x], [op(op(x))])
    function = pytensor.function([x], [pt.sin(x)], mode=Mode("py", None))
    function.maker.fgraph = FunctionGraph([x], [op(x)], clone=False)
    return function


SIZES: dict[str, Callable[[], bytes]] = {
    "opcodes without end": lambda: gzip.compress(b"\x80\x04" + b"N0" * (20 << 20) + b"N."),
    "sets without end": lambda: b"\x80\x04" + b"\x8f" * MEGABYTES + b"N.",
    "items one by one": lambda: whole(named("builtins", "list") + b")R" + b"Na" * 100_000),
    "entries one by one": lambda: whole(named("builtins", "dict") + b")R" + b"NNs" * 100_000),
    "calls one by one": lambda: whole(
        kept(named("builtins", "list")) + b"h\x00)R\x94" + b"h\x00h\x01\x85R0" * 100_000
    ),
    "one key set again": lambda: whole(
        kept(b"(" + b"N" * 4_000 + b"t") + b"}(" + b"h\x00N" * 100_000 + b"u"
    ),
    "arrays of one buffer": arrays_of_one_buffer,
    "arrays of one buffer, zipped": lambda: gzip.compress(arrays_of_one_buffer()),
    "texts encoded again": texts_encoded_again,
    "lists of bytes": lambda: shared_by_calls("builtins", "list", long_bytes(), calls=300),
    "lists of one list": lambda: shared_by_calls(
        "builtins", "list", b"](" + b"N" * 500_000 + b"e", calls=1_000
    ),
    "keys of one list": keys_of_one_list,
    "constants of one list": constants_of_one_list,
    "parts that no graph has": lambda: tables(pad=[None] * 10),
    "one trace for all": forged(
        "traces", lambda _: dict.fromkeys(((i, 0) for i in range(400)), [[]] * 200_000)
    ),
    "many inputs": many_inputs,
    "a long text": long_text,
    "long lines": long_lines,
    "a long number": long_number,
    "a long name": long_name,
    "a long name in a pickle": long_name_in_a_pickle,
    "many notes": many_notes,
    "a shape of many dimensions": shape_of_many_dimensions,
    "many frozen sets": lambda: b"\x80\x04(" + b"(\x91" * 900_000 + b"t.",
    "many sets": lambda: b"\x80\x04(" + b"\x8f" * 1_900_000 + b"t.",
    "a length of many digits": a_length_of_many_digits,
    "nodes in a row": nodes_in_a_row,
    "axes of a large array": axes_of_a_large_array,
    "nested graphs of a compiled Function": lambda: dumps(nested(40)),
}
"""Each is refused by every command, in one line, in seconds."""

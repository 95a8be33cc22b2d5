"""Small files in which one large object occurs many times, which pickle writes once."""

from __future__ import annotations

import gzip
import pickle
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.ops import deep_copy_op
from pytensor.graph.basic import Constant, NominalVariable, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.link.c.type import generic
from pytensor.scan.op import ScanInfo
from pytensor.tensor.type_other import SliceConstant, slicetype
from pytensor.typed_list.type import TypedListType

from support.hostile.files import tables

TEXT = "A" * (1 << 20)
TEXTS = (TEXT,) * 4_000
FRAMES = [("file.py", 1, "f", "x = 1")] * 200_000


def holding(data: object) -> bytes:
    """Return a graph with a constant that holds ``data``, whatever its type says."""
    constant = pt.constant(np.zeros(2))
    constant.data = data  # type: ignore[misc]
    return pickle.dumps([pt.as_tensor_variable(constant) + 1])


def of_typed_list() -> bytes:
    array = np.zeros(1 << 17)
    kind = TypedListType(pt.dvector)
    return pickle.dumps([deep_copy_op(kind.make_constant([array] * 3_000))])


def of_slice() -> bytes:
    constant = SliceConstant(slicetype, slice(1, 2))
    constant.data = slice(TEXTS, TEXTS)  # type: ignore[misc]
    return pickle.dumps([deep_copy_op(constant)])


def options_of_many_ops() -> bytes:
    x = pt.dscalar("x")
    options = {"on_unused_input": tuple(range(99_000))}
    outputs = []
    for i in range(200):
        op = OpFromGraph([x], [pt.sin(x)], name=f"op_{i}")
        op.kwargs = options
        outputs.append(op(x))
    return pickle.dumps(outputs)


def long_names_in_a_table() -> bytes:
    names = "\u8a9e" * 5_000
    return pickle.dumps([pt.add(*(pt.dscalar(names) for _ in range(30)))])


def of_traces(*traces: Any) -> bytes:
    outputs: list[Variable] = []
    for trace in traces:
        outputs.append(pt.sin(pt.dscalar("x")))
        outputs[-1].tag.trace = trace
    return pickle.dumps(outputs)


def chain(length: int) -> tuple[Variable, Variable]:
    x = output = pt.dscalar("x")
    for _ in range(length):
        output = pt.sin(output)
    return x, output


def many_ops_of_one_body() -> bytes:
    x, inner = chain(2_000)
    op = OpFromGraph([x], [inner])
    outputs = []
    for i in range(400):
        another = copy(op)
        another.name = f"op_{i}"
        outputs.append(another(x))
    return pickle.dumps(outputs)


def many_graphs_of_the_same_nodes() -> bytes:
    x, output = chain(700)
    return pickle.dumps([FunctionGraph([x], [output], clone=False) for _ in range(400)])


def many_loops_of_the_same_taps() -> bytes:
    taps = tuple(range(-1_000, 0))
    info = ScanInfo(0, ((0,),) * 3, ((1,),) * 3, (taps,) * 300, (), 0, 0, 0, False)
    return pickle.dumps([replace(info, n_seqs=i) for i in range(100)])


def many_constants_of_one_array() -> bytes:
    array = np.zeros(2 << 20, dtype="int8")
    outputs = []
    for _ in range(100):
        constant = pt.constant(np.zeros(2), dtype="complex128")
        constant.data = array  # type: ignore[misc]
        outputs.append(constant * 2)
    return pickle.dumps(outputs)


def colliding() -> list[int]:
    """Return numbers that Python gives one hash."""
    return [k * (2**61 - 1) for k in range(100_000)]


def constants_of_one_sum() -> bytes:
    x = pt.dvector("x")
    total = x
    for k in range(2_000):
        total = total + pt.constant(np.array([k, -k]) * 1.0)
    op = OpFromGraph([x], [total])
    return pickle.dumps([op(x)])


SHARING: dict[str, Callable[[], bytes]] = {
    "an output called by texts": lambda: pickle.dumps({TEXTS: pt.dscalar() + 1}),
    "an output called by a long text": lambda: pickle.dumps({TEXT: pt.dscalar() + 1}),
    "texts in a constant": lambda: holding([TEXT, *[""] * 700]),
    "bytes in a constant": lambda: holding([TEXT.encode(), *[b""] * 700]),
    "texts in place of an Op": lambda: tables(ops=[list(TEXTS)]),
    "texts in a slice": of_slice,
    "one array in a list": of_typed_list,
    "options of many Ops": options_of_many_ops,
    "long names in a table": long_names_in_a_table,
    "many Ops of one body": many_ops_of_one_body,
    "many graphs of the same nodes": many_graphs_of_the_same_nodes,
    "many loops of the same taps": many_loops_of_the_same_taps,
    "many constants of one array": many_constants_of_one_array,
    "an inner input outside": lambda: pickle.dumps([deep_copy_op(NominalVariable(0, pt.dscalar))]),
    "keys of one hash": lambda: pickle.dumps(dict.fromkeys(colliding()[:3_000])),
    "members of one hash": lambda: pickle.dumps(set(colliding()[:3_000])),
    "constants of one sum": constants_of_one_sum,
    "many outputs": lambda: pickle.dumps([pt.dscalar() + 1] * 200_000),
    "inner inputs of one hash": lambda: pickle.dumps(
        [NominalVariable(place, pt.dscalar) for place in colliding()[:2]]
    ),
    "many gzip files in one": lambda: gzip.compress(b"") * 100_000,
    "a number of many digits": lambda: pickle.dumps([deep_copy_op(Constant(generic, 10**5_000))]),
}
"""Each is refused by every command, in one line, in seconds."""

TRACED: dict[str, Callable[[], bytes]] = {
    "one stack in a trace": lambda: of_traces([FRAMES] * 2_000),
    "one stack in many traces": lambda: of_traces(*([FRAMES] for _ in range(500))),
    "one frame in a stack": lambda: of_traces([[FRAMES[0]] * 40] * 2_000),
}
"""These load, without the traces that nobody would read."""

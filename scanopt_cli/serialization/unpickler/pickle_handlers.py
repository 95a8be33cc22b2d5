"""Handlers of the globals that are admitted by exact name, one for each kind of object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from pytensor.assumptions.core import KEY_REGISTRY, FactState
from pytensor.graph.basic import FrozenApply, NominalVariable, Variable
from pytensor.graph.fg import FrozenFunctionGraph, FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.type import Type
from pytensor.misc.frozendict import frozendict
from pytensor.scalar.basic import specific_out
from pytensor.scan.op import ScanInfo

from scanopt_cli.ir.fast_graphs import graph_over
from scanopt_cli.ir.graph import check_counts
from scanopt_cli.serialization.compiled import CompiledGraph
from scanopt_cli.serialization.unpickler.allowlist import OBJECTS
from scanopt_cli.serialization.unpickler.arrays import (
    array_from,
    dtype_from,
    scalar_from,
    sparse_from,
)
from scanopt_cli.serialization.unpickler.builder import Builder
from scanopt_cli.serialization.unpickler.generators import BIT_GENERATORS, generator_from_state
from scanopt_cli.serialization.unpickler.inner_parts import (
    inner_graph,
    inner_input,
    inner_node,
    scan_info,
)
from scanopt_cli.serialization.unpickler.records import Call, Global, is_named

type Handler = Callable[[Builder, Call], Any]
type Key = tuple[str, str]


# plain values


def _getattr(_: Builder, record: Call) -> Any:
    holder, name = record.args
    if type(holder) is Global and type(name) is str:
        key = (holder.module, f"{holder.name}.{name}")
        if key in OBJECTS:
            return OBJECTS[key]
    raise ValueError("an attribute that no op needs")


def _encode(builder: Builder, record: Call) -> bytes:
    text, encoding = record.args
    if type(text) is not str or encoding != "latin1":
        raise ValueError("bytes that are not written as Latin-1 text")
    return bytes(builder.copied(text.encode("latin-1")))


def _container(kind: type[Any]) -> Handler:
    def form(builder: Builder, record: Call) -> Any:
        parts = builder.value(record.args[0]) if record.args else ()
        if not isinstance(parts, list | tuple):
            raise ValueError(f"not the members of a {kind.__name__}")
        if kind in (set, frozenset):
            for part in parts:
                builder.key(part)
        return kind(builder.copied(parts))

    return form


def _bytes(builder: Builder, record: Call) -> bytes:
    parts = builder.value(record.args[0]) if record.args else b""
    if not isinstance(parts, bytes):
        raise ValueError("not bytes")
    return parts


_IN_SLICES = (type(None), int, np.integer, Type, Variable)


def _slice(builder: Builder, record: Call) -> slice:
    parts = [builder.value(part) for part in record.args]
    if not all(isinstance(part, _IN_SLICES) for part in parts):
        raise ValueError("a slice of something else than numbers")
    return slice(*parts)


def _complex(builder: Builder, record: Call) -> complex:
    real, imaginary = (builder.expect(part, float) for part in record.args)
    return complex(real, imaginary)


def _frozendict(builder: Builder, record: Call) -> frozendict:
    return frozendict(builder.expect(builder.state(record)["_dict"], dict))


def _of_first(kind: type[Any], make: Callable[[Any], Any]) -> Handler:
    """Return the handler of what ``make`` makes of the first argument, which must be a ``kind``."""
    return lambda builder, record: make(builder.expect(record.args[0], kind))


# NumPy and SciPy


def _dtype(builder: Builder, record: Call) -> np.dtype[Any]:
    return dtype_from(record.args[0], builder.value(record.state))


def _reconstruct(builder: Builder, record: Call) -> np.ndarray[Any, Any]:
    if not is_named(record.args[0], "numpy.ndarray"):
        raise ValueError("an array of another class")
    _, shape, dtype, is_fortran, data = map(builder.value, record.state)
    return array_from(builder.copied(data), dtype, shape, "F" if is_fortran else "C")


def _frombuffer(builder: Builder, record: Call) -> np.ndarray[Any, Any]:
    data, dtype, shape, order, *_ = map(builder.value, record.args)
    return array_from(builder.copied(data), dtype, shape, order)


def _scalar(builder: Builder, record: Call) -> Any:
    return scalar_from(*map(builder.value, record.args))


def _bit_generator(builder: Builder, record: Call) -> dict[str, Any]:
    """A bit generator stands for its state; the seed that it came from is not kept."""
    (cls,) = record.args
    state = record.state[0] if type(record.state) is tuple else record.state
    name = getattr(cls, "name", cls)
    is_known = type(name) is str and name in BIT_GENERATORS
    if not is_known or (values := builder.value(state))["bit_generator"] != name:
        raise ValueError("not one of NumPy's bit generators")
    return dict(values)


def _sparse(kind: str) -> Handler:
    def form(builder: Builder, record: Call) -> Any:
        state = builder.state(record)
        data, indices, indptr = (
            builder.copied(builder.expect(state[name], np.ndarray))
            for name in ("data", "indices", "indptr")
        )
        return sparse_from(kind, data, indices, indptr, builder.value(state["_shape"]))

    return form


# PyTensor


def _specific_out(builder: Builder, record: Call) -> specific_out:
    return specific_out(*builder.expect_all(builder.state(record)["spec"], Type))


def _scan_info(builder: Builder, record: Call) -> ScanInfo:
    return scan_info({name: builder.value(part) for name, part in builder.state(record).items()})


def _nominal(builder: Builder, record: Call) -> NominalVariable:
    position, kind = record.args
    return inner_input(position, builder.expect(kind, Type))


def _frozen_apply(builder: Builder, record: Call) -> FrozenApply:
    op, inputs, types, *position = record.args
    given = builder.expect(op, Op), builder.expect_all(inputs, Variable)
    kinds = builder.expect_all(types, Type)
    return inner_node(*given, kinds, *position, uses=builder.uses, where=builder.where)


def _frozen_output(builder: Builder, record: Call) -> Any:
    node, index = record.args
    if type(index) is not int or index < 0:
        raise ValueError("the number of an output is not one")
    return builder.expect(node, FrozenApply).outputs[index]


def _frozen_graph(builder: Builder, record: Call) -> FrozenFunctionGraph:
    inputs, nodes, ends = record.args
    return inner_graph(
        builder.expect_all(inputs, NominalVariable),
        builder.expect_all(nodes, FrozenApply),
        builder.expect_all(ends, FrozenApply),
    )


def _function_graph(builder: Builder, record: Call) -> FunctionGraph:
    state = builder.state(record)
    inputs, outputs = (builder.expect_all(state[part], Variable) for part in ("inputs", "outputs"))
    check_counts(len(inputs), len(outputs))
    graph = graph_over(inputs, outputs)
    builder.uses.count_graph(graph)
    return graph


def _compiled(builder: Builder, record: Call) -> CompiledGraph:
    """Only the optimised graph and the contents of shared inputs; nothing that runs."""
    maker, storage, *_ = record.args
    state = builder.state(maker)
    values, updated = {}, []
    for position, (part, container) in enumerate(zip(state["inputs"], storage, strict=True)):
        spec = builder.state(part)
        (content,) = builder.state(container)["storage"]
        if spec["implicit"] is True:
            values[position] = builder.value(content)
        if spec["update"] is not None:
            updated.append(position)
    return CompiledGraph(builder.expect(state["fgraph"], FunctionGraph), values, tuple(updated))


CALLS: dict[Key, Handler] = {
    ("_codecs", "encode"): _encode,
    ("builtins", "bytearray"): _bytes,
    ("builtins", "complex"): _complex,
    ("builtins", "frozenset"): _container(frozenset),
    ("builtins", "getattr"): _getattr,
    ("builtins", "list"): _container(list),
    ("builtins", "set"): _container(set),
    ("builtins", "slice"): _slice,
    ("builtins", "tuple"): _container(tuple),
    ("numpy", "dtype"): _dtype,
    ("numpy.random._pickle", "__bit_generator_ctor"): _bit_generator,
    ("numpy.random._pickle", "__generator_ctor"): _of_first(dict, generator_from_state),
    # Only keys that are there: making one would register it and its rules.
    ("pytensor.assumptions.core", "AssumptionKey"): _of_first(str, KEY_REGISTRY.__getitem__),
    ("pytensor.assumptions.core", "FactState"): _of_first(int, FactState),
    ("pytensor.compile.executor", "_constructor_Function"): _compiled,
    ("pytensor.graph.basic", "FrozenApply"): _frozen_apply,
    ("pytensor.graph.basic", "NominalVariable"): _nominal,
    ("pytensor.graph.basic", "_get_frozen_output"): _frozen_output,
    ("pytensor.graph.fg", "FrozenFunctionGraph"): _frozen_graph,
}
"""Functions and classes that a pickle calls with arguments."""

for _core in ("numpy._core", "numpy.core"):
    CALLS[f"{_core}.multiarray", "_reconstruct"] = _reconstruct
    CALLS[f"{_core}.multiarray", "scalar"] = _scalar
    CALLS[f"{_core}.numeric", "_frombuffer"] = _frombuffer

INSTANCES: dict[Key, Handler] = {
    ("pytensor.graph.fg", "FunctionGraph"): _function_graph,
    ("pytensor.misc.frozendict", "frozendict"): _frozendict,
    ("pytensor.scalar.basic", "specific_out"): _specific_out,
    ("pytensor.scan.op", "ScanInfo"): _scan_info,
    ("scipy.sparse._csc", "csc_matrix"): _sparse("csc"),
    ("scipy.sparse._csr", "csr_matrix"): _sparse("csr"),
}
"""Classes that a pickle asks for an instance of, which gets its state afterwards."""

PARTS: frozenset[Key] = frozenset(
    {
        *(("copyreg", name) for name in ("_reconstructor", "__newobj__", "__newobj_ex__")),
        ("builtins", "object"),
        ("numpy", "ndarray"),
        ("numpy.random._mt19937", "MT19937"),
        ("numpy.random._pcg64", "PCG64"),
        ("numpy.random._pcg64", "PCG64DXSM"),
        ("numpy.random._philox", "Philox"),
        ("numpy.random._sfc64", "SFC64"),
        ("numpy.random.bit_generator", "SeedSequence"),
        ("numpy.random.bit_generator", "__pyx_unpickle_SeedSequence"),
        ("pytensor.compile.io", "In"),
        ("pytensor.compile.io", "SymbolicInput"),
        ("pytensor.compile.io", "SymbolicOutput"),
        ("pytensor.compile.maker", "FunctionMaker"),
        ("pytensor.compile.mode", "Mode"),
        ("pytensor.graph.utils", "Scratchpad"),
        ("pytensor.link.basic", "Container"),
    }
)
"""Globals that only occur as a part of one of the forms above."""

HANDLED = frozenset({*CALLS, *INSTANCES, *PARTS})

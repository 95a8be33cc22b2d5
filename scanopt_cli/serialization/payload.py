"""The file format of scanopt: flat tables, so that neither writing nor reading recurses.

Variables are numbered: inputs first, then constants, then the outputs of each node in topological
order. Inputs with contents in ``values`` are shared variables. A node is
``(op, inputs, outputs)``, where ``op`` is a position in the table of ops,
``inputs`` are variable numbers and ``outputs`` are ``(type, name)`` pairs with ``type`` a position
in the table of types. Bodies of Scans and other inner graphs stay inside their ops, frozen.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pytensor
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.scalar.basic import ScalarType
from pytensor.scalar.sharedvar import ScalarSharedVariable

from scanopt_cli.errors import LoadError
from scanopt_cli.ir.call_traces import written_in
from scanopt_cli.ir.fast_graphs import graph_over
from scanopt_cli.ir.graph import Graph, check_counts
from scanopt_cli.ir.interning import beyond_equality, is_sparse
from scanopt_cli.ir.scan_view import is_loop
from scanopt_cli.ir.written import marked, written
from scanopt_cli.serialization.written_loops import entries, mark_loops
from scanopt_cli.version import __version__

FORMAT = "scanopt-graph"
SCHEMA = 1

_KEYS = frozenset(
    {
        *("format", "schema", "versions", "inputs", "constants", "types", "ops", "nodes"),
        *("outputs", "output_names", "values", "recorded", "notes", "traces", "written"),
    }
)
_MOST_EDGES = 2_000_000
MOST_VARIABLES = 500_000
"""How many constants and results a graph may have outside of inner graphs."""
_MOST_LETTERS, _SHOWN_LETTERS = 1_000, 20
_MOST_NOTES = 100
_MOST_STACKS, _MOST_FRAMES = 20, 50
_VALUES = (bool, int, float, complex, np.generic, np.ndarray, np.random.Generator, list, tuple)


class _Table:
    """Distinct objects in the order of their first use."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self._positions: dict[Any, int] = {}

    def position(self, thing: Any, *more: Any) -> int:
        """Return the row of ``thing``; equal things that differ in ``more`` have two rows."""
        key = (thing, *more)
        if key not in self._positions:
            self._positions[key] = len(self.rows)
            self.rows.append(thing)
        return self._positions[key]


def encode(graph: Graph, *, keep_traces: bool, cut_names: bool = False) -> dict[str, Any]:
    """Return ``graph`` as tables of ops, types and plain values. The graph is not changed.

    Names that `decode` refuses are cut, if ``cut_names`` is true.
    """
    longest = _MOST_LETTERS if cut_names else None
    types, ops = _Table(), _Table()
    nodes = graph.fgraph.toposort()
    constants = _constants(graph.fgraph, nodes)
    numbers: dict[Variable, int] = {}
    for variable in (*graph.fgraph.inputs, *constants):
        numbers[variable] = len(numbers)
    rows, traces = [], {}
    for position, node in enumerate(nodes):
        outputs = tuple((_type(types, output), _name(output, longest)) for output in node.outputs)
        inputs = tuple(numbers[variable] for variable in node.inputs)
        place = written_in(node, graph.fgraph.clients) if is_loop(node) else None
        op = node.op if place in (None, written(node.op)) else marked(node.op, place)
        key = (getattr(op, "name", None), place, *beyond_equality(op))
        rows.append((ops.position(op, *key), inputs, outputs))
        for index, output in enumerate(node.outputs):
            numbers[output] = len(numbers)
            trace = plain_trace(getattr(output.tag, "trace", None))
            if keep_traces and trace:
                traces[position, index] = trace
    return {
        "format": FORMAT,
        "schema": SCHEMA,
        "versions": {
            "pytensor": pytensor.__version__,
            "numpy": np.__version__,
            "scanopt": __version__,
        },
        "inputs": [
            (_type(types, variable), _name(variable, longest)) for variable in graph.fgraph.inputs
        ],
        "constants": [
            (_type(types, constant), constant.data, _name(constant, longest))
            for constant in constants
        ],
        "types": types.rows,
        "ops": ops.rows,
        "nodes": rows,
        "outputs": [numbers[variable] for variable in graph.outputs],
        "output_names": tuple(graph.output_names),
        "values": graph.values,
        "recorded": tuple(graph.recorded),
        "notes": tuple(graph.notes),
        "traces": traces,
        "written": entries(ops.rows),
    }


def decode(payload: Mapping[str, Any], where: str) -> Graph:
    """Return the graph that `encode` wrote as ``payload``.

    Raises
    ------
    LoadError
        If the payload has another schema.
    Exception
        Of some kind, if it does not describe a graph; `interpret` says so.
    """
    schema = payload.get("schema")
    if schema != SCHEMA:
        number = schema if type(schema) is int and 0 <= schema < 1000 else "of no number"
        raise LoadError(
            f"written in schema {number} of the scanopt format, "
            f"this is scanopt {__version__} with schema {SCHEMA}",
            where=where,
            hint="use the scanopt that wrote it, or write it again",
        )
    if not payload.keys() <= _KEYS:
        raise ValueError("it has parts that no graph has")
    if sum(len(sources) for _, sources, _ in payload["nodes"]) > _MOST_EDGES:
        raise ValueError(f"its nodes have more than {_MOST_EDGES:,} inputs")
    types, ops, versions = payload["types"], payload["ops"], payload["versions"]
    check_counts(len(payload["inputs"]), len(payload["outputs"]))
    made = len(payload["constants"]) + sum(len(targets) for *_, targets in payload["nodes"])
    if made > MOST_VARIABLES:
        raise ValueError(f"it has more than {MOST_VARIABLES:,} constants and results")
    traces: dict[int, list[Any]] = {}
    contents = {_within(payload["inputs"], key): v for key, v in payload["values"].items()}
    inputs: list[Variable] = [
        shared_from(types[kind], _value(contents[position]), name)
        if position in contents
        else types[kind].make_variable(name=name_from(name))
        for position, (kind, name) in enumerate(payload["inputs"])
    ]
    variables = list(inputs)
    for kind, data, name in payload["constants"]:
        variables.append(constant_from(types[kind], data, name))
    for position, (op, sources, targets) in enumerate(payload["nodes"]):
        outputs = [types[kind].make_variable(name=name_from(name)) for kind, name in targets]
        for index, output in enumerate(outputs):
            set_trace(output, payload["traces"].get((position, index)), traces)
        if not isinstance(ops[op], Op):
            raise ValueError(f"a {type(ops[op]).__name__} is no Op")
        Apply(ops[op], [variables[_number(source)] for source in sources], outputs)
        variables.extend(outputs)
    outputs = [variables[_number(output)] for output in payload["outputs"]]
    mark_loops(ops, payload.get("written", ()))
    return Graph(
        fgraph=graph_over(inputs, outputs),
        source=where,
        recorded=tuple(
            tuple(_value(value) for _, value in zip(inputs, call, strict=True))
            for call in payload["recorded"]
        ),
        output_names=tuple(map(name_from, payload["output_names"])),
        notes=tuple(_texts(payload["notes"])),
        versions=dict(zip(_texts(versions), _texts(versions.values()), strict=True)),
    )


def plain_trace(trace: Any) -> tuple[tuple[tuple[Any, ...], ...], ...]:
    """Return ``trace``, a value of ``tag.trace``, as plain tuples; an empty tuple if it is none.

    PyTensor keeps a list of stacks, each a list of ``(file, line number, function, source line)``.
    Those of a trace that nobody would read are left out.
    """
    stacks = trace if isinstance(trace, list | tuple) else ()
    return tuple(
        tuple(map(tuple, stack))
        for stack in stacks[:_MOST_STACKS]
        if isinstance(stack, list | tuple)
        and len(stack) <= _MOST_FRAMES
        and all(map(_is_frame, stack))
    )


def set_trace(variable: Variable, trace: Any, known: dict[int, list[Any]]) -> None:
    """Give ``variable`` the trace from a file, if it is one; variables may share it.

    ``known`` holds those that were made, by the ``id`` of what they were made of.
    """
    if trace is None:
        return
    if id(trace) not in known:
        known[id(trace)] = [list(stack) for stack in plain_trace(trace)]
    if known[id(trace)]:
        variable.tag.trace = known[id(trace)]


def _is_frame(frame: Any) -> bool:
    if not isinstance(frame, list | tuple) or len(frame) != 4:
        return False
    file, line, function, source = frame
    texts = isinstance(file, str) and isinstance(function, str)
    return texts and isinstance(line, int) and isinstance(source, str | None)


def _constants(fgraph: FunctionGraph, nodes: list[Apply]) -> list[Constant]:
    read = (*(source for node in nodes for source in node.inputs), *fgraph.outputs)
    return list(dict.fromkeys(variable for variable in read if isinstance(variable, Constant)))


def _name(variable: Variable, longest: int | None) -> str | None:
    """Return the name of ``variable`` as plain text: NumPy has a text of its own."""
    return str(variable.name)[:longest] if isinstance(variable.name, str) else variable.name


def _type(types: _Table, variable: Variable) -> int:
    return types.position(variable.type, type(variable.type))


def _within(inputs: Sequence[Any], position: Any) -> int:
    if _number(position) >= len(inputs):
        raise ValueError(f"{position!r} is not the position of an input")
    return int(position)


def _number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("something else where the number of a variable belongs")
    return value


def _value(value: Any) -> Any:
    if not isinstance(value, _VALUES) and not is_sparse(value):
        raise ValueError(f"a {type(value).__name__} where the value of an input belongs")
    return value


def _texts(values: Collection[Any]) -> list[str]:
    if len(values) > _MOST_NOTES:
        raise ValueError("more notes than anybody reads")
    return [str(name_from(value)) for value in values]


def constant_from(kind: Any, data: Any, name: Any) -> Constant:
    """Return a constant of type ``kind``."""
    _check_content(kind, data, "a constant")
    made: Constant = kind.make_constant(data, name=name_from(name))
    return made


def shared_from(
    kind: Any, data: Any, name: Any, cls: type[SharedVariable] | None = None
) -> SharedVariable:
    """Return a shared variable of type ``kind``, of the class that PyTensor has for it."""
    _check_content(kind, data, "a shared variable")
    found = cls or _shared_class(kind)
    return found(kind, data, strict=False, name=name_from(name))


def _check_content(kind: Any, data: Any, what: str) -> None:
    if isinstance(data, list | tuple) and _has_text(data):
        # NumPy makes an array of texts of it, each as long as the longest.
        raise ValueError(f"{what} is a list that holds text")
    if isinstance(kind, ScalarType) and np.ndim(data):  # which PyTensor takes for a number
        raise ValueError(f"{what} is an array, though its type is that of a number")


def _shared_class(kind: Any) -> type[SharedVariable]:
    """Return the class of shared variables that have the methods of variables of type ``kind``."""
    if isinstance(kind, ScalarType):
        return ScalarSharedVariable
    pending: list[type[SharedVariable]] = [SharedVariable]
    while pending:
        cls = pending.pop(0)
        if issubclass(cls, kind.variable_type) and cls.__module__.startswith("pytensor."):
            return cls
        pending += cls.__subclasses__()
    return SharedVariable


def _has_text(data: list[Any] | tuple[Any, ...]) -> bool:
    return any(
        _has_text(part) if isinstance(part, list | tuple) else isinstance(part, str | bytes)
        for part in data
    )


def output_name(key: Any) -> str | None:
    """Return the name of an output, of a dictionary's key.

    Raises
    ------
    ValueError
        If it is no text, number or variable.
    """
    return name_from(str(key) if isinstance(key, int | Variable) else key)


def name_from(value: Any) -> str | None:
    """Return a name as a file gives it.

    Raises
    ------
    ValueError
        If it is no text, or so long that no table could show it.
    """
    if value is not None and type(value) is not str:
        raise ValueError("a name that is no text")
    if value is not None and len(value) > _MOST_LETTERS:
        shown = repr(value[:_SHOWN_LETTERS])[:-1]
        raise ValueError(f"the name {shown}…' has more than {_MOST_LETTERS:,} letters")
    return value

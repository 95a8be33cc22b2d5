"""A rewritten graph as a table, which is written for one process and read in another.

A row is a node: its Op, the numbers of the variables that it reads, and the types and names of its
outputs. Variables are numbered in order: the inputs, the constants, and the outputs of each row.
So a graph of any depth is written and read without recursion, and no node is checked or typed
again. The graph that is read takes the place of one that has not been rewritten yet, over the
inputs of that one. Values of constants that it has as well are not written.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.destroyhandler import DestroyHandler
from pytensor.graph.fg import FunctionGraph, Output

_PROTOCOL = 5
_CHECKED = "nan_guard_mode_check"
"""What the tag of memory that is not written yet says: NanGuardMode is not to look at it."""


def constants_of(fgraph: FunctionGraph) -> list[np.ndarray]:
    """Return the values of the constants that nodes of ``fgraph`` read, one for each time.

    One that is read twice may be one array here, and two equal ones in another process.
    """
    return [
        v.data
        for node in fgraph.toposort()
        for v in node.inputs
        if isinstance(v, Constant) and isinstance(v.data, np.ndarray)
    ]


def written(fgraph: FunctionGraph, known: Sequence[np.ndarray]) -> bytes:
    """Return the table of a rewritten graph.

    Parameters
    ----------
    fgraph
        The graph.
    known
        Values of constants that are not written, since whoever reads the table has them.

    Raises
    ------
    Exception
        Whatever pickling raises for an Op or a value that cannot be pickled.
    """
    numbers: dict[Variable, int] = {v: i for i, v in enumerate(fgraph.inputs)}
    nodes = fgraph.toposort()
    read = [v for node in nodes for v in node.inputs] + fgraph.outputs
    constants = [v for v in dict.fromkeys(read) if isinstance(v, Constant) and v not in numbers]
    for v in (*constants, *(v for node in nodes for v in node.outputs)):
        numbers[v] = len(numbers)
    table = (
        [(type(v), v.type, v.data, v.name) for v in constants],
        [
            (
                node.op,
                [numbers[v] for v in node.inputs],
                [(v.type, v.name, getattr(v.tag, _CHECKED, True)) for v in node.outputs],
            )
            for node in nodes
        ],
        [numbers[v] for v in fgraph.outputs],
        any(isinstance(feature, DestroyHandler) for feature in fgraph._features),
    )
    file = BytesIO()
    _Pickler(file, {id(data): i for i, data in enumerate(known)}).dump(table)
    return file.getvalue()


def read_into(fgraph: FunctionGraph, content: bytes, known: Sequence[np.ndarray]) -> None:
    """Let ``fgraph`` compute what the graph of a table does, from its own inputs."""
    table = _Unpickler(BytesIO(content), known).load()
    constants, rows, outputs, destroys = table
    variables: list[Variable] = list(fgraph.inputs)
    variables += [cls(kind, data, name=name) for cls, kind, data, name in constants]
    for op, inputs, declared in rows:
        made = [kind.make_variable(name) for kind, name, _ in declared]
        for variable, (_, _, is_checked) in zip(made, declared, strict=True):
            if not is_checked:
                setattr(variable.tag, _CHECKED, False)
        Apply(op, [variables[i] for i in inputs], made)
        variables += made
    found = [variables[number] for number in outputs]
    for old, new in zip(fgraph.outputs, found, strict=True):
        if not old.type.is_super(new.type):
            raise TypeError(f"a graph of {new.type} is no graph of {old.type}")
    for place, new in enumerate(found):
        clients = fgraph.clients[fgraph.outputs[place]]
        output = next(
            node for node, _ in clients if isinstance(node.op, Output) and node.op.idx == place
        )
        fgraph.change_node_input(output, 0, new, reason="scanopt", import_missing=True)
    if destroys:
        fgraph.attach_feature(DestroyHandler())


class _Pickler(pickle.Pickler):
    def __init__(self, file: BytesIO, known: Mapping[int, int]) -> None:
        super().__init__(file, _PROTOCOL)
        self._known = known

    def persistent_id(self, value: Any) -> int | None:
        return self._known.get(id(value)) if type(value) is np.ndarray else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: BytesIO, known: Sequence[np.ndarray]) -> None:
        super().__init__(file)
        self._known = known

    def persistent_load(self, number: int) -> np.ndarray:
        return self._known[number]

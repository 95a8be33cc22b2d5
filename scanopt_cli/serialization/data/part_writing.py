"""Writes Ops, Types and inner graphs as rows of one table, each behind those that it is made of."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from pytensor.graph.basic import Constant, FrozenApply, Variable
from pytensor.graph.fg import FrozenFunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.type import Type

from scanopt_cli.errors import NotDataError
from scanopt_cli.ir.written import written
from scanopt_cli.serialization.archives import npy
from scanopt_cli.serialization.data.encoding import Encoder
from scanopt_cli.serialization.data.names import name_of
from scanopt_cli.serialization.data.parameters import parameters
from scanopt_cli.serialization.unpickler.constructors import StateError


class PartWriter:
    """The table of parts of one file, and its arrays.

    Two Ops or Types that a file would hold in the same words are one row; so are inner graphs of
    the same nodes.
    """

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.arrays: list[bytes] = []
        self.encoder = Encoder(self._reference, self._keep)
        self._known: dict[int, tuple[Any, int]] = {}  # by id; entries keep the keys alive
        self._numbers: dict[Any, int] = {}
        self._array_numbers: dict[bytes, int] = {}
        self._keeps_apart = False

    def number(self, thing: Op | Type | FrozenFunctionGraph) -> int:
        """Return the row of ``thing``.

        Raises
        ------
        NotDataError
            If an Op, a Type or a value in it cannot be written as data.
        """
        if id(thing) not in self._known:
            self._known[id(thing)] = thing, self._row(thing)
        return self._known[id(thing)][1]

    def contents(self, value: Any) -> Any:
        """Return the form of the contents of a shared variable, whose arrays are its own."""
        self._keeps_apart = True
        try:
            return self.value(value, "the contents of a shared variable")
        finally:
            self._keeps_apart = False

    def value(self, value: Any, what: str) -> Any:
        """Return the form of a value, which ``what`` names; errors as of `number`."""
        try:
            return self.encoder.form(value)
        except (TypeError, ValueError) as error:
            raise NotDataError(f"{what} cannot be written as data: {error}") from None

    def _row(self, thing: Op | Type | FrozenFunctionGraph) -> int:
        if isinstance(thing, FrozenFunctionGraph):
            key: Any = thing
            if key not in self._numbers:
                row = self._graph(thing)
                return self._added(key, row)
            return self._numbers[key]
        if isinstance(thing, Type):
            key = type(thing), thing
            return self._numbers[key] if key in self._numbers else self._added(key, self._op(thing))
        row = self._op(thing)
        key = json.dumps(row), written(thing)
        return self._numbers[key] if key in self._numbers else self._added(key, row)

    def _added(self, key: Any, row: dict[str, Any]) -> int:
        self._numbers[key] = len(self.rows)
        self.rows.append(row)
        return self._numbers[key]

    def _op(self, thing: Op | Type) -> dict[str, Any]:
        cls = type(thing)
        try:
            if name_of(cls) is None:
                raise TypeError("its class is not one that the format knows")
            cls, given = parameters(thing)
            form = {name: self.encoder.form(value) for name, value in given.items()}
            return {"class": name_of(cls), "parameters": form}
        except (TypeError, ValueError, StateError) as error:
            what = "op" if isinstance(thing, Op) else "type"
            full = f"{cls.__module__}.{cls.__qualname__}"
            raise NotDataError(
                f"{what} {thing} ({full}) cannot be written as data: {error}"
            ) from None

    def _graph(self, graph: FrozenFunctionGraph) -> dict[str, Any]:
        numbers: dict[Variable, int] = {v: i for i, v in enumerate(graph.inputs)}
        nodes = graph.toposort()
        read = [v for node in (*nodes, *graph._output_nodes) for v in node.inputs]
        constants = list(dict.fromkeys(v for v in read if isinstance(v, Constant)))
        numbers |= {v: len(numbers) + i for i, v in enumerate(constants)}
        rows, count = [], len(numbers)
        for place, node in enumerate(nodes):
            rows.append(self._node(node, place, numbers))
            # A graph whose equal nodes are one may list it more than once.
            for output in node.outputs:
                numbers[output] = count
                count += 1
        return {
            "inputs": [self.number(v.type) for v in graph.inputs],
            "constants": [self.constant(v) for v in constants],
            "nodes": rows,
            "outputs": [numbers[v] for v in graph.outputs],
        }

    def _node(self, node: Any, place: int, numbers: dict[Variable, int]) -> list[Any]:
        row = [
            self.number(node.op),
            [numbers[v] for v in node.inputs],
            [self.number(v.type) for v in node.outputs],
        ]
        assert isinstance(node, FrozenApply)
        return row if node.topo_idx == place else [*row, node.topo_idx]

    def constant(self, constant: Constant) -> list[Any]:
        """Return the row of a constant: its type, its value, and its name if it has one."""
        name = constant.name
        form = self.value(constant.data, "a constant")
        row = [self.number(constant.type), form]
        return row if name is None else [*row, str(name)]

    def _reference(self, thing: Any) -> dict[str, int]:
        number = self.number(thing)
        kinds = ((Op, "op"), (Type, "type"), (FrozenFunctionGraph, "graph"))
        return {next(tag for kind, tag in kinds if isinstance(thing, kind)): number}

    def _keep(self, array: np.ndarray[Any, Any]) -> int:
        data = npy(array)
        if self._keeps_apart:
            self.arrays.append(data)
            return len(self.arrays) - 1
        if data not in self._array_numbers:
            self._array_numbers[data] = len(self.arrays)
            self.arrays.append(data)
        return self._array_numbers[data]

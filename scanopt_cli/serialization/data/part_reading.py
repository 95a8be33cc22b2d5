"""Reads Ops, Types and inner graphs from the rows of the table of parts, one behind the other."""

from __future__ import annotations

from typing import Any

from pytensor.graph.basic import FrozenApply, Variable
from pytensor.graph.fg import FrozenFunctionGraph, Output
from pytensor.graph.op import Op
from pytensor.graph.type import Type

from scanopt_cli.errors import LoadError, brief
from scanopt_cli.ir.graph import check_counts
from scanopt_cli.serialization.data.decoding import Arrays, Decoder
from scanopt_cli.serialization.data.names import class_of
from scanopt_cli.serialization.payload import constant_from
from scanopt_cli.serialization.unpickler.bounds import BODY_NODE, UseCounts
from scanopt_cli.serialization.unpickler.constructors import StateError
from scanopt_cli.serialization.unpickler.dropping import CACHES
from scanopt_cli.serialization.unpickler.inner_parts import inner_graph, inner_input, inner_node
from scanopt_cli.serialization.unpickler.op_state import rebuild, without_compilation

_DEEPEST = 100
"""How many parts may be made of each other in a row: an Op of a graph of an Op, and so on."""
_MOST_PARTS = 200_000
_MOST_INNER_NODES = 300_000
_MOST_INNER_VARIABLES = 500_000
"""How many nodes, and how many inputs, constants and results, all inner graphs may have: a row of a
few letters makes an object of a thousand bytes."""
_KINDS: dict[str, type[Any]] = {"op": Op, "type": Type, "graph": FrozenFunctionGraph}


def reason(error: Exception) -> str:
    """Return what is wrong; the class of an error is named unless it is that of this package."""
    return str(error)[:200] if type(error) is ValueError and str(error) else brief(error)


class PartReader:
    """The parts of one file; what refers to a part comes behind it."""

    def __init__(self, arrays: Arrays, where: str) -> None:
        self.parts: list[Any] = []
        self.decoder = Decoder(self._referred, arrays)
        self._where = where
        self._depths: list[int] = []
        self._depth = 0
        self._uses = UseCounts()

    def read(self, rows: Any) -> None:
        """Read all rows.

        Raises
        ------
        LoadError
            If a row is no Op, Type or inner graph; it names the row.
        ValueError
            If there are too many.
        """
        _check_sizes(rows)
        for number, row in enumerate(rows):
            self._depth = 0
            try:
                made = self._part(row)
                if self._depth >= _DEEPEST:
                    raise ValueError("it is nested too deeply")
            except StateError as error:
                name = str(row["class"])[:80]
                raise LoadError(f"parts[{number}] ({name}): {error}", where=self._where) from None
            except LoadError:
                raise
            except Exception as error:
                raise LoadError(f"parts[{number}]: {reason(error)}", where=self._where) from None
            self.parts.append(made)
            self._depths.append(self._depth + 1)

    def part(self, number: Any, kind: type[Any]) -> Any:
        """Return a part that has been read, by its number; `ValueError` if it is none of a kind."""
        if type(number) is not int or not 0 <= number < len(self.parts):
            raise ValueError(f"{str(number)[:20]} is not the number of a part before it")
        found = self.parts[number]
        if not isinstance(found, kind):
            raise ValueError(f"parts[{number}] is no {kind.__name__}")
        self._depth = max(self._depth, self._depths[number])
        return found

    def constant(self, row: Any) -> Any:
        """Return the constant of a row; an exception of some kind if it is none."""
        kind, form, *names = row
        name = None if not names else names[0]
        if len(names) > 1:
            raise ValueError("a constant with more than a type, a value and a name")
        given = self.decoder.value(form)
        made = constant_from(self.part(kind, Type), given, name)
        if getattr(made.data, "nbytes", 0) > getattr(given, "nbytes", 0) + BODY_NODE:
            raise ValueError("a constant whose value is not of its type")
        return made

    def _referred(self, tag: str, number: Any) -> Any:
        found = self.part(number, _KINDS[tag])
        if tag == "graph":
            self._uses.count_as(found, BODY_NODE * len(found.apply_nodes))
        return found

    def _part(self, row: Any) -> Any:
        if type(row) is not dict:
            raise ValueError("it is no table")
        if row.keys() == {"class", "parameters"}:
            return self._op(row["class"], row["parameters"])
        if row.keys() == {"inputs", "constants", "nodes", "outputs"}:
            return self._graph(row)
        raise ValueError("its keys are neither those of an Op or Type nor of a graph")

    def _op(self, name: Any, forms: Any) -> Any:
        cls = class_of(name)
        if type(forms) is not dict or forms.keys() & CACHES:
            raise ValueError("its parameters are no table of parameters")
        given = {parameter: self.decoder.value(form) for parameter, form in forms.items()}
        return rebuild(cls, without_compilation(cls, given))

    def _graph(self, row: dict[str, Any]) -> FrozenFunctionGraph:
        check_counts(len(row["inputs"]), len(row["outputs"]))
        inputs = tuple(
            inner_input(place, self.part(kind, Type)) for place, kind in enumerate(row["inputs"])
        )
        variables: list[Variable] = [*inputs, *map(self.constant, row["constants"])]
        nodes = []
        for place, (op, sources, kinds, *pinned) in enumerate(row["nodes"]):
            position = pinned[0] if pinned else place
            if len(pinned) > 1:
                raise ValueError(f"nodes[{place}] has more than four columns")
            types = tuple(self.part(kind, Type) for kind in kinds)
            nodes.append(self._node(self.part(op, Op), variables, sources, types, position))
            variables += nodes[-1].outputs
        ends = tuple(
            self._node(Output(i), variables, [source], (), -1)
            for i, source in enumerate(row["outputs"])
        )
        return inner_graph(inputs, tuple(nodes), ends)

    def _node(
        self, op: Op, known: list[Variable], sources: Any, types: tuple[Type, ...], position: Any
    ) -> FrozenApply:
        for source in sources:
            if type(source) is not int or not 0 <= source < len(known):
                raise ValueError(f"variable {str(source)[:20]} is not computed before it is read")
        inputs = tuple(known[source] for source in sources)
        return inner_node(op, inputs, types, position, uses=self._uses, where=self._where)


def _check_sizes(rows: Any) -> None:
    """Check how many objects the rows of the table of parts ask for, before any is made."""
    graphs = [row for row in rows if type(row) is dict and "nodes" in row]
    nodes = [node for graph in graphs for node in graph["nodes"]]
    variables = sum(len(graph["inputs"]) + len(graph["constants"]) for graph in graphs)
    variables += sum(len(kinds) for _, _, kinds, *_ in nodes)
    if len(rows) > _MOST_PARTS:
        raise ValueError(f"it has more than {_MOST_PARTS:,} Ops, Types and inner graphs")
    if len(nodes) > _MOST_INNER_NODES:
        raise ValueError(f"its inner graphs have more than {_MOST_INNER_NODES:,} nodes")
    if variables > _MOST_INNER_VARIABLES:
        raise ValueError(f"its inner graphs have more than {_MOST_INNER_VARIABLES:,} variables")

"""Match the inputs of two graphs, by position or by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.type import Type
from pytensor.tensor.type import TensorType

from scanopt_cli.errors import VerificationError
from scanopt_cli.ir.graph import Graph
from scanopt_cli.text import plural

# The position of one input in each graph; None where a graph does not have it.
type Place = tuple[int | None, int | None]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two graphs over corresponding inputs.

    Attributes
    ----------
    a, b
        The graphs; their inputs correspond by position, as their outputs do. A graph that lacked
        an input has no recorded calls.
    output_names
        A name for each output, or ``None``.
    remarks
        How the inputs correspond, if not by position.
    """

    a: Graph
    b: Graph
    output_names: tuple[str | None, ...]
    remarks: tuple[str, ...]


def matched(a: Graph, b: Graph) -> Pair:
    """Return two graphs over the same inputs.

    Shared variables correspond to themselves. Other inputs correspond by position if the graphs
    have equally many and their types fit. Otherwise they correspond by name, if every input has a
    unique name and the names of one graph are among
    those of the other. A graph gets the inputs that it lacks, and does not read them.
    The pair may hold the given graphs themselves: callers pass copies.

    Raises
    ------
    VerificationError
        If the inputs match in neither way, or the graphs differ in the number of outputs or in the
        names of an output's dimensions.
    """
    places = _places(a.fgraph.inputs, b.fgraph.inputs)
    if places is None or len(a.outputs) != len(b.outputs):
        raise VerificationError(
            f"the graphs have different signatures: {_signature(a)} against {_signature(b)}",
            hint="give both the same inputs and as many outputs",
        )
    for place, (left, right) in enumerate(zip(a.outputs, b.outputs, strict=True)):
        dims = [getattr(output.type, "dims", None) for output in (left, right)]
        if dims[0] != dims[1]:
            names = " against ".join("none" if d is None else ", ".join(d) for d in dims)
            raise VerificationError(f"output {place} has the dimensions {names}")
    columns = list(zip(*places, strict=True)) if places else [(), ()]
    return Pair(
        a=_over(a, columns[0], b, columns[1]),
        b=_over(b, columns[1], a, columns[0]),
        output_names=_output_names(a, b),
        remarks=_remarks(a, b, places),
    )


def _places(a: Sequence[Variable], b: Sequence[Variable]) -> list[Place] | None:
    same = _same_shared(a, b)
    rest_a = [x for x in range(len(a)) if x not in same]
    rest_b = [y for y in range(len(b)) if y not in same.values()]
    alone: list[Place] = []
    if same:
        # What only one graph reads needs no partner if the plain inputs are paired.
        plain_a = [x for x in rest_a if not isinstance(a[x], SharedVariable)]
        plain_b = [y for y in rest_b if not isinstance(b[y], SharedVariable)]
        if len(plain_a) == len(plain_b) and len(rest_a) != len(rest_b):
            alone += [(x, None) for x in rest_a if x not in plain_a]
            alone += [(None, y) for y in rest_b if y not in plain_b]
            rest_a, rest_b = plain_a, plain_b
    rest = _plain_places([a[x] for x in rest_a], [b[y] for y in rest_b])
    if rest is None:
        return None
    paired: list[Place] = [
        (None if x is None else rest_a[x], None if y is None else rest_b[y]) for x, y in rest
    ]
    every: list[Place] = [*same.items(), *paired, *alone]
    return sorted(every, key=lambda place: len(a) if place[0] is None else place[0])


def _plain_places(a: Sequence[Variable], b: Sequence[Variable]) -> list[Place] | None:
    if len(a) == len(b) and all(_fit(x.type, y.type) for x, y in zip(a, b, strict=True)):
        return [(position, position) for position in range(len(a))]
    in_a, in_b = _by_name(a), _by_name(b)
    if in_a is None or in_b is None or len({**in_a, **in_b}) > max(len(a), len(b)):
        return None
    places = [(in_a.get(name), in_b.get(name)) for name in {**in_a, **in_b}]
    shared = [(a[x], b[y]) for x, y in places if x is not None and y is not None]
    return places if all(_fit(x.type, y.type) for x, y in shared) else None


def _remarks(a: Graph, b: Graph, places: Sequence[Place]) -> tuple[str, ...]:
    """Describe a pairing by name and the inputs that one graph lacks; nothing if by position."""
    inputs, others = a.fgraph.inputs, b.fgraph.inputs
    same = _same_shared(inputs, others)
    both = [(x, y) for x, y in places if x is not None and y is not None]
    rest = [y for x, y in both if same.get(x) != y]
    if len(both) == len(places) and rest == sorted(rest):
        return ()
    only_a = [inputs[x].name or "?" for x, y in places if x is not None and y is None]
    only_b = [others[y].name or "?" for x, y in places if x is None and y is not None]
    lacks = [
        f"{which} graph alone has {', '.join(names)}"
        for which, names in (("the first", only_a), ("the second", only_b))
        if names
    ]
    return ("; ".join(["inputs are paired by name", *lacks]),)


def _same_shared(a: Sequence[Variable], b: Sequence[Variable]) -> dict[int | None, int]:
    """Return where the shared variables among ``a`` are among ``b``, by position."""
    in_b = {id(v.container): y for y, v in enumerate(b) if isinstance(v, SharedVariable)}
    return {
        x: in_b.pop(id(v.container))
        for x, v in enumerate(a)
        if isinstance(v, SharedVariable) and id(v.container) in in_b
    }


def _by_name(inputs: Sequence[Variable]) -> dict[str, int] | None:
    names = {
        str(variable.name): position
        for position, variable in enumerate(inputs)
        if variable.name is not None
    }
    return names if len(names) == len(inputs) else None


def _fit(a: Type, b: Type) -> bool:
    """Whether some value is valid for both types."""
    if not (isinstance(a, TensorType) and isinstance(b, TensorType)):
        return bool(a == b)
    return (
        a.dtype == b.dtype
        and a.ndim == b.ndim
        and all(x is None or y is None or x == y for x, y in zip(a.shape, b.shape, strict=True))
    )


def _over(
    graph: Graph,
    own: Sequence[int | None],
    other: Graph,
    others: Sequence[int | None],
) -> Graph:
    """Return ``graph`` over all inputs of the pair; it does not read those that it lacked."""
    here, there = graph.fgraph.inputs, other.fgraph.inputs
    if list(own) == list(range(len(here))):
        return graph
    inputs = [
        here[position] if position is not None else _like(there[counterpart or 0])
        for position, counterpart in zip(own, others, strict=True)
    ]
    positions = {place: position for place, position in enumerate(own) if position is not None}
    calls = graph.recorded if len(positions) == len(own) else ()
    return replace(
        graph,
        fgraph=FunctionGraph(inputs, graph.outputs, clone=False),
        recorded=tuple(tuple(call[p] for p in positions.values()) for call in calls),
    )


def _like(variable: Variable) -> Variable:
    made: Variable = variable.type(name=variable.name)
    return made


def _output_names(a: Graph, b: Graph) -> tuple[str | None, ...]:
    def name(position: int) -> str | None:
        for graph in (a, b):
            given = graph.output_names[position] if graph.output_names else None
            found = given or graph.outputs[position].name
            if found is not None:
                return str(found)
        return None

    return tuple(name(position) for position in range(len(a.outputs)))


def _signature(graph: Graph) -> str:
    inputs = ", ".join(
        f"{variable.name or '?'}: {variable.type}" for variable in graph.fgraph.inputs
    )
    return f"({inputs}) -> {plural(len(graph.outputs), 'output')}"

"""`Graph`: a FunctionGraph, with what its file says about it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, cast

from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import AtomicVariable, Constant, Variable, clone_get_equiv
from pytensor.graph.fg import FrozenFunctionGraph, FunctionGraph
from pytensor.graph.traversal import graph_inputs, io_toposort

from scanopt_cli.errors import ScanoptError
from scanopt_cli.ir.fast_graphs import graph_over
from scanopt_cli.presentation import Presented
from scanopt_cli.text import few

_MOST_INPUTS = 5_000
_MOST_OUTPUTS = 100_000
_MOST_LISTED = 10


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Graph(Presented):
    """A graph with distinct inputs, and its origin.

    Shared variables stay what they are: ``pytensor.function(graph.inputs, graph.outputs)`` reads
    and updates them.

    Attributes
    ----------
    fgraph
        The graph itself. Shared variables are among its inputs, as in any FunctionGraph.
    source
        The name of this graph in messages: the path it was read from, or ``<memory>``.
    recorded
        Argument tuples of recorded calls, each aligned with the inputs of ``fgraph``.
    output_names
        A name for each output where the file gave one (the keys of a dict of outputs).
    notes
        Remarks on how the graph was obtained, one sentence each.
    versions
        Versions of ``pytensor``, ``numpy`` and ``scanopt`` that wrote the file, where known.
    """

    fgraph: FunctionGraph
    source: str = "<memory>"
    recorded: tuple[tuple[Any, ...], ...] = ()
    output_names: tuple[str | None, ...] = ()
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def inputs(self) -> list[Variable]:
        """The graph's inputs, in order; shared variables are none."""
        return [v for v in self.fgraph.inputs if not isinstance(v, SharedVariable)]

    @property
    def shared(self) -> list[SharedVariable]:
        """The shared variables that the graph reads, or that it read once."""
        return [v for v in self.fgraph.inputs if isinstance(v, SharedVariable)]

    @property
    def values(self) -> dict[int, Any]:
        """Present contents of shared variables, by their position among the inputs of ``fgraph``.

        They are the contents themselves, not copies.
        """
        return {
            position: variable.get_value(borrow=True)
            for position, variable in enumerate(self.fgraph.inputs)
            if isinstance(variable, SharedVariable)
        }

    @property
    def outputs(self) -> list[Variable]:
        """The graph's outputs, in order."""
        return self.fgraph.outputs

    def copy(self) -> Graph:
        """Return a copy with nodes of its own, over the same inputs and shared variables."""
        return replace(self, fgraph=copy_nodes(self.fgraph))


type GraphObject = (
    Graph | FunctionGraph | FrozenFunctionGraph | tuple[Sequence[Variable], Sequence[Variable]]
)
"""The forms that a graph in memory has."""

type GraphLike = GraphObject | str | os.PathLike[str]
"""The forms in which every function of the library takes a graph: a path is that of its file."""


def copy_nodes(fgraph: FunctionGraph, memo: dict[Any, Any] | None = None) -> FunctionGraph:
    """Return a graph with nodes of its own over the inputs of ``fgraph``.

    ``memo`` gets the copy of each node and variable.
    """
    memo = {} if memo is None else memo
    memo |= {variable: variable for variable in fgraph.inputs}
    for node in fgraph.toposort():
        outputs = [type(v)(type=v.type, owner=None, index=None, name=v.name) for v in node.outputs]
        copy = type(node)(node.op, [memo.setdefault(v, v) for v in node.inputs], outputs)
        pairs: list[tuple[Any, Any]] = [(node, copy), *zip(node.outputs, outputs, strict=True)]
        for old, new in pairs:
            memo[old] = new
            new.tag.__dict__.update(old.tag.__dict__)
    outputs = [memo.setdefault(output, output) for output in fgraph.outputs]
    return graph_over(fgraph.inputs, outputs)


def replace_outputs(fgraph: FunctionGraph, form: FunctionGraph) -> None:
    """Replace the outputs of ``fgraph`` by those of ``form``, a graph over the same inputs."""
    for old, new in zip(fgraph.outputs, form.outputs, strict=True):
        if old is not new:
            fgraph.replace(old, new)


def substituted(
    outputs: Sequence[Variable],
    replacements: Mapping[Variable, Variable],
    *,
    copies_all: bool = True,
) -> list[Variable]:
    """Return copies of ``outputs``, computed from the values of ``replacements``, not its keys.

    Unlike `clone_replace`, this does not copy what those values, loops among them, are made of.
    Without ``copies_all``, what depends on no key is not copied; `graph_replace` may compute it
    twice.
    """
    known = dict(replacements)
    for node in io_toposort(list(replacements), outputs):
        inputs = [known.get(variable, variable) for variable in node.inputs]
        if not copies_all and all(new is old for new, old in zip(inputs, node.inputs, strict=True)):
            continue
        copy = node.clone_with_new_inputs(inputs, strict=False)
        known.update(zip(node.outputs, copy.outputs, strict=True))
    return [known.get(output, output) for output in outputs]


def as_graph(graph: GraphLike, *, source: str = "<memory>") -> Graph:
    """Return ``graph`` as a `Graph` over its own copy of the nodes; a path is loaded.

    Raises
    ------
    ScanoptError
        If ``graph`` is none of the accepted forms, its outputs need inputs that it lacks, or its
        file cannot be loaded.
    """
    graph = loaded_graph(graph)
    if isinstance(graph, Graph):
        return graph.copy()
    if isinstance(graph, FrozenFunctionGraph):
        return Graph(fgraph=graph.unfreeze(), source=source)
    if isinstance(graph, FunctionGraph):
        return from_io(graph.inputs, graph.outputs, source=source)
    if isinstance(graph, tuple) and len(graph) == 2:
        inputs, outputs = (_variables(part, source) for part in graph)
        return from_io(inputs, outputs, source=source)
    raise ScanoptError(
        f"expected a graph, got {type(graph).__name__}",
        where=source,
        hint="give what so.load returns, the path of a file, a FunctionGraph or an (inputs, "
        "outputs) pair",
    )


def loaded_graph(graph: GraphLike) -> GraphObject:
    """Return what was given as a graph; of a path, what `scanopt_cli.load` makes of the file.

    Raises
    ------
    LoadError
        If the file cannot be loaded.
    """
    if not isinstance(graph, str | os.PathLike):
        return graph
    # By name: reading files is left to packages that build on this one.
    load = import_module("scanopt_cli.serialization.loading").load
    return cast(Graph, load(graph))


def from_io(
    inputs: Sequence[Variable] | None, outputs: Sequence[Variable], *, source: str = "<memory>"
) -> Graph:
    """Build a `Graph` from variables; with ``inputs=None``, from all roots of the outputs.

    The graph has nodes of its own, over the caller's inputs and shared variables. (So default
    updates of shared variables, which the caller's inputs may be part of, hold for it as well.)
    Shared variables that ``inputs`` do not list come last, in the order of a traversal.
    """
    roots = [
        variable
        for variable in graph_inputs(outputs, blockers=inputs)
        if not isinstance(variable, AtomicVariable) and variable.owner is None
    ]
    shared = [root for root in roots if isinstance(root, SharedVariable)]
    if inputs is None:
        inputs = [root for root in roots if not isinstance(root, SharedVariable)]
    given = [variable for variable in inputs if not isinstance(variable, Constant)]
    check_counts(len(given) + len(shared), len(outputs))
    known = set(given)
    listed = known.union(shared)
    missing = [root for root in roots if root not in listed]
    if missing:
        names = ", ".join(str(variable) for variable in missing[:3])
        raise ScanoptError(
            f"the outputs depend on {names}, which the inputs do not list",
            where=source,
            hint="list every input, or give the outputs alone",
        )
    every = given + [variable for variable in shared if variable not in known]
    memo: dict[Any, Any] = {variable: _as_input(variable) for variable in every}
    roots = [memo[variable] for variable in every]
    clone_get_equiv(every, outputs, copy_orphans=False, memo=memo)
    fgraph = graph_over(roots, [memo[output] for output in outputs])
    return Graph(fgraph=fgraph, source=source)


def _as_input(variable: Variable) -> Variable:
    """Return ``variable``, or another one in place of what something computes."""
    if variable.owner is None and not isinstance(variable, AtomicVariable):
        return variable
    made: Variable = variable.type(name=variable.name)
    return made


def listed_names(variables: Sequence[Variable]) -> str:
    """Return the names of a few of ``variables``, and how many more there are."""
    return few([str(v.name or f"one of type {v.type}") for v in variables], _MOST_LISTED)


def check_counts(n_inputs: int, n_outputs: int) -> None:
    """Refuse a graph with so many inputs or outputs that PyTensor takes minutes to go through them.

    Raises
    ------
    ScanoptError
        If there are more than 5,000 inputs or 100,000 outputs.
    """
    for count, most, what in (
        (n_inputs, _MOST_INPUTS, "inputs"),
        (n_outputs, _MOST_OUTPUTS, "outputs"),
    ):
        if count > most:
            raise ScanoptError(
                f"has more than {most:,} {what}", hint="join those that are alike in one array"
            )


def _variables(part: object, source: str) -> list[Variable]:
    variables: list[Any] = list(part) if isinstance(part, list | tuple) else [part]
    for variable in variables:
        if not isinstance(variable, Variable):
            raise ScanoptError(
                f"expected a Variable in an (inputs, outputs) pair, got {type(variable).__name__}",
                where=source,
            )
    return variables

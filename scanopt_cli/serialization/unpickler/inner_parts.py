"""The parts of inner graphs, from the parts that a file gives them, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytensor.graph.basic import Constant, FrozenApply, NominalVariable, Variable
from pytensor.graph.fg import FrozenFunctionGraph, Output
from pytensor.graph.op import Op
from pytensor.graph.type import Type
from pytensor.scan.op import ScanInfo

from scanopt_cli.errors import ConfusedGraphError
from scanopt_cli.ir.graph import check_counts
from scanopt_cli.ir.interning import is_kept
from scanopt_cli.serialization.unpickler.bounds import UseCounts

_MOST_POSITIONS = 1_000_000


def scan_info(fields: Mapping[str, Any]) -> ScanInfo:
    """Return how the inputs and outputs of a Scan are cut into slots.

    Raises
    ------
    Exception
        Of some kind, if a part of it is not what PyTensor makes.
    """
    info = ScanInfo(**fields)
    counts = (info.n_seqs, info.n_nit_sot, info.n_untraced_sit_sot, info.n_non_seqs)
    if any(type(count) is not int or count < 0 for count in counts):
        raise ValueError("a count is not one")
    taps = (
        *(info.mit_mot_in_slices, info.mit_mot_out_slices),
        *(info.mit_sot_in_slices, info.sit_sot_in_slices),
    )
    if any(type(tap) is not int for kind in taps for state in kind for tap in state):
        raise ValueError("a tap is not a number of steps")
    if any(tuple(state) != (-1,) for state in info.sit_sot_in_slices):
        raise ValueError("a sit_sot has another tap than -1")
    if any(tap >= 0 for state in info.mit_sot_in_slices for tap in state):
        raise ValueError("a mit_sot has a tap that is not before the step")
    if type(info.as_while) is not bool:
        raise ValueError("as_while is not a truth value")
    return info


def inner_input(position: Any, kind: Type) -> NominalVariable:
    """Return the input of inner graphs at a position; `ValueError` if that is none."""
    if type(position) is not int or not 0 <= position < _MOST_POSITIONS:
        raise ValueError("the number of an inner input is not one")
    return NominalVariable(position, kind)


def inner_node(
    op: Op,
    inputs: tuple[Variable, ...],
    types: tuple[Type, ...],
    *position: Any,
    uses: UseCounts,
    where: str,
) -> FrozenApply:
    """Return a node of an inner graph.

    Raises
    ------
    ConfusedGraphError
        If PyTensor takes it for another node that the process has.
    ValueError
        If its position is none, or there are too many constants that PyTensor hashes alike.
    """
    if any(type(n) is not int or not -1 <= n < _MOST_POSITIONS for n in position):
        raise ValueError("the position of a node is not a number")
    uses.count_constants(inputs)
    made = FrozenApply(op, inputs, types, *position)
    # PyTensor returns the node that it knows already, of this graph or of one read before.
    if not is_kept(op, inputs, made):
        raise ConfusedGraphError(
            "holds an inner graph that PyTensor takes for another one: they differ in the signs "
            "of zeros (0.0, -0.0), say, or in an attribute of an Op",
            where=where,
            hint="run scanopt on each of the files alone",
        )
    return made


def inner_graph(
    inputs: tuple[NominalVariable, ...],
    nodes: tuple[FrozenApply, ...],
    ends: tuple[FrozenApply, ...],
) -> FrozenFunctionGraph:
    """Return an inner graph of nodes in their order; `ValueError` if it is none."""
    check_counts(len(inputs), len(ends))
    graph = FrozenFunctionGraph(inputs, nodes, ends)  # type: ignore[arg-type]
    known: set[Variable] = set(graph.inputs)
    for node in (*graph.toposort(), *graph._output_nodes):
        if any(part not in known and not isinstance(part, Constant) for part in node.inputs):
            raise ValueError("a node of an inner graph needs what is not in it")
        known.update(node.outputs)
    if not all(isinstance(node.op, Output) for node in graph._output_nodes):
        raise ValueError("an inner graph ends in something else than outputs")
    return graph

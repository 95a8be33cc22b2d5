"""What graphs require of their arguments: the roles of integers, and which lengths are equal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.type import discrete_dtypes

from scanopt_cli.ir.indexing import indices_of
from scanopt_cli.verification.constraint_rules import walk
from scanopt_cli.verification.requirements import Label, Labels, Requirements


class Role(StrEnum):
    """How the graphs use an integer input; inputs of other dtypes are ``FREE``."""

    STEPS = "steps"
    SIZE = "size"
    INDEX = "index"
    FREE = "free"


@dataclass(frozen=True, slots=True, kw_only=True)
class InputConstraints:
    """What a set of arguments must satisfy, by input position.

    Attributes
    ----------
    roles
        How the graphs use each input.
    labels
        A label for each axis of each input; axes with the same label have the same length.
    static
        Static lengths from the types, by label.
    stepped
        Labels whose length decides the trip count of some loop.
    """

    roles: tuple[Role, ...]
    labels: tuple[Labels, ...]
    static: Mapping[Label, int]
    stepped: frozenset[Label]

    @property
    def counts_steps(self) -> bool:
        """Whether the arguments decide the trip count of any loop."""
        return Role.STEPS in self.roles or any(
            label in self.stepped and label not in self.static
            for labels in self.labels
            for label in labels
        )


def input_constraints(graphs: Sequence[FunctionGraph]) -> InputConstraints:
    """Return what ``graphs``, whose inputs correspond by position, require together."""
    required = Requirements()
    first = graphs[0].inputs
    for graph in graphs:
        for variable, reference in zip(graph.inputs, first, strict=True):
            required.set(variable, required.of(reference))
        walk(required, graph.inputs, graph.outputs)
    counts, stepped = ancestors(required, required.step_counts, required.sequence_lengths)
    sizes, _ = ancestors(required, required.sizes)
    indices, _ = ancestors(required, required.indices)
    ranked = ((counts, Role.STEPS), (sizes, Role.SIZE), (indices, Role.INDEX))

    def role(position: int) -> Role:
        if getattr(first[position].type, "dtype", None) not in discrete_dtypes:
            return Role.FREE
        variables = [graph.inputs[position] for graph in graphs]
        return next(
            (role for found, role in ranked if any(v in found for v in variables)), Role.FREE
        )

    labels = tuple(tuple(label.root for label in required.of(variable)) for variable in first)
    return InputConstraints(
        roles=tuple(role(position) for position in range(len(first))),
        labels=labels,
        static={label: label.size for axes in labels for label in axes if label.size is not None},
        stepped=frozenset(stepped),
    )


def ancestors(
    required: Requirements, variables: Iterable[Variable], lengths: Iterable[Label] = ()
) -> tuple[set[Variable], set[Label]]:
    """Return the given variables and labels, and all that they are computed from.

    A shape depends on the labels of its tensor, not on the tensor's values.
    """
    found: set[Variable] = set()
    labels: set[Label] = set()
    waiting = list(variables)
    open_labels = list(lengths)
    while waiting or open_labels:
        if open_labels:
            root = open_labels.pop().root
            if root not in labels:
                labels.add(root)
                waiting += root.makers
                open_labels += root.wholes
            continue
        variable = waiting.pop()
        if variable in found:
            continue
        found.add(variable)
        outer, node = required.outside(variable), variable.owner
        if outer is not None:
            waiting.append(outer)
        if node is not None:
            measured = _measured(node, required)
            open_labels += measured
            waiting += () if measured else node.inputs
    return found, labels


def _measured(node: Apply, required: Requirements) -> Labels:
    """Return the labels whose lengths a node reads; none if it reads values."""
    match node.op:
        case Shape():
            return required.of(node.inputs[0])
        case Shape_i(i=axis):
            return (required.of(node.inputs[0])[axis],)
        case Subtensor() if node.inputs[0].owner is not None and isinstance(
            node.inputs[0].owner.op, Shape
        ):
            labels = required.of(node.inputs[0].owner.inputs[0])
            (index,) = indices_of(node)
            # An index out of range raises when the graph is evaluated.
            is_known = isinstance(index, Constant) and -len(labels) <= index.data < len(labels)
            return (labels[int(index.data)],) if is_known else labels
    return ()

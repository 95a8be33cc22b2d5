"""The facts about shapes and integers that a walk over a graph, bodies included, collects."""

from __future__ import annotations

from collections.abc import Iterable

from pytensor.graph.basic import Variable

from scanopt_cli.verification.dimensions import Dimensions, Label, Labels


class Survey:
    """The facts that walks over graphs have collected.

    Attributes
    ----------
    dimensions
        The labels of axes and the facts known about them.
    step_counts, sizes, indices
        Variables that are the trip count of a loop, a size or slice bound, or an index.
    sequence_lengths
        Labels of the axes that loops iterate over.
    """

    def __init__(self) -> None:
        self.dimensions = Dimensions()
        self.step_counts: list[Variable] = []
        self.sizes: list[Variable] = []
        self.indices: list[Variable] = []
        self.sequence_lengths: list[Label] = []
        self._labels: dict[Variable, Labels] = {}
        self._outside: dict[Variable, Variable] = {}

    def of(self, variable: Variable) -> Labels:
        """Return the labels of a variable's axes."""
        labels = self._labels.get(variable)
        if labels is None:
            labels = self._labels[variable] = self.dimensions.new_for(variable)
        return labels

    def set(self, variable: Variable, labels: Labels) -> None:
        """Set the labels of a variable's axes, and record its static sizes for them.

        If the number of labels is not that of the axes, the axes get new labels.
        """
        known = self.dimensions.new_for(variable)
        if len(known) != len(labels):
            labels = known
        for label, own in zip(labels, known, strict=True):
            self.dimensions.fix(label, self.dimensions.size(own))
        self._labels[variable] = labels

    def same(self, a: Labels, b: Labels) -> None:
        """Record that two tensors have the same shape."""
        for pair in zip(a, b, strict=False):
            self.dimensions.join(pair)

    def enter(self, inner: Variable, outer: Variable, labels: Labels) -> None:
        """Record that the body's input ``inner`` holds ``outer`` or a row of it."""
        self.set(inner, labels)
        self._outside[inner] = outer

    def outside(self, inner: Variable) -> Variable | None:
        """Return the variable that feeds the body's input ``inner``; ``None`` if it is not one."""
        return self._outside.get(inner)

    def aligned(self, axes: Iterable[tuple[Variable, int]]) -> Label:
        """Join axes that are combined element by element, except broadcast ones."""
        spanning = [
            self.of(variable)[axis] for variable, axis in axes if variable.type.shape[axis] != 1
        ]
        if not spanning:
            return self.dimensions.new(1)
        self.dimensions.join(tuple(spanning))
        return spanning[0]

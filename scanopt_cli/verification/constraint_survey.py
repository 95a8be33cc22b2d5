"""What a walk over a graph, bodies included, learns of the shapes and integers it asks for."""

from __future__ import annotations

from collections.abc import Iterable

from pytensor.graph.basic import Variable

from scanopt_cli.verification.dimensions import Dimensions, Label, Labels


class Survey:
    """What a walk over graphs has learnt.

    Attributes
    ----------
    dimensions
        The labels and what is known of them.
    step_counts, sizes, indices
        Variables that are the step count of a loop, a size or slice bound, or an index.
    sequence_lengths
        Labels of the axes that loops run along.
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
        """Give a variable's axes these labels; its static sizes are noted with them."""
        known = self.dimensions.new_for(variable)
        if len(known) != len(labels):
            labels = known
        for label, own in zip(labels, known, strict=True):
            self.dimensions.fix(label, self.dimensions.size(own))
        self._labels[variable] = labels

    def same(self, a: Labels, b: Labels) -> None:
        """Note that two tensors have the same shape."""
        for pair in zip(a, b, strict=False):
            self.dimensions.join(pair)

    def enter(self, inner: Variable, outer: Variable, labels: Labels) -> None:
        """Note that the body's input ``inner`` holds (a part of) ``outer``."""
        self.set(inner, labels)
        self._outside[inner] = outer

    def outside(self, inner: Variable) -> Variable | None:
        """Return what feeds the body's input ``inner``; ``None`` if it is not one."""
        return self._outside.get(inner)

    def aligned(self, axes: Iterable[tuple[Variable, int]]) -> Label:
        """Join axes that are combined element by element, broadcast ones left out."""
        spanning = [
            self.of(variable)[axis] for variable, axis in axes if variable.type.shape[axis] != 1
        ]
        if not spanning:
            return self.dimensions.new(1)
        self.dimensions.join(tuple(spanning))
        return spanning[0]

"""Which axes of a graph must have the same length: labels, joined where an Op demands it.

The labels guide the drawing of arguments; they prove nothing. The axes of an unknown Op's outputs
get new labels, and the evaluation itself shows whether the sizes fit.
"""

from __future__ import annotations

from pytensor.graph.basic import Variable
from pytensor.tensor.type import TensorType

type Label = int
type Labels = tuple[Label, ...]


class Dimensions:
    """Labels of axes: a union-find with static sizes and the origins of lengths."""

    def __init__(self) -> None:
        self._parents: list[Label] = []
        self._sizes: list[int | None] = []
        self._makers: list[list[Variable]] = []
        self._wholes: list[list[Label]] = []

    def new(
        self,
        size: int | None = None,
        *,
        makers: tuple[Variable, ...] = (),
        wholes: tuple[Label, ...] = (),
    ) -> Label:
        """Return a new label.

        ``makers`` are the scalars that the length is computed from (the ``n`` of ``zeros(n)``).
        ``wholes`` are the labels of axes that it depends on: for a slice the sliced axis, for a
        Join the joined axes.
        """
        self._parents.append(len(self._parents))
        self._sizes.append(size)
        self._makers.append(list(makers))
        self._wholes.append(list(wholes))
        return len(self._parents) - 1

    def new_for(self, variable: Variable) -> Labels:
        """Return a new label for each axis of ``variable``; no labels if it is not a tensor."""
        if not isinstance(variable.type, TensorType):
            return ()
        return tuple(self.new(size) for size in variable.type.shape)

    def root(self, label: Label) -> Label:
        """Return the representative of ``label``."""
        while self._parents[label] != label:
            self._parents[label] = self._parents[self._parents[label]]
            label = self._parents[label]
        return label

    def join(self, labels: Labels) -> None:
        """Record that axes with these labels have the same length."""
        if not labels:
            return
        kept = self.root(labels[0])
        for label in labels[1:]:
            other = self.root(label)
            if other == kept:
                continue
            if self._facts(other) > self._facts(kept):
                kept, other = other, kept
            self._parents[other] = kept
            if self._sizes[kept] is None:
                self._sizes[kept] = self._sizes[other]
            self._makers[kept] += self._makers[other]
            self._wholes[kept] += self._wholes[other]

    def _facts(self, root: Label) -> int:
        return len(self._makers[root]) + len(self._wholes[root])

    def fix(self, label: Label, size: int | None) -> None:
        """Record a static size; the first known size stays."""
        root = self.root(label)
        if self._sizes[root] is None:
            self._sizes[root] = size

    def size(self, label: Label) -> int | None:
        """Return the static size of ``label``, if known."""
        return self._sizes[self.root(label)]

    def makers(self, label: Label) -> list[Variable]:
        """Return the scalars that the length is computed from."""
        return self._makers[self.root(label)]

    def wholes(self, label: Label) -> list[Label]:
        """Return the labels of the axes that the length depends on."""
        return self._wholes[self.root(label)]

"""Which dimensions of a graph must be equal: labels on axes, joined where an Op demands it.

This is a guide for drawing arguments, not a proof. Where an Op is not known, the axes of its
outputs get labels of their own, and the evaluation itself tells whether the sizes fit.
"""

from __future__ import annotations

from pytensor.graph.basic import Variable
from pytensor.tensor.type import TensorType

type Label = int
type Labels = tuple[Label, ...]


class Dimensions:
    """Labels of axes: a union-find that knows sizes and what a length was made from."""

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

        ``makers`` are the scalars that the length is computed from (the ``n`` of ``zeros(n)``),
        ``wholes`` the labels that it is a part of (a slice's axis is a part of the sliced one).
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
        """Note that axes with these labels have the same length."""
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
        """Note a static size; the first one that is known stays."""
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
        """Return the labels that ``label`` is a part of."""
        return self._wholes[self.root(label)]

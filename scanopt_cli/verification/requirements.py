"""What a graph, bodies included, requires of its variables: equal axes, roles of integers.

Axes have labels, which are joined where an Op requires that two axes have the same length. The
labels guide the drawing of arguments; they prove nothing. The axes of an unknown Op's outputs get
new labels, and the evaluation itself shows whether the sizes fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytensor.graph.basic import Variable
from pytensor.tensor.type import TensorType

type Labels = tuple[Label, ...]


class Label:
    """Stands for axes of one length. Of labels that were joined, the `root` has the facts of all.

    Attributes
    ----------
    size
        The static length, if known; that of the first label that has one.
    makers
        The scalars that the length is computed from (the ``n`` of ``zeros(n)``).
    wholes
        The labels of axes that it depends on: for a slice the sliced axis, for a Join the joined
        axes.
    """

    def __init__(
        self,
        size: int | None = None,
        *,
        makers: Iterable[Variable] = (),
        wholes: Iterable[Label] = (),
    ) -> None:
        self.size = size
        self.makers = list(makers)
        self.wholes = list(wholes)
        self._parent = self

    @property
    def root(self) -> Label:
        """The representative of this label and of all that it was joined with."""
        label = self
        while label._parent is not label:
            label._parent = label._parent._parent
            label = label._parent
        return label


def join(labels: Sequence[Label]) -> None:
    """Record that axes with these labels have the same length."""
    for label in labels[1:]:
        kept, other = labels[0].root, label.root
        if other is kept:
            continue
        if len(other.makers) + len(other.wholes) > len(kept.makers) + len(kept.wholes):
            kept, other = other, kept
        other._parent = kept
        kept.size = other.size if kept.size is None else kept.size
        kept.makers += other.makers
        kept.wholes += other.wholes


class Requirements:
    """The facts that walks over graphs have collected.

    Attributes
    ----------
    step_counts, sizes, indices
        Variables that are the trip count of a loop, a size or slice bound, or an index.
    sequence_lengths
        Labels of the axes that loops iterate over.
    """

    def __init__(self) -> None:
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
            labels = self._labels[variable] = _new_labels(variable)
        return labels

    def set(self, variable: Variable, labels: Labels) -> None:
        """Set the labels of a variable's axes, and record its static sizes for them.

        If the number of labels is not that of the axes, the axes get new labels.
        """
        own = _new_labels(variable)
        if len(own) == len(labels):
            self.same(labels, own)
            own = labels
        self._labels[variable] = own

    def same(self, a: Labels, b: Labels) -> None:
        """Record that two tensors have the same shape."""
        for pair in zip(a, b, strict=False):
            join(pair)

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
        join(spanning)
        return spanning[0] if spanning else Label(1)


def _new_labels(variable: Variable) -> Labels:
    """Return a new label for each axis of ``variable``; no labels if it is not a tensor."""
    shape = variable.type.shape if isinstance(variable.type, TensorType) else ()
    return tuple(map(Label, shape))

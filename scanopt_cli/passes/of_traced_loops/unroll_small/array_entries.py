"""Small arrays as arrays of variables: one variable of no dimensions for each entry."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import prod
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.ops import DeepCopyOp, ViewOp
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import io_toposort
from pytensor.graph.type import Type
from pytensor.tensor.basic import Alloc, ARange, ExtractDiag, Eye, Join, MakeVector, Split
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.rewriting.basic import unconditional_constant_folding
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
)
from pytensor.tensor.type import DenseTensorType

from scanopt_cli.ir.folding import MOST, work_of

type Entries = np.ndarray[Any, Any]
"""An array of variables of no dimensions."""
type Rule = Callable[[Op, Apply, "Unrolling"], Sequence[Entries]]
"""Returns the entries of the outputs of a node; raises a ValueError or IndexError if it cannot."""
type Symbolic = Any

MOST_ENTRIES = 2_000
"""How many entries a step may compute; its code is compiled as one function."""
MOVES = (
    *(Alloc, ARange, DeepCopyOp, DimShuffle, ExtractDiag, Eye, Join, MakeVector, Reshape),
    *(AdvancedIncSubtensor, AdvancedSubtensor, IncSubtensor, Subtensor),
    *(Shape, Shape_i, SpecifyShape, Split, ViewOp),
)
"""Ops that move entries, and compute none."""


class Unrolling:
    """Computes the small arrays of a graph entry by entry, and all else as it is computed there.

    Parameters
    ----------
    size
        The most entries of an array that is small.
    rule
        What knows the entries of the outputs of nodes.
    left
        Nodes that are computed as arrays, whatever their size.
    """

    def __init__(self, size: int, rule: Rule, left: Collection[Apply] = ()) -> None:
        self.size = size
        self.n_arrays = 0
        """Of how many arrays entries are computed, or chosen, and not only moved."""
        self.n_entries = 0
        """How many entries are computed, each counted with the terms that it adds up."""
        self.kept: list[Apply] = []
        """The nodes that are computed as arrays."""
        self.unrolled: list[Apply] = []
        """The nodes that are computed entry by entry."""
        self.formed: list[Variable] = []
        """What is computed entry by entry, and formed as an array for a node that reads it so."""
        self.read: set[Variable] = set()
        """The arrays that are computed, or carried, as arrays, and of which entries are read."""
        self._rule = rule
        self._left = left
        self._computed: set[Variable] = set()
        self._entries: dict[Variable, Entries] = {}
        self._arrays: dict[Variable, Variable] = {}

    def set_input(
        self, variable: Variable, array: Variable | None, entries: Entries | None
    ) -> None:
        """Read ``array`` or ``entries``, or each where it fits, in place of an input."""
        if array is not None:
            self._arrays[variable] = array
        if entries is not None:
            self._entries[variable] = entries

    def compute(self, inputs: Sequence[Variable], outputs: Sequence[Variable]) -> None:
        """Compute ``outputs``, and what they are computed from."""
        for node in io_toposort(inputs, outputs):
            if not all(v in self._entries or v in self._arrays for v in node.outputs):
                self._compute(node)

    def lacks_length(self, node: Apply) -> bool:
        """Whether a node that is kept would be computed entry by entry if all lengths were known.

        They are assumed to be 2, or a length that another operand has.
        """
        shapes = [v.type.shape for v in node.inputs if isinstance(v.type, DenseTensorType)]
        known = {n for shape in shapes for n in shape}
        if None not in known or not all(self._may_be_small(v.type) for v in node.outputs):
            return False
        return any(self._computes_with(node, n) for n in {2, *known} if n is not None)

    def _computes_with(self, node: Apply, length: int) -> bool:
        trial = Unrolling(self.size, self._rule)
        for variable in node.inputs:
            kind = variable.type
            if not isinstance(kind, DenseTensorType) or None not in kind.shape:
                continue
            shape = tuple(length if n is None else n for n in kind.shape)
            if not self.is_small(shape):
                return False
            trial.set_input(variable, None, fresh(kind, shape))
        return trial._add_entries(node)

    def is_small(self, shape: Sequence[int | None]) -> bool:
        """Whether arrays of a shape are computed entry by entry, if they can be."""
        return None not in shape and 0 < prod(shape) <= self.size  # type: ignore[arg-type]

    def entries(self, variable: Variable) -> Entries | None:
        """Return the entries of a variable, ``None`` if it is not known to be small."""
        if variable not in self._entries:
            array: Symbolic = self.array(variable)
            kind = array.type
            if not isinstance(kind, DenseTensorType) or not self.is_small(kind.shape):
                return None
            self._entries[variable] = read(array, array.type.shape)
            if kind.ndim and not isinstance(array, Constant):
                self.read.add(variable)
        return self._entries[variable]

    def array(self, variable: Variable) -> Symbolic:
        """Return a variable as an array."""
        if variable not in self._arrays:
            entries = self._entries.get(variable)
            if entries is None:
                made: Symbolic = variable
            elif self._is_part(variable):
                made = self._of_arrays(variable.owner).outputs[0]
            else:
                made = stacked(entries)
                if entries.ndim:
                    self.formed.append(variable)
            self._arrays[variable] = made
        return self._arrays[variable]

    def is_in_memory(self, variable: Variable) -> bool:
        """Whether a variable is an array that is there, or is computed as one."""
        return variable in self._arrays or variable not in self._entries

    def has_computed(self, variable: Variable) -> bool:
        """Whether the entries of a variable are computed, or moved, not read from an array."""
        return variable in self._computed

    def is_computed(self, variable: Variable) -> bool:
        """Whether a variable is computed entry by entry, not read from an array."""
        return variable in self._computed and not self._is_part(variable)

    def _may_be_small(self, kind: Type) -> bool:
        """Whether what is known of the shape of arrays is that of small ones."""
        return isinstance(kind, DenseTensorType) and self.is_small(
            [n for n in kind.shape if n is not None]
        )

    def _fits(self, output: Variable, entries: Entries) -> bool:
        """Whether entries are those of a small array, of the type of an output."""
        kind = output.type
        return (
            self.is_small(entries.shape)
            and kind.ndim == entries.ndim
            and all(known in (None, n) for known, n in zip(kind.shape, entries.shape, strict=True))
        )

    def _is_part(self, variable: Variable) -> bool:
        """Whether a variable is a part of an array that need not be formed, or its transpose."""
        node = variable.owner
        if node is None or not isinstance(node.op, Subtensor | DimShuffle | Reshape):
            return False
        whole = node.inputs[0]
        return whole in self._arrays or whole not in self._entries or self._is_part(whole)

    def _of_arrays(self, node: Apply) -> Apply:
        """Return the node of arrays."""
        inputs = [self.array(v) for v in node.inputs]
        if all(array is old for array, old in zip(inputs, node.inputs, strict=True)):
            return node
        made: Apply = node.clone_with_new_inputs(inputs, strict=False)
        return made

    def _compute(self, node: Apply) -> None:
        is_scalar = all(getattr(v.type, "ndim", 0) == 0 for v in (*node.inputs, *node.outputs))
        may_be_small = (
            not is_scalar
            and node not in self._left
            and all(self._may_be_small(v.type) for v in node.outputs)
        )
        if may_be_small and self.n_entries <= MOST_ENTRIES and self._add_entries(node):
            return
        new = self._of_arrays(node)
        for old, made in zip(node.outputs, new.outputs, strict=True):
            self._arrays[old] = folded(made) if is_scalar else made
        if not is_scalar:
            self.kept.append(new)

    def _add_entries(self, node: Apply) -> bool:
        """Compute the outputs of a node entry by entry, if they are small."""
        before = self.n_arrays, self.n_entries, len(self.unrolled)
        try:
            found = self._rule(node.op, node, self)
        except (ValueError, IndexError):
            found = []
        if not found or not all(map(self._fits, node.outputs, found)):
            # Of an OpFromGraph, some nodes inside may have been counted.
            self.n_arrays, self.n_entries, n_unrolled = before
            del self.unrolled[n_unrolled:]
            return False
        for output, entries in zip(node.outputs, found, strict=True):
            self._entries[output] = entrywise(
                lambda v, dtype=output.type.dtype: pt.cast(v, dtype), entries
            )
            self._computed.add(output)
            self.n_arrays += not isinstance(node.op, MOVES)
            self.n_entries += entries.size * _terms(node, self)
        self.unrolled.append(node)
        return True


def read(array: Symbolic, shape: Sequence[int], first: Sequence[Any] = ()) -> Entries:
    """Return the entries of an array, or of its part of a shape at the ``first`` indices."""
    made = np.empty(shape, dtype=object)
    for place in np.ndindex(*made.shape):
        if isinstance(array, Constant) and not first:
            made[place] = pt.constant(array.data[place], dtype=array.type.dtype)
        else:
            made[place] = array[(*first, *place)] if first or place else array
    return made


def fresh(kind: DenseTensorType, shape: Sequence[Any]) -> Entries:
    """Return new variables for the entries of an array."""
    number = kind.clone(shape=())
    return vector([number() for _ in range(prod(shape))]).reshape(shape)


def stacked(entries: Entries) -> Symbolic:
    """Return the array that has these entries."""
    if not entries.ndim:
        return entries[()]
    flat = list(entries.flat)
    made: Symbolic = MakeVector(flat[0].type.dtype)(*flat)
    return made if entries.ndim == 1 else made.reshape(entries.shape)


def entrywise(function: Callable[..., Symbolic], *arrays: Entries) -> Entries:
    """Return what ``function`` makes of the entries of arrays, which are broadcast."""
    broadcast = np.broadcast_arrays(*arrays)
    made = list(map(function, *(array.flat for array in broadcast)))
    return vector(made).reshape(broadcast[0].shape)


def vector(entries: Sequence[Symbolic]) -> Entries:
    """Return a vector of variables; NumPy would look into them."""
    return np.fromiter(entries, dtype=object, count=len(entries))


def filled(shape: Sequence[int], entry: Symbolic) -> Entries:
    """Return an array of one variable."""
    made = np.empty(tuple(shape), dtype=object)
    made.fill(entry)
    return made


def folded(variable: Symbolic) -> Symbolic:
    """Return the constant that a node makes of constants, and other variables as they are."""
    node = variable.owner
    if node is None or work_of(node) > MOST:
        return variable
    found = unconditional_constant_folding.transform(None, node)
    return found[node.outputs.index(variable)] if found else variable


def _terms(node: Apply, known: Unrolling) -> int:
    """Return how many terms an entry of the output of a node is made of, about."""
    if isinstance(node.op, (Elemwise, *MOVES)):
        return 1
    shapes = [part.shape for v in node.inputs if (part := known.entries(v)) is not None]
    return max((length for shape in shapes for length in shape), default=1)

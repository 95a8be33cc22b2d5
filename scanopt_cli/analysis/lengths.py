"""Lengths as affine expressions in the trip counts that buffers were made from.

PyTensor leaves the static length of loop buffers unknown, so scanopt reads lengths off the
expressions that made the buffers. An `AffineExpr` is ``constant + sum(coefficient * atom)``; an
atom is a variable or one dimension of a variable. An expression that is not affine is an atom of
its own. Two lengths are equal when their difference is the constant 0. Comparisons are
conservative: an inequality that is not proved may still hold.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from pytensor.compile.ops import DeepCopyOp
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar import basic as ps
from pytensor.tensor.basic import (
    Alloc,
    AllocEmpty,
    ARange,
    Join,
    MakeVector,
    ScalarFromTensor,
    TensorFromScalar,
)
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import IncSubtensor, Subtensor
from pytensor.tensor.type import TensorType

from scanopt_cli.analysis.affine import (
    ONE,
    ZERO,
    AffineExpr,
    Atom,
    as_affine,
    is_sum_of_dimensions,
    total,
)
from scanopt_cli.analysis.kept_lengths import kept_length
from scanopt_cli.analysis.loop_lengths import joined_length, output_length, steps_run, with_start
from scanopt_cli.analysis.minima import minimum_parts, minimum_text
from scanopt_cli.analysis.reshaped_lengths import reshaped_length
from scanopt_cli.ir.indexing import indices_of, is_full_slice, number
from scanopt_cli.ir.scan_view import batch_ndim, is_loop

# To prove a difference non-negative, this many multiples of the trip count (from 0 times on) are
# subtracted from it in turn.
_MULTIPLES = 3
# Lengths are shallow expressions. Past ``_DEPTH`` nested queries, a length is an atom. One
# comparison expands at most ``_MINIMA`` minima, and all comparisons together ``_MINIMA_IN_ALL``. So
# recursion and search are bounded for every graph.
_DEPTH = 40
_MINIMA = 32
_MINIMA_IN_ALL = 2_000


class Lengths:
    """Reads lengths off a graph, each expression once.

    A batched loop carries its counts as arrays; such an array is read as the one number that is in
    each of its entries. ``n_steps`` is the trip count of the loop under analysis. A loop with a
    negative trip count raises, so ``n_steps`` as a whole is taken as non-negative; nothing is
    assumed of the scalars in it.

    A length may be known as a number, from the type, and as an expression, from the node that made
    the variable. The number takes precedence; without ``static`` the expression does, which may be
    the one that equals the trip count. ``floor`` is an expression that is taken as non-negative.
    """

    def __init__(
        self,
        n_steps: Variable | None = None,
        *,
        static: bool = True,
        floor: AffineExpr | None = None,
    ) -> None:
        self._static = static
        self._n_steps = n_steps
        self._known: dict[tuple[Variable, int | None], AffineExpr] = {}
        self._proved: dict[tuple[AffineExpr, AffineExpr], bool] = {}
        self._opened: dict[AffineExpr, list[tuple[AffineExpr, ...]]] = {}
        self._nested = 0
        self._expanded = 0
        self._expanded_in_all = 0
        self._multiples: tuple[AffineExpr, ...] = ()
        self._floor: AffineExpr | None = None
        self._least: frozenset[AffineExpr] = frozenset()
        if n_steps is not None:
            steps = self.value_of(n_steps)
            self._multiples = tuple(steps.scaled(k) for k in range(1, _MULTIPLES))
            self._least = self._operands(steps)
            # These were computed without knowing that ``n_steps`` is non-negative.
            self._known.clear()
            self._proved.clear()
            self._opened.clear()
        self._floor = floor

    @cached_property
    def by_expression(self) -> Lengths:
        """The same lengths without ``static``."""
        return Lengths(self._n_steps, static=False)

    @property
    def steps(self) -> AffineExpr:
        """The trip count of the loop under analysis."""
        assert self._n_steps is not None
        return self.value_of(self._n_steps)

    def runs(self, least: int = 1) -> bool:
        """Whether the loop under analysis provably runs ``least`` steps."""
        return self.provably_le(least, self.steps)

    @cached_property
    def alone(self) -> Lengths:
        """The same lengths if there is no loop, whose trip count may be negative then."""
        found = Lengths(static=self._static)
        found._n_steps, found._least = self._n_steps, self._least
        return found

    def value_of(self, variable: Variable) -> AffineExpr:
        """Return the integer that a scalar ``variable`` holds, as an affine expression."""
        known = self._known.get((variable, None))
        if known is None:
            known = self._nest(self._value, variable)
            if known is None:
                known = AffineExpr.of(Atom(variable, text=minimum_text(variable, self._part_text)))
            self._known[variable, None] = known
        return known

    def length_of(self, variable: Variable, axis: int = 0) -> AffineExpr:
        """Return the length of ``variable`` along ``axis``, as an affine expression."""
        known = self._known.get((variable, axis))
        if known is None:
            known = self._nest(self._length, variable, axis) or AffineExpr.of(Atom(variable, axis))
            self._known[variable, axis] = known
        return known

    def shape(self, variable: Any) -> list[AffineExpr]:
        """Return the lengths of ``variable`` along all axes."""
        axes = range(getattr(variable.type, "ndim", 0))
        return [self.length_of(variable, axis) for axis in axes]

    def _nest(self, query: Callable[..., AffineExpr | None], *args: Any) -> AffineExpr | None:
        """Call ``query``, which may make others; ``None`` past ``_DEPTH`` nested ones."""
        if self._nested >= _DEPTH:
            return None
        self._nested += 1
        found = query(*args)
        self._nested -= 1
        return found

    def provably_le(self, left: AffineExpr | int, right: AffineExpr | int) -> bool:
        """Whether provably ``left <= right``."""
        left, right = as_affine(left), as_affine(right)
        known = self._proved.get((left, right))
        if known is None:
            self._expanded = 0
            known = self._provably_le(left, right) or (
                self._floor is not None and self._provably_le(left + self._floor, right)
            )
            self._proved[left, right] = known
        return known

    def _provably_le(self, left: AffineExpr, right: AffineExpr) -> bool:
        difference = right - left
        # Dimensions are non-negative, and so is the trip count as a whole.
        if is_sum_of_dimensions(difference):
            return True
        if any(is_sum_of_dimensions(difference - steps) for steps in self._multiples):
            return True
        # min(x, y) <= right if either is; left <= min(x, y) if both are.
        for sides, enough in ((self.minima(left), any), (self.minima(right), all)):
            for parts in sides:
                self._expanded += 1
                self._expanded_in_all += 1
                if self._expanded > _MINIMA or self._expanded_in_all > _MINIMA_IN_ALL:
                    return False
                pairs = [(part, right) if enough is any else (left, part) for part in parts]
                if enough(self._provably_le(*pair) for pair in pairs):
                    return True
        return False

    def minima(self, form: AffineExpr) -> list[tuple[AffineExpr, ...]]:
        """Return, for each minimum in ``form``, ``form`` with each operand in its place."""
        known = self._opened.get(form)
        if known is not None:
            return known
        opened = []
        for atom, count in form.terms:
            parts = minimum_parts(atom.variable) if atom.axis is None and count == 1 else None
            if parts is not None:
                rest = form - AffineExpr.of(atom)
                opened.append(tuple(rest + self.value_of(part) for part in parts))
        self._opened[form] = opened
        return opened

    def _value(self, variable: Variable) -> AffineExpr | None:
        if isinstance(variable, Constant):
            number = _whole_number(variable)
            return None if number is None else AffineExpr(number)
        node = variable.owner
        if node is None:
            return None
        op = node.op
        if (parts := minimum_parts(variable)) is not None:
            forms = [self.value_of(part) for part in parts]
            return next((f for f in forms if all(self.provably_le(f, o) for o in forms)), None)
        if isinstance(op, Shape_i):
            return self.length_of(node.inputs[0], op.i)
        if isinstance(op, ScalarFromTensor | TensorFromScalar | CheckAndRaise):
            return self.value_of(node.inputs[0])
        if isinstance(op, DimShuffle) and op.is_squeeze and node.inputs[0].type.ndim == 1:
            entry = self._nest(self._entry, node.inputs[0], 0)
            if entry is not None:
                return entry
        if isinstance(op, Alloc) or (isinstance(op, DimShuffle) and _keeps_entries(node)):
            return self.value_of(node.inputs[0])
        if isinstance(op, Elemwise):
            return self._elemwise_value(op.scalar_op, node)
        return self._indexed(node) if isinstance(op, Subtensor) else steps_run(self, variable)

    def _elemwise_value(self, scalar_op: ps.ScalarOp, node: Apply) -> AffineExpr | None:
        # Narrow integers wrap, to small values too. At lengths that fit in memory, 64 bits do not,
        # and neither do sums of 32 bits.
        dtype = node.outputs[0].type.dtype
        if dtype not in ("int32", "int64"):
            return None
        parts = [self.value_of(part) for part in node.inputs]
        match scalar_op:
            case ps.Add():
                return total(parts)
            case ps.Sub():
                return parts[0] - parts[1]
            case ps.Neg():
                return parts[0].scaled(-1)
            case ps.Mul() if len(parts) == 2 and dtype == "int64":
                factor, other = sorted(parts, key=lambda part: not part.is_constant)
                return other.scaled(factor.constant) if factor.is_constant else None
            case ps.Cast() if np.can_cast(node.inputs[0].type.dtype, node.outputs[0].type.dtype):
                return parts[0]
        return None

    def _part_text(self, part: Variable) -> str:
        """The text of an operand of a minimum."""
        form = self.value_of(part)
        return "…" if any(minimum_parts(atom.variable) for atom in form.atoms) else str(form)

    def _indexed(self, node: Apply) -> AffineExpr | None:
        """The value of ``x[..., i]`` with a constant ``i`` and all other axes taken whole."""
        *front, last = indices_of(node)
        complete = len(front) + 1 == node.inputs[0].type.ndim
        if not isinstance(last, Constant) or not complete or not all(map(is_full_slice, front)):
            return None
        return self._nest(self._entry, node.inputs[0], int(last.data))

    def _entry(self, vector: Variable, position: int) -> AffineExpr | None:
        """The number at ``position`` of the last axis of ``vector``."""
        node = vector.owner
        if node is None:
            return None
        match node.op:
            case Shape() if -node.inputs[0].type.ndim <= position < node.inputs[0].type.ndim:
                tensor = node.inputs[0]
                return self.length_of(tensor, position % tensor.type.ndim)
            case MakeVector() if -len(node.inputs) <= position < len(node.inputs):
                return self.value_of(node.inputs[position])
            case Alloc():
                value = node.inputs[0]
                if value.type.ndim == 0:
                    return self.value_of(value)
                is_repeated = value.type.broadcastable[-1]
                return self._nest(self._entry, value, 0 if is_repeated else position)
            case Subtensor() if node.inputs[0].type.ndim == vector.type.ndim == 1 and position >= 0:
                (index,) = indices_of(node)
                start, stop, step = index.start, index.stop, index.step
                if step is None and (start is None or isinstance(start, Constant)):
                    begin = 0 if start is None else int(start.data)
                    is_within = stop is None or (
                        isinstance(stop, Constant) and begin + position < int(stop.data)
                    )
                    if begin >= 0 and is_within:
                        return self._nest(self._entry, node.inputs[0], begin + position)
        return None

    def _length(self, variable: Variable, axis: int) -> AffineExpr | None:
        static = variable.type.shape[axis] if isinstance(variable.type, TensorType) else None
        node = variable.owner
        if static is not None and (self._static or node is None or static == 1):
            return AffineExpr(int(static))
        if node is None:
            return None
        batch = batch_ndim(node)
        match node.op:
            case Alloc():
                return self.value_of(node.inputs[1 + axis])
            case AllocEmpty():
                return self.value_of(node.inputs[axis])
            case IncSubtensor() | SpecifyShape() | DeepCopyOp() | CheckAndRaise():
                return self.length_of(node.inputs[0], axis)
            case DimShuffle(new_order=order) if order[axis] != "x":
                return self.length_of(node.inputs[0], int(order[axis]))
            case Elemwise() | Blockwise() if isinstance(node.op, Elemwise) or axis < batch:
                # Every input that is not broadcast along the axis has the length of the result.
                spanning = (part for part in node.inputs if not part.type.broadcastable[axis])
                part = next(spanning, None)
                return None if part is None else self.length_of(part, axis)
            case Subtensor():
                return self._subtensor_length(node, axis)
            case ARange():
                start, stop, step = (self.value_of(part) for part in node.inputs)
                is_counted = step == ONE and self.provably_le(start, stop)
                return stop - start if is_counted else None
            case Join():
                return joined_length(self, node, axis)
            case Dot() if variable.type.ndim == 2:
                return self.length_of(node.inputs[axis], axis)
            case Blockwise(core_op=core):
                if isinstance(core, Dot):
                    return self.length_of(node.inputs[axis - batch], axis)
                if isinstance(core, AllocEmpty):
                    return self.value_of(node.inputs[axis - batch])
                if isinstance(core, Alloc):
                    return self.value_of(node.inputs[1 + axis - batch])
                if isinstance(core, IncSubtensor):
                    return self.length_of(node.inputs[0], axis)
                if isinstance(core, Join) and core.axis == axis - batch:
                    return joined_length(self, node, axis)
        if is_loop(node):
            return output_length(self, node, variable, axis)
        length = reshaped_length(self, node, axis)
        return kept_length(self, node, variable, axis) if length is None else length

    def _subtensor_length(self, node: Apply, axis: int) -> AffineExpr | None:
        """Length of ``x[start:stop]``, ``x[::step]`` and of axes that are not indexed."""
        indices = list(indices_of(node))
        kept = [place for place, index in enumerate(indices) if isinstance(index, slice)]
        source = node.inputs[0]
        if axis >= len(kept):
            return self.length_of(source, axis - len(kept) + len(indices))
        length = self.length_of(source, kept[axis])
        taken = indices[kept[axis]]
        if taken.start is taken.stop is None and (step := number(taken.step, 1)):
            return length.divided(abs(step))
        span = self.span(taken, length)
        return None if span is None else span[1] - span[0]

    def span(
        self, index: slice, length: AffineExpr, *, n_initial: int = 0
    ) -> tuple[AffineExpr, AffineExpr, bool] | None:
        """Return ``(begin, end, is_reversed)`` for a slice of an axis of ``length`` rows.

        The slice takes the rows ``begin`` to ``end``, without ``end``, last row first if
        ``is_reversed``. ``None`` if that cannot be decided, or if the step is neither 1 nor -1.
        With step 1, a bound that is the length of ``x[:n_initial]`` is taken to be ``n_initial``:
        with fewer initial rows, the loop could not run.
        """
        step = ONE if index.step is None else self.value_of(index.step)
        if step not in (ONE, AffineExpr(-1)):
            return None
        is_reversed = step == AffineExpr(-1)
        if index.start is index.stop is None:
            return ZERO, length, is_reversed
        # x[s:e:-1] are the rows e+1 to s, last first.
        low, high = (index.stop, index.start) if is_reversed else (index.start, index.stop)
        begin = ZERO if low is None else self._bound(low, length, is_reversed, n_initial)
        end = length if high is None else self._bound(high, length, is_reversed, n_initial)
        if begin is None or end is None or not self.provably_le(begin, end):
            return None
        return begin, end, is_reversed

    def _bound(
        self, bound: Variable, length: AffineExpr, is_behind: bool, n_initial: int
    ) -> AffineExpr | None:
        """Where a bound falls in ``0..length``.

        With ``is_behind`` (a reversed slice) the bound is a row, and the result one past that row.
        """
        row = self.value_of(bound)
        if not is_behind:
            return self.clipped(length, with_start(row, n_initial))
        if row == AffineExpr(-1):
            return length
        if row.is_constant or self.provably_le(0, row):
            return self.clipped(length, row + 1)
        return None

    def clipped(self, length: AffineExpr, bound: AffineExpr) -> AffineExpr | None:
        """Return where a bound falls in ``0..length``, clipped; ``None`` if it is undecided."""
        if bound.is_constant and bound.constant < 0:
            return length + bound if self.provably_le(-bound.constant, length) else None
        if not self.provably_le(0, bound):
            return None
        if self.provably_le(bound, length):
            return bound
        if self.provably_le(length, bound):
            return length
        # x[:len(y)] of a loop over x and y has a row for each step.
        is_least = len(self._least) > 1 and self._least == (
            self._operands(length) | self._operands(bound)
        )
        return self.steps if is_least else None

    def _operands(self, form: AffineExpr) -> frozenset[AffineExpr]:
        """Return the lengths of which one is the least; itself alone if it is no minimum of few."""
        found, waiting = set[AffineExpr](), [form]
        while waiting:
            part = waiting.pop()
            opened = self.minima(part) if part.constant == 0 and len(part.terms) == 1 else ()
            waiting += [operand for operands in opened for operand in operands]
            if not opened:
                found.add(part)
            if len(found) + len(waiting) > _MINIMA:
                return frozenset([form])
        return frozenset(found)


def is_integer(variable: Variable) -> bool:
    """Whether a variable holds integers, of any size."""
    return str(getattr(variable.type, "dtype", "")).startswith(("int", "uint"))


def _keeps_entries(node: Apply) -> bool:
    """Whether a DimShuffle only drops axes, or its input has a single entry."""
    return node.op.is_squeeze or all(getattr(node.inputs[0].type, "broadcastable", ()))


def _whole_number(constant: Constant) -> int | None:
    """The integer in a constant of one element, of any shape; a boolean does not count."""
    data: Any = constant.data
    if type(data) is int:
        return data
    return int(data.item()) if is_integer(constant) and getattr(data, "size", 1) == 1 else None

"""Keep what a forward loop computed for the backward loop that would compute it again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, ClassVar

from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import io_toposort
from pytensor.scalar import basic as scalars
from pytensor.tensor.basic import MakeVector
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.type import DenseTensorType, TensorType

from scanopt_cli.analysis.accesses.row_ranges import RowRange
from scanopt_cli.analysis.affine import AffineExpr
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.errors import PassError
from scanopt_cli.ir.indexing import indices_of
from scanopt_cli.ir.slots import Slot, SlotKind, SlotView
from scanopt_cli.loop import TracedLoop
from scanopt_cli.loop.loop_view import LoopView
from scanopt_cli.passes.keep_values.row_index import (
    Index,
    StepRow,
    base,
    n_rows,
    place,
    through,
)
from scanopt_cli.pipeline.contract import Pass, PassContext, Rewrite
from scanopt_cli.pipeline.loop_passes import works_in_place
from scanopt_cli.remarks import Code, Why, because

_MEBIBYTE = 1 << 20
_MOST = 100
"""How many numbers a step may keep; each is an argument of a compiled function."""
_CHEAP = (
    *(scalars.Add, scalars.Sub, scalars.Mul, scalars.Sqr, scalars.Neg, scalars.Abs),
    *(scalars.Identity, scalars.Cast, scalars.Second, scalars.Switch, scalars.Sign),
    *(scalars.Maximum, scalars.Minimum, scalars.ScalarMaximum, scalars.ScalarMinimum),
    *(scalars.LogicalComparison, scalars.IsNan, scalars.IsInf, scalars.TrueDiv),
    *(scalars.Reciprocal, scalars.AND, scalars.OR, scalars.XOR, scalars.Invert, scalars.Sqrt),
)
"""Functions of numbers that are computed as fast as a number is read."""


@dataclass(frozen=True)
class KeepValues(Pass):
    """Keep the numbers that a backward TracedLoop computes again, as the forward loop did.

    A loop that runs the steps of another one from the last to the first, such as the gradient of
    that, reads its states from traces, and computes from them what the step computed. To read a
    number takes less time than a function like exp, log or tanh.

    Legal cases:

    1. A number that a step of the backward loop computes by such a function from rows of the
       forward loop's traces, rows of the forward loop's constants, and constants, all of the step
       that it undoes, by the same operations as the forward loop. The forward loop traces it.

    Preconditions: both loops provably run as many steps, no condition may end them, no step works
    in place, and at most 100 numbers of a step are kept. With ``memory``, nothing is kept that
    takes more than so many MiB, as far as the number of steps is known.

    Out of scope: arrays, and the steps of inner loops; run ``unroll-loops`` and ``unroll-small``
    first.
    """

    name: ClassVar[str] = "keep-values"
    memory: int = 256
    """how many MiB the kept values of a loop may take"""

    def __post_init__(self) -> None:
        """Check the option."""
        if self.memory < 0:
            raise PassError("memory is a number from 0 on")

    def rewrites(self, context: PassContext) -> Iterator[Rewrite]:
        """Yield a rewrite of each pair of loops."""
        for view in context.loops():
            if not _may_be_one(view):
                continue
            lengths = Lengths(view.n_steps)
            for node in dict.fromkeys(_makers(view)):
                forward = LoopView.of(node)
                if not _may_be_one(forward) or not _same_count(view, forward, lengths):
                    continue
                try:
                    pair = _Pair(forward, LoopView.of(view.node), lengths)
                    found = pair.repeated()
                    count = len(set(found.values()))
                    if count and self._fits(forward, count, context):
                        context.passed(forward, Code.VALUES_KEPT, count=count)
                        yield Rewrite(pair.rewritten(found))
                        break
                except Exception as error:
                    context.failed(view, error)

    def _fits(self, view: LoopView, count: int, context: PassContext) -> bool:
        if count > _MOST:
            context.missed(view, Code.LOOP_LEFT, because(Why.STEP_LARGE, operations=_MOST))
            return False
        if not isinstance(view.n_steps, Constant):
            return True
        size = int(view.n_steps.data) * count * 8
        if size <= self.memory * _MEBIBYTE:
            return True
        why = because(Why.VALUES_LARGE, memory=size // _MEBIBYTE)
        context.missed(view, Code.LOOP_LEFT, why)
        return False


def _may_be_one(view: Any) -> bool:
    return (
        isinstance(view, LoopView)
        and view.is_traced
        and not view.is_while
        and not works_in_place(view)
    )


def _same_count(one: SlotView, other: LoopView, lengths: Lengths) -> bool:
    return lengths.value_of(one.n_steps) == lengths.value_of(other.n_steps)


def _makers(view: SlotView) -> Iterator[Any]:
    """Yield the loops whose traces the constants of a loop are rows of."""
    for slot in view.of_kind(SlotKind.CONSTANT):
        source, *_ = base(slot.outer_input, (StepRow(AffineExpr()),))
        if isinstance(source.owner_op, TracedLoop):
            yield source.owner


@dataclass(slots=True)
class _Pair:
    """A forward and a backward loop, whose numbers have equal keys if they are equal.

    A number of the backward loop's step ``i`` is compared with one of the forward loop's step
    ``n - 1 - i``.
    """

    forward: LoopView
    backward: LoopView
    lengths: Lengths
    _keys: dict[Any, int] = field(default_factory=dict)
    _of: dict[Variable, int | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Take the bodies apart."""
        self.forward.unfreeze()
        self.backward.unfreeze()

    def repeated(self) -> dict[Variable, Variable]:
        """Return the variables of the backward step to keep, with those of the forward step."""
        computed: dict[int, Variable] = {}
        for node in _nodes(self.forward):
            for output in node.outputs:
                key = self._key(output, self.forward)
                if key is not None:
                    computed.setdefault(key, output)
        # In this order, the key of a variable needs those of its operands only.
        for node in _nodes(self.backward):
            for output in node.outputs:
                self._key(output, self.backward)
        found: dict[Variable, Variable] = {}
        seen: set[Variable] = set()
        waiting = [v for slot in self.backward.outputs() for v in slot.inner_outputs]
        while waiting:
            variable = waiting.pop()
            if variable in seen or variable.owner is None:
                continue
            seen.add(variable)
            key = self._key(variable, self.backward)
            if key in computed and _is_dear(variable):
                found[variable] = computed[key]
            else:
                waiting += variable.owner.inputs
        return found

    def rewritten(self, found: dict[Variable, Variable]) -> dict[Variable, Variable]:
        """Return replacements: the forward loop traces the values, the backward one reads them."""
        kept = list(dict.fromkeys(found.values()))
        row: Any = MakeVector("float64")(*kept)
        trace = TensorType("float64", shape=(None, len(kept)))
        whole = trace()
        self.forward.slots.append(
            Slot(SlotKind.TRACED, -1, (), (0,), [], [row], whole, outer_input=self.forward.n_steps)
        )
        forward = self.forward.rebuild()
        rows: Any = forward.pop(whole)
        (index,) = next(iter(self.backward.of_kind(SlotKind.INDEX))).inner_inputs
        inside: Any = trace()
        self.backward.slots.append(
            Slot(SlotKind.CONSTANT, -1, inner_inputs=[inside], outer_input=rows[::-1])
        )
        reads = {old: inside[index, kept.index(new)] for old, new in found.items()}
        slots = self.backward.outputs()
        outputs = [v for slot in slots for v in slot.inner_outputs]
        for slot, new in zip(slots, graph_replace(outputs, reads, strict=False), strict=True):
            slot.inner_outputs = [new]
        # The backward loop first: its operands are then those of the new forward loop.
        return self.backward.rebuild() | forward

    def _key(self, variable: Any, view: LoopView) -> int | None:
        if variable not in self._of:
            self._of[variable] = None  # of what is no number
            self._of[variable] = self._made(variable, view)
        return self._of[variable]

    def _made(self, variable: Any, view: LoopView) -> int | None:
        if isinstance(variable, Constant):
            is_number = isinstance(variable.type, DenseTensorType) and not variable.type.ndim
            return self._interned(("literal", variable.signature())) if is_number else None
        node = variable.owner
        if isinstance(variable.type, DenseTensorType) and variable.type.ndim:
            return None
        if node is None or isinstance(node.op, Subtensor | DimShuffle):
            return self._leaf(variable, view)
        if isinstance(node.op, Elemwise):
            keys = [self._key(v, view) for v in node.inputs]
            if None not in keys:
                return self._interned((node.op, node.outputs.index(variable), *keys))
        return None

    def _leaf(self, variable: Any, view: LoopView) -> int | None:
        """Return the key of what a step reads."""
        index: Index = ()
        while variable.owner is not None and isinstance(variable.owner.op, Subtensor):
            own = [place(part, view, self.lengths) for part in indices_of(variable.owner)]
            known = [part for part in own if part is not None]
            if len(known) < len(own):
                return None
            index = (*known, *index)
            variable = variable.owner.inputs[0]
            while variable.owner is not None and isinstance(variable.owner.op, DimShuffle):
                moved = through(variable.owner, index)
                if moved is None:
                    return None
                index, variable = moved, variable.owner.inputs[0]
        for slot in chain(view.of_kind(SlotKind.STATE), view.of_kind(SlotKind.CONSTANT)):
            if slot.inner_inputs[0] is variable:
                return self._of_slot(slot, index, view)
        return None

    def _of_slot(self, slot: Slot, index: Index, view: LoopView) -> int | None:
        is_forward = view is self.forward
        if slot.kind is SlotKind.STATE:
            # A state of the backward loop is nothing that the forward loop has.
            return self._interned(("state", slot.position)) if is_forward and not index else None
        source, parts, slices = base(slot.outer_input, index)
        if not any(isinstance(part, StepRow) for part in parts):
            return self._interned(("constant", source, parts))
        row, *rest = parts
        if not isinstance(row, StepRow):
            return None
        rows = RowRange(AffineExpr(), n_rows(source, self.forward, self.lengths))
        for part in slices:
            cut = rows.cut(part, self.lengths)
            if cut is None:
                return None
            rows = cut
        row = row.within(rows)
        if row.is_falling is is_forward:
            return None
        # Step i of the backward loop undoes step n - 1 - i of the forward loop.
        n_steps = self.lengths.value_of(view.n_steps)
        ahead = row.offset if is_forward else row.offset - n_steps + AffineExpr(1)
        for state in self.forward.of_kind(SlotKind.STATE):
            if state.outer_output is source and not rest and ahead == AffineExpr():
                return self._interned(("state", state.position))
        return self._interned(("row", source, ahead, tuple(rest)))

    def _interned(self, key: Any) -> int:
        return self._keys.setdefault(key, len(self._keys))


def _is_dear(variable: Variable) -> bool:
    """Whether a number is computed by a function that takes long."""
    op: Any = variable.owner_op
    is_number = isinstance(variable.type, DenseTensorType) and variable.type.dtype == "float64"
    return is_number and isinstance(op, Elemwise) and not isinstance(op.scalar_op, _CHEAP)


def _nodes(view: LoopView) -> list[Any]:
    return list(io_toposort([], [v for slot in view.outputs() for v in slot.inner_outputs]))

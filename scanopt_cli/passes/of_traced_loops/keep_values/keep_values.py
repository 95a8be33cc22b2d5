"""Keep what a forward loop computed for the backward loop that would compute it again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.subtensor import Subtensor

from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.slots import SlotKind, SlotView
from scanopt_cli.loop import TracedLoop
from scanopt_cli.loop.costs import MEBIBYTE, array_bytes
from scanopt_cli.loop.operator_base import LoopView
from scanopt_cli.passes.of_traced_loops.keep_values.loop_pair import LoopPair, whole
from scanopt_cli.pipeline.contract import Pass, PassContext, Rewrite, check_from_zero
from scanopt_cli.pipeline.loop_passes import works_in_place
from scanopt_cli.remarks import Code, Why, because

_MOST_KEPT = 100
"""How many values a step may keep; each is an argument of a compiled function."""


@dataclass(frozen=True)
class KeepValues(Pass):
    """Keep the values that a backward TracedLoop computes again, as the forward loop did.

    A loop that runs the steps of another one from the last to the first, such as the gradient of
    that, reads its states from traces, and computes from them what the step computed. To read a
    value takes less time than a function like exp, log or tanh, a product of matrices, or a factor,
    a determinant, an inverse or a solution of one.

    Legal cases:

    1. A step of the backward loop computes a value by such a function, and the step that it undoes
       computes the same value, up to the order of sums and products. Both compute it of that
       step's rows of traces and of constants, and of what is the same in all steps. The forward
       loop traces the value, and the backward loop reads it.
    2. A step of both reads an entry of a state that is an array, at indices that are the same, and
       nothing else is read of that state's trace. Then the trace of the entry stands for that of
       the whole array, of which each step would copy all entries.

    Preconditions: both loops provably run as many steps, no condition may end them, no step works
    in place, and at most 100 values of a step are kept. With ``memory``, nothing is kept that
    takes more than so many MiB, as far as the number of steps and the shapes are known.

    Out of scope: the steps of inner loops; run ``unroll-loops`` and ``unroll-small`` first.
    """

    name: ClassVar[str] = "keep-values"
    memory: int = 256
    """how many MiB the kept values of a loop may take"""

    def __post_init__(self) -> None:
        """Check the option."""
        check_from_zero(memory=self.memory)

    def rewrites(self, context: PassContext) -> Iterator[Rewrite]:
        """Yield at most one rewrite for each backward loop."""
        for view in context.loops():
            if not _is_eligible(view):
                continue
            lengths = Lengths(view.n_steps)
            for node in dict.fromkeys(_loops_read(view)):
                forward = LoopView.of(node)
                if not _is_eligible(forward) or lengths.value_of(forward.n_steps) != lengths.steps:
                    continue
                try:
                    others = {
                        slot.output
                        for slot in forward.of_kind(SlotKind.STATE)
                        if not _is_read_by(view.node, slot.output, context)
                    }
                    pair = LoopPair(node, view.node, lengths, others)
                    if pair.kept and self._fits(forward, list(pair.kept.values()), context):
                        context.passed(forward, Code.VALUES_KEPT, count=len(pair.kept))
                        yield Rewrite(pair.rewritten())
                        break
                except Exception as error:
                    context.failed(view, error)

    def _fits(self, view: LoopView, kept: list[Variable], context: PassContext) -> bool:
        if len(kept) > _MOST_KEPT:
            context.missed(view, Code.LOOP_LEFT, because(Why.VALUES_MANY, count=_MOST_KEPT))
            return False
        if not isinstance(view.n_steps, Constant):
            return True
        sizes = [n_bytes for value in kept if (n_bytes := array_bytes(value.type)) is not None]
        size = int(view.n_steps.data) * sum(sizes)
        if size <= self.memory * MEBIBYTE:
            return True
        context.missed(view, Code.LOOP_LEFT, because(Why.VALUES_LARGE, memory=size // MEBIBYTE))
        return False


def _is_read_by(node: Apply, array: Variable, context: PassContext) -> bool:
    """Whether a node alone reads an array, or parts of it."""
    return all(
        reader is node
        or (
            isinstance(getattr(reader, "op", None), DimShuffle | Subtensor)
            and all(_is_read_by(node, part, context) for part in reader.outputs)
        )
        for reader, _ in context.clients(array)
    )


def _is_eligible(view: Any) -> bool:
    return (
        isinstance(view, LoopView)
        and view.is_traced
        and not view.is_while
        and not works_in_place(view)
    )


def _loops_read(view: SlotView) -> Iterator[Apply]:
    """Yield the loops whose outputs, or slices of them, are constants of this loop."""
    for slot in view.of_kind(SlotKind.CONSTANT):
        source: Any = whole(slot.outer_input)
        if isinstance(source.owner_op, TracedLoop):
            yield source.owner

"""Keep what a forward loop computed for the backward loop that would compute it again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.subtensor import Subtensor

from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.errors import PassError
from scanopt_cli.ir.slots import SlotKind, SlotView
from scanopt_cli.loop import TracedLoop
from scanopt_cli.loop.operator_base import LoopView
from scanopt_cli.passes.keep_values.loop_pair import LoopPair
from scanopt_cli.pipeline.contract import Pass, PassContext, Rewrite
from scanopt_cli.pipeline.loop_passes import works_in_place
from scanopt_cli.remarks import Code, Why, because

_MEBIBYTE = 1 << 20
_MOST = 100
"""How many values a step may keep; each is an argument of a compiled function."""


@dataclass(frozen=True)
class KeepValues(Pass):
    """Keep the values that a backward TracedLoop computes again, as the forward loop did.

    A loop that runs the steps of another one from the last to the first, such as the gradient of
    that, reads its states from traces, and computes from them what the step computed. To read a
    value takes less time than a function like exp, log or tanh, or a product of matrices.

    Legal case:

    1. A number or an array that a step of the backward loop computes by such a function from rows
       of the forward loop's traces, rows of the forward loop's constants, and constants, all of
       the step that it undoes, as the forward loop does up to the order of sums and products. The
       forward loop traces it.

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
        if self.memory < 0:
            raise PassError("memory is a number from 0 on")

    def rewrites(self, context: PassContext) -> Iterator[Rewrite]:
        """Yield a rewrite of each pair of loops."""
        for view in context.loops():
            if not _may_be_one(view):
                continue
            lengths = Lengths(view.n_steps)
            for node in dict.fromkeys(_loops_read(view)):
                forward = LoopView.of(node)
                if not _may_be_one(forward) or lengths.value_of(forward.n_steps) != lengths.steps:
                    continue
                try:
                    pair = LoopPair(forward, LoopView.of(view.node), lengths)
                    if pair.kept and self._fits(forward, list(pair.kept.values()), context):
                        context.passed(forward, Code.VALUES_KEPT, count=len(pair.kept))
                        yield Rewrite(pair.rewritten())
                        break
                except Exception as error:
                    context.failed(view, error)

    def _fits(self, view: LoopView, kept: list[Variable], context: PassContext) -> bool:
        if len(kept) > _MOST:
            context.missed(view, Code.LOOP_LEFT, because(Why.STEP_LARGE, operations=_MOST))
            return False
        sizes = [prod(v.type.shape) for v in kept if None not in v.type.shape]
        if not isinstance(view.n_steps, Constant):
            return True
        size = int(view.n_steps.data) * sum(sizes) * 8
        if size <= self.memory * _MEBIBYTE:
            return True
        context.missed(view, Code.LOOP_LEFT, because(Why.VALUES_LARGE, memory=size // _MEBIBYTE))
        return False


def _may_be_one(view: Any) -> bool:
    return (
        isinstance(view, LoopView)
        and view.is_traced
        and not view.is_while
        and not works_in_place(view)
    )


def _loops_read(view: SlotView) -> Iterator[Apply]:
    """Yield the loops of whose outputs the constants of a loop are parts."""
    for slot in view.of_kind(SlotKind.CONSTANT):
        source: Any = slot.outer_input
        while isinstance(source.owner_op, DimShuffle | Subtensor):
            source = source.owner.inputs[0]
        if isinstance(source.owner_op, TracedLoop):
            yield source.owner

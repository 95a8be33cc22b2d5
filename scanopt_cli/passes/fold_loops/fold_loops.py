"""Replace loops over constants by their values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import Output
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.type import DenseTensorType
from pytensor.tensor.variable import TensorConstant

from scanopt_cli.errors import brief
from scanopt_cli.ir.interning import has_negative_zero
from scanopt_cli.ir.slots import SlotView
from scanopt_cli.passes.fold_loops.evaluating import Evaluator, NotEvaluatedError
from scanopt_cli.pipeline.contract import PassContext, check_from_zero
from scanopt_cli.pipeline.loop_passes import AnyLoopPass
from scanopt_cli.remarks import Code, Why, because


@dataclass(frozen=True)
class FoldLoops(AnyLoopPass):
    """Evaluate a loop over constants once, and replace what is read of it by the values.

    Legal cases, of Scans and of TracedLoops, in bodies and in an ``OpFromGraph`` too:

    1. All inputs of a loop are computed from constants alone. Each of its outputs that is read
       becomes a constant; of a state, the initial rows are enough, in whatever buffer they are.
    2. Of a trace that is read at constant places, those rows become constants, the trace need not
       be small.
    3. A loop that a condition may end, as long as it runs at most as many steps as are said below.

    Preconditions: every output that is read outside is an array of at most ``max_bytes`` bytes, or
    is read at constant places (case 2), and none of the values is ``-0.0``, which PyTensor takes
    for ``0.0``. The loop runs a step, and its buffers provably hold every step. Each node in it,
    nested loops included, is one of Ops that are safe on any value: no random draws, nothing that
    works in place, has a state or is of another package. Evaluating it takes at most 20,000 nodes,
    a node counted once in each step, and 4 million numbers. A loop that raises stays as it is.

    Out of scope: batched loops (``Blockwise{Scan}``), loops of which no step is run, loops of
    generators or lists, and outputs of a body that are returned as they are, whose type would get
    narrower.
    """

    max_bytes: int = 65_536

    name: ClassVar[str] = "fold-loops"
    repeats: ClassVar[bool] = True
    accepts_batched: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the option."""
        check_from_zero(max_bytes=self.max_bytes)

    def rewrite(self, view: SlotView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return constants for what is read of a loop."""
        reads = _ConstantReads(context, self.max_bytes)
        try:
            with np.errstate(all="ignore"):
                found = reads.of(view.node)
        except NotEvaluatedError as error:
            if error.reason is not None:
                context.missed(view, Code.LOOP_NOT_FOLDED, error.reason)
            return None
        except Exception as error:
            reason = because(Why.EVALUATION_RAISES, error=brief(error))
            context.missed(view, Code.LOOP_NOT_FOLDED, reason)
            return None
        if found:
            context.passed(view, Code.LOOP_FOLDED)
        return found


class _ConstantReads:
    """Evaluates what is read of a loop."""

    def __init__(self, context: PassContext, max_bytes: int) -> None:
        self._context = context
        self._max_bytes = max_bytes
        self._evaluator = Evaluator()

    def of(self, node: Apply) -> dict[Variable, Variable]:
        """Return constants for outputs of a loop, or for rows that are read of them."""
        read = [output for output in node.outputs if self._context.clients(output)]
        values = self._evaluator.values(read)
        return {
            variable: constant
            for output, value in zip(read, values, strict=True)
            for variable, constant in self._constants(output, value)
        }

    def _constants(self, variable: Variable, value: Any) -> Iterator[tuple[Variable, Variable]]:
        """Yield a constant for each reader of rows at constant places, and for all others one."""
        readers = [node for node, _ in self._context.clients(variable)]
        others = [node for node in readers if not _reads_constant_place(node, variable)]
        for node in readers:
            if node not in others:
                (row,) = self._evaluator.values(node.outputs, {variable: value})
                yield from self._constants(node.outputs[0], row)
        if others:
            yield variable, self._constant(variable, value, others)

    def _constant(self, variable: Variable, value: Any, readers: Iterable[Any]) -> Variable:
        data, kind = np.asarray(value), variable.type
        if not isinstance(kind, DenseTensorType) or data.dtype != kind.dtype:
            raise NotEvaluatedError
        if data.nbytes > self._max_bytes:
            raise NotEvaluatedError(because(Why.RESULT_LARGE, bytes=self._max_bytes))
        constant = TensorConstant(kind, data)
        if has_negative_zero(constant):
            raise NotEvaluatedError(because(Why.NEGATIVE_ZERO))
        is_returned = any(isinstance(node.op, Output) for node in readers)
        if is_returned and self._context.path and constant.type != kind:
            raise NotEvaluatedError(because(Why.CONSTANT_RETURNED))
        return constant


def _reads_constant_place(node: Apply, variable: Variable) -> bool:
    """Whether a node takes constant places of ``variable``, by indices and slices."""
    if not isinstance(node.op, Subtensor):
        return False
    source, *places = node.inputs
    return source is variable and all(isinstance(place, Constant) for place in places)

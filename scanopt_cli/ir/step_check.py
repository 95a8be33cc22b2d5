"""The check that a loop runs a step, for what reads or writes its last row.

The last row of a loop of no steps is an error, which PyTensor raises as long as it indexes the rows
of the steps. Rewritten or compiled, the row is the last value that the loop carries, which exists
without a step: so the check is written beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import GE
from pytensor.tensor.basic import ScalarFromTensor

from scanopt_cli.ir.indexing import number

RAN_A_STEP = CheckAndRaise(
    IndexError, "index -1 is out of bounds for axis 0 with size 0: a loop ran no step"
)


def with_step_check(value: Variable, n_steps: Any) -> Any:
    """Return ``value``, which raises an IndexError unless ``n_steps``, a scalar, is positive."""
    return RAN_A_STEP(value, pt.ge(n_steps, 1))


def is_checked(row: Variable, clients: Callable[[Variable], Sequence[tuple[Any, int]]]) -> bool:
    """Whether every reader of a row checks that a loop runs a step."""
    readers = clients(row)
    return bool(readers) and all(is_step_check(node) for node, _ in readers)


def is_step_check(node: object) -> bool:
    """Whether ``node`` checks that a loop runs a step."""
    return getattr(node, "op", None) == RAN_A_STEP


def checked_steps(node: Apply) -> Variable | None:
    """Return the number of steps that a check proves positive, ``None`` for other nodes."""
    if not is_step_check(node):
        return None
    condition = node.inputs[1].owner
    while condition is not None and isinstance(condition.op, ScalarFromTensor):
        condition = condition.inputs[0].owner
    if condition is None or not isinstance(getattr(condition.op, "scalar_op", condition.op), GE):
        return None
    n_steps, least = condition.inputs
    return n_steps if number(least) == 1 else None

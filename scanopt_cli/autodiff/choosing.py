"""Choose the strategy for a graph, and give the reason in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import toposort
from pytensor.scalar.basic import Pow, Sqrt
from pytensor.tensor.basic import Alloc, Join
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.subtensor import AdvancedIncSubtensor, IncSubtensor
from pytensor.tensor.variable import TensorConstant

from scanopt_cli.autodiff.activity import active_nodes
from scanopt_cli.autodiff.choices import Strategy
from scanopt_cli.autodiff.legality import truncations
from scanopt_cli.autodiff.strategies import entries

# Up to this many entries, forward mode builds a faster gradient than reverse mode; see `choose`.
FEW = 3
ROOT_OF_ZERO = "a root or power of what starts at a constant 0 would be NaN in forward mode"


@dataclass(frozen=True, slots=True)
class Choice:
    """A strategy and the reason for it."""

    strategy: Strategy
    reason: str


def choose(output: Variable, wrt: Sequence[Variable], order: int, *, full: bool = False) -> Choice:
    """Choose a strategy by the number of entries of ``wrt`` and by the order.

    A truncated gradient allows reverse mode only, and so does a root of a constant 0, whose tangent
    would be 0 times infinity. The size of ``output`` does not matter: the sum of its entries is
    differentiated, which is a scalar.

    The choice rests on run times in µs (NUMBA, 1,000 steps, after the preset ``grad``) of a loop
    over a scalar state:

    ==============================  ====  ====  ====  ====  ====
    parameters                         2     3     4     6     8
    ==============================  ====  ====  ====  ====  ====
    order 1, forward                 721   835  1124  2112  2413
    order 1, reverse                 857   938   920  1537  1618
    order 2, forward                1375  1721  2036  4114  5289
    order 2, forward-over-reverse   1640  1503  1331  2129  2030
    ==============================  ====  ====  ====  ====  ====

    The gradient of the log-likelihood of GARCH(1,1) with 2 and 3 parameters takes 1071 and 847 µs
    by forward mode, 1177 and 1187 µs by reverse mode. With a state of 20 entries forward mode
    still wins at 6 parameters, by 802 to 1098 µs. So a gradient is built by forward mode for up to
    3 entries, where it always won. At order 2 forward mode wins for 2 entries only, which does not
    justify another rule.

    This function does not check that every Op has a pushforward. If building the derivative finds
    one without, `grad` falls back to reverse mode.
    """
    truncated = next(truncations(wrt, output), None)
    if truncated is not None:
        return Choice(Strategy.REVERSE, f"reverse mode only: {truncated}")
    if may_take_root_of_zero(output):
        return Choice(Strategy.REVERSE, f"reverse mode: {ROOT_OF_ZERO}")
    if full:
        return Choice(
            Strategy.FORWARD_OVER_REVERSE,
            "a whole Hessian: one gradient, and its tangents in all directions at once",
        )
    counts = [entries(variable) for variable in wrt]
    known = None if None in counts else sum(count for count in counts if count is not None)
    if known == 1:
        return Choice(
            Strategy.TAYLOR, f"one scalar input: one loop, with {order + 1} states for each state"
        )
    size = "inputs whose number of entries is not known" if known is None else f"{known} entries"
    if order > 1:
        return Choice(
            Strategy.FORWARD_OVER_REVERSE,
            f"{size}: the tangents of one gradient, two loops for each loop at any order",
        )
    if known is not None and known <= FEW:
        return Choice(
            Strategy.FORWARD,
            f"{size}: few enough that one loop with tangents is faster than two, as measured",
        )
    return Choice(Strategy.REVERSE, f"{size}: one gradient, two loops for each loop")


def may_take_root_of_zero(output: Variable) -> bool:
    """Whether a root or power depends on a variable into which a constant 0 was written or joined.

    The initial values of states are written into their buffers.
    """
    zeros = [v for node in toposort([output]) if _puts_in_zero(node) for v in node.outputs]
    return any(_is_steep_at_zero(place.node) for place in active_nodes(zeros, [output]))


def _puts_in_zero(node: Apply) -> bool:
    if isinstance(node.op, IncSubtensor | AdvancedIncSubtensor):
        return node.op.set_instead_of_inc and _has_zero(node.inputs[1])
    return isinstance(node.op, Join) and any(map(_has_zero, node.inputs))


def _has_zero(variable: Variable) -> bool:
    values = _constant(variable)
    return values is not None and not np.all(values)


def _constant(variable: Variable) -> np.ndarray | None:
    """Return the values that ``variable`` repeats, if they are constant."""
    while variable.owner is not None and isinstance(variable.owner.op, Alloc | DimShuffle):
        variable = variable.owner.inputs[0]
    return variable.data if isinstance(variable, TensorConstant) else None


def _is_steep_at_zero(node: Apply) -> bool:
    """Whether a node computes a root, or a power that may have an exponent below 1."""
    op = node.op.scalar_op if isinstance(node.op, Elemwise) else None
    if isinstance(op, Pow):
        exponents = _constant(node.inputs[1])
        return exponents is None or not np.all(exponents >= 1)
    return isinstance(op, Sqrt)

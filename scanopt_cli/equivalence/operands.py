"""Which operands may be swapped, and the order in which they are compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pytensor.graph.basic import Apply
from pytensor.scalar import basic as ps
from pytensor.tensor.elemwise import Elemwise

# Exactly these classes: a subclass may compute anything.
_COMMUTATIVE = (ps.Add, ps.Mul, ps.AND, ps.OR, ps.XOR, ps.EQ, ps.NEQ)


def commutes(node: Apply) -> bool:
    """Whether ``node`` has two inputs or more, and swapping the first two changes no bit.

    This excludes the maximum (of 0.0 and -0.0), complex results (products may round differently)
    and nodes that work in place.
    """
    op = node.op
    if type(op) is not Elemwise or op.inplace_pattern or len(node.inputs) < 2:
        return False
    is_complex = str(node.outputs[0].type.dtype).startswith("complex")
    return type(op.scalar_op) in _COMMUTATIVE and not is_complex


def in_one_order[Key](
    node: Apply, keys: Sequence[Key], order: Callable[[Key], Any] | None = None
) -> Sequence[Key]:
    """Return the keys of the inputs of ``node``, in one order for inputs that may be swapped."""
    if not commutes(node):
        return keys
    first: Any = keys[:2]
    return [*sorted(first, key=order), *keys[2:]]

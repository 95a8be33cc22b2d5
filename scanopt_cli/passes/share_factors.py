"""Compute the factors that several products have in common once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.scalar.basic import Mul
from pytensor.tensor.elemwise import Elemwise

from scanopt_cli.pipeline.contract import Pass, PassContext, Rewrite
from scanopt_cli.remarks import Code

type _Prefix = tuple[object, ...]
"""The first factors of a product, by which it begins; those of equal value are equal."""


@dataclass(frozen=True)
class ShareFactors(Pass):
    """Compute the factors with which several products of a step begin once.

    The second gradient of a loop computes ``2*c*x`` and ``2*c*y`` in each step, products of three
    operands. With ``2*c`` computed once, that is one multiplication less, and where no step changes
    ``c``, it can leave the loop.

    Legal cases:

    1. Products of three or more operands that begin with the same two or more: ``a*b*x`` and
       ``a*b*y`` become ``p*x`` and ``p*y`` with ``p = a*b``. PyTensor multiplies from left to
       right, so that this rounds as before, to the last bit.
    2. The same where the product of the common factors is one of the products: ``a*b`` and
       ``a*b*x``.
    3. The first two factors may be swapped: ``a*b`` is ``b*a``.

    Preconditions: all operands of a product are floats, and one of the first two has the dtype of
    the product, so that all is multiplied in that one. No step works in place.

    The pass runs once the passes before it have nothing left to do, since ``2*a*x`` beside ``p*x``
    hides that two states are equal. ``simplify`` leaves a body alone that is simplified but for
    that.

    Out of scope: common factors that stand behind others. To multiply by them first rounds
    otherwise, and may overflow: ``(1e200*1e-200)*1e200`` is not ``(1e200*1e200)*1e-200``.
    """

    name: ClassVar[str] = "share-factors"
    everywhere: ClassVar[bool] = True
    starts_phase: ClassVar[bool] = True

    def rewrites(self, context: PassContext) -> Iterator[Rewrite]:
        """Share the factors of a body."""
        if not context.path or any(node.op.destroy_map for node in context.fgraph.apply_nodes):
            return
        shared = with_shared_factors(context.fgraph.toposort())
        if shared:
            context.passed(None, Code.FACTORS_SHARED, count=len(shared))
            yield Rewrite(shared, count=len(shared))


def with_shared_factors(nodes: Iterable[Apply]) -> dict[Variable, Variable]:
    """Return products to put in place of some, of which common first factors are computed once.

    The nodes are in topological order.
    """
    products = [node for node in nodes if _is_product(node)]
    counts = Counter(prefix for node in products for prefix in _prefixes(node.inputs))
    known: dict[_Prefix, Any] = {}
    found: dict[Variable, Variable] = {}
    for node in sorted(products, key=lambda node: len(node.inputs)):
        known.setdefault(_prefixes(node.inputs)[-1], node.outputs[0])
    for node in products:
        prefixes = _prefixes(node.inputs)
        lengths = _shared_lengths(prefixes, counts)
        if not lengths:
            continue
        total: Any = None
        for begin, end in zip((0, *lengths), (*lengths, len(prefixes) + 1), strict=True):
            factors = [found.get(v, v) for v in node.inputs[begin:end]]
            factors = factors if total is None else [total, *factors]
            is_part = end <= len(prefixes)
            total = known.get(prefixes[end - 2]) if is_part else None
            if total is None:
                total = node.op(*factors)
            total = found.get(total, total)
            if is_part:
                known[prefixes[end - 2]] = total
        if total.type == node.outputs[0].type:
            found[node.outputs[0]] = total
    return found


def is_shared(nodes: Iterable[Apply]) -> bool:
    """Whether a product of floats is a factor of several others."""
    counts = Counter(v for node in nodes if _is_product(node) for v in node.inputs)
    made = (v for v in counts if v.owner is not None and _is_product(v.owner))
    return any(counts[variable] > 1 for variable in made)


def _is_product(node: Apply) -> bool:
    """Whether a node multiplies float arrays, in the dtype of the result from the first two on."""
    if not (isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Mul)):
        return False
    dtypes = [str(v.type.dtype) for v in node.inputs]
    are_floats = len(dtypes) > 1 and all(dtype.startswith("float") for dtype in dtypes)
    return are_floats and node.outputs[0].type.dtype in dtypes[:2]


def _prefixes(factors: Sequence[Variable]) -> list[_Prefix]:
    """Return what is equal for equal first factors: of the first two, of three, and so on."""
    keys = [v.signature() if isinstance(v, Constant) else v for v in factors]
    prefixes: list[_Prefix] = [(frozenset(keys[:2]),)]
    for key in keys[2:]:
        prefixes.append((prefixes[-1], key))
    return prefixes


def _shared_lengths(prefixes: Sequence[_Prefix], counts: Counter[_Prefix]) -> list[int]:
    """Return how many first factors of a product are computed once for it and others.

    Of some of them, fewer may be computed for still more products.
    """
    found: list[int] = []
    most = counts[prefixes[-1]]  # those that begin with the whole product read it
    for length, prefix in reversed(list(enumerate(prefixes[:-1], 2))):
        if counts[prefix] > most:
            most = counts[prefix]
            found.append(length)
    return found[::-1]

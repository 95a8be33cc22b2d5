"""The whole Hessian: the product of Hessian and vector, vectorized over a basis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import graph_inputs

from scanopt_cli.autodiff.choices import Strategy
from scanopt_cli.autodiff.pedigree.recorder import ProvenanceRecorder
from scanopt_cli.autodiff.pushforward_rules import fitted
from scanopt_cli.autodiff.strategies import record_inferred, total


def hessian_rows(
    gradient: Sequence[Variable],
    wrt: Sequence[Variable],
    strategy: Strategy,
    recorder: ProvenanceRecorder,
) -> list[Variable]:
    """Return the rows of the Hessian, as a block of shape ``(m, *x.shape)`` for each input x.

    ``m`` is the number of entries of all of ``wrt``, raveled and joined in their order.
    ``gradient`` holds the first derivatives, one for each of ``wrt``.

    Raises
    ------
    TangentError
        If a node that a tangent reaches has no pushforward.
    """
    directions = [variable.type() for variable in wrt]
    products = hessian_vector_product(gradient, wrt, directions, strategy, recorder)
    batches = _basis(wrt)
    known = [product for product in products if product is not None]
    used = set(graph_inputs(known))
    replace = {d: b for d, b in zip(directions, batches, strict=True) if d in used}
    made = vectorize_graph(known, replace=replace) if known else []
    record_inferred(made, recorder)
    blocks: dict[Variable, Any] = dict(zip(known, made, strict=True))
    found = []
    for product, batch in zip(products, batches, strict=True):
        block: Any = pt.zeros_like(batch)
        if product is not None:
            # One that depends on no direction has no batch axis once it is vectorized.
            varies = not set(directions).isdisjoint(graph_inputs([product]))
            block = blocks[product] if varies else block + blocks[product]
        found.append(block)
    return found


def hessian_vector_product(
    gradient: Sequence[Variable],
    wrt: Sequence[Variable],
    directions: Sequence[Variable],
    strategy: Strategy,
    recorder: ProvenanceRecorder,
) -> list[Any]:
    """Return the Hessian times a vector, in one part for each input; ``None`` is zero.

    ``directions`` holds the vector, in one part for each input, of the type of that input.
    """
    if strategy is Strategy.REVERSE:
        pairs = zip(gradient, directions, strict=True)
        return recorder.grad(total([g * d for g, d in pairs]), wrt)  # type: ignore[operator]
    (row,) = recorder.tangents(gradient, [dict(zip(wrt, directions, strict=True))])
    return [None if t is None else fitted(t, x) for t, x in zip(row, wrt, strict=True)]


def _basis(wrt: Sequence[Any]) -> list[Any]:
    """The standard basis, in one part of shape ``(m, *x.shape)`` for each input x."""
    sizes = [variable.size for variable in wrt]
    every = total(sizes)
    blocks, before = [], pt.as_tensor(0)
    for variable, size in zip(wrt, sizes, strict=True):
        block = pt.eye(every, size, k=-before, dtype=variable.type.dtype)
        shape = [every, *(variable.shape[axis] for axis in range(variable.type.ndim))]
        blocks.append(block.reshape(shape, ndim=variable.type.ndim + 1))
        before = before + size
    return blocks

"""The pushforward of one Op: rules for some classes, and a general rule for all others.

More than a third of PyTensor's Ops define no pushforward: `Matmul` and every other Blockwise,
Cholesky, solve, cumsum and so on. But every Op with a pullback has a pushforward too: the pullback
is linear in the cotangents, and the pullback of this linear function maps tangents to tangents. It
is exact, and consists of the same Ops.

``@pushforward.register(TheClass)`` adds a rule for a further class of Ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType, disconnected_type, pullback
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.null_type import NullType
from pytensor.graph.op import Op
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.basic import AllocEmpty
from pytensor.tensor.linalg.products import Expm
from pytensor.tensor.math import Prod
from pytensor.tensor.subtensor import IncSubtensor

from scanopt_cli.autodiff.activity import is_float, useful
from scanopt_cli.autodiff.connections import pattern

type Tangents = Sequence[Variable | None]
"""The tangents of a sequence of variables in one direction; ``None`` is zero."""


class TangentError(Exception):
    """A node has no pushforward; ``path`` names the loops and graphs around it, outermost first."""

    def __init__(self, node: Apply, why: str, path: tuple[str, ...] = ()) -> None:
        self.node = node
        self.why = why
        self.path = path
        inside = f" in {'/'.join(path)}" if path else ""
        super().__init__(f"{node.op}{inside} has no pushforward ({why})")

    def inside(self, title: str) -> TangentError:
        """Return this error as seen from outside the loop or graph called ``title``."""
        return TangentError(self.node, self.why, (title, *self.path))


@dataclass(frozen=True, slots=True)
class Pushed:
    """The outputs of a node or of its replacement, and their tangents.

    ``tangents`` has one sequence for each direction, aligned with ``outputs``.
    """

    outputs: Sequence[Variable]
    tangents: Sequence[Tangents]


@singledispatch
def pushforward(_op: Op, node: Apply, directions: Sequence[Tangents]) -> Pushed:
    """Return the outputs of ``node`` and their tangents in each of ``directions``.

    A direction has a tangent for each input of ``node``, of the type of that input, or ``None`` for
    zero.

    Raises
    ------
    TangentError
        If the Op has no derivative, or if its pullback is not linear: only reverse mode can follow
        such an Op.
    """
    return Pushed(node.outputs, [own_or_transposed(node, tangents) for tangents in directions])


@pushforward.register(IncSubtensor)
def _inc_subtensor(op: IncSubtensor, node: Apply, directions: Sequence[Tangents]) -> Pushed:
    """Apply PyTensor's rule, except to a write into an AllocEmpty, as in the buffers of loops.

    The tangent of such a write is written into the same empty buffer.
    """
    buffer, _, *indices = node.inputs
    made_by = buffer.owner
    if not (op.set_instead_of_inc and made_by and isinstance(made_by.op, AllocEmpty)):
        return pushforward.dispatch(object)(op, node, directions)

    results: list[Any] = [
        [None if written is None else op(buffer, written, *indices)]
        for _, written, *_ in directions
    ]
    return Pushed(node.outputs, results)


@pushforward.register(Prod)
def _prod(op: Prod, node: Apply, directions: Sequence[Tangents]) -> Pushed:
    """Sum the tangents of the factors, each times its slope.

    Each factor enters one product only, so the pullback of ones has, for each factor, the
    derivative of its product.
    """
    (factors,), (product,) = node.inputs, node.outputs
    (slopes,) = op.pullback([factors], [product], [pt.ones_like(product)])
    results = [
        [None if tangent is None else pt.sum(slopes * tangent, axis=op.axis)]
        for (tangent,) in directions
    ]
    return Pushed(node.outputs, results)


@pushforward.register(Expm)
def _expm(op: Expm, node: Apply, directions: Sequence[Tangents]) -> Pushed:
    """Read the tangent off the exponential of a block matrix (Van Loan 1978)."""
    (matrix,), size = node.inputs, node.inputs[0].shape[0]  # type: ignore[attr-defined]

    def one(tangents: Tangents) -> list[Any]:
        (tangent,) = tangents
        if tangent is None:
            return [None]
        above = pt.join(1, matrix, tangent)
        below = pt.join(1, pt.zeros_like(matrix), matrix)
        both: Any = op(pt.join(0, above, below))
        return [both[:size, size:]]

    return Pushed(node.outputs, [one(tangents) for tangents in directions])


def transposed(node: Apply, tangents: Tangents) -> Tangents:
    """Return the tangents of the outputs of ``node`` by the transpose of its pullback.

    Raises
    ------
    TangentError
        If the Op has no pullback, or one that is not linear, such as that of ``grad_clip``.
    """
    cotangents: list[Any] = [
        output.type() if is_float(output) else disconnected_type() for output in node.outputs
    ]
    floats = [c for c in cotangents if not isinstance(c.type, DisconnectedType)]
    try:
        terms = list(node.op.pullback(list(node.inputs), list(node.outputs), cotangents))
        pairs = [
            (term, tangent)
            for term, tangent in zip(terms, tangents, strict=True)
            if tangent is not None and not isinstance(term.type, DisconnectedType)
        ]
        for term, _ in pairs:
            if isinstance(term.type, NullType):
                raise TangentError(node, without_preamble(str(term.type.why_null)))
        rows = [_by_cotangent(term, tangent, floats) for term, tangent in pairs]
    except TangentError:
        raise
    except Exception as error:
        raise TangentError(node, short(error)) from error
    found = [_sum(column) for column in zip(*rows, strict=True)] or [None] * len(floats)
    known = [tangent for tangent in found if tangent is not None]
    if not useful(known, smooth=False).isdisjoint(floats):
        raise TangentError(node, "its pullback is not linear, so only reverse mode follows it")
    # The tangents may still depend on the shapes of the cotangents, which are those of the outputs.
    left = set(graph_inputs(known)).intersection(floats)
    shapes = {
        cotangent: output.zeros_like()  # type: ignore[attr-defined]
        for cotangent, output in zip(cotangents, node.outputs, strict=True)
        if cotangent in left
    }
    # `clone_replace` would copy all that the zeros are computed from, loops among them.
    settled: Any = iter(graph_replace(known, shapes, strict=False) if shapes else known)
    by_cotangent = {
        cotangent: None if tangent is None else next(settled)
        for cotangent, tangent in zip(floats, found, strict=True)
    }
    return [by_cotangent.get(cotangent) for cotangent in cotangents]


def _by_cotangent(
    term: Variable, tangent: Variable, cotangents: Sequence[Variable]
) -> Sequence[Variable | None]:
    """The gradient of ``term``, weighted by ``tangent``, by each of ``cotangents``.

    This takes one term at a time: given two terms of which one is computed from the other, PyTensor
    loses a contribution.
    """
    found: Any = pullback(
        f=[term],
        wrt=list(cotangents),
        cotangents=[tangent],
        disconnected_inputs="ignore",
        return_disconnected="none",
    )
    rows: Sequence[Variable | None] = found
    return rows


def _sum(terms: Sequence[Variable | None]) -> Any:
    known: list[Any] = [term for term in terms if term is not None]
    return sum(known[1:], start=known[0]) if known else None


def fitted(tangent: Any, variable: Any) -> Any:
    """Return ``tangent``, or zeros for ``None``, cast and broadcast to the type of ``variable``."""
    if tangent is None:
        return pt.zeros_like(variable)
    kind = variable.type
    if tangent.type.dtype != kind.dtype:
        tangent = tangent.astype(kind.dtype)
    grows = zip(tangent.type.broadcastable, kind.broadcastable, strict=True)
    if any(narrow and not wide for narrow, wide in grows):
        tangent = pt.second(variable, tangent)
    return tangent if kind.is_super(tangent.type) else kind.filter_variable(tangent)


def own_or_transposed(node: Apply, tangents: Tangents, *, with_zeros: bool = True) -> Tangents:
    """Return the tangents by the Op's own pushforward, or `transposed` if that lacks any tangent.

    A tangent that is zero is given to the Op as zeros, or not at all.
    """
    given = [
        pt.zeros_like(variable)
        if with_zeros and tangent is None and is_float(variable)
        else tangent
        for variable, tangent in zip(node.inputs, tangents, strict=True)
    ]
    disconnected = [disconnected_type() if tangent is None else tangent for tangent in given]
    try:
        found = list(node.op.pushforward(list(node.inputs), list(node.outputs), disconnected))
    except Exception:
        return transposed(node, tangents)
    results: list[Variable | None] = []
    for position, tangent in enumerate(found):
        if isinstance(tangent.type, DisconnectedType | NullType):
            # Some Ops return this type for a tangent they do not implement (a random draw, an
            # `arange` of floats).
            if _is_reached(node, position, tangents):
                return transposed(node, tangents)
            results.append(None)
        elif getattr(tangent.type, "ndim", None) != getattr(
            node.outputs[position].type, "ndim", None
        ):
            return transposed(node, tangents)  # `zero_grad` returns a scalar zero for any output
        else:
            results.append(tangent)
    return results


def _is_reached(node: Apply, position: int, tangents: Tangents) -> bool:
    return is_float(node.outputs[position]) and any(
        row[position] and tangent is not None
        for row, tangent in zip(pattern(node), tangents, strict=True)
    )


def without_preamble(text: str) -> str:
    """Return PyTensor's reason why a gradient is undefined, without its opening words."""
    return text.removeprefix("This variable is Null because ").strip().rstrip(".")


def short(error: Exception) -> str:
    """Return the class of an error and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__

"""How tangents go through one Op: a rule for each class, and what serves where there is none.

PyTensor asks an Op for its pushforward, and a good third of the Ops have none: `Matmul` and all
else that is a Blockwise, Cholesky, solve, cumsum and so on. But every Op that has a pullback has a
pushforward too: the pullback is linear in the cotangents, and the pullback of that linear function
is what takes tangents to tangents. It is made of the same Ops and exact.

Further Ops get a rule of their own by ``@pushforward.register(TheirClass)``.
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
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.basic import AllocEmpty
from pytensor.tensor.linalg.products import Expm
from pytensor.tensor.math import Prod
from pytensor.tensor.subtensor import IncSubtensor

from scanopt_cli.autodiff.connections import is_float, needed, pattern

type Tangents = Sequence[Variable | None]
"""One tangent for each of some variables, in one direction; ``None`` is zero."""


class TangentError(Exception):
    """Tangents do not go through a node; ``path`` holds the loops and graphs it is in."""

    def __init__(self, node: Apply, why: str, path: tuple[str, ...] = ()) -> None:
        self.node = node
        self.why = why
        self.path = path
        inside = f" in {'/'.join(path)}" if path else ""
        super().__init__(f"{node.op}{inside} has no pushforward ({why})")

    def inside(self, title: str) -> TangentError:
        """Return the same, seen from around a loop or graph called ``title``."""
        return TangentError(self.node, self.why, (title, *self.path))


@dataclass(frozen=True, slots=True)
class Pushed:
    """The outputs of a node, which may have been computed anew, and their tangents.

    ``tangents`` has one sequence a direction, each aligned with ``outputs``.
    """

    outputs: Sequence[Variable]
    tangents: Sequence[Tangents]


@singledispatch
def pushforward(op: Op, node: Apply, directions: Sequence[Tangents]) -> Pushed:
    """Return the outputs of ``node`` and their tangents in each of ``directions``.

    A direction has one tangent for each input of ``node``, of the type of that input.

    Raises
    ------
    TangentError
        If the Op has no derivative, or one that only reverse mode can follow.
    """
    return Pushed(node.outputs, [_own_or_transposed(op, node, tangents) for tangents in directions])


@pushforward.register(IncSubtensor)
def _inc_subtensor(op: IncSubtensor, node: Apply, directions: Sequence[Tangents]) -> Pushed:
    """PyTensor's rule, but rows that are empty stay so: buffers of loops start that way."""
    buffer, _, *indices = node.inputs
    made_by = buffer.owner
    if not (op.set_instead_of_inc and made_by and isinstance(made_by.op, AllocEmpty)):
        return pushforward.dispatch(object)(op, node, directions)

    def one(tangents: Tangents) -> list[Any]:
        written = tangents[1]
        return [None if written is None else op(buffer, written, *indices)]

    return Pushed(node.outputs, [one(tangents) for tangents in directions])


@pushforward.register(Prod)
def _prod(op: Prod, node: Apply, directions: Sequence[Tangents]) -> Pushed:
    """Each factor counts in one product only: its pullback tells how much."""
    (factors,), (product,) = node.inputs, node.outputs
    ones = pt.ones_like(product)
    (slopes,) = op.pullback([factors], [product], [ones])

    def one(tangents: Tangents) -> Tangents:
        (tangent,) = tangents
        return [None if tangent is None else pt.sum(slopes * tangent, axis=op.axis)]

    return Pushed(node.outputs, [one(tangents) for tangents in directions])


@pushforward.register(Expm)
def _expm(op: Expm, node: Apply, directions: Sequence[Tangents]) -> Pushed:
    """The exponential of a block matrix holds its derivative (Van Loan 1978)."""
    (matrix,), size = node.inputs, node.inputs[0].shape[0]  # type: ignore[attr-defined]

    def one(tangents: Tangents) -> list[Any]:
        (tangent,) = tangents
        if tangent is None:
            return [None]
        above = pt.join(1, matrix, tangent)
        below = pt.join(1, zeros(matrix), matrix)
        both: Any = op(pt.join(0, above, below))
        return [both[:size, size:]]

    return Pushed(node.outputs, [one(tangents) for tangents in directions])


def elementwise(node: Apply, tangents: Tangents) -> Tangents:
    """Return the tangents of an Elemwise by PyTensor's rule, with zeros left out.

    PyTensor multiplies the derivative by zeros that are not left out, and where that is NaN (of a
    power by its constant exponent, at a negative base) so is the result.
    """
    given = [disconnected_type() if tangent is None else tangent for tangent in tangents]
    try:
        found = node.op.pushforward(list(node.inputs), list(node.outputs), given)
    except Exception:
        return transposed(node, tangents)
    if any(isinstance(tangent.type, NullType) for tangent in found):
        return transposed(node, tangents)
    return [None if isinstance(t.type, DisconnectedType) else t for t in found]


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
    if not needed(known, smooth=False).isdisjoint(floats):
        raise TangentError(node, "its pullback is not linear, so only reverse mode follows it")
    # What is left of the cotangents is their shape.
    left = set(graph_inputs(known)).intersection(floats)
    shapes = {
        cotangent: output.zeros_like()  # type: ignore[attr-defined]
        for cotangent, output in zip(cotangents, node.outputs, strict=True)
        if cotangent in left
    }
    by_cotangent = dict(zip(floats, found, strict=True))
    results = [by_cotangent.get(cotangent) for cotangent in cotangents]
    if not shapes:
        return results
    settled: list[Any] = [None if r is None else clone_replace(r, shapes) for r in results]
    return settled


def _by_cotangent(
    term: Variable, tangent: Variable, cotangents: Sequence[Variable]
) -> Sequence[Variable | None]:
    """The gradient of ``term``, weighted by ``tangent``, by each of ``cotangents``.

    One term at a time: where one is computed from another, PyTensor would lose a share.
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


def zeros(variable: Any) -> Any:
    """Return zeros of the shape and type of ``variable``."""
    return pt.zeros_like(variable)


def fitted(tangent: Any, variable: Any) -> Any:
    """Return ``tangent`` with the type of ``variable``, whose tangent it is."""
    kind = variable.type
    if tangent.type.dtype != kind.dtype:
        tangent = tangent.astype(kind.dtype)
    grows = zip(tangent.type.broadcastable, kind.broadcastable, strict=True)
    if any(narrow and not wide for narrow, wide in grows):
        tangent = pt.second(variable, tangent)
    return tangent if kind.is_super(tangent.type) else kind.filter_variable(tangent)


def _own_or_transposed(op: Op, node: Apply, tangents: Tangents) -> Tangents:
    """By the Op's own pushforward, if it has one and that knows every tangent; else transposed."""
    given = [
        zeros(variable) if tangent is None and is_float(variable) else tangent
        for variable, tangent in zip(node.inputs, tangents, strict=True)
    ]
    disconnected = [disconnected_type() if tangent is None else tangent for tangent in given]
    try:
        found = list(op.pushforward(list(node.inputs), list(node.outputs), disconnected))
    except Exception:
        return transposed(node, tangents)
    results: list[Variable | None] = []
    for position, tangent in enumerate(found):
        if isinstance(tangent.type, DisconnectedType | NullType):
            # Some Ops say so of what they only did not implement (a draw, an `arange` of floats).
            if _is_reached(node, position, tangents):
                return transposed(node, tangents)
            results.append(None)
        elif getattr(tangent.type, "ndim", None) != getattr(
            node.outputs[position].type, "ndim", None
        ):
            return transposed(node, tangents)  # `zero_grad` has a scalar zero for all
        else:
            results.append(tangent)
    return results


def _is_reached(node: Apply, position: int, tangents: Tangents) -> bool:
    return is_float(node.outputs[position]) and any(
        row[position] and tangent is not None
        for row, tangent in zip(pattern(node), tangents, strict=True)
    )


def without_preamble(text: str) -> str:
    """Return why a gradient is undefined, without how PyTensor begins to tell it."""
    return text.removeprefix("This variable is Null because ").strip().rstrip(".")


def short(error: Exception) -> str:
    """Return the class of an error and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__

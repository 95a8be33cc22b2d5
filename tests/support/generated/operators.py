"""What the steps of generated loops compute with: each operator, and the kinds it works on."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from support.generated.plans import WIDTH, Kind

_REAL, _VECTOR, _MATRIX = Kind.REAL, Kind.VECTOR, Kind.MATRIX


def _definite(m: Variable) -> Variable:
    """A matrix of moderate numbers that has an inverse and a Cholesky factor, made of ``m``."""
    m = pt.tanh(m)
    return pt.dot(m, m.T) + pt.eye(WIDTH)


ELEMENTWISE: dict[str, Callable[..., Variable]] = {
    "tanh": pt.tanh,
    "half": lambda a: 0.5 * a,
    "negate": lambda a: -a,
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "minimum": pt.minimum,
    "maximum": pt.maximum,
    "gate": lambda a, b: pt.tanh(a) * b,
    "multiply": lambda a, b: a * b,
    "add_three": pt.add,
    "successor": lambda a: (a + 1) % 7,
    "add_modulo": lambda a, b: (a + b) % 11,
}
"""Operators on operands of one kind, which is that of the result."""

FORMS: dict[bool, tuple[tuple[str, ...], ...]] = {
    False: (("successor",), ("add_modulo", "minimum", "maximum")),
    True: (
        ("tanh", "half", "negate"),
        ("add", "subtract", "minimum", "maximum", "gate", "multiply"),
        ("add_three",),
    ),
}
"""The elementwise operators of one, of two and of three operands, of integers and of floats."""


class Operator(NamedTuple):
    """An operator between kinds."""

    result: Kind
    operands: tuple[Kind, ...]
    build: Callable[..., Variable]


CONVERSIONS: dict[str, Operator] = {
    "total": Operator(_REAL, (_VECTOR,), lambda a: a.sum()),
    "total_matrix": Operator(_REAL, (_MATRIX,), lambda a: a.sum()),
    "spread": Operator(_VECTOR, (_REAL,), lambda a: pt.full((WIDTH,), a)),
    "fill": Operator(_MATRIX, (_REAL,), lambda a: pt.full((WIDTH, WIDTH), a)),
    "diagonal": Operator(_MATRIX, (_VECTOR,), pt.diag),
    "sum_rows": Operator(_VECTOR, (_MATRIX,), lambda a: a.sum(axis=0)),
    "sum_columns": Operator(_VECTOR, (_MATRIX,), lambda a: a.sum(axis=1)),
    "as_real": Operator(_REAL, (Kind.INTEGER,), lambda a: a.astype("float64")),
    "is_positive": Operator(Kind.INTEGER, (_REAL,), lambda a: (a > 0).astype("int64")),
}

ALGEBRA: dict[str, Operator] = {
    "dot": Operator(_MATRIX, (_MATRIX, _MATRIX), pt.dot),
    "matrix_vector": Operator(_VECTOR, (_MATRIX, _VECTOR), pt.dot),
    "matmul_vector": Operator(_VECTOR, (_MATRIX, _VECTOR), lambda a, b: a @ b),
    "vector_matrix": Operator(_VECTOR, (_VECTOR, _MATRIX), pt.dot),
    "inner_product": Operator(_REAL, (_VECTOR, _VECTOR), pt.dot),
    "outer": Operator(_MATRIX, (_VECTOR, _VECTOR), pt.outer),
    "scale": Operator(_VECTOR, (_REAL, _VECTOR), lambda a, b: a * b),
    "scale_matrix": Operator(_MATRIX, (_REAL, _MATRIX), lambda a, b: a * b),
    "add_to_rows": Operator(_MATRIX, (_MATRIX, _VECTOR), lambda a, b: a + b),
    "transpose": Operator(_MATRIX, (_MATRIX,), lambda a: a.T),
    "trace": Operator(_REAL, (_MATRIX,), pt.trace),
    "log_sum_exp": Operator(
        _VECTOR, (_MATRIX, _VECTOR), lambda a, b: pt.logsumexp(a + b[:, None], axis=0)
    ),
    "log_add_exp": Operator(_REAL, (_REAL, _REAL), lambda a, b: pt.log(pt.exp(a) + pt.exp(b))),
    "softmax": Operator(_VECTOR, (_VECTOR,), lambda a: pt.special.softmax(a, axis=-1)),
    "log_softmax": Operator(_VECTOR, (_VECTOR,), lambda a: pt.special.log_softmax(a, axis=-1)),
    "solve": Operator(_VECTOR, (_MATRIX, _VECTOR), lambda a, b: pt.linalg.solve(_definite(a), b)),
    "cholesky": Operator(_MATRIX, (_MATRIX,), lambda a: pt.linalg.cholesky(_definite(a))),
}

SPREADING = {_VECTOR: "spread", _MATRIX: "fill"}
"""How a number becomes a constant of a kind."""

PRODUCTS = {
    _REAL: ("inner_product",),
    _VECTOR: ("matrix_vector", "matmul_vector", "vector_matrix"),
    _MATRIX: ("dot", "outer"),
}
"""The products of a kind that loops add up."""

MULTIPLYING = {"multiply", "scale", "scale_matrix"}.union(*PRODUCTS.values())
"""What makes numbers large if it is done to a state, with itself, in every step."""

CHANGING_NAN = {"multiply", *ALGEBRA}
"""Operators whose simplification may lose a NaN: ``0 * inf``, ``log(exp(inf))``."""

BLOCKWISE = {"matmul_vector", "solve", "cholesky"}
"""Operators that are a Blockwise."""

SYMBOLIC = {"diagonal", "softmax", "log_softmax", "log_sum_exp"}
"""Operators that are an OpFromGraph."""

OPERATORS: dict[str, Callable[..., Variable]] = {
    **ELEMENTWISE,
    **{name: operator.build for name, operator in (CONVERSIONS | ALGEBRA).items()},
    "exceeds": lambda a, bound: a > bound,
}

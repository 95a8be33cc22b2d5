"""Reads and writes by index: ``x[1:]``, ``x[i].set(y)``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.basic import ScalarFromTensor

from scanopt_cli.ir.indexing import indices_of
from scanopt_cli.python_source.code import Binding, Code, Operand, Part, code, sequence
from scanopt_cli.python_source.values import number


def read(node: Apply) -> Code:
    """Return a read by index, of a Subtensor or of one by arrays."""
    return _indexed(Operand(node.inputs[0], Binding.ATOM, bare=False), indices_of(node))


def written(node: Apply) -> Iterator[Code]:
    """Yield a write by index, of an IncSubtensor or of one by arrays."""
    array = Operand(node.inputs[0], Binding.ATOM, bare=False)
    place = _indexed(array, indices_of(node))
    op: Any = node.op
    verb = "set" if op.set_instead_of_inc else "inc"
    options = ""
    if getattr(op, "ignore_duplicates", False):
        options = ", ignore_duplicates=True"
    yield code(f"{{}}.{verb}({{}}{options})", place, node.inputs[1])


def _indexed(array: Part, indices: Sequence[Any]) -> Code:
    if not indices:
        return code("{}[()]", array)
    return code("{}[{}]", array, sequence([_index(index) for index in indices]))


def _index(index: Any) -> Part:
    if index is None:
        return "None"
    if isinstance(index, slice):
        start, stop = (
            "" if bound is None else _bound(bound) for bound in (index.start, index.stop)
        )
        if index.step is None:
            return code("{}:{}", start, stop)
        return code("{}:{}:{}", start, stop, _bound(index.step))
    return _bound(index)


def _bound(variable: Any) -> Part:
    if not isinstance(variable, Variable):
        return number(variable)
    if isinstance(variable, Constant):
        if isinstance(variable.type, ScalarType) and np.ndim(variable.data) == 0:
            return number(variable.data)
        return Operand(variable, rows=True)
    node = variable.owner
    if node is not None and isinstance(node.op, ScalarFromTensor):
        return Operand(node.inputs[0], bare=False)
    return Operand(variable, bare=False)

"""Renders expressions as short code: ``tanh(W @ h[t-1] + x[t])``, ``empty(n+1)[:1].set(h0)``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.basic import ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Shape_i, SpecifyShape
from pytensor.tensor.subtensor import IncSubtensor, Subtensor, get_idx_list

from scanopt_cli.analysis.affine import AffineExpr
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.dtypes import is_count
from scanopt_cli.ir.indexing import is_full_slice
from scanopt_cli.ir.inner_graphs import op_name
from scanopt_cli.ir.scan_view import is_loop, loop_op
from scanopt_cli.ir.slots import HasSlots, SlotKind, SlotView
from scanopt_cli.text import cut

_INFIX = {"Add": "+", "Sub": "-", "Mul": "*", "TrueDiv": "/", "Pow": "**"}
_SEE_THROUGH = (ScalarFromTensor, TensorFromScalar, SpecifyShape)
_DEPTH = 4
LONGEST = 60
_LONGEST_OPERANDS = 1_000
"""How long the operands of one operation may be in a text that is not cut."""
_FEW = 4
LEFT_OUT = "…"
"""What stands for operations that are too deep."""


class Values(Protocol):
    """What knows the numbers that variables hold: `Lengths`, or `StepLengths` inside of a loop."""

    def value_of(self, variable: Variable) -> AffineExpr:
        """Return the number that a scalar variable holds."""


def describe(
    variable: Variable,
    names: Mapping[Variable, str] | None = None,
    depth: int = _DEPTH,
    lengths: Values | None = None,
    longest: int | None = LONGEST,
) -> str:
    """Return ``variable`` as code, at most ``depth`` operations deep and ``longest`` long.

    ``names`` gives the text of a variable, and overrides its own name. Deeper operations, and
    operands behind the first 1,000 characters of others, are shown as ``…``. Who describes many
    variables of one graph passes the same ``lengths`` each time, so that each length is read once.
    """
    describer = _Describer(names or {}, lengths or Lengths(), longest or _LONGEST_OPERANDS)
    text = describer.describe(variable, depth)
    if _is_infix(variable.owner) and text.startswith("("):
        text = text[1:-1]
    return text if longest is None else cut(text, longest)


def inner_names(view: SlotView, slot_names: list[str]) -> dict[Variable, str]:
    """Return the text of each input of the body: ``x[t]``, ``h[t-1]``, ``W``."""
    names: dict[Variable, str] = {}
    for slot, name in zip(view.slots, slot_names, strict=True):
        for position, variable in enumerate(slot.inner_inputs):
            if slot.kind in (SlotKind.NON_SEQ, SlotKind.CONSTANT):
                names[variable] = name
            elif slot.kind is SlotKind.INDEX:
                names[variable] = "t"
            else:
                names[variable] = f"{name}[{at_tap(slot.taps[position] if slot.taps else 0)}]"
    return names


def loop_results(titles: Mapping[Apply, str]) -> dict[Variable, str]:
    """Return a text for each output without a name of the loops among ``titles``."""
    return {
        output: _result(output, title)
        for node, title in titles.items()
        if is_loop(node)
        for output in node.outputs
        if not output.name
    }


def at_tap(tap: int) -> str:
    """Return a tap as a time index: ``t``, ``t-1``."""
    return f"t{tap:+d}" if tap else "t"


@dataclass(frozen=True, slots=True)
class _Describer:
    names: Mapping[Variable, str]
    lengths: Values
    longest: int

    def describe(self, variable: Variable, depth: int) -> str:
        if variable in self.names:
            return self.names[variable]
        if isinstance(variable, Constant):
            return _constant(variable)
        node = variable.owner
        if node is not None and is_count(variable):
            length = self.lengths.value_of(variable)
            is_named = any(a.axis is None and a.variable in self.names for a in length.atoms)
            if not is_named and (text := str(length)) != "?":
                return text
        if variable.name:
            return str(variable.name)
        if node is None:
            return _unnamed(variable)
        if isinstance(node.op, _SEE_THROUGH):
            return self.describe(node.inputs[0], depth)
        if is_loop(node):
            return _result(variable, op_name(node.op))
        if depth == 0:
            return LEFT_OUT
        return self._operation(node, depth - 1)

    def _operation(self, node: Apply, depth: int) -> str:
        op = node.op
        parts = node.inputs
        if isinstance(op, Subtensor):
            return f"{self.describe(parts[0], depth)}[{self._indices(op, parts, depth)}]"
        if isinstance(op, IncSubtensor):
            array, value = (self.describe(part, depth) for part in parts[:2])
            verb = "set" if op.set_instead_of_inc else "inc"
            indices = self._indices(op, [parts[0], *parts[2:]], depth)
            return f"{array}[{indices}].{verb}({value})"
        if isinstance(op, Shape_i):
            return f"{self.describe(parts[0], depth)}.shape[{op.i}]"
        if isinstance(op, DimShuffle) and op.is_expand_dims:
            return self.describe(parts[0], depth)
        operands = self._operands(parts, depth)
        if isinstance(op, Dot):
            return f"({' @ '.join(operands)})"
        label = _label(node)
        if _is_infix(node):
            return f"({f' {_INFIX[label]} '.join(operands)})"
        return f"{label}({', '.join(operands)})"

    def _operands(self, parts: Sequence[Variable], depth: int) -> list[str]:
        """Return the operands as code; those behind some long ones are ``…``."""
        texts: list[str] = []
        length = 0
        for part in parts:
            if length > self.longest:
                return [*texts, LEFT_OUT]
            texts.append(self.describe(part, depth))
            length += len(texts[-1])
        return texts

    def _indices(self, op: Subtensor | IncSubtensor, inputs: Sequence[Variable], depth: int) -> str:
        def text_of(part: Variable | None) -> str:
            return "" if part is None else self.describe(part, depth)

        texts = []
        for index in get_idx_list(inputs, op.idx_list):
            if is_full_slice(index):
                texts.append(":")
            elif isinstance(index, slice):
                step = "" if index.step is None else f":{text_of(index.step)}"
                texts.append(f"{text_of(index.start)}:{text_of(index.stop)}{step}")
            else:
                texts.append(text_of(index))
        return ", ".join(texts)


def _unnamed(variable: Variable) -> str:
    """Return the text of an input without a name: ``<int16 scalar>``."""
    kind = variable.type
    dtype, ndim = getattr(kind, "dtype", None), getattr(kind, "ndim", 0)
    if dtype is None:
        return f"<{type(kind).__name__}>"
    shapes = ("scalar", "vector", "matrix")
    return f"<{dtype} {shapes[ndim] if ndim < len(shapes) else f'tensor of {ndim} axes'}>"


def _result(variable: Variable, title: str) -> str:
    node = variable.owner
    op = loop_op(node)
    name = titled(type(op).__name__, title)
    assert variable.index is not None
    if isinstance(op, HasSlots):
        return f"{name}.{op.output_name(variable.index)}"
    return f"{name}.{variable.index}" if len(node.outputs) > 1 else name


def titled(design: str, title: str) -> str:
    """Return what a loop is, and its title: ``Scan f``; ``TracedLoop`` if it has no name."""
    return f"{before_title(design, title)}{title}"


def before_title(design: str, title: str) -> str:
    """Return what stands before the title of a loop: what it is, unless the title says it."""
    return "" if title.startswith(design) else f"{design} "


def _is_infix(node: Apply | None) -> bool:
    return node is not None and len(node.inputs) > 1 and _label(node) in _INFIX


def _label(node: Apply) -> str:
    if isinstance(node.op, Elemwise):
        name = type(node.op.scalar_op).__name__
        return name if name in _INFIX else name.removeprefix("Scalar").lower()
    return str(node.op).partition("{")[0]


def _constant(constant: Constant) -> str:
    data = constant.data
    if getattr(data, "size", 1) == 1 and getattr(data, "ndim", 0) == 0:
        return str(data)
    if isinstance(data, np.ndarray) and data.size <= _FEW:
        return str(data.tolist())
    return f"{getattr(data, 'dtype', 'constant')}{list(getattr(data, 'shape', ()))}"

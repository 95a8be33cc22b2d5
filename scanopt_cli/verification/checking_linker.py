"""A linker that checks, at run time, that every array has the static shape of its variable.

Compiled code trusts static lengths, and indexes without checking bounds; a file may declare wrong
ones. PyTensor itself declares wrong ones for loops of no steps, so empty outputs of loops, and
copies of them, are not checked. `filled_buffers` shows which outputs depend on memory that was
never written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import Any

from pytensor.compile.ops import DeepCopyOp
from pytensor.graph.basic import Apply
from pytensor.link.vm import VMLinker
from pytensor.tensor.basic import AllocEmpty

from scanopt_cli.ir.inner_graphs import op_name
from scanopt_cli.ir.scan_view import scan_op

_numbers = cycle(range(1, 100))
_filling: int | None = None


class StaticShapeError(Exception):
    """A node computed an array that is not of its static shape."""


class CheckingLinker(VMLinker):
    """PyTensor's virtual machine, which checks the static shape of all that it computes."""

    def make_vm(self, nodes: Sequence[Apply], thunks: Sequence[Any], *more: Any) -> Any:
        """Return a virtual machine that checks what each of ``thunks`` computes."""
        checked = [_checked(node, thunk) for node, thunk in zip(nodes, thunks, strict=True)]
        return super().make_vm(nodes, checked, *more)


def _checked(node: Apply, thunk: Any) -> Any:
    """Return ``thunk`` that checks the outputs that have static lengths, and fills new arrays."""
    shapes = [getattr(variable.type, "shape", ()) for variable in node.outputs]
    fills, is_loop = isinstance(node.op, AllocEmpty), _is_output_of_loop(node)
    expected = [
        (cell, shape)
        for cell, shape in zip(thunk.outputs, shapes, strict=True)
        if any(length is not None for length in shape)
    ]
    if not (expected or fills):
        return thunk

    def checked() -> Any:
        missing = thunk()
        if fills and _filling is not None:
            thunk.outputs[0][0].fill(_filling)
        for cell, shape in () if missing else expected:
            found = cell[0].shape
            if is_loop and 0 in found:
                continue  # PyTensor loses the shape of the rows if there are no steps
            if any(s is not None and s != f for s, f in zip(shape, found, strict=True)):
                raise StaticShapeError(
                    f"{op_name(node.op)} computed an array of shape {found}, "
                    f"declared to be of static shape {shape}"
                )
        return missing

    # PyTensor keeps notes on a thunk; C code would be called without the check.
    vars(checked).update((name, note) for name, note in vars(thunk).items() if name != "cthunk")
    return checked


def _is_output_of_loop(node: Apply) -> bool:
    """Whether a node is a Scan, or copies an output of one."""
    source = node.inputs[0].owner if isinstance(node.op, DeepCopyOp) else node
    return source is not None and scan_op(source) is not None


@contextmanager
def filled_buffers() -> Iterator[None]:
    """Fill the arrays that AllocEmpty makes with a number, another one for each block."""
    global _filling
    _filling = next(_numbers)
    try:
        yield
    finally:
        _filling = None

"""Honest classes whose names and numbers reach generated code, or up to which they count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.conditional.op import IfElse, ifelse
from pytensor.graph.basic import Apply, FrozenApply, NominalVariable
from pytensor.graph.fg import FunctionGraph
from pytensor.raise_op import Assert
from pytensor.scalar.basic import Add, ScalarMaximum, upcast_out
from pytensor.tensor.basic import ARange, ExtractDiag, Split
from pytensor.tensor.elemwise import CAReduce, DimShuffle
from pytensor.tensor.linalg.constructors import BlockDiagonal
from pytensor.tensor.math import Max
from pytensor.tensor.random.basic import normal
from pytensor.tensor.random.basic import permutation as permuted
from pytensor.tensor.type import TensorType

from support.graph_building import scan
from support.hostile.running import (
    dumps,
    hostile,
    instance,
    tampered,
    touch,
    touching_code,
    with_op,
)

_MANY = 30_000_000


def _python(marker: Path) -> str:
    return f"a(x): pass\n{touching_code(marker)}\ndef b"


def _c(marker: Path) -> str:
    return f'"); system("{touch(marker)}"); PyErr_Format(PyExc_ValueError, "'


@hostile
def name_of_a_reduction_in_python(marker: Path) -> bytes:
    return with_op(CAReduce(Add(upcast_out, name=_python(marker)), axis=(0,)), pt.matrix("x"))


@hostile
def name_of_a_reduction_in_c(marker: Path) -> bytes:
    op = Max(axis=(0,))
    op.scalar_op = ScalarMaximum(upcast_out, name=_c(marker))
    return with_op(op, pt.matrix("x"))


def _diagonal_from(offset: Any) -> bytes:
    op = ExtractDiag(offset=0, axis1=0, axis2=1, view=True)
    op.offset = offset
    return dumps([Apply(op, [pt.matrix("x")], [pt.vector()]).outputs[0]])


@hostile
def op_in_place_of_a_number(marker: Path) -> bytes:
    return _diagonal_from(Add(upcast_out, name="number"))


@hostile
def type_in_place_of_a_number(marker: Path) -> bytes:
    return _diagonal_from(TensorType("float64", (), name=f"(system('{touch(marker)}'), 0)"))


@hostile
def variable_in_place_of_a_number(marker: Path) -> bytes:
    return _diagonal_from(pt.constant(np.int64(0), name="number"))


@hostile
def trigraph_in_a_message(marker: Path) -> bytes:
    x = pt.vector("x")
    return dumps([Assert(f"??/{_c(marker)}")(x, pt.gt(x.sum(), 0))])


@hostile
def reduction_over_objects(marker: Path) -> bytes:
    op = CAReduce(ps.add, axis=(0,))
    op.dtype = op.acc_dtype = "object"
    return with_op(op, pt.matrix("x"))


@hostile
def range_of_objects(marker: Path) -> bytes:
    return tampered(ARange("int64"), dtype="object")


@hostile
def permutation_of_many_axes(marker: Path) -> bytes:
    op = permuted(np.arange(3)).owner.op
    return tampered(op, signature=f"(x{_MANY})->(x{_MANY})")


@hostile
def options_of_a_symbolic_op(marker: Path) -> bytes:
    op = pt.special.log_softmax(pt.matrix("x"), axis=0).owner.op
    return tampered(op, _init_kwargs={"pullback": "os.system"})


@hostile
def options_of_an_inner_graph(marker: Path) -> bytes:
    x = pt.vector("x")
    return tampered(OpFromGraph([x], [x + 1]), kwargs={"mode": "NUMBA"})


@hostile
def split_in_many(marker: Path) -> bytes:
    return tampered(Split(2, axis=0), len_splits=_MANY)


@hostile
def dimshuffle_of_many_axes(marker: Path) -> bytes:
    return tampered(DimShuffle(input_ndim=1, new_order=(0,)), input_ndim=_MANY)


@hostile
def ifelse_of_many_outputs(marker: Path) -> bytes:
    return tampered(IfElse(n_outs=1), n_outs=_MANY)


@hostile
def block_diagonal_of_many(marker: Path) -> bytes:
    return tampered(BlockDiagonal(2), n_inputs=_MANY)


@hostile
def draw_of_many_axes(marker: Path) -> bytes:
    return tampered(normal, ndim_supp=_MANY)


@hostile
def base_of_all_draws(marker: Path) -> bytes:
    return instance("pytensor.tensor.random.op", "RandomVariable", {"name": "bit_generator"})


def _node_with_text(marker: Path) -> FrozenApply:
    """A node whose text ends an argument of C code, and begins code of its own."""
    inner = pt.dscalar("inner")
    code = f'0, 0, 1); if (system("{touch(marker)}")) {{}} (void)(0) ;//'
    op = OpFromGraph([inner], [inner + 1], name=code)
    return FrozenApply(op, (NominalVariable(0, inner.type),), (inner.type,))


@hostile
def node_for_a_number(marker: Path) -> bytes:
    """PyTensor pastes the offset of a diagonal into C code."""
    return tampered(ExtractDiag(), offset=_node_with_text(marker))


@hostile
def node_in_a_slice_for_a_number(marker: Path) -> bytes:
    node = _node_with_text(marker)
    return tampered(ExtractDiag(), offset=slice(node, node))


@hostile
def graph_for_a_number(marker: Path) -> bytes:
    inner = pt.dscalar("inner")
    graph = FunctionGraph([inner], [inner + 1])
    return tampered(ExtractDiag(), offset=graph)


@hostile
def count_as_a_number_of_numpys(marker: Path) -> bytes:
    op = ifelse(pt.iscalar(), pt.vector(), pt.vector()).owner.op
    return tampered(op, n_outs=np.int64(3 * 10**9), as_view=True, view_map={0: [1]})


@hostile
def name_that_is_no_text(marker: Path) -> bytes:
    ys = scan(lambda y: pt.sin(y), outputs_info=[pt.dscalar()], n_steps=3, name="a\ud800b")
    return dumps([ys[-1]])

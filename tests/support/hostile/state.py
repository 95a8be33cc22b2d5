"""Pickles of honest classes with a hostile state; see `hostile`."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor import scan
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Variable
from pytensor.raise_op import Assert
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.optimize import minimize
from pytensor.tensor.shape import Shape_i
from pytensor.xtensor.type import xtensor
from pytensor.xtensor.vectorization import XBlockwise

from support.hostile.running import (
    Calls,
    called,
    dumps,
    hostile,
    instance,
    named,
    tampered,
    text,
    touch,
    touching_code,
    whole,
    with_op,
)

# honest classes with state of their own


@hostile
def elemwise_nfunc_spec(marker: Path) -> bytes:
    op = Elemwise(ps.exp)
    return tampered(op, nfunc_spec=("os.system", 1, 1))


@hostile
def scalar_nfunc_spec(marker: Path) -> bytes:
    scalar = ps.basic.Exp(ps.upgrade_to_float, name="exp")
    vars(scalar)["nfunc_spec"] = ("os.system", 1, 1)
    return with_op(Elemwise(scalar), pt.vector("x"))


@hostile
def blockwise_gufunc_spec(marker: Path) -> bytes:
    op = Blockwise(pt.linalg.cholesky(pt.matrix()).owner.op.core_op, signature="(m,m)->(m,m)")
    return tampered(op, gufunc_spec=("os.system", 1, 1))


@hostile
def gufunc_spec_on_a_core_op(marker: Path) -> bytes:
    x = pt.vector()
    core = OpFromGraph([x], [x + 1])
    vars(core)["gufunc_spec"] = ("os.system", 1, 1)
    return with_op(Blockwise(core, signature="(m)->(m)"), pt.vector("x"))


@hostile
def random_variable_name(marker: Path) -> bytes:
    op = pt.random.normal(0, 1).owner.op
    return tampered(type(op)(dtype="float64"), name=f"normal(rng): {touching_code(marker)}\ndef f")


@hostile
def random_variable_other_name(marker: Path) -> bytes:
    return tampered(type(pt.random.normal(0, 1).owner.op)(dtype="float64"), name="__class__")


@hostile
def random_variable_signature(marker: Path) -> bytes:
    op = type(pt.random.normal(0, 1).owner.op)(dtype="float64")
    return tampered(op, signature=f"(),()->(){touching_code(marker)}")


def _composite(marker: Path, attribute: str) -> bytes:
    x = ps.float64("x")
    state = ps.Composite([x], [x + 1]).__getstate__()
    hidden = {attribute: f'system("{touch(marker)}");'}
    return instance("pytensor.scalar.basic", "Composite", state | hidden)


@hostile
def composite_c_code(marker: Path) -> bytes:
    return _composite(marker, "_c_code")


@hostile
def composite_that_hides_its_c_code(marker: Path) -> bytes:
    return _composite(marker, "c_code")


@hostile
def composite_identity_of_text(marker: Path) -> bytes:
    """A reduction begins with it, as a literal of generated code."""
    return _composite(marker, "identity")


@hostile
def einsum_without_its_path(marker: Path) -> bytes:
    """It loads otherwise, and whatever prints it fails."""
    x = pt.dmatrix("x")
    op = copy(pt.einsum("ij,jk->ik", x, x).owner.op)
    del vars(op)["path"]
    return with_op(op, x, x)


@hostile
def shape_of_an_axis_from_the_end(marker: Path) -> bytes:
    """C reads the word before the lengths."""
    return tampered(Shape_i(0), i=-1)


@hostile
def reduction_of_an_axis_from_the_end(marker: Path) -> bytes:
    """C reduces nothing."""
    return tampered(CAReduce(ps.add, axis=(0,)), axis=(-1,))


@hostile
def composite_with_an_identity_of_its_own(marker: Path) -> bytes:
    """Nothing compares it, and a reduction in C begins with it."""
    x, y = ps.float64("x"), ps.float64("y")
    composite = ps.Composite([x, y], [x + y])
    composite.identity = 5.0
    return tampered(CAReduce(ps.add, axis=(0,)), scalar_op=composite)


@hostile
def reshape_ndim(marker: Path) -> bytes:
    op = pt.vector().reshape((2, 2)).owner.op
    return tampered(type(op)(2), ndim=f'0; system("{touch(marker)}")')


@hostile
def reshape_ndim_as_innocent_text(marker: Path) -> bytes:
    op = pt.vector().reshape((2, 2)).owner.op
    return tampered(type(op)(2), ndim="2")


@hostile
def diagonal_offset_of_innocent_letters(marker: Path) -> bytes:
    """C++ has words and digraphs for most signs: this writes into NumPy's table of functions."""
    code = "__func__<: PyArray_API<:144:> = new __typeof__ bitand system, 0 :>"
    return tampered(pt.basic.ExtractDiag(), offset=code)


@hostile
def diagonal_axis_as_innocent_text(marker: Path) -> bytes:
    return tampered(pt.basic.ExtractDiag(), axis1="system")


@hostile
def range_whose_text_is_not_a_dtype(marker: Path) -> bytes:
    return tampered(pt.arange(pt.lscalar()).owner.op, dtype="float64 x")


@hostile
def sum_over_an_axis_in_letters(marker: Path) -> bytes:
    return tampered(pt.matrix().sum(axis=0).owner.op, axis=("a",))


def _wrong_kind(op: Any, **state: Any) -> None:
    (name,) = state

    def payload(marker: Path) -> bytes:
        return tampered(op, **state)

    payload.__name__ = f"{type(op).__name__}_{name}_of_another_kind"
    hostile(payload)


_x = pt.dvector("x")
_wrong_kind(Elemwise(ps.exp), name=("exp",))
_wrong_kind(Blockwise(pt.linalg.cholesky(pt.matrix()).owner.op.core_op), name=7)
_wrong_kind(Assert("positive"), msg=True)
_wrong_kind(Elemwise(ps.exp), destroy_map={0: "all"})
_wrong_kind(OpFromGraph([_x], [_x + 1]), _connection_pattern=[[True], [True]])
_wrong_kind(OpFromGraph([_x], [_x + 2]), pullback_overrides=[None, None])
_wrong_kind(
    scan(pt.tanh, outputs_info=[pt.dscalar()], n_steps=3, return_updates=False)
    .owner.inputs[0]
    .owner.op,
    truncate_gradient=None,
)


def _of_length(length: int) -> None:
    def payload(marker: Path) -> bytes:
        kind = pt.TensorType("float64", shape=(3,))
        kind.shape = (length,)
        return dumps([Apply(Elemwise(ps.exp), [kind()], [kind()]).outputs[0]])

    payload.__name__ = f"vector_of_length_{length}"
    hostile(payload)


_of_length(-1)
_of_length(2**62)


def _forged_node(op: Any, inputs: list[Variable], *outputs: Any) -> bytes:
    return dumps([Apply(op, inputs, [kind() for kind in outputs]).outputs[0]])


@hostile
def diagonal_that_is_a_matrix(marker: Path) -> bytes:
    return _forged_node(pt.basic.ExtractDiag(), [pt.dmatrix()], pt.dmatrix)


@hostile
def sum_of_another_dtype(marker: Path) -> bytes:
    return _forged_node(pt.dmatrix().sum().owner.op, [pt.dmatrix()], pt.lscalar)


def _with_forged_body(wrap: Callable[[OpFromGraph], Any]) -> bytes:
    """A body that says that the diagonal of a matrix is one."""
    m = pt.dmatrix("m")
    forged = Apply(pt.basic.ExtractDiag(), [m], [pt.dmatrix()]).outputs[0]
    return dumps(wrap(OpFromGraph([m], [forged])))


@hostile
def body_of_named_dimensions_with_a_forged_node(marker: Path) -> bytes:
    x = xtensor("x", dims=("a", "b"))
    dims = ((("a", "b"),), (("a", "b"),))
    return _with_forged_body(lambda op: [XBlockwise(op, core_dims=dims)(x)])


@hostile
def derivative_with_a_forged_node(marker: Path) -> bytes:
    m = pt.dmatrix("m")
    plain = OpFromGraph([m], [m + 1])

    def wrap(op: OpFromGraph) -> Any:
        replaced = copy(plain)
        vars(replaced)["pullback_overrides"] = [op]
        return [replaced(m)]

    return _with_forged_body(wrap)


@hostile
def formula_with_a_forged_node(marker: Path) -> bytes:
    s = ps.float64("s")
    node = Apply(ps.exp, [s], [ps.int8()])
    return dumps([Elemwise(ps.Composite([s], [node.outputs[0]]))(pt.dvector("x"))])


@hostile
def elements_of_a_vector_and_a_matrix(marker: Path) -> bytes:
    return _forged_node(Elemwise(ps.add), [pt.dvector(), pt.dmatrix()], pt.dmatrix)


@hostile
def split_len_splits(marker: Path) -> bytes:
    op = type(pt.split(pt.vector(), [1, 1])[0].owner.op)(2, 0)
    return tampered(op, len_splits=f'2; system("{touch(marker)}")')


@hostile
def split_len_splits_as_innocent_text(marker: Path) -> bytes:
    op = type(pt.split(pt.vector(), [1, 1])[0].owner.op)(2, 0)
    return tampered(op, len_splits="2")


@hostile
def assertion_that_ends_its_string(marker: Path) -> bytes:
    return with_op(Assert(f'\\"); system("{touch(marker)}"); //'), pt.vector("x"))


@hostile
def dimshuffle_order(marker: Path) -> bytes:
    return tampered(DimShuffle(input_ndim=1, new_order=(0,)), new_order=("x); exit(",))


@hostile
def attribute_that_hides_perform(marker: Path) -> bytes:
    return tampered(Elemwise(ps.exp), perform=os.system)


@hostile
def attribute_that_hides_make_thunk_with_data(marker: Path) -> bytes:
    return tampered(Elemwise(ps.exp), make_thunk=0)


@hostile
def graph_op_attribute_that_hides_perform(marker: Path) -> bytes:
    x = pt.vector()
    return tampered(OpFromGraph([x], [x + 1]), perform="os.system")


@hostile
def graph_op_attribute_that_runs_a_property(marker: Path) -> bytes:
    x = pt.vector()
    op = OpFromGraph([x], [x + 1])
    return instance("pytensor.compile.builders", "OpFromGraph", {**vars(op), "fn": 0})


@hostile
def terminal_escapes_in_a_name(marker: Path) -> bytes:
    return whole(named("pytensor\x1b[2J\n", "x\r" * 1000))


@hostile
def graph_op_with_hostile_override(marker: Path) -> bytes:
    x = pt.vector()
    return tampered(OpFromGraph([x], [x + 1]), pullback_overrides=os.system)


@hostile
def graph_op_with_cloudpickled_override(marker: Path) -> bytes:
    x, path = pt.vector(), str(marker)
    op = OpFromGraph([x], [x + 1], pullback=lambda *_: open(path, "w").close())
    return with_op(op, pt.vector("x"))


@hostile
def minimizer_with_a_callable_method(marker: Path) -> bytes:
    x = pt.scalar("x")
    op = minimize(x**2, x, method="BFGS")[0].owner.op
    return tampered(op, method=os.system)


def _scan_op() -> Any:
    out = scan(lambda h: h * 2, outputs_info=[pt.ones(())], n_steps=3, return_updates=False)
    return out.owner.inputs[0].owner.op


@hostile
def scan_with_hostile_mode(marker: Path) -> bytes:
    return tampered(_scan_op(), mode=Calls(os.system, touch(marker)))


@hostile
def scan_with_hostile_profile(marker: Path) -> bytes:
    return tampered(_scan_op(), profile=Calls(os.system, touch(marker)))


@hostile
def scan_with_wrong_buffers(marker: Path) -> bytes:
    return tampered(_scan_op(), n_tap_outs=10**9)


@hostile
def hostile_op_inside_a_scan(marker: Path) -> bytes:
    bad = Elemwise(ps.exp)
    bad.nfunc_spec = ("os.system", 1, 1)
    # Bodies share nodes of equal ops and inputs in one process: no other test has such a state.
    start = pt.ones((2, 3, 5, 7))
    out = scan(lambda h: bad(h), outputs_info=[start], n_steps=3, return_updates=False)
    return dumps([out])


@hostile
def hostile_key_of_an_assumption(marker: Path) -> bytes:
    return whole(called("pytensor.assumptions.core", "AssumptionKey", text("new"), text("n")))


@hostile
def feature_that_is_used(marker: Path) -> bytes:
    return pickle.dumps({"inputs": [], "outputs": [Calls(os.system, touch(marker))]})

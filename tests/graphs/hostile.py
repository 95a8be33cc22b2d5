"""Pickles that try to run something. What they would run only makes a file, the marker.

Each maker takes the marker's path and gives the bytes of a pickle. Opcodes are written by hand
where Python's pickler would not write them.
"""

from __future__ import annotations

import functools
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor import scan
from pytensor.breakpoint import PdbBreakpoint
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.link.c.type import CDataType
from pytensor.printing import Print
from pytensor.raise_op import Assert
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.optimize import minimize

type Maker = Callable[[Path], bytes]

HOSTILE: dict[str, Maker] = {}


def hostile(make: Maker) -> Maker:
    HOSTILE[make.__name__] = make
    return make


def touch(marker: Path) -> str:
    """Return a shell command that makes the marker."""
    return f"touch {marker}"


def touching_code(marker: Path) -> str:
    """Return Python code that makes the marker."""
    return f"open({str(marker)!r}, 'w').close()"


def text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def named(module: str, name: str) -> bytes:
    """Return the opcodes of a global in protocol 4, where names may have dots."""
    return text(module) + text(name) + b"\x93"


def called(module: str, name: str, *args: bytes) -> bytes:
    """Return the opcodes of a call."""
    return named(module, name) + b"(" + b"".join(args) + b"tR"


def whole(body: bytes, protocol: int = 4) -> bytes:
    return b"\x80" + bytes([protocol]) + body + b"."


def instance(module: str, name: str, state: Any) -> bytes:
    """Return a pickle of an instance with a state that its class would not pickle."""
    return whole(named(module, name) + b")\x81" + pickle.dumps(state, 4)[2:-1] + b"b")


class Calls:
    """Pickles as a call."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.call = (function, args)

    def __reduce__(self) -> Any:
        return self.call


def dumps(thing: Any) -> bytes:
    return cloudpickle.dumps(thing)


def with_op(op: Op, *inputs: Variable, outputs: int = 1) -> bytes:
    """Return a graph with one node of ``op``, whether its make_node would have it or not."""
    made = [pt.vector() for _ in range(outputs)]
    Apply(op, list(inputs), made)
    return dumps((list(inputs), made))


def tampered(op: Op, **state: Any) -> bytes:
    """Return a graph with a node whose op was given attributes by hand."""
    vars(op).update(state)
    return with_op(op, pt.vector("x"))


# opcodes that call


@hostile
def system_by_reduce(marker: Path) -> bytes:
    return pickle.dumps(Calls(os.system, touch(marker)))


@hostile
def system_by_inst(marker: Path) -> bytes:
    return b"(S'" + touch(marker).encode() + b"'\nios\nsystem\n."


@hostile
def system_by_obj(marker: Path) -> bytes:
    return b"(cos\nsystem\nS'" + touch(marker).encode() + b"'\no."


@hostile
def memmap_by_newobj(marker: Path) -> bytes:
    args = text(str(marker)) + text("uint8") + text("w+") + b"K\x00" + b"K\x01\x85"
    return whole(named("numpy", "memmap") + b"(" + args + b"t\x81")


@hostile
def memmap_by_newobj_ex(marker: Path) -> bytes:
    options = b"}(" + text("mode") + text("w+") + text("shape") + b"K\x01\x85u"
    return whole(named("numpy", "memmap") + text(str(marker)) + b"\x85" + options + b"\x92")


@hostile
def eval_call(marker: Path) -> bytes:
    return pickle.dumps(Calls(eval, touching_code(marker)))


@hostile
def exec_call(marker: Path) -> bytes:
    return pickle.dumps(Calls(exec, touching_code(marker)), 0)


@hostile
def import_and_getattr(marker: Path) -> bytes:
    system = called(
        "builtins", "getattr", called("builtins", "__import__", text("os")), text("system")
    )
    return whole(system + text(touch(marker)) + b"\x85R")


@hostile
def getattr_of_admitted_class(marker: Path) -> bytes:
    function = called(
        "builtins", "getattr", named("pytensor.tensor.elemwise", "Elemwise"), text("__init__")
    )
    return whole(function + text(touch(marker)) + b"\x85R")


@hostile
def call_thrown_away(marker: Path) -> bytes:
    call = called("os", "system", text(touch(marker)))
    return whole(call + b"0" + dumps([pt.vector("x") + 1])[2:-1])


@hostile
def call_kept_in_memo(marker: Path) -> bytes:
    call = called("os", "system", text(touch(marker))) + b"r\xff\xff\x00\x00"
    return whole(call + b"0" + pickle.dumps([pt.vector("x") + 1], 2)[2:-1])


# names


@hostile
def dotted_name_in_configdefaults(marker: Path) -> bytes:
    return whole(called("pytensor.configdefaults", "os.system", text(touch(marker))))


@hostile
def dotted_name_below_admitted_class(marker: Path) -> bytes:
    reach = "Elemwise.__init__.__globals__"
    return whole(called("pytensor.tensor.elemwise", reach, text(touch(marker))))


@hostile
def second_name_of_a_function(marker: Path) -> bytes:
    return whole(called("pytensor.configdefaults", "os", text(touch(marker))))


@hostile
def subprocess_helper_of_pytensor(marker: Path) -> bytes:
    command = b"]" + text("touch") + b"a" + text(str(marker)) + b"a"
    return whole(called("pytensor.utils", "output_subprocess_Popen", command))


@hostile
def import_helper_of_pytensor(marker: Path) -> bytes:
    return whole(called("pytensor.tensor.utils", "import_func_from_string", text("os.system")))


@hostile
def partial(marker: Path) -> bytes:
    return pickle.dumps(Calls(functools.partial(os.system, touch(marker))))


@hostile
def attrgetter(marker: Path) -> bytes:
    getter = called("operator", "attrgetter", text("system"))
    system = getter + called("builtins", "__import__", text("os")) + b"\x85R"
    return whole(system + text(touch(marker)) + b"\x85R")


@hostile
def module_with_side_effects(marker: Path) -> bytes:
    """A module in the current path that makes the marker when it is imported."""
    return whole(named("import_me_not", "Anything"))


@hostile
def main_module(marker: Path) -> bytes:
    return whole(named("pytensor.__main__", "Op"))


@hostile
def extension_code(marker: Path) -> bytes:
    return whole(b"\x82\xf0" + text(touch(marker)) + b"\x85R")


@hostile
def persistent_id(marker: Path) -> bytes:
    return whole(text(str(marker)) + b"Q")


# state on what the pickle did not make


@hostile
def build_on_a_singleton(marker: Path) -> bytes:
    state = b"}" + text("cxx") + text(touch(marker)) + b"s"
    return whole(named("pytensor.configdefaults", "config") + state + b"b")


@hostile
def build_on_a_class(marker: Path) -> bytes:
    state = b"N}" + text("perform") + named("os", "system") + b"s\x86"
    return whole(named("pytensor.tensor.elemwise", "Elemwise") + state + b"b")


@hostile
def items_on_a_class(marker: Path) -> bytes:
    body = named("pytensor.graph.basic", "NominalVariable") + text("a") + text("b") + b"s"
    return whole(body)


# code by value


@hostile
def cloudpickled_function(marker: Path) -> bytes:
    path = str(marker)
    return dumps(Calls(lambda: open(path, "w").close()))


@hostile
def cloudpickled_op_class(marker: Path) -> bytes:
    path = str(marker)

    class Quiet(Op):
        __props__ = ()

        def make_node(self, x: Any) -> Any:
            return Apply(self, [x], [x.type()])

        def perform(self, node: Any, inputs: Any, outputs: Any) -> None:
            open(path, "w").close()

    Quiet.__module__ = "__main__"
    return with_op(Quiet(), pt.vector("x"))


@hostile
def function_op(marker: Path) -> bytes:
    return instance("pytensor.compile.ops", "FromFunctionOp", {"_FromFunctionOp__fn": os.system})


@hostile
def function_op_by_its_loader(marker: Path) -> bytes:
    return whole(called("pytensor.compile.ops", "load_back", text("os"), text("system")))


@hostile
def external_c_op(marker: Path) -> bytes:
    state = {"func_files": [str(marker)], "func_codes": ["int x;"], "func_name": "f"}
    return instance("pytensor.link.c.op", "ExternalCOp", state)


@hostile
def c_data_type(marker: Path) -> bytes:
    kind = CDataType("void *", freefunc="free", extra_support_code=f'system("{touch(marker)}");')
    return dumps([kind.make_variable("x")])


@hostile
def breakpoint_op(marker: Path) -> bytes:
    return with_op(PdbBreakpoint("stop"), pt.vector("x"))


@hostile
def print_with_foreign_function(marker: Path) -> bytes:
    return with_op(Print("x", global_fn=os.system), pt.vector("x"))


@hostile
def print_that_calls_a_method(marker: Path) -> bytes:
    return with_op(Print("x", attrs=("tobytes",)), pt.vector("x"))


@hostile
def jax_op(marker: Path) -> bytes:
    return whole(
        named("pytensor.link.jax.ops", "JAXOp")
        + b")\x81}"
        + text("jax_func")
        + named("os", "system")
        + b"sb"
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


@hostile
def composite_c_code(marker: Path) -> bytes:
    x = ps.float64("x")
    op = ps.Composite([x], [x + 1])
    state = {**op.__getstate__(), "_c_code": f'system("{touch(marker)}");'}
    return instance("pytensor.scalar.basic", "Composite", state)


@hostile
def composite_that_hides_its_c_code(marker: Path) -> bytes:
    x = ps.float64("x")
    op = ps.Composite([x], [x + 1])
    state = {**op.__getstate__(), "c_code": f'system("{touch(marker)}");'}
    return instance("pytensor.scalar.basic", "Composite", state)


@hostile
def reshape_ndim(marker: Path) -> bytes:
    op = pt.vector().reshape((2, 2)).owner.op
    return tampered(type(op)(2), ndim=f'0; system("{touch(marker)}")')


@hostile
def reshape_ndim_as_innocent_text(marker: Path) -> bytes:
    op = pt.vector().reshape((2, 2)).owner.op
    return tampered(type(op)(2), ndim="2")


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
    out = scan(lambda h: bad(h), outputs_info=[pt.ones(())], n_steps=3, return_updates=False)
    return dumps([out])


@hostile
def hostile_key_of_an_assumption(marker: Path) -> bytes:
    return whole(called("pytensor.assumptions.core", "AssumptionKey", text("new"), text("n")))


@hostile
def feature_that_is_used(marker: Path) -> bytes:
    return pickle.dumps({"inputs": [], "outputs": [Calls(os.system, touch(marker))]})


# NumPy


def _array_state(shape: Any, dtype: Any, data: Any) -> bytes:
    class Forged:
        def __reduce__(self) -> Any:
            make = np.zeros(1).__reduce__()[0]
            return make, (np.ndarray, (0,), b"b"), (1, shape, dtype, False, data)

    return pickle.dumps(Forged())


@hostile
def object_array(marker: Path) -> bytes:
    return pickle.dumps(np.array([Calls(os.system, touch(marker))], dtype=object))


@hostile
def object_array_from_a_short_list(marker: Path) -> bytes:
    return _array_state((10**6,), np.dtype(object), [1])


@hostile
def forged_dtype(marker: Path) -> bytes:
    class Forged:
        def __reduce__(self) -> Any:
            return np.dtype, ("O8", False, True), (3, "|", None, None, None, -1, -1, 63)

    return pickle.dumps([Forged()])


@hostile
def structured_dtype(marker: Path) -> bytes:
    class Forged:
        def __reduce__(self) -> Any:
            fields = {"a": (np.dtype("f8"), 10**9)}
            return np.dtype, ("V8", False, True), (3, "|", None, ("a",), fields, 8, 1, 0)

    return pickle.dumps([Forged()])


@hostile
def fromfile(marker: Path) -> bytes:
    return whole(called("numpy", "fromfile", text("/etc/hostname")))


@hostile
def load_with_pickles(marker: Path) -> bytes:
    return whole(called("numpy", "load", text("x.npy")))


@hostile
def generator_with_a_foreign_bit_generator(marker: Path) -> bytes:
    body = called(
        "numpy.random._pickle",
        "__generator_ctor",
        called("numpy.random._pickle", "__bit_generator_ctor", named("os", "system")),
    )
    return whole(body)

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
from copy import copy
from pathlib import Path
from typing import Any

import cloudpickle
import pytensor.tensor as pt
from pytensor.breakpoint import PdbBreakpoint
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.link.c.type import CDataType
from pytensor.printing import Print

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
    op = copy(op)  # PyTensor has one of many Ops for all
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

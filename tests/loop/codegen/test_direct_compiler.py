"""Functions of graphs are compiled without what Numba registers to compile other functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numba
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import scanopt_cli as so
from scanopt_cli.loop.codegen import functions
from scanopt_cli.loop.codegen.direct_compiler import DirectCompiler
from scanopt_cli.loop.codegen.functions import takes_all_arguments
from support.benchmarks.fresh_process import run
from support.graph_building import scan

_LOOKED_UP = """
import json, math, operator, sys
from itertools import product
import numpy as np
import pytensor.link.numba.dispatch
from numba.core import types
from numba.core.registry import cpu_target
from scanopt_cli.loop.codegen.number_functions import number_function, register_number_functions

kinds = types.boolean, types.int8, types.int64, types.uint64, types.float32, types.float64
unary = (
    abs, operator.neg, np.negative, np.square, np.exp, np.log, np.isinf, np.ceil, np.tanh,
    np.log1p, math.erf, math.erfc, math.lgamma,
)
binary = (
    operator.add, operator.sub, operator.mul, operator.lt, operator.eq, operator.ne, np.add,
    np.subtract, np.divide, np.true_divide, np.greater_equal, np.maximum, np.power, np.mod,
    np.arctan2, np.floor_divide, np.logical_and,
)
asked = [*product(unary, product(kinds)), *product(binary, product(kinds, kinds))]
target, typing = cpu_target.target_context, cpu_target.typing_context

def numbas_own(target, function, kinds):
    kind = typing.resolve_value_type(function)
    signature = typing.resolve_function_type(kind, kinds, {})
    return target.get_function(kind, signature), signature

def looked_up(find):
    found = []
    for function, kinds in asked:
        try:
            code, signature = find(target, function, kinds)
        except Exception as error:
            found.append(type(error).__name__)
        else:
            found.append((str(signature), code._callable.func))
    return found

register_number_functions(target)
target.refresh = typing.refresh = lambda: None
first = looked_up(number_function)
is_registered = "numba.typed.listobject" in sys.modules
del target.refresh, typing.refresh
typing.refresh()
target.refresh()
then = looked_up(numbas_own)
missing = [isinstance(one, str) for one in then]
print(json.dumps({
    "is_registered": is_registered,
    "n_found": missing.count(False),
    "differences": [
        str((function, kinds, str(one), str(other)))
        for (function, kinds), one, other in zip(asked, first, then)
        if one != other and not isinstance(other, str)
    ],
}))
"""

_PROGRAM = """
import json, sys
import numba, numpy as np, pytensor, pytensor.tensor as pt
import scanopt_cli as so
from support.graph_building import scan

rest = "numba.np.random.distributions", "numba.typed.listobject"

def is_registered():
    return [name in sys.modules for name in rest]

x, rows = pt.dscalar("x"), pt.dvector("rows")
ys = scan(lambda row, y: pt.exp(-y**2) * row + y, sequences=[rows], outputs_info=[x])
inputs, outputs = [x, rows], [ys[-1], *pt.grad(ys.sum(), [x, rows])]
values = 0.3, np.linspace(0, 1, 40)
expected = pytensor.function(inputs, outputs, mode="FAST_COMPILE")(*values)
with so.enabled():
    function = pytensor.function(inputs, outputs, mode="NUMBA")
made = function(*values)
first = is_registered()

@numba.njit
def other(n):
    found = [np.random.normal() for _ in range(n)]
    found.append(1.0)
    return len(found)

count = other(3)
rng = pytensor.shared(np.random.default_rng(3))
with so.enabled():
    draws = pytensor.function([x], pt.random.normal(x, 1, rng=rng, size=4).sum() + ys[-1],
                              givens={rows: values[1]}, mode="NUMBA")
later = function(*values)
print(json.dumps({
    "is_equal": all(np.allclose(a, b, rtol=1e-12) for a, b in zip(made, expected)),
    "is_same_later": all(np.array_equal(a, b) for a, b in zip(made, later)),
    "first": first, "count": count, "last": is_registered(), "draw": bool(np.isfinite(draws(0.3))),
}))
"""


def test_functions_of_numbers_are_those_that_numba_finds(tmp_path):
    """The same code for the same types as when all is registered."""
    told = run(_LOOKED_UP, cache=str(tmp_path))
    assert not told["is_registered"]
    assert told["n_found"] > 400
    assert told["differences"] == []


def test_a_loop_of_numbers_leaves_the_rest_unregistered_until_it_is_needed(tmp_path):
    told = run(_PROGRAM, cache=str(tmp_path), keep="")
    assert told["is_equal"]
    assert told["is_same_later"]
    assert told["first"] == [False, False]
    assert told["count"] == 4
    assert told["last"] == [True, True]
    assert told["draw"]


_TRUTH = """
import json
import numpy as np
import pytensor.tensor as pt
import pytensor
import scanopt_cli

counts, kept = pt.lvector("counts"), pt.dvector("kept")
state = pytensor.scan(
    lambda c, x, s: pt.switch(pt.cast(c, "bool"), s + x, s * pt.cast(pt.cast(x, "bool"), "int64")),
    sequences=[counts, kept], outputs_info=[np.float64(0)], return_updates=False,
)[-1]
with scanopt_cli.enabled():
    function = pytensor.function([counts, kept], state, mode="NUMBA")
print(json.dumps([
    float(function(np.array([1, 0, -2]), np.array(row, float)))
    for row in ([0.5, 2, 3], [0.5, 0, 3], [0.5, np.nan, 3])
]))
"""


@pytest.mark.parametrize("keep", ["", "off"])
def test_the_truth_of_a_number_in_a_process_that_has_compiled_nothing(keep, tmp_path):
    """Numba's own cast looks for `bool` among functions that are not registered yet."""
    assert run(_TRUTH, cache=str(tmp_path), keep=keep) == [3.5, 3.0, 3.5]


@pytest.fixture
def compiled(monkeypatch) -> Iterator[Callable[..., Any]]:
    """Compiles a function; in the end, each was compiled directly."""
    seen: list[Any] = []
    compile_extra = DirectCompiler.compile_extra

    def compile_and_note(self: DirectCompiler, function: Any) -> Any:
        seen.append(function)
        return compile_extra(self, function)

    def compiled(inputs: list[Any], outputs: list[Any]) -> Any:
        with so.enabled(cache=False):
            function = pytensor.function(inputs, outputs, mode="NUMBA")
        made.append(function.vm.jit_fn.py_func)
        return function

    made: list[Any] = []
    monkeypatch.setattr(DirectCompiler, "compile_extra", compile_and_note)
    with pytensor.config.change_flags(numba__cache=False):  # what is read is not compiled
        yield compiled
    assert made
    assert set(made) <= set(seen)


def test_inputs_of_many_types_and_none(compiled):
    x, n, flag = pt.dvector("x"), pt.lscalar("n"), pt.bscalar("flag")
    y = pt.fmatrix("y")
    last = scan(lambda v, m: v * 0.5 + m.sum(), outputs_info=[x], non_sequences=[y], n_steps=n)[-1]
    given = np.arange(3.0), 4, 1, np.ones((2, 2), "float32")
    for outputs in ([last + flag], [last, y + flag], [last[0] + flag, last.sum(), x]):
        expected = pytensor.function([x, n, flag, y], outputs, mode="FAST_COMPILE")(*given)
        for got, want in zip(compiled([x, n, flag, y], outputs)(*given), expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-12)
            assert got.dtype == want.dtype
    shared = pytensor.shared(np.arange(3.0))
    alone = scan(lambda v: pt.sin(v), outputs_info=[shared], n_steps=5)[-1]
    (found,) = compiled([], [alone])()
    np.testing.assert_allclose(found, np.sin(np.sin(np.sin(np.sin(np.sin(np.arange(3.0)))))))


def test_one_function_for_several_layouts_of_memory(compiled):
    x = pt.dmatrix("x")
    outputs = [scan(lambda row, s: s + row, sequences=[x], outputs_info=[pt.zeros(3)])[-1]]
    function = compiled([x], outputs)
    value = np.arange(12.0).reshape(4, 3)
    for given in (value, np.asfortranarray(value), value[::-1], np.vstack([value, value])[::2]):
        np.testing.assert_allclose(function(given)[0], given.sum(0))


def test_an_error_in_the_code_reaches_the_caller(compiled):
    x, y = pt.dmatrix("x"), pt.dvector("y")
    outputs = [scan(lambda row, s: s + row, sequences=[x], outputs_info=[y])[-1]]
    function = compiled([x, y], outputs)
    with pytest.raises(ValueError, match=r"shape|length|broadcast"):
        function(np.ones((4, 3)), np.ones(5))
    np.testing.assert_allclose(function(np.ones((4, 3)), np.ones(3))[0], 5)


def test_no_wrapper_is_made_for_callers_in_c_and_others_call_the_function(compiled):
    """Numba's own functions call the function itself, as nutpie's do."""
    x = pt.dvector("x")
    function = compiled(
        [x], [scan(lambda row, s: s + row, sequences=[x], outputs_info=[pt.zeros(())])[-1]]
    )
    assert function(np.arange(4.0))[0] == 6
    inner = function.vm.jit_fn
    (made,) = inner.overloads.values()
    names = [found.name for found in made.library.get_defined_functions()]
    assert made.fndesc.llvm_cpython_wrapper_name in names
    assert made.fndesc.llvm_cfunc_wrapper_name not in names
    assert numba.njit(lambda y: inner(y)[0] + 1)(np.arange(4.0)) == 7


def test_the_form_of_a_function_that_is_compiled_directly():
    assert takes_all_arguments(lambda *args: args)
    assert not takes_all_arguments(lambda x, *args: (x, args))
    assert not takes_all_arguments(lambda x: x)
    assert not takes_all_arguments(lambda *args, x=1: (args, x))


def test_other_versions_of_numba_compile_by_their_own_compiler(monkeypatch):
    monkeypatch.setattr(functions, "_KNOWN_NUMBA", (0, 1))
    monkeypatch.setattr(DirectCompiler, "compile_extra", None)  # a call would raise
    x = pt.dvector("x")
    last = scan(lambda row, s: s + row, sequences=[x], outputs_info=[pt.zeros(())])[-1]
    with so.enabled(cache=False), pytensor.config.change_flags(numba__cache=False):
        function = pytensor.function([x], [last], mode="NUMBA")
    np.testing.assert_allclose(function(np.arange(4.0))[0], 6)

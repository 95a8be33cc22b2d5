"""Which globals a graph file may refer to: functions, exceptions and classes, by exact name.

A class is admitted because somebody has read its constructor (`reviewed`), or because the user
admits its package. Being admitted does not mean being called: `builder` says what is done with
each.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytensor.breakpoint
import pytensor.link.c.op
import pytensor.scalar.basic as scalar
from pytensor.compile.ops import FromFunctionOp
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.graph.type import Type
from pytensor.link.c.type import CDataType
from pytensor.printing import _print_fn
from pytensor.tensor.linalg.solvers import linear_control

from scanopt_cli.serialization.unpickler.reviewed import ADMITTED, REFUSED

TRUST = "--trust loads it, for files of your own"

PACKAGES = ("pytensor", "pymc", "pymc_extras", "pytensor_distributions")
"""Packages whose graph classes were read; those of a newer release may not have been."""

_SCALAR_FUNCTIONS = (
    *(scalar.upcast_out, scalar.upcast_out_nobool, scalar.upcast_out_min8),
    *(scalar.upcast_out_no_complex, scalar.upgrade_to_float, scalar.upgrade_to_float64),
    *(scalar.upgrade_to_float_no_complex, scalar.same_out, scalar.same_out_nobool),
    *(scalar.same_out_min8, scalar.same_out_float_only, scalar.same_out_nocomplex),
    *(scalar.int_out, scalar.float_out, scalar.real_out, scalar.Sign._output_types_preference),
)
_EXCEPTIONS = (
    *(ArithmeticError, AssertionError, Exception, FloatingPointError, IndexError, KeyError),
    *(LookupError, NotImplementedError, OverflowError, RuntimeError, TypeError, ValueError),
    *(ZeroDivisionError, np.linalg.LinAlgError),
)
PULLBACKS = frozenset(
    getattr(linear_control, name)
    for name in ("_lop_solve_continuous_sylvester", "_lop_solve_discrete_are")
    if hasattr(linear_control, name)
)
"""PyTensor's own gradients of OpFromGraphs: functions from variables to variables."""

OBJECTS: Mapping[tuple[str, str], Any] = {
    **{(thing.__module__, thing.__qualname__): thing for thing in _SCALAR_FUNCTIONS},
    **{(thing.__module__, thing.__qualname__): thing for thing in (*_EXCEPTIONS, *PULLBACKS)},
    **{("numpy", np.dtype(code).type.__name__): np.dtype(code).type for code in "?bhilqBHILQefdFD"},
    ("numpy", "bool_"): np.bool,
    ("pytensor.printing", "_print_fn"): _print_fn,
}
"""What ops may hold a reference to, by exact name: functions from types to types, exceptions."""

LAZY_OBJECTS = {
    ("pymc.exceptions", "TruncationError"),
    ("pymc.logprob.utils", "ParameterValueError"),
}
"""Exceptions that ops may hold too, of packages that are imported where a file names them."""
_READ = LAZY_OBJECTS.union(
    (module, name) for module in ADMITTED for name in ADMITTED[module].split()
)

_CLOSED_MODULES = (
    *("pytensor.bin", "pytensor.breakpoint", "pytensor.configdefaults", "pytensor.configparser"),
    *("pytensor.compile.debug", "pytensor.compile.compiledir", "pytensor.d3viz"),
    *("pytensor.ipython", "pytensor.link", "pytensor.misc", "pytensor.scan.scan_perform"),
    "pytensor.scan.scan_perform_ext",  # compiles when imported
)
"""Modules that hold no class of a graph, or only such as run foreign code."""

_NEVER_GRAPHS = {"numpy", "scipy", "cloudpickle"}
"""Packages that define no class of graphs, so that admitting them would not help."""

_CODE_CARRIERS = (
    *(FromFunctionOp, CDataType, pytensor.link.c.op.ExternalCOp),
    pytensor.breakpoint.PdbBreakpoint,
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a global is not admitted, and the option that would admit it."""

    reason: str
    hint: str = TRUST


class Allowlist:
    """The rules, with the packages that the user adds to them."""

    def __init__(self, forms: Container[tuple[str, str]], packages: Iterable[str] = ()) -> None:
        self._forms = forms
        self._packages = frozenset(packages)
        self._resolved: dict[tuple[str, str], Any] = {}

    def resolve(self, module: str, name: str) -> Any:
        """Return the class or object that ``module.name`` is, ``None`` for a form, or a `Refusal`.

        Nothing outside the admitted packages is imported.
        """
        key = (module, name)
        if key not in self._resolved:
            self._resolved[key] = self._resolve(module, name)
        return self._resolved[key]

    def _resolve(self, module: str, name: str) -> Any:
        if (module, name) in OBJECTS:
            return OBJECTS[module, name]
        if (module, name) in self._forms:
            return None
        if not name.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
            return Refusal("its name is not that of a thing at the top of a module")
        if (module, name) in REFUSED:
            return Refusal(REFUSED[module, name])
        if (module, name) not in _READ:
            refusal = self._refuse(module)
            if refusal is not None:
                return refusal
        thing = _find(module, name)
        if (module, name) in LAZY_OBJECTS or isinstance(thing, Refusal):
            return thing
        return _resolve_class(thing, module, name)

    def _refuse(self, module: str) -> Refusal | None:
        """Say why nothing of ``module`` is admitted but what was read, if that is so."""
        root, *rest = module.split(".")
        if module.startswith("cloudpickle"):
            return Refusal("it carries code")
        if root in self._packages:
            closed = any(module == m or module.startswith(f"{m}.") for m in _CLOSED_MODULES)
            if closed or {"__main__", "tests", "test", "conftest", "setup"} & set(rest):
                return Refusal("its module is not one of those that define graphs")
            return None
        if root in sys.stdlib_module_names or root in _NEVER_GRAPHS:
            return Refusal(f"{root!r} is not a package of graphs")
        known = root in PACKAGES
        reason = "nobody has read what its constructor does" if known else "its package is unknown"
        return Refusal(reason, f"--allow-package {root} runs constructors of {root}, {TRUST}")


def _resolve_class(thing: Any, module: str, name: str) -> Any:
    if not isinstance(thing, type):
        return Refusal("it is not a class, and functions are admitted by exact name only")
    if (thing.__module__, thing.__qualname__) != (module, name):
        return Refusal("it is a second name of something else")
    if not issubclass(thing, Op | Type | Variable | Apply):
        return Refusal("it is not a class of ops, types, variables or nodes")
    if issubclass(thing, _CODE_CARRIERS):
        return Refusal("ops and types of this class carry or run foreign code")
    return thing


@cache
def _find(module: str, name: str) -> Any:
    """Return ``name`` of ``module``, which is imported only if it is there to be found."""
    found = sys.modules.get(module)
    if found is None:
        try:
            found = importlib.import_module(module)
        except Exception as error:
            return Refusal(f"its module cannot be imported: {error}", "install what it needs")
    missing = Refusal("there is no such thing in the installed version", "install that version")
    return vars(found).get(name, missing)

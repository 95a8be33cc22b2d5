"""Where the loop of a PyMC distribution was written, read from the code of the user's function.

``pm.CustomDist`` calls a function of the user's, and keeps the graph that it returns as a body, in
which nothing has a stack. But it keeps the function, too.
"""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Callable, Iterator
from functools import partial
from types import CodeType, ModuleType
from typing import Any

from pytensor.graph.op import Op
from pytensor.scan.basic import scan

from scanopt_cli.ir.written import Written, shown_path

_KEPT_IN = "pymc.distributions.shape_utils"
_LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF")


def written_by_distribution(op: Op) -> Written | None:
    """Return where the function of a ``pm.CustomDist`` calls ``scan``, if it does so once."""
    resize = getattr(sys.modules.get(_KEPT_IN), "_change_dist_size", None)
    kept = None if resize is None else resize.registry.get(type(op))
    function = None if kept is None else inspect.getclosurevars(kept).nonlocals.get("dist")
    if not inspect.isfunction(function):
        return None
    calls = list(_calls_of_scan(function))
    return calls[0] if len(calls) == 1 else None


def _calls_of_scan(function: Callable[..., Any]) -> Iterator[Written]:
    """Yield each place in the code of a function that reads what is ``scan`` in its scope."""
    known = inspect.getclosurevars(function)
    scope = {**known.builtins, **function.__globals__, **known.nonlocals}
    codes: list[CodeType] = [function.__code__]
    while codes:
        code = codes.pop()
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        value: Any = None
        for instruction in dis.get_instructions(code):
            if instruction.opname in _LOADS:
                value = scope.get(instruction.argval)
            elif instruction.opname == "LOAD_ATTR" and isinstance(value, ModuleType):
                value = getattr(value, instruction.argval, None)
            else:
                value = None
            line = None if instruction.positions is None else instruction.positions.lineno
            if line and (value.func if isinstance(value, partial) else value) is scan:
                yield Written(shown_path(code.co_filename), line, code.co_name)

"""The Ops and functions of PyTensor that have public names."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any

from pytensor.compile.builders import OpFromGraph
from pytensor.graph.op import Op

from scanopt_cli.equivalence.sameness import Sameness
from scanopt_cli.python_source.code import Reference
from scanopt_cli.python_source.values import snake_case

_WITH_OPS = (
    "pytensor.tensor",
    "pytensor.tensor.linalg",
    "pytensor.scalar",
    "pytensor.tensor.random",
)
_WITH_FUNCTIONS = ("pytensor.tensor", "pytensor.tensor.linalg", "pytensor.tensor.random")
_PREFERRED = frozenset({"sigmoid", "fill"})
"""The names that people use of Ops that have several."""
_RENAMED = {"MatrixInverse": "inv", "MatrixPinv": "pinv", "ARange": "arange"}
"""Classes of Ops whose functions have other names."""


@cache
def _public_ops() -> dict[bytes, Reference]:
    """Return the public name of each Op that has one, by the Op's digest."""
    sameness, found = Sameness(), dict[bytes, Reference]()
    for module in _WITH_OPS:
        for name, item in vars(import_module(module)).items():
            is_op = isinstance(item, Op) and not isinstance(item, OpFromGraph)
            if is_op and not name.startswith("_") and not name.endswith("_inplace"):
                key = sameness.of_op(item)
                if key not in found or (name in _PREFERRED and found[key].module == module):
                    found[key] = Reference(module, name)
    return found


def public_op(op: Op) -> Reference | None:
    """Return the public name of an Op, if it has one."""
    return None if hasattr(op, "fgraph") else _public_ops().get(Sameness().of_op(op))


def functions_like(op: Op) -> Iterator[tuple[Reference, frozenset[str]]]:
    """Yield public functions that are called like the class of ``op``, each with its parameters."""
    name = type(op).__name__
    for module in _WITH_FUNCTIONS:
        for called in dict.fromkeys((*snake_case(name), _RENAMED.get(name, name))):
            function: Any = getattr(import_module(module), called, None)
            if inspect.isfunction(function):
                parameters = frozenset(inspect.signature(function).parameters)
                yield Reference(module, called), parameters

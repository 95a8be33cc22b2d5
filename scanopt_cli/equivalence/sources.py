"""Which version of a package defines an Op, for keys of what its methods and functions make.

PyTensor, scanopt and NumPy are not looked at: their versions, or files, are in each such key.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pytensor.graph.op import Op
from pytensor.scalar.basic import Composite

from scanopt_cli.environment import INSTALLED
from scanopt_cli.ir.inner_graphs import HELD_OPS

_KNOWN = ("pytensor", "scanopt_cli", "numpy", "builtins", "abc", "typing")


class UntoldError(Exception):
    """Something that a result depends on cannot be told by value."""


def modules_of(op: Op) -> set[str]:
    """Return the modules of an Op's class, of its bases, and of the Ops that it computes by."""
    return {cls.__module__ for part in _parts(op) for cls in type(part).__mro__}


def source_of_op(op: Op) -> bytes:
    """Return what tells one version of an Op from another.

    Raises
    ------
    UntoldError
        As `source_of` does.
    """
    return b"".join(map(source_of, sorted(modules_of(op))))


def _parts(op: Op) -> Iterator[Op]:
    yield op
    for name in HELD_OPS:
        inside = getattr(op, name, None)
        if isinstance(inside, Op):
            yield from _parts(inside)
    if isinstance(op, Composite):
        for node in op.fgraph.toposort():
            yield from _parts(node.op)


@cache
def source_of(module: str) -> bytes:
    """Return what tells one version of a module from another, for those of other packages.

    Nobody gives a program that is being written a version: all its modules are looked at that are
    loaded, since the one that defines an Op may call them.

    Raises
    ------
    UntoldError
        If the module is of no file, or is the program itself.
    """
    package = module.partition(".")[0]
    if package in _KNOWN:
        return b""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None or module == "__main__":
        raise UntoldError
    files = {module: file}
    if not any(part in file for part in INSTALLED):
        for name, loaded in list(sys.modules.items()):
            found = getattr(loaded, "__file__", None)
            if name.partition(".")[0] == package and isinstance(found, str):
                files[name] = found
    stamps = [(name, stamp(files[name])) for name in sorted(files)]
    return repr((module, version_of(package), stamps)).encode()


def version_of(package: str) -> str:
    """Return the version of a package, without reading metadata if the package tells it."""
    found = getattr(sys.modules.get(package), "__version__", None)
    if isinstance(found, str):
        return found
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def versions_of_compilers() -> bytes:
    """Return the versions of the packages that make machine code of a graph."""
    packages = ("llvmlite", "numba", "pytensor", "scanopt_cli")
    return repr([version_of(package) for package in packages]).encode()


def stamp(file: str | os.DirEntry[str]) -> tuple[int, int]:
    """Return what changes when a file is written.

    Raises
    ------
    UntoldError
        If there is no such file.
    """
    try:
        found = os.stat(file)
    except OSError:
        raise UntoldError from None
    return found.st_size, found.st_mtime_ns


def source_of_function(function: Any) -> bytes:
    """Return the version of the module of a function, as `source_of` does."""
    return source_of(getattr(function, "__module__", None) or "builtins")

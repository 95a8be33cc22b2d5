"""The names that files give to classes of Ops and Types, whatever module PyTensor keeps them in.

The table is closed: it holds the classes whose constructors somebody has read (`reviewed`), and a
file can name no other. A name is the part of the library that a class belongs to, and the name of
the class: ``tensor.Elemwise``, ``scalar.Add``, ``pymc.distributions.CensoredRV``. A class that a
later PyTensor moves to another part keeps the name that files have: enter it in `FORMER`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytensor.graph.op import Op
from pytensor.graph.type import Type

from scanopt_cli.serialization.unpickler.allowlist import Allowlist, Refusal
from scanopt_cli.serialization.unpickler.reviewed import ADMITTED

_NO_PARTS = ("Variable", "Constant", "Apply")
"""How the names of classes end that are neither Ops nor Types."""

FORMER: Mapping[tuple[str, str], str] = {}
"""The names that files have for classes that were moved: by module and name of the class."""


def _name(module: str, name: str) -> str:
    package, *rest = module.split(".")
    if package == "scanopt_cli":
        return f"scanopt.{name}"
    return ".".join((*rest[:1], name) if package == "pytensor" else (package, *rest[:1], name))


CLASSES: Mapping[str, tuple[str, str]] = {
    FORMER.get((module, name), _name(module, name)): (module, name)
    for module, names in ADMITTED.items()
    for name in names.split()
    if not name.endswith(_NO_PARTS) or name == "MinibatchRandomVariable"
}
"""Module and name of each class that a file can name."""

_NAMES = {place: name for name, place in CLASSES.items()}
_ALLOWLIST = Allowlist(())


def name_of(cls: type[Any]) -> str | None:
    """Return the name of a class in files; ``None`` if they cannot name it."""
    return _NAMES.get((cls.__module__, cls.__qualname__))


def class_of(name: Any) -> type[Any]:
    """Return the class of a name. Its module is imported, which is one of the table's.

    Raises
    ------
    ValueError
        If there is no such name, or the installed libraries have no such class.
    """
    if type(name) is not str or name not in CLASSES:
        raise ValueError(f"{str(name)[:80]!r} is no Op or Type that this version knows")
    found = _ALLOWLIST.resolve(*CLASSES[name])
    if isinstance(found, Refusal):
        raise ValueError(f"{name}: {found.reason}")
    if not issubclass(found, Op | Type):
        raise ValueError(f"{name} is no Op or Type")
    made: type[Any] = found
    return made

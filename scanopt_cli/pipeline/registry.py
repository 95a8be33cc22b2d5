"""The registry of passes: the built-in ones in a tuple, and those that other packages add."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pkgutil import resolve_name
from types import MappingProxyType

from scanopt_cli.errors import PassError, PlugInWarning, brief
from scanopt_cli.pipeline.contract import Pass
from scanopt_cli.pipeline.names import BUILTIN, BY_NAME
from scanopt_cli.pipeline.names import ENTRY_POINT_GROUP as ENTRY_POINT_GROUP


@cache
def builtin() -> tuple[type[Pass], ...]:
    """Return the built-in passes."""
    return tuple(map(_built_in, BUILTIN))


def _built_in(entry: str) -> type[Pass]:
    cls: type[Pass] = resolve_name(f"scanopt_cli.passes.{entry}")
    return cls


@dataclass(frozen=True, slots=True)
class PlugIns:
    """What the entry points of other packages name.

    Attributes
    ----------
    passes
        The passes, by name.
    packages
        The package of each.
    problems
        By the names of entry points, why they add no pass.
    """

    passes: Mapping[str, type[Pass]]
    packages: Mapping[type[Pass], str]
    problems: Mapping[str, str]


@cache
def plug_ins() -> PlugIns:
    """Return what other packages add by entry points of the group ``scanopt.passes``.

    Of those that add no pass, a `PlugInWarning` says why; nothing else is stopped by them.
    """
    passes: dict[str, type[Pass]] = {}
    packages: dict[type[Pass], str] = {}
    problems: dict[str, str] = {}
    for point in entry_points(group=ENTRY_POINT_GROUP):
        package = package_name(point)
        try:
            cls = _loaded(point, passes)
        except PassError as error:
            problem = f"the package {package} adds no pass {point.name!r}: {error}"
            problems[point.name] = problem
            warnings.warn(problem, PlugInWarning, stacklevel=2)
        else:
            passes[cls.name], packages[cls] = cls, package
    return PlugIns(passes, packages, problems)


def package_name(point: EntryPoint) -> str:
    """Return the package that an entry point belongs to."""
    return point.dist.name if point.dist is not None else point.module.partition(".")[0]


def _loaded(point: EntryPoint, others: Mapping[str, type[Pass]]) -> type[Pass]:
    try:
        cls = point.load()
    except (Exception, SystemExit) as error:
        raise PassError(f"{point.value} cannot be imported ({brief(error)})") from error
    if not (isinstance(cls, type) and issubclass(cls, Pass) and hasattr(cls, "name")):
        raise PassError(f"{point.value} is not a subclass of scanopt's Pass with a name")
    taken = {**others, **{other.name: other for other in builtin()}}.get(cls.name)
    if taken is not None:
        raise PassError(
            f"pass name {cls.name!r} is taken by {taken.__module__}.{taken.__qualname__}"
        )
    return cls


@cache
def registry() -> Mapping[str, type[Pass]]:
    """Return every pass by name, built-in ones first, then those of `plug_ins`."""
    return MappingProxyType({cls.name: cls for cls in builtin()} | dict(plug_ins().passes))


def registered(name: str) -> type[Pass] | None:
    """Return the pass of a name; of the built-in ones, no other one is imported."""
    others = plug_ins().passes  # which warns of what cannot be loaded
    return _built_in(BY_NAME[name]) if name in BY_NAME else others.get(name)


def package_of(item: Pass) -> str | None:
    """Return the package that adds a pass by an entry point."""
    return plug_ins().packages.get(type(item))

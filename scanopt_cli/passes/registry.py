"""Which passes there are: ours in one explicit tuple, and those that other packages add."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from types import MappingProxyType

from scanopt_cli.errors import PassError
from scanopt_cli.passes.base import Pass
from scanopt_cli.passes.clean_slices import CleanSlices
from scanopt_cli.passes.compile_safe.compile_safe import CompileSafe
from scanopt_cli.passes.hoist_states import HoistStates
from scanopt_cli.passes.inline_constants import InlineConstants
from scanopt_cli.passes.merge_duplicates import MergeDuplicates
from scanopt_cli.passes.merge_equal import MergeEqual
from scanopt_cli.passes.merge_scans import MergeScans
from scanopt_cli.passes.merge_states import MergeStates
from scanopt_cli.passes.mit_mot_to_sit_sot import MitMotToSitSot
from scanopt_cli.passes.push_out import PushOut
from scanopt_cli.passes.push_out_sums import PushOutSums
from scanopt_cli.passes.remove_unused import RemoveUnused
from scanopt_cli.passes.remove_zeros import RemoveZeros
from scanopt_cli.passes.save_mem import SaveMem
from scanopt_cli.passes.simplify import Simplify
from scanopt_cli.passes.trim_steps import TrimSteps

BUILTIN: tuple[type[Pass], ...] = (
    MergeEqual,
    RemoveUnused,
    InlineConstants,
    HoistStates,
    MergeScans,
    MergeDuplicates,
    MergeStates,
    Simplify,
    MitMotToSitSot,
    RemoveZeros,
    CleanSlices,
    PushOutSums,
    TrimSteps,
    SaveMem,
    CompileSafe,
    PushOut,
)

ENTRY_POINT_GROUP = "scanopt.passes"


@cache
def registry() -> Mapping[str, type[Pass]]:
    """Return every pass by name, ours first.

    Other packages add passes by an entry point of the group ``scanopt.passes`` that names a
    subclass of `Pass`.

    Raises
    ------
    PassError
        If two passes have one name, or an entry point leads to no pass.
    """
    passes = {cls.name: cls for cls in BUILTIN}
    for point in entry_points(group=ENTRY_POINT_GROUP):
        where = f"entry point {point.value}"
        try:
            cls = point.load()
        except Exception as error:
            raise PassError(f"cannot be imported ({error})", where=where) from error
        if not (isinstance(cls, type) and issubclass(cls, Pass) and hasattr(cls, "name")):
            raise PassError("is not a subclass of scanopt's Pass with a name", where=where)
        if cls.name in passes:
            other = passes[cls.name]
            raise PassError(
                f"pass name {cls.name!r} is taken by {other.__module__}.{other.__qualname__}",
                where=where,
                hint="give the pass another name",
            )
        passes[cls.name] = cls
    return MappingProxyType(passes)

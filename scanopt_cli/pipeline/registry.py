"""The registry of passes: the built-in ones in a tuple, and those that other packages add."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from pkgutil import resolve_name
from types import MappingProxyType

from scanopt_cli.errors import PassError
from scanopt_cli.pipeline.contract import Pass

# A module of `scanopt_cli.passes` and a class in it, in the order in which passes are listed.
_BUILTIN = (
    "merge_equal:MergeEqual",
    "remove_unused:RemoveUnused",
    "inline_constants.inline_constants:InlineConstants",
    "hoist_states:HoistStates",
    "merge_scans.merge_scans:MergeScans",
    "merge_duplicates:MergeDuplicates",
    "merge_states:MergeStates",
    "simplify.simplify:Simplify",
    "mit_mot_to_sit_sot.mit_mot_to_sit_sot:MitMotToSitSot",
    "remove_zeros.remove_zeros:RemoveZeros",
    "clean_slices.clean_slices:CleanSlices",
    "push_out_products:PushOutProducts",
    "push_out_sums.push_out_sums:PushOutSums",
    "normalize_reads.normalize_reads:NormalizeReads",
    "peel_first_step:PeelFirstStep",
    "trim_steps.trim_steps:TrimSteps",
    "carry_reductions.carry_reductions:CarryReductions",
    "save_mem.save_mem:SaveMem",
    "compile_safe.compile_safe:CompileSafe",
    "push_out.push_out:PushOut",
    "factor_once:FactorOnce",
    "scan_to_loop.scan_to_loop:ScanToLoop",
    "trace_to_last:TraceToLast",
    "constant_states:ConstantStates",
    "checkpoint:Checkpoint",
    "unroll_loops:UnrollLoops",
    "unroll_small.unroll_small:UnrollSmall",
    "keep_values.keep_values:KeepValues",
    "merge_products:MergeProducts",
    "loop_to_scan.loop_to_scan:LoopToScan",
)
ENTRY_POINT_GROUP = "scanopt.passes"


@cache
def builtin() -> tuple[type[Pass], ...]:
    """Return the built-in passes."""
    return tuple(resolve_name(f"scanopt_cli.passes.{entry}") for entry in _BUILTIN)


@cache
def registry() -> Mapping[str, type[Pass]]:
    """Return every pass by name, built-in ones first.

    Other packages add passes by an entry point of the group ``scanopt.passes`` that names a
    subclass of `Pass`.

    Raises
    ------
    PassError
        If two passes have the same name, or an entry point names no pass.
    """
    passes = {cls.name: cls for cls in builtin()}
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

"""The names of passes and presets, for what must not import PyTensor, as shells that complete."""

from __future__ import annotations

# A module of `scanopt_cli.passes` and a class in it, in the order in which passes are listed.
BUILTIN = (
    "merge_equal:MergeEqual",
    "clean_ofg.clean_ofg:CleanOfg",
    "remove_unused:RemoveUnused",
    "of_scans.drop_taps:DropTaps",
    "of_scans.guard_last_rows:GuardLastRows",
    "inline_constants.inline_constants:InlineConstants",
    "fold_loops.fold_loops:FoldLoops",
    "hoist_states:HoistStates",
    "merge_scans.merge_scans:MergeScans",
    "merge_duplicates:MergeDuplicates",
    "merge_states:MergeStates",
    "inline_ofg:InlineOfg",
    "simplify.simplify:Simplify",
    "of_scans.mit_mot_to_sit_sot.mit_mot_to_sit_sot:MitMotToSitSot",
    "remove_zeros.remove_zeros:RemoveZeros",
    "clean_slices.clean_slices:CleanSlices",
    "push_out_products:PushOutProducts",
    "push_out_batches.push_out_batches:PushOutBatches",
    "push_out_sums.push_out_sums:PushOutSums",
    "loops_to_ops.loops_to_ops:LoopsToOps",
    "normalize_reads.normalize_reads:NormalizeReads",
    "peel_first_step:PeelFirstStep",
    "trim_steps.trim_steps:TrimSteps",
    "of_scans.carry_reductions.carry_reductions:CarryReductions",
    "of_scans.save_mem.save_mem:SaveMem",
    "of_scans.compile_safe.compile_safe:CompileSafe",
    "push_out.push_out:PushOut",
    "factor_once:FactorOnce",
    "scan_to_loop.scan_to_loop:ScanToLoop",
    "split_states.split_states:SplitStates",
    "of_traced_loops.trace_to_last.trace_to_last:TraceToLast",
    "of_traced_loops.checkpoint:Checkpoint",
    "of_traced_loops.unroll_loops:UnrollLoops",
    "of_traced_loops.unroll_small.unroll_small:UnrollSmall",
    "of_traced_loops.keep_values.keep_values:KeepValues",
    "of_traced_loops.merge_products:MergeProducts",
    "share_factors:ShareFactors",
    "loop_to_scan.loop_to_scan:LoopToScan",
    "carry_generators:CarryGenerators",
    "split_states.stop_at_fixed_point:StopAtFixedPoint",
    "of_scans.initial_rows_alone:InitialRowsAlone",
    "safe_branches:SafeBranches",
    "stable_log_sums:StableLogSums",
    "widen_integers:WidenIntegers",
    "match_precision:MatchPrecision",
)
BY_NAME = {entry.partition(":")[0].rpartition(".")[2].replace("_", "-"): entry for entry in BUILTIN}
"""The same by the names of passes, which are those of their modules."""
ENTRY_POINT_GROUP = "scanopt.passes"

PRESETS: dict[str, str] = {
    "default": "merge-equal,clean-ofg,remove-unused,drop-taps,guard-last-rows,inline-constants,"
    "fold-loops,hoist-states,loops-to-ops,merge-scans,merge-duplicates,merge-states,remove-unused,"
    "normalize-reads,peel-first-step,trim-steps,save-mem",
    "grad": "merge-equal,inline-ofg,clean-ofg,remove-unused,drop-taps,guard-last-rows,"
    "inline-constants,clean-slices,mit-mot-to-sit-sot,remove-zeros,simplify{outer=true},"
    "push-out-products,push-out-batches{factors=false},push-out-sums,push-out{cheap=false},"
    "clean-slices,inline-constants,fold-loops,hoist-states,loops-to-ops,merge-scans,"
    "merge-duplicates,merge-states,remove-unused,normalize-reads,peel-first-step,trim-steps,"
    "save-mem,share-factors",
    "loop": "merge-equal,inline-ofg,clean-ofg,remove-unused,drop-taps,guard-last-rows,"
    "inline-constants,clean-slices,mit-mot-to-sit-sot,scan-to-loop,remove-zeros,"
    "simplify{outer=true},push-out-products,"
    "push-out-batches{products=false,determinants=false,factors=false},push-out-sums,"
    "push-out{cheap=false},clean-slices,inline-constants,fold-loops,hoist-states,"
    "loops-to-ops{traced=false},merge-scans,merge-duplicates,merge-states,split-states,"
    "remove-unused,normalize-reads,peel-first-step,trim-steps,trace-to-last,remove-unused,"
    "unroll-loops,unroll-small,factor-once,keep-values,merge-products,save-mem,share-factors",
    "none": "",
}
"""Named pipelines."""

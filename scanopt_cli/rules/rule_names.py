"""The codes and names of rules, for what must not import PyTensor, as shells that complete."""

from __future__ import annotations

# The code, and a module of `scanopt_cli.rules` with a class in it, in the order of the kinds.
BUILTIN = {
    "C001": "trimmed_forward:TrimmedForward",
    "C002": "last_of_no_steps:LastOfNoSteps",
    "C003": "miscompiled_forms:MiscompiledForms",
    "C004": "narrow_integers:NarrowIntegers",
    "J001": "not_in_jax:NotInJax",
    "N001": "unselected_branches:UnselectedBranches",
    "N002": "unstable_sums:UnstableSums",
    "N003": "mixed_precision:MixedPrecision",
    "O001": "unused_ends:UnusedEnds",
    "P001": "unused_slots:UnusedSlots",
    "P002": "equal_rows:EqualRows",
    "P003": "invariant_products:InvariantProducts",
    "P004": "maps:Maps",
    "P005": "whole_traces:WholeTraces",
    "P006": "equal_loops:EqualLoops",
    "P007": "backward_buffers:BackwardBuffers",
    "P008": "copied_states:CopiedStates",
    "P009": "unknown_shapes:UnknownShapes",
    "P010": "arrays_in_steps:ArraysInSteps",
    "R001": "equal_draws:EqualDraws",
    "R002": "one_generator:OneGenerator",
    "R003": "lost_generator:LostGenerator",
}
NAMES = {code: entry.partition(":")[0].replace("_", "-") for code, entry in BUILTIN.items()}
"""The name of each rule, which is that of its module, by the code."""
ENTRY_POINT_GROUP = "scanopt.rules"

"""The text of remarks: one place for each code, and hints on what a user can do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from scanopt_cli.analysis.same_draws import SAME_DRAWS
from scanopt_cli.pipeline.runner import PassRun
from scanopt_cli.remarks import Code, Remark, Why
from scanopt_cli.reports.wording import worded

TEXTS: Mapping[Code, str] = {
    Code.PASS_FAILED: "the pass failed, so this stays as it is: {error}",
    Code.PASSES_CYCLE: "stopped after {rounds} rounds: {passes} would change the graph again and "
    "again; the smallest graph is kept",
    Code.NOTE: "{text}",
    Code.LOOP_LEFT: "{reason}",
    Code.GRAPH_LEFT: "nothing is rewritten: {reason}",
    Code.BODY_LEFT: "its body is left as it is: a rewrite would change its output types",
    Code.OPS_BY_IDENTITY: "compared by identity: {ops}",
    Code.OPS_BY_STATE: "Ops without __props__, compared by all their state: {ops}",
    Code.SAME_DRAWS: SAME_DRAWS.format(generators="{slots!q}"),
    Code.LENGTH_COUNTED: "expressed {count:length} by the trip count",
    Code.BUFFER_LEFT: "keeps a buffer of which every row is overwritten: {reason}",
    Code.BUFFER_DROPPED: "removed {count:buffer} of which every row is overwritten",
    Code.WRITE_MOVED: "merged {count:nested write} into zeros",
    Code.WRITE_SIMPLIFIED: "simplified the index of {count:write}",
    Code.START_EMPTIED: "starts {slots!q} from a buffer of which only the initial rows are set",
    Code.START_FILLED: "replaced {count:short initial buffer} by Alloc",
    Code.STORE_FORWARDED: "forwarded stores to {count:load}",
    Code.SLICE_COMPOSED: "simplified or composed {count:slice}",
    Code.ROW_TAKEN: "took {count:element} for a sum or squeeze of an axis of length 1",
    Code.BRANCHES_COPIED: "copied {values:value} that a branch reads or returns",
    Code.BUFFERS_COPIED: "copied the initial buffers of {states:state}, so that they stay distinct",
    Code.CONDITION_MARKED: "made the stop condition differ from those of other loops",
    Code.OUTPUTS_COPIED: "a step copies {outputs:output}",
    Code.READERS_COPIED: "readers of {slots!q} read a copy",
    Code.SEQUENCE_CUT: "cut the sequence {slots!q} to the trip count",
    Code.SUM_REGROUPED: "regrouped the sum {slots!q}, so that PyTensor does not push it out",
    Code.UNIT_LENGTH_DECLARED: "declares lengths of 1 that PyTensor would find, and refuse",
    Code.LAST_GUARDED: "reads the last row of {slots!q} behind a check that {steps} is not 0",
    Code.LAST_UNGUARDED: "reads the last row of {slots!q}, if there is one, without a check: "
    "{reason}",
    Code.WRITE_GUARDED: "writes into a last row behind a check that {steps} is not 0",
    Code.OUTPUT_HOISTED: "hoisted the invariant output {slots!q}",
    Code.STATE_CONSTANT: "made a constant of the state {slots!q}, which no step changes",
    Code.STATE_HOISTED: "hoisted the invariant state {slots!q}",
    Code.STATE_NOT_HOISTED: "keeps the invariant {slots!q} in the loop: {reason}",
    Code.TAPS_DROPPED: "no longer reads the taps {taps} of {slots!q}",
    Code.TAPS_KEPT: "keeps the unread taps of {slots!q}: {reason}",
    Code.WRITES_DROPPED: "no longer writes the rows {taps} of {slots!q}, which stay as they are",
    Code.LOOP_FOLDED: "computed all values, which depend on constants alone",
    Code.LOOP_NOT_FOLDED: "leaves its values, which depend on constants alone, to be computed: "
    "{reason}",
    Code.CONSTANT_INLINED: "wrote the value of {kind} {slots!q} into the step",
    Code.INPUT_KEPT: "keeps {kind} {slots!q} as an input: {reason}",
    Code.SEQUENCE_UNIFORM: "turned uniform {kind} {slots!q} into a {into}",
    Code.CONSTANTS_MERGED: "merged {count:constant} with equal ones",
    Code.NODES_MERGED: "merged {count:node} with equal ones",
    Code.LOOPS_MERGED: "merged {count:loop} with equal ones",
    Code.OPS_SHARED: "made {count:node} of OpFromGraph {op!q} share one Op",
    Code.SCANS_MERGED: "merged with {others!q}",
    Code.SCANS_NOT_MERGED: "not merged with {other!q}: {reason}",
    Code.SLOTS_MERGED: "merged {kind} {slots!q} into {into!q}",
    Code.TRACE_KEPT: "keeps nit_sot {slots!q}, the trace of {state!q}: {reason}",
    Code.TRACE_READ_FROM_STATE: "replaced nit_sot {slots!q} by the trace of state {state!q}",
    Code.MIT_MOT_KEPT: "keeps mit_mot {slots!q}: {reason}",
    Code.MIT_MOT_REPLACED: "turned mit_mot {slots!q} into {into!n}{each}",
    Code.ADDEND_MOVED: "adds the initial rows of {slots!q} where they are read: all are equal",
    Code.ROWS_AHEAD_EQUAL: "needs no sequence for {slots!q}: the rows that it reads ahead are all "
    "{value}",
    Code.MATRIX_FACTORED: "{count:solution} by a matrix that no step changes: factors it once",
    Code.INVARIANTS_MOVED: "moved {nodes:invariant node} before the loop",
    Code.ROWS_COMPUTED: "computes {ops} of all steps before the loop; holds {growth} bytes more",
    Code.ROWS_NOT_COMPUTED: "keeps {ops} of rows in the loop: {reason}",
    Code.SEQUENCES_COMPUTED: "computes elementwise arithmetic of sequences before the loop",
    Code.SEQUENCES_NOT_COMPUTED: "keeps arithmetic of sequences in the loop: {reason}",
    Code.PRODUCT_KEPT: "keeps the product of a row of {slots!q} in the loop: {reason}",
    Code.PRODUCT_MOVED: "multiplies all rows of {slots!q} by a matrix before the loop",
    Code.SUM_KEPT: "keeps the sum {slots!q} in the loop: {reason}",
    Code.SUM_MOVED: "summed {slots!q} in a matrix product after the loop",
    Code.DRAWS_CHAINED: "draws from {slots!q} one after the other, and hands on the last state",
    Code.GENERATOR_CARRIED: "carries the generator {slots!q}, so that each step draws anew",
    Code.GENERATOR_KEPT: "leaves the generator {slots!q} as it is: {reason}",
    Code.LOOP_KEPT: "stays a TracedLoop: {reason}",
    Code.LOOP_TURNED: "became a Scan",
    Code.STATES_KEPT: "computes {slots!q}, which read no data, in the loop: {reason}",
    Code.STATES_RUN_ON: "computes {slots!q}, which read no data, in each step: {reason}",
    Code.STATES_SPLIT: "computes {slots!q}, which read no data, once for {count:loop}",
    Code.STATES_STOPPED: "stops {slots!q}, which read no data, once no entry changes by more than "
    "{tolerance}",
    Code.LAST_READ: "reads the last row of the trace {slots!q} from the last value",
    Code.LOOP_SPLIT: "runs in blocks of {steps:step}; its gradient keeps {rows:row} of each "
    "state rather than {all}",
    Code.TRACED_CARRIED: "carries {slots!q}, of which only the last row is read",
    Code.SCAN_KEPT: "stays a Scan: {reason}",
    Code.SCAN_TURNED: "became a TracedLoop",
    Code.GRAPH_INLINED: "computes the graph of {op!q} in its place",
    Code.GRAPH_NOT_INLINED: "keeps {op!q} as one node: {reason}",
    Code.SLOT_REMOVED: "removed unused {kind} {slots!q}",
    Code.UNUSED_KEPT: "unused {kind} {slots!q}: {reason}",
    Code.ENDS_APART: "keeps equal ends of {op!q}, {ends}: {reason}",
    Code.ENDS_KEPT: "nobody reads {ends} of {op!q}, but: {reason}",
    Code.ENDS_REMOVED: "removed {ends} of {op!q}, which nobody reads",
    Code.ENDS_MERGED: "merged {ends} of {op!q}, which are equal",
    Code.ZEROS_REMOVED: "removed {kind} {slots!q}: zero in every step",
    Code.BUFFER_KEPT: "keeps all steps of {slots!q}: {reason}",
    Code.BUFFER_SHORTENED: "keeps {rows:row} of {slots!q}: read as {reads}",
    Code.REDUCTION_CARRIED: "takes the {op} of {slots!q} step by step",
    Code.REDUCTION_KEPT: "the {op} of {slots!q} outside of the loop: {reason}",
    Code.STATE_SHORTENED: "keeps {rows:row} of {slots!q}, which its own taps alone read",
    Code.VALUES_KEPT: "keeps {count:value} of each step for the loop that runs backwards",
    Code.PRODUCTS_MERGED: "computes {count:product} of a vector as one",
    Code.STEPS_WRITTEN_OUT: "written out: {count:step}",
    Code.ARRAYS_KEPT: "computes {slots!q} as an array: {reason}",
    Code.SMALL_ARRAYS_LEFT: "leaves {arrays:small array} of each step whole: {reason}",
    Code.ARRAYS_UNROLLED: "computes {count:small array} of each step entry by entry",
    Code.OPERAND_GUARDED: "made {count:operand} safe in the branch that a switch does not select",
    Code.LOG_SUM_SHIFTED: "took the maximum out of {count:log-sum-exp}",
    Code.FACTORS_SHARED: "computes the factors with which {count:product} begin alike once",
    Code.LOOP_NEEDED: "keeps {slots!q} in the loop, not as Ops on whole arrays: {reason}",
    Code.LOOP_NOT_NEEDED: "computes {slots!q} by Ops on whole arrays",
    Code.OPERATIONS_MATCHED: "does {count:operation} in float32 that were cast to it at once",
    Code.STATE_MATCHED: "carries {slots!q} in {dtype}, in which its steps compute",
    Code.STATE_MIXED: "casts {slots!q} to {dtype} in each step: {reason}",
    Code.STEPS_MATCHED: "computes {slots!q} in {dtype}, in which it is carried",
    Code.STATE_WIDENED: "counts {slots!q} in int64, not in {dtype}",
    Code.STATE_NARROW: "keeps {slots!q} in {dtype}: {reason}",
    Code.NOT_SIMPLIFIED: "not simplified: {reason}",
    Code.SIMPLIFIED: "simplified: {before} → {after} nodes",
    Code.FIRST_ROW_COMPUTED: "computes the first row of {slots!q} outside of the loop",
    Code.FIRST_ROW_KEPT: "keeps all steps of {slots!q} for the row of the first step: {reason}",
    Code.FIRST_STEPS_RUN: "runs {steps:step} at most: no more are read",
    Code.LAST_STEPS_CUT: "runs {fewer:step} less than {steps}: nobody reads the last",
    Code.READS_NORMALIZED: "normalized {count:reader} to rows at known places",
    Code.ROWS_FROM_END: "counts rows of {slots!q} from the end",
    Code.STEPS_CUT: "runs {needed:step} of {steps}: no more are read",
    Code.STEPS_KEPT: "runs all {steps:step}: {reason}",
}

REASONS: Mapping[Why, str] = {
    Why.ADDEND_INVARIANT: "a factor of what it adds is the same in every step",
    Why.BATCHES_DIFFER: "their batches are not proved to have one shape",
    Why.BUFFER_SHORT: "its buffer is not proved to be long enough for {steps:step}",
    Why.BUFFERS_NOT_WHOLE: "the buffers of {slots} are not proved to hold every step",
    Why.BUFFERS_UNCLEAR: "the buffers of {slots} are proved neither to be trimmed nor to be whole",
    Why.CARRIES_BATCH: "it alone carries a batch dimension",
    Why.CONDITION_DIFFERS: "their stop conditions differ",
    Why.CONNECTIONS_GIVEN: "the program says which of its outputs depend on which inputs",
    Why.CONSTANT_LARGE: "the constant has more than {elements} elements",
    Why.CONSTANT_RETURNED: "a step returns the constant as it is, and its type is narrower than "
    "the state's",
    Why.VECTORS_FASTER: "vectors compute several of their entries at a time",
    Why.ENTRIES_CROSS: "to exchange entries with other arrays ({entries} a step) takes longer than "
    "is gained",
    Why.ENTRIES_MANY: "a step would compute more than {count} entries",
    Why.FITS_MEMORY: "its gradient would keep no more than {memory} MiB",
    Why.GENERATOR_READER: "a step gives it to {op}, and what that returns is not known to be the "
    "next generator",
    Why.GENERATOR_REPLACED: "the next step gets a generator that does not come of it",
    Why.GENERATOR_SHARED: "something else reads it, too",
    Why.GRADIENT_GIVEN: "its gradient is given by the program, for all its inputs and outputs",
    Why.END_READ: "a value after the last step is read",
    Why.EVALUATION_LONG: "evaluating it may take more than {operations} operations",
    Why.EVALUATION_RAISES: "it raises an error ({error})",
    Why.GRADIENT_TRUNCATED: "its gradient is truncated, and it has a stop condition or a mit_mot",
    Why.IN_PLACE: "{what} works in place",
    Why.INITIAL_ROWS_READ: "its initial rows may be read together with others, or its buffer may "
    "be shorter than all steps",
    Why.INITIAL_READ: "its initial rows may be read, of which float32 may lose digits",
    Why.KIND_LEFT: "it is a {kind}",
    Why.LENGTH_UNKNOWN: "a length is not known",
    Why.LINKER: "loops are faster by Numba, JAX and C, and the graph is compiled by {linker}",
    Why.LOOP_BATCHED: "the loop is batched",
    Why.LOOP_ALONE: "no other loop that always runs computes the same",
    Why.LOOP_EMPTIES: "nothing would be left in the loop, and its buffers cannot be replaced",
    Why.LOOP_STOPS: "the loop may stop early",
    Why.MIT_MOT: "the steps of a loop with a mit_mot are not cut",
    Why.NO_ARRAYS: "they are numbers, which take no longer to compute than to read",
    Why.NO_FLOATS: "not all of them are floats",
    Why.NEEDS_NO_LOOP: "no step computes it from a state, so PyTensor may need no loop for it",
    Why.NEGATIVE_ZERO: "it holds -0.0, which PyTensor takes for 0.0 in the body of a loop",
    Why.NO_FIXPOINT: "no fixpoint after {attempts} rewrites",
    Why.NO_OP_FOR_STEPS: "no Op does for all steps at once what one does by {ops}",
    Why.NO_STEPS: "the trip count {steps} may be 0",
    Why.NO_TENSORS: "it reads a value that is not a tensor",
    Why.ONE_CONDITION: "only one has a stop condition",
    Why.ONE_INPUT: "an OpFromGraph keeps one input",
    Why.ONE_ROW: "a sequence has static length 1, so its row would be broadcast to all steps",
    Why.ONE_TRIMMED: "only one has trimmed buffers",
    Why.OPTION_DIFFERS: "{option} is {ours}, not {theirs}",
    Why.OTHER: "{text}",
    Why.PRODUCT_COSTS: "the product of a row costs more in the loop than it saves",
    Why.READERS_NARROW: "nothing reads it in a wider dtype, so it would wrap there",
    Why.READ_ELSEWHERE: "values other than its last are read",
    Why.READ_OUT_OF_BOUNDS: "a reader is out of bounds",
    Why.READ_AS: "read as {reads}",
    Why.RESULT_LARGE: "the values that are read take more than {bytes} bytes",
    Why.RETURNS_INPUT: "the body would return its own input, and PyTensor may overwrite that",
    Why.ROUNDS_TWICE: "in one precision its values would be other ones",
    Why.ROWS_LARGE: "its results at all steps would hold {growth} bytes more, and max_growth is "
    "{most}",
    Why.ROW_SHAPE_UNKNOWN: "its rows have no shape before the loop",
    Why.SEQUENCE_LENGTH: "a sequence is not proved to be as long as the loop has steps",
    Why.SEQUENCE_SHORT: "one of its sequences may be too short",
    Why.SHAPE_MAY_CHANGE: "its shape may change in a step",
    Why.SHAPE_UNKNOWN: "its shape is not known",
    Why.STEPS_AS_FAST: "compiled steps compute it as fast",
    Why.STEPS_COMPUTED: "how many steps there are may depend on another loop",
    Why.STATE_UNTRACED: "it has states without a trace",
    Why.STEP_HOLDS_GRAPH: "a step has a loop or a graph inside",
    Why.STEP_LARGE: "a step has more than {operations} operations",
    Why.STEP_OP: "a step does {op}",
    Why.STEPS_DIFFER_IN_BATCH: "the step count differs within the batch",
    Why.SUBCLASS: "what knows its class, {what}, may rely on it as it is",
    Why.TAPS_ONE_SIDED: "PyTensor's backends disagree on the rows of taps that are all on one side "
    "of 0",
    Why.TAPS_UNUSED: "it is never read or never written",
    Why.OPS_FOR_GRADIENTS: "it has Ops that differ only in their derivatives (grad_scale by 2 and "
    "by 3, say), which PyTensor would merge",
    Why.TERMS_MANY: "multiplied out, a sum or product has more than {terms} terms, which would "
    "take PyTensor too long",
    Why.TRACE_OF_NO_STEPS: "PyTensor loses the shape of a trace of no steps",
    Why.TRACE_BACKWARDS: "a sequence is the trace of a loop, read backwards",
    Why.TRACES_READ: "its traces are read",
    Why.TRUNCATION_LOST: "its gradient is truncated, which that of Ops is not",
    Why.VALUES_LARGE: "the values to keep would take {memory} MiB",
    Why.VALUES_MANY: "more than {count} values of a step would be kept",
    Why.TRACE_OF_NO_TENSOR: "a trace is read whose rows are no arrays",
    Why.NO_ROOM_FOR_TRACE: "a trace is read, and the loop may run more steps than memory holds",
    Why.TYPE_DIFFERS: "its type {type} is not the {read} that the body reads",
    Why.TYPE_NOT_NUMERIC: "it is not of plain numbers",
    Why.UNTAKEN_BRANCH: "a branch of an IfElse decides whether it runs",
    Why.UNTRACED_READ: "a state without a trace is read",
    Why.WHILE_KEEPS_ONE: "a while loop can keep one step, not {rows}",
    Why.WRITES_EARLY: "it writes rows before the earliest that it reads",
    Why.WRITES_TWICE: "a step writes one row twice",
}

HINTS: Mapping[Why, str] = {
    Why.BUFFER_SHORT: "give the arrays a static length (pt.specify_shape, pm.freeze_dims_and_data)",
    Why.LENGTH_UNKNOWN: "give the arrays a static shape (pt.specify_shape, "
    "pm.freeze_dims_and_data)",
    Why.NEGATIVE_ZERO: "write 0.0 if the sign does not matter",
    Why.NO_OP_FOR_STEPS: "no Op does for all steps at once what one does by {ops}",
    Why.NO_STEPS: "use a constant n_steps, or sequences of static length",
    Why.ROUNDS_TWICE: "match-precision{exact=false} carries it in float64",
    Why.SEQUENCE_SHORT: "cut the sequences to n_steps, or leave n_steps out",
    Why.SHAPE_UNKNOWN: "if no axis is longer than about 8, give it a static shape by "
    "pt.specify_shape or pm.freeze_dims_and_data; larger arrays gain little",
    Why.TRACE_OF_NO_STEPS: "use a constant n_steps, or sequences of static length",
}
"""What a user can do about a missed rewrite, where it is known."""

_NUMBER = re.compile(r"#\d+(?=/|$)")


def without_numbers(name: str) -> str:
    """Return the path of a loop without the numbers that tell copies apart."""
    return _NUMBER.sub("", name)


def text_of(remark: Remark) -> str:
    """Return what a remark says."""
    reason = ""
    if remark.reason is not None:
        reason = worded(REASONS[Why(remark.reason.code)], remark.reason.fields)
    fields = {**remark.details, "slots": remark.slots, "count": remark.count, "reason": reason}
    fields["each"] = " each" if len(remark.slots) > 1 else ""
    return worded(TEXTS[remark.code], fields)


def bracketed_hint(remark: Remark) -> str:
    """Return the hint of a remark, to stand behind its text; nothing if it has none."""
    hint = hint_of(remark)
    return "" if hint is None else f" ({hint})"


def hint_of(remark: Remark) -> str | None:
    """Return what a user can do about a missed rewrite, if that is known."""
    return HINTS.get(Why(remark.reason.code)) if remark.reason is not None else None


def failures(runs: Iterable[PassRun]) -> list[Remark]:
    """Return the remarks on passes that raised an error."""
    return [remark for run in runs for remark in run.remarks if remark.code is Code.PASS_FAILED]


def grouped(remarks: Iterable[Remark], *, with_slots: bool = True) -> list[Remark]:
    """Return ``remarks`` with those merged that differ in slots, or in the number of a Scan.

    Remarks on several Scans are merged if they have the same slots; if not ``with_slots``, whatever
    slots and Scans they are about.
    """
    by_scan: dict[object, Remark] = {}
    for remark in remarks:
        first = by_scan.setdefault(remark.subject, remark)
        if first is not remark:
            slots = tuple(dict.fromkeys((*first.slots, *remark.slots)))
            by_scan[remark.subject] = replace(first, slots=slots, count=first.count + remark.count)
    groups: dict[object, list[Remark]] = {}
    for remark in by_scan.values():
        alike = replace(remark, scan=without_numbers(remark.scan) if with_slots else "")
        same = (alike.slots, alike.count) if with_slots else None
        groups.setdefault((alike.subject, same), []).append(remark)
    return [_of_several(found) for found in groups.values()]


def _of_several(found: Sequence[Remark]) -> Remark:
    """Return one remark in place of remarks that say the same of several Scans."""
    first, *others = found
    if not others:
        return first
    slots = tuple(dict.fromkeys(slot for remark in found for slot in remark.slots))
    return replace(first, scan=f"{first.scan} and {len(others)} more", slots=slots)

"""Remarks of passes as data: a code with its fields. `scanopt_cli.reports.remark_text` words them.

As in LLVM, a remark says that a pass rewrote something (*passed*), that it did not, and why
(*missed*), or what it found out (*analysis*). Codes are stable: scripts may rely on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from scanopt_cli.facts import Fact
from scanopt_cli.presentation import Presented

type Detail = str | int | tuple[str, ...]


class RemarkKind(StrEnum):
    """What a remark is about: a rewrite or one that was not done, a finding, a likely mistake."""

    PASSED = "passed"
    MISSED = "missed"
    ANALYSIS = "analysis"
    WARNING = "warning"


class Code(StrEnum):
    """What a pass did, or did not do."""

    # any pass
    PASS_FAILED = "pass-failed"
    PASSES_CYCLE = "passes-cycle"
    NOTE = "note"
    LOOP_LEFT = "loop-left"
    GRAPH_LEFT = "graph-left"
    BODY_LEFT = "body-left"
    OPS_BY_IDENTITY = "ops-by-identity"
    OPS_BY_STATE = "ops-by-state"
    # no pass
    SAME_DRAWS = "same-draws"
    # clean-slices
    LENGTH_COUNTED = "length-counted"
    BUFFER_DROPPED = "buffer-dropped"
    BUFFER_LEFT = "buffer-left"
    WRITE_MOVED = "write-moved"
    WRITE_SIMPLIFIED = "write-simplified"
    START_FILLED = "start-filled"
    STORE_FORWARDED = "store-forwarded"
    SLICE_COMPOSED = "slice-composed"
    ROW_TAKEN = "row-taken"
    # compile-safe
    BRANCHES_COPIED = "branches-copied"
    BUFFERS_COPIED = "buffers-copied"
    CONDITION_MARKED = "condition-marked"
    OUTPUTS_COPIED = "outputs-copied"
    READERS_COPIED = "readers-copied"
    SEQUENCE_CUT = "sequence-cut"
    SUM_REGROUPED = "sum-regrouped"
    UNIT_LENGTH_DECLARED = "unit-length-declared"
    # guard-last-rows
    LAST_GUARDED = "last-guarded"
    LAST_UNGUARDED = "last-unguarded"
    WRITE_GUARDED = "write-guarded"
    # hoist-states
    OUTPUT_HOISTED = "output-hoisted"
    STATE_CONSTANT = "state-constant"
    STATE_HOISTED = "state-hoisted"
    STATE_NOT_HOISTED = "state-not-hoisted"
    # drop-taps
    TAPS_DROPPED = "taps-dropped"
    TAPS_KEPT = "taps-kept"
    WRITES_DROPPED = "writes-dropped"
    # fold-loops
    LOOP_FOLDED = "loop-folded"
    LOOP_NOT_FOLDED = "loop-not-folded"
    # inline-constants
    CONSTANT_INLINED = "constant-inlined"
    INPUT_KEPT = "input-kept"
    SEQUENCE_UNIFORM = "sequence-uniform"
    # merge-duplicates, merge-equal, merge-scans, merge-states
    CONSTANTS_MERGED = "constants-merged"
    NODES_MERGED = "nodes-merged"
    LOOPS_MERGED = "loops-merged"
    OPS_SHARED = "ops-shared"
    SCANS_MERGED = "scans-merged"
    SCANS_NOT_MERGED = "scans-not-merged"
    SLOTS_MERGED = "slots-merged"
    TRACE_KEPT = "trace-kept"
    TRACE_READ_FROM_STATE = "trace-read-from-state"
    # mit-mot-to-sit-sot
    MIT_MOT_KEPT = "mit-mot-kept"
    MIT_MOT_REPLACED = "mit-mot-replaced"
    ADDEND_MOVED = "addend-moved"
    ROWS_AHEAD_EQUAL = "rows-ahead-equal"
    # push-out, push-out-batches, push-out-products, push-out-sums
    INVARIANTS_MOVED = "invariants-moved"
    PRODUCT_KEPT = "product-kept"
    PRODUCT_MOVED = "product-moved"
    ROWS_COMPUTED = "rows-computed"
    ROWS_NOT_COMPUTED = "rows-not-computed"
    SEQUENCES_COMPUTED = "sequences-computed"
    SEQUENCES_NOT_COMPUTED = "sequences-not-computed"
    SUM_KEPT = "sum-kept"
    SUM_MOVED = "sum-moved"
    # clean-ofg, remove-unused, remove-zeros
    ENDS_APART = "ends-apart"
    ENDS_KEPT = "ends-kept"
    ENDS_MERGED = "ends-merged"
    ENDS_REMOVED = "ends-removed"
    SLOT_REMOVED = "slot-removed"
    UNUSED_KEPT = "unused-kept"
    ZEROS_REMOVED = "zeros-removed"
    # carry-reductions, save-mem
    BUFFER_KEPT = "buffer-kept"
    BUFFER_SHORTENED = "buffer-shortened"
    REDUCTION_CARRIED = "reduction-carried"
    REDUCTION_KEPT = "reduction-kept"
    STATE_SHORTENED = "state-shortened"
    # scan-to-loop, loop-to-scan
    LOOP_KEPT = "loop-kept"
    LOOP_TURNED = "loop-turned"
    SCAN_KEPT = "scan-kept"
    SCAN_TURNED = "scan-turned"
    # carry-generators
    DRAWS_CHAINED = "draws-chained"
    GENERATOR_CARRIED = "generator-carried"
    GENERATOR_KEPT = "generator-kept"
    # split-states, stop-at-fixed-point
    STATES_KEPT = "states-kept"
    STATES_RUN_ON = "states-run-on"
    STATES_SPLIT = "states-split"
    STATES_STOPPED = "states-stopped"
    # checkpoint, trace-to-last
    LOOP_SPLIT = "loop-split"
    LAST_READ = "last-read"
    TRACED_CARRIED = "traced-carried"
    # factor-once
    MATRIX_FACTORED = "matrix-factored"
    # inline-ofg
    GRAPH_INLINED = "graph-inlined"
    GRAPH_NOT_INLINED = "graph-not-inlined"
    # initial-rows-alone
    START_EMPTIED = "start-emptied"
    # keep-values
    VALUES_KEPT = "values-kept"
    # merge-products
    PRODUCTS_MERGED = "products-merged"
    # unroll-loops, unroll-small
    STEPS_WRITTEN_OUT = "steps-written-out"
    ARRAYS_KEPT = "arrays-kept"
    ARRAYS_UNROLLED = "arrays-unrolled"
    SMALL_ARRAYS_LEFT = "small-arrays-left"
    # loops-to-ops
    LOOP_NEEDED = "loop-needed"
    LOOP_NOT_NEEDED = "loop-not-needed"
    # match-precision
    OPERATIONS_MATCHED = "operations-matched"
    STATE_MATCHED = "state-matched"
    STATE_MIXED = "state-mixed"
    STEPS_MATCHED = "steps-matched"
    # safe-branches, stable-log-sums, widen-integers
    OPERAND_GUARDED = "operand-guarded"
    LOG_SUM_SHIFTED = "log-sum-shifted"
    STATE_WIDENED = "state-widened"
    STATE_NARROW = "state-narrow"
    # share-factors
    FACTORS_SHARED = "factors-shared"
    # simplify
    NOT_SIMPLIFIED = "not-simplified"
    SIMPLIFIED = "simplified"
    # normalize-reads, peel-first-step, trim-steps
    FIRST_ROW_COMPUTED = "first-row-computed"
    FIRST_ROW_KEPT = "first-row-kept"
    FIRST_STEPS_RUN = "first-steps-run"
    LAST_STEPS_CUT = "last-steps-cut"
    READS_NORMALIZED = "reads-normalized"
    ROWS_FROM_END = "rows-from-end"
    STEPS_CUT = "steps-cut"
    STEPS_KEPT = "steps-kept"


class Why(StrEnum):
    """Why a pass did not do something."""

    ADDEND_INVARIANT = "addend-invariant"
    BATCHES_DIFFER = "batches-differ"
    BUFFER_SHORT = "buffer-short"
    BUFFERS_NOT_WHOLE = "buffers-not-whole"
    BUFFERS_UNCLEAR = "buffers-unclear"
    CARRIES_BATCH = "carries-batch"
    CONDITION_DIFFERS = "condition-differs"
    CONNECTIONS_GIVEN = "connections-given"
    CONSTANT_LARGE = "constant-large"
    CONSTANT_RETURNED = "constant-returned"
    ENTRIES_CROSS = "entries-cross"
    ENTRIES_MANY = "entries-many"
    FITS_MEMORY = "fits-memory"
    GENERATOR_READER = "generator-reader"
    GENERATOR_REPLACED = "generator-replaced"
    GENERATOR_SHARED = "generator-shared"
    GRADIENT_GIVEN = "gradient-given"
    END_READ = "end-read"
    EVALUATION_LONG = "evaluation-long"
    EVALUATION_RAISES = "evaluation-raises"
    GRADIENT_TRUNCATED = "gradient-truncated"
    IN_PLACE = "in-place"
    INITIAL_ROWS_READ = "initial-rows-read"
    INITIAL_READ = "initial-read"
    KIND_LEFT = "kind-left"
    LENGTH_UNKNOWN = "length-unknown"
    LINKER = "linker"
    LOOP_ALONE = "loop-alone"
    LOOP_BATCHED = "loop-batched"
    LOOP_EMPTIES = "loop-empties"
    LOOP_STOPS = "loop-stops"
    MIT_MOT = "mit-mot"
    NEEDS_NO_LOOP = "needs-no-loop"
    NEGATIVE_ZERO = "negative-zero"
    NO_FLOATS = "no-floats"
    NO_FIXPOINT = "no-fixpoint"
    NO_OP_FOR_STEPS = "no-op-for-steps"
    NO_STEPS = "no-steps"
    NO_ARRAYS = "no-arrays"
    NO_TENSORS = "no-tensors"
    ONE_CONDITION = "one-condition"
    ONE_INPUT = "one-input"
    ONE_ROW = "one-row"
    ONE_TRIMMED = "one-trimmed"
    OPS_FOR_GRADIENTS = "ops-for-gradients"
    OPTION_DIFFERS = "option-differs"
    OTHER = "other"
    PRODUCT_COSTS = "product-costs"
    READERS_NARROW = "readers-narrow"
    READ_ELSEWHERE = "read-elsewhere"
    READ_OUT_OF_BOUNDS = "read-out-of-bounds"
    READ_AS = "read-as"
    RESULT_LARGE = "result-large"
    RETURNS_INPUT = "returns-input"
    ROUNDS_TWICE = "rounds-twice"
    ROWS_LARGE = "rows-large"
    ROW_SHAPE_UNKNOWN = "row-shape-unknown"
    SEQUENCE_LENGTH = "sequence-length"
    SEQUENCE_SHORT = "sequence-short"
    SHAPE_MAY_CHANGE = "shape-may-change"
    SHAPE_UNKNOWN = "shape-unknown"
    STATE_UNTRACED = "state-untraced"
    STEP_HOLDS_GRAPH = "step-holds-graph"
    STEP_LARGE = "step-large"
    STEP_OP = "step-op"
    STEPS_AS_FAST = "steps-as-fast"
    STEPS_COMPUTED = "steps-computed"
    STEPS_DIFFER_IN_BATCH = "steps-differ-in-batch"
    SUBCLASS = "subclass"
    TAPS_ONE_SIDED = "taps-one-sided"
    TAPS_UNUSED = "taps-unused"
    TERMS_MANY = "terms-many"
    TRACES_READ = "traces-read"
    TRACE_BACKWARDS = "trace-backwards"
    TRACE_OF_NO_TENSOR = "trace-of-no-tensor"
    VALUES_LARGE = "values-large"
    VALUES_MANY = "values-many"
    NO_ROOM_FOR_TRACE = "no-room-for-trace"
    TRACE_OF_NO_STEPS = "trace-of-no-steps"
    TRUNCATION_LOST = "truncation-lost"
    TYPE_DIFFERS = "type-differs"
    TYPE_NOT_NUMERIC = "type-not-numeric"
    UNTAKEN_BRANCH = "untaken-branch"
    UNTRACED_READ = "untraced-read"
    VECTORS_FASTER = "vectors-faster"
    WHILE_KEEPS_ONE = "while-keeps-one"
    WRITES_EARLY = "writes-early"
    WRITES_TWICE = "writes-twice"


type Reason = Fact
"""Why a pass did not do something; its code is a `Why`."""


def because(code: Why, **fields: Detail) -> Reason:
    """Return the reason ``code`` with its fields."""
    return Fact(code, fields)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Remark(Presented):
    """A note that a pass rewrote something, or did not, or found something out.

    Attributes
    ----------
    pass_name, code, kind
        Which pass, what it is about, and whether the pass did it.
    scan
        The name of the Scan after the names of the loops and graphs around it, outermost first,
        joined by ``/``. For a remark on a whole graph, only the names around that graph, or
        ``graph`` if there are none.
    slots
        The names of the slots that it is about.
    details
        The fields of its text.
    place
        Where the loop was written, ``model.py:41 in step``, if that is known.
    reason
        Why not, for a *missed* rewrite.
    count
        How many equal rewrites it stands for.
    """

    pass_name: str
    code: Code
    kind: RemarkKind
    scan: str
    slots: tuple[str, ...] = ()
    details: Mapping[str, Detail] = field(default_factory=dict)
    place: str | None = None
    reason: Reason | None = None
    count: int = 1

    @property
    def subject(self) -> tuple[object, ...]:
        """A key, equal for remarks that differ at most in their slots and counts."""
        details = self.details.items()
        return self.pass_name, self.code, self.kind, self.scan, *details, self.reason

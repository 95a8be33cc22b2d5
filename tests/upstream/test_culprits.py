"""What PyTensor's rewrites get wrong: `bisect` names the rewrite, `reduce` makes it a short script.

The reproducers are those of the other files of this directory. Each becomes a graph with the
arguments of its test, recorded; the script of what is left of it runs where there is no scanopt,
and fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import test_beside_loops
import test_cured
import test_derivatives
import test_making_again
import test_merging
import test_pushing_out
import test_trimming

from scanopt_cli.culprits.bisecting import bisect
from scanopt_cli.culprits.culprit import Culprit, Maker
from scanopt_cli.culprits.properties import CompilingRaises, Limits, Property, ValuesDiffer
from scanopt_cli.culprits.reducing import reduce
from scanopt_cli.culprits.repro import repro
from scanopt_cli.ir.graph import Graph, from_io
from support.later_forms import MISREAD
from support.python_scripts import fails_alone, lines_of_graph
from support.tiers import deep

MODULES = (
    test_beside_loops,
    test_derivatives,
    test_making_again,
    test_merging,
    test_pushing_out,
    test_trimming,
)
LINES = 15
"""How many lines of a script may build the graph."""

CULPRITS = {
    # test_beside_loops
    "test_a_reversed_slice_of_one_row": "local_dimshuffle_subtensor",
    "test_a_product_of_a_product_of_bytes": "local_mul_canonizer",
    "test_a_sum_of_booleans_is_counted": "local_add_canonizer",
    "test_a_generator_is_advanced_by_a_draw_that_nobody_reads": "sidestep_unused_rng_consumer",
    # The virtual machine goes wrong once something overwrites what the branch reads.
    "test_a_branch_that_is_not_taken_is_not_computed": "cond_make_inplace",
    # test_merging
    "test_states_that_only_start_equal": "scan_merge_inouts",
    "test_while_loops_whose_conditions_only_start_equal": "scan_merge",
    # This divides by the zeros that scan_push_out_seq has moved out, before
    # scan_inline_invariant_constants comes to them.
    "test_zeros_of_both_signs_are_two_values": "local_mul_canonizer",
    # test_pushing_out
    "test_a_sum_of_three_keeps_its_third_term": "scan_push_out_add",
    "test_a_sum_of_three_with_the_state_last_compiles": "scan_push_out_add",
    "test_products_of_small_integers_are_summed_in_the_dtype_of_the_state": "scan_push_out_add",
    "test_a_state_that_is_always_set_to_the_same_has_all_steps": "scan_push_out_non_seq",
    "test_the_gradient_by_a_start_that_only_the_first_step_reads": "scan_push_out_non_seq",
    "test_a_while_loop_that_stops_at_once_has_one_step": "scan_push_out_non_seq",
    "test_what_no_step_computes_does_not_raise": "scan_push_out_non_seq",
    "test_states_of_different_reach_are_set_behind_their_own_starts": "scan_push_out_seq",
    "test_a_trimmed_state_that_follows_a_sequence_compiles": "scan_push_out_seq",
    "test_a_trimmed_map_that_never_changes_keeps_its_rows": "scan_push_out_non_seq",
    # test_trimming
    "test_the_gradient_by_the_second_of_two_starts": "scan_reduce_nsteps",
    "test_a_slice_from_a_negative_start_without_the_last": "scan_reduce_nsteps",
    "test_a_slice_that_leaves_out_more_than_there_is_is_empty": "scan_reduce_nsteps",
    "test_a_slice_from_the_third_last_to_a_row_by_its_number": "scan_reduce_trace_prealloc",
    "test_the_last_three_of_two_rows_are_two": "scan_reduce_trace_prealloc",
    "test_a_while_loop_that_stops_early_is_read_from_its_start": "scan_reduce_trace_prealloc",
    "test_the_last_two_of_one_step_of_a_while_loop": "scan_reduce_trace_prealloc",
    "test_a_row_of_a_trimmed_buffer_is_not_a_step": "scan_reduce_nsteps",
    # support/later_forms.py
    "an_index_that_moves_through_arithmetic": "scan_reduce_nsteps",
    "last_rows_that_are_read_through_arithmetic": "scan_reduce_trace_prealloc",
    "a_reader_of_all_that_is_simplified_away": "scan_reduce_nsteps",
    "slices_of_a_reversal": "scan_reduce_nsteps",
    "an_index_of_a_graph_that_is_inlined": "scan_reduce_nsteps",
    "conditions_that_become_equal_when_invariants_move": "scan_merge",
    "conditions_that_become_equal_when_constants_fold": "scan_merge",
    "conditions_of_graphs_that_are_inlined": "scan_merge",
    "starts_that_become_equal": "scan_merge_inouts",
    "starts_of_two_loops_that_are_merged": "scan_merge_inouts",
    "a_row_of_a_gradient_that_is_cut_off": "scan_reduce_nsteps",
    "a_trace_of_fewer_rows_than_steps": "scan_reduce_nsteps",
    "a_trace_of_more_rows_than_steps": "scan_reduce_nsteps",
    "every_other_of_the_last_rows": "scan_reduce_trace_prealloc",
    "every_other_of_more_rows_than_there_are": "scan_reduce_trace_prealloc",
    "a_map_once_invariants_have_moved": "scan_push_out_seq",
    "a_map_of_which_the_first_output_is_not_read": "scan_push_out_seq",
    "a_mit_mot_with_an_invariant_row": "scan_push_out_non_seq",
    "a_row_of_two_starts": "scan_reduce_nsteps",
    # The virtual machine goes wrong once these have simplified the body.
    "rows_that_are_exchanged_once_simplified": "local_mul_canonizer",
    "a_row_that_is_traced_once_simplified": "local_add_canonizer",
}
"""The rewriter that is to blame in `fast_run`, by the name of the test."""

_AN_ERROR_IS_LOST = "an error is lost, which `verify` takes for no difference"
_NO_REWRITE = "no rewrite does it: values are wrong as the graph stands"
_STAYS_RIGHT = "values stay right: PyTensor logs that a rewrite fails, and leaves it out"
OTHERS = {
    "test_a_constant_sequence_that_is_too_short_raises": _AN_ERROR_IS_LOST,
    "test_a_loop_of_no_steps_has_no_last_one": _AN_ERROR_IS_LOST,
    "test_a_row_behind_the_last_raises": _AN_ERROR_IS_LOST,
    "test_a_sequence_that_is_too_short_raises": _AN_ERROR_IS_LOST,
    "test_a_state_that_nobody_reads_may_raise": _AN_ERROR_IS_LOST,
    "test_the_third_last_of_two_rows_raises": _AN_ERROR_IS_LOST,
    "test_a_copy_can_be_differentiated": _NO_REWRITE,
    "test_a_map_of_no_steps_has_the_shape_of_its_rows": _NO_REWRITE,
    "test_bodies_that_differ_by_the_sign_of_a_zero_are_two": _NO_REWRITE,
    "test_symbolic_ops_of_different_properties_are_different": _NO_REWRITE,
    "test_the_gradient_by_a_filled_initial_buffer": _NO_REWRITE,
    "test_the_gradient_by_a_sequence_of_no_rows": _NO_REWRITE,
    "test_the_gradient_of_a_trimmed_loop": _NO_REWRITE,
    "test_the_gradient_of_a_write_at_repeated_indices": _NO_REWRITE,
    "test_the_pushforward_of_a_power_at_a_negative_base": _NO_REWRITE,
    "test_the_pushforward_of_a_sum": _NO_REWRITE,
    "test_the_pushforward_of_a_value_and_of_its_double": _NO_REWRITE,
    "test_the_second_derivative_by_a_start_that_one_step_reads": _NO_REWRITE,
    "test_the_second_derivative_of_a_truncated_loop": _NO_REWRITE,
    "test_a_constant_loop_of_no_steps_can_be_folded": _STAYS_RIGHT,
    "test_a_length_of_one_that_is_found_later": _STAYS_RIGHT,
    "test_a_row_of_an_array_of_which_one_length_is_specified": _STAYS_RIGHT,
    "test_a_fused_reciprocal_has_double_precision": "fusion in Python, which mode vm leaves out",
    "test_two_hundred_steps": "fusion in Python, which mode vm leaves out",
    "test_a_sum_of_products_over_no_steps_is_its_start": "the rewriter alone does it",
    "test_two_maps_of_a_state_that_keeps_one_row": "the rewriter alone does it",
    "test_the_reciprocal_of_an_integer_has_double_precision": "Numba's linker, without a rewrite",
    "test_what_two_branches_read_is_not_computed": "Numba's linker, without a rewrite",
    "test_a_result_stays_as_it_was_returned": "the linker in C, in a second call",
}
"""Bugs for which `bisect` has no rewrite to name in `fast_run`, and why."""


def _reproducers() -> dict[str, tuple[ModuleType, Any]]:
    return {
        name: (module, test)
        for module in MODULES
        for name, test in vars(module).items()
        if name.startswith("test_")
    }


def test_all_bugs_are_listed() -> None:
    """A new one is either bisected here, or said not to be."""
    assert CULPRITS.keys().isdisjoint(OTHERS)
    assert CULPRITS.keys() | OTHERS.keys() == _reproducers().keys() | MISREAD.keys()


class _Caught(BaseException):
    """What a test would have compiled."""


def _graph(name: str, monkeypatch: pytest.MonkeyPatch) -> Graph:
    """Return what a test compiles, with the arguments that it passes."""
    if name in MISREAD:
        output, arguments = MISREAD[name][0]()
    else:
        module, test = _reproducers()[name]

        def caught(output: Any, arguments: dict[Any, Any], mode: object) -> Any:
            del mode
            raise _Caught(output, arguments)

        monkeypatch.setattr(module, "value", caught)
        with pytest.raises(_Caught) as found:
            test(**next(_cases(test)))
        output, arguments = found.value.args
    call = tuple(
        np.asarray(value, variable.type.dtype) if hasattr(variable.type, "dtype") else value
        for variable, value in arguments.items()
    )
    return Graph(fgraph=from_io(list(arguments), [output]).fgraph, recorded=(call,))


def _cases(test: Any) -> Iterator[dict[str, Any]]:
    return test_cured._cases(test)


def _culprit(graph: Graph, wrong: Property) -> Culprit:
    (found,) = bisect(graph, "none", wrong=wrong, limits=_LIMITS).culprits
    return found


_LIMITS = Limits(timeout=60)
NOT_ALONE = {
    "test_a_product_of_a_product_of_bytes",
    "test_a_row_of_a_trimmed_buffer_is_not_a_step",
    "a_row_of_a_gradient_that_is_cut_off",
    "rows_that_are_exchanged_once_simplified",
    "a_row_that_is_traced_once_simplified",
}
"""Where another rewriter does the same if the first one does not run."""
_QUICK = ("test_a_reversed_slice_of_one_row", "test_a_while_loop_that_stops_at_once_has_one_step")
_DEEP = [name for name in CULPRITS if name not in _QUICK]


@pytest.mark.usefixtures("evaluated_here")
@pytest.mark.parametrize("name", [*_QUICK, *deep(*_DEEP)])
def test_the_culprit_and_its_script(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = _graph(name, monkeypatch)
    wrong: Property = ValuesDiffer(compiled_by="vm", runs=1)
    if "compiles" in name and "trimmed" not in name:
        wrong = CompilingRaises(compiled_by="vm", error="Assertion")
    culprit = _culprit(graph, wrong)
    assert (culprit.maker, culprit.name) == (Maker.PYTENSOR, CULPRITS[name])
    assert culprit.is_certain
    rewriter = None if name in NOT_ALONE else culprit.name
    small = reduce(graph, wrong=wrong, limits=_LIMITS, rewriter=rewriter)
    assert small.is_minimal
    assert rewriter in (None, _culprit(small.graph, wrong).name)
    script = repro(small.graph, wrong, _LIMITS)
    assert lines_of_graph(script) <= LINES, script.text
    raised, is_error, _ = small.why.partition(" in place of values")
    error = raised.partition(":")[0] if is_error else "AssertionError"
    assert error in fails_alone(script, tmp_path)

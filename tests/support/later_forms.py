"""Graphs whose loops get forms that PyTensor's rewrites misread only while it compiles them.

Each case returns an output and the arguments by input. Readers of a loop appear when an index is
moved up or a graph is inlined, and vanish when what reads is simplified away; two conditions or
starts become equal when constants are folded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.scan.utils import until

from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import SlotKind
from support.graph_building import scan
from support.mit_mot_loops import two_rows
from support.upstream_modes import buffer_of

type Case = tuple[Any, dict[Any, Any]]

x, w, f = pt.dscalars("x", "w", "f")
n, k, m = pt.lscalars("n", "k", "m")
s = pt.dvector("s")
start = pt.dvector("start")
buffer = pt.dvector("buffer")
RISING = np.arange(1.0, 7.0)


def doubled() -> Any:
    """Return a map of the states of a loop: row ``i`` is ``2 * i``."""
    _, maps = scan(
        lambda q, y: (y + q, 2 * y),
        sequences=[pt.ones_like(s)],
        outputs_info=[pt.zeros((), dtype="float64"), None],
    )
    return maps


def sums(steps: Any) -> Any:
    """Return a map of a sum of a sequence."""
    zero = pt.zeros((), dtype="float64")
    loop = scan(
        lambda q, y: (y + q, 2 * y + 1), sequences=[s], outputs_info=[zero, None], n_steps=steps
    )
    return loop[1]


def of_size(maps: Any, size: Any) -> Any:
    """Return ``maps`` in a buffer of so many rows, whatever the loop's steps."""
    view = ScanView.of(maps.owner)
    for slot in view.of_kind(SlotKind.NIT_SOT):
        slot.outer_input = pt.as_tensor(size)
    return view.rebuild()[maps]


def an_index_that_moves_through_arithmetic() -> Case:
    return pt.sin(doubled())[k:-1], {s: RISING, k: -3}


def last_rows_that_are_read_through_arithmetic() -> Case:
    return (2 * doubled())[-3:], {s: RISING[:2]}


def a_reader_of_all_that_is_simplified_away() -> Case:
    maps = doubled()
    return maps[k:-1].sum() + 0 * maps[-1], {s: RISING, k: -3}


def slices_of_a_reversal() -> Case:
    states = scan(lambda q, y: y * 1.5 + q, sequences=[s], outputs_info=[x], n_steps=n)
    return buffer_of(states)[::-1][3:-3:-1], {s: RISING, x: 0.3, n: 2}


def an_index_of_a_graph_that_is_inlined() -> Case:
    return OpFromGraph([s], [doubled()], inline=True)(s)[k:-1], {s: RISING, k: -3}


def _until(factor: float, bound: Callable[..., Any], *others: Any) -> Any:
    return scan(
        lambda y, *args: (y * factor, until(y > bound(*args))),
        outputs_info=[x],
        n_steps=9,
        non_sequences=list(others),
    )


def conditions_that_become_equal_when_invariants_move() -> Case:
    one, two = _until(2, lambda f: f + 1, f), _until(3, lambda g: g, f + 1)
    return pt.stack([one.shape[0], two.shape[0]]), {x: 1.0, f: 4.0}


def conditions_that_become_equal_when_constants_fold() -> Case:
    five = pt.constant(2.0) + pt.constant(3.0)
    one, two = _until(2, lambda: 5.0), _until(3, lambda g: g, five)
    return pt.stack([one.shape[0], two.shape[0]]), {x: 1.0}


def conditions_of_graphs_that_are_inlined() -> Case:
    one, two = (
        OpFromGraph([x], [_until(factor, lambda: 5.0)], inline=True)(x) for factor in (2, 3)
    )
    return pt.stack([one.shape[0], two.shape[0]]), {x: 1.0}


def _two_recurrences(first: Any, second: Any, steps: Any) -> Any:
    *_, one, two = scan(
        lambda a2, a1, b2, b1: (a1 + a2, b1 * b2, 3 * a1, 3 * b1),
        outputs_info=[
            {"initial": first, "taps": [-2, -1]},
            {"initial": second, "taps": [-2, -1]},
            None,
            None,
        ],
        n_steps=steps,
    )
    return pt.stack([one, two])


def starts_that_become_equal() -> Case:
    return _two_recurrences(start, start * 1.0, 4), {start: np.array([1.0, 2.0])}


def starts_of_two_loops_that_are_merged() -> Case:
    def loop(step: Callable[..., Any], steps: Any) -> Any:
        taps = {"initial": start, "taps": [-2, -1]}
        return scan(step, outputs_info=[taps, None], n_steps=steps)[1]

    one = loop(lambda y2, y1: (y1 + y2, 3 * y1), n)
    two = loop(lambda y2, y1: (y1 * y2, 3 * y1), pt.eq(1, 1) * n)
    return pt.stack([one, two]), {start: np.array([1.0, 2.0]), n: 4}


def a_row_of_a_gradient_that_is_cut_off() -> Case:
    known = pt.tensor("known", shape=(6,), dtype="float64")
    last = scan(
        lambda q, y: y + q**2 * y, sequences=[known], outputs_info=[x], truncate_gradient=3
    )[-1]
    return pt.grad(last, known)[-2], {known: RISING / 10, x: 1.0}


def a_trace_of_fewer_rows_than_steps() -> Case:
    return of_size(sums(n), m)[1], {s: RISING, n: 4, m: 2}


def a_trace_of_more_rows_than_steps() -> Case:
    return of_size(sums(n), m)[1], {s: RISING, n: 4, m: 7}


def every_other_of_the_last_rows() -> Case:
    return doubled()[-4:4:2], {s: RISING}


def every_other_of_more_rows_than_there_are() -> Case:
    return doubled()[-3::2], {s: RISING[:2]}


def a_map_once_invariants_have_moved() -> Case:
    rows, matrix, vector = pt.dmatrix("rows"), pt.dmatrix("matrix"), pt.dvector("vector")
    near, far = (pt.tensor(name, shape=(length, 3)) for name, length in (("near", 2), ("far", 3)))
    maps = scan(
        lambda q, a2, a1, b3, b1, a, v: (q * 2 + pt.dot(a, v), q * 3),
        sequences=[rows],
        outputs_info=[{"initial": near, "taps": [-2, -1]}, {"initial": far, "taps": [-3, -1]}],
        non_sequences=[matrix, vector],
    )
    return pt.stack(maps), {
        rows: np.ones((2, 3)),
        near: np.zeros((2, 3)),
        far: np.zeros((3, 3)),
        matrix: np.eye(3),
        vector: np.ones(3),
    }


def a_map_of_which_the_first_output_is_not_read() -> Case:
    near, far = (pt.tensor(name, shape=(length,)) for name, length in (("near", 2), ("far", 3)))
    _, *maps = scan(
        lambda q, u2, u1, a2, a1, b3, b1: (q * 5, q * 2, q * 3),
        sequences=[s],
        outputs_info=[
            {"initial": near * 2, "taps": [-2, -1]},
            {"initial": near, "taps": [-2, -1]},
            {"initial": far, "taps": [-3, -1]},
        ],
    )
    return pt.stack(maps), {s: RISING[:2], near: np.zeros(2), far: np.zeros(3)}


def a_mit_mot_with_an_invariant_row() -> Case:
    outputs = two_rows(lambda q, a, b, w: (b, w * 2, q), s, buffer, w)
    return pt.concatenate(outputs), {s: RISING[:4], buffer: np.zeros(6), w: 5.0}


def rows_that_are_exchanged_once_simplified() -> Case:
    outputs = two_rows(lambda q, a, b, w: (b * 1.0 + 0.0, a / 1.0, q), s, buffer, w)
    return pt.concatenate(outputs), {s: RISING[:4], buffer: RISING[:5], w: 5.0}


def a_row_that_is_traced_once_simplified() -> Case:
    outputs = two_rows(lambda q, a, b, w: (a + q, b * 2 + a, b + 0.0 * w), s, buffer, w)
    return pt.concatenate(outputs), {s: RISING[:4], buffer: RISING[:5], w: 5.0}


def a_row_of_two_starts() -> Case:
    taps = {"initial": s, "taps": [-2, -1]}
    states = scan(lambda y2, y1: y1 + y2, outputs_info=[taps], n_steps=n)
    return buffer_of(states)[-3], {s: RISING[:2], n: 1}


MISREAD: dict[str, tuple[Callable[[], Case], str]] = {
    case.__name__: (case, reason)
    for reason, cases in {
        "scan_reduce_nsteps and scan_reduce_trace see readers that canonicalization makes": (
            an_index_that_moves_through_arithmetic,
            last_rows_that_are_read_through_arithmetic,
            a_reader_of_all_that_is_simplified_away,
            slices_of_a_reversal,
            an_index_of_a_graph_that_is_inlined,
        ),
        "ScanMerge takes loops for one whose conditions read states that only start equal": (
            conditions_that_become_equal_when_invariants_move,
            conditions_that_become_equal_when_constants_fold,
            conditions_of_graphs_that_are_inlined,
        ),
        "scan_merge_inouts takes mit_sots for one that only start equal": (
            starts_that_become_equal,
            starts_of_two_loops_that_are_merged,
        ),
        "scan_reduce_nsteps takes every buffer for one that holds each step": (
            a_row_of_a_gradient_that_is_cut_off,
            a_trace_of_fewer_rows_than_steps,
            a_trace_of_more_rows_than_steps,
        ),
        "scan_reduce_trace keeps the stop of a slice with a step, and its too large start": (
            every_other_of_the_last_rows,
            every_other_of_more_rows_than_there_are,
        ),
        "scan_push_out_seq mixes up the rows of mit_sots that reach back differently far": (
            a_map_once_invariants_have_moved,
            a_map_of_which_the_first_output_is_not_read,
        ),
        "scan_push_out_non_seq finds outputs by the place of their inner ones": (
            a_mit_mot_with_an_invariant_row,
        ),
        "the virtual machine reads rows of a mit_mot once they are overwritten": (
            rows_that_are_exchanged_once_simplified,
            a_row_that_is_traced_once_simplified,
        ),
        "scan_reduce_nsteps asks for -1 steps for a row of two initial ones": (
            a_row_of_two_starts,
        ),
    }.items()
    for case in cases
}
"""The cases, by name, with what PyTensor does wrong."""

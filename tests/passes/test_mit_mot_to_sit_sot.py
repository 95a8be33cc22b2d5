"""mit-mot-to-sit-sot: its legal cases by number, and a twin that must not fire for each."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from hypothesis import given, note
from pytensor.scan.op import Scan

from scanopt_cli.analysis.statistics import statistics
from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.passes.of_scans.mit_mot_to_sit_sot.mit_mot_to_sit_sot import MitMotToSitSot
from scanopt_cli.passes.of_scans.save_mem.save_mem import SaveMem
from scanopt_cli.pipeline.runner import run_pipeline
from support.evaluating import assert_same_outcomes, evaluator
from support.graph_building import graph_of, labels, outputs_of, power, scan, scan_info, scan_views
from support.mit_mot_loops import READERS, MitMotLoop, N, mit_mot_loops, simulated
from support.taking_apart import (
    STEPS,
    ar2,
    check,
    check_loop,
    loop_of,
    taken_apart,
    vector_power,
    view_of,
)


def test_case_1_states_of_one_row_and_of_more() -> None:
    start = pt.dvector("start")
    ys = scan(
        lambda a, b: pt.tanh(0.5 * a + 0.3 * b),
        outputs_info=[{"initial": start, "taps": [-4, -1]}],
        n_steps=N,
        name="lagged",
    )
    graph = graph_of(pt.grad((ys**2).sum(), start))
    after, remarks = check(graph, start=[0.1, 0.2, 0.3, 0.4])
    assert remarks == ["passed turned mit_mot `mit_mot[0]` into 1 sit_sot, 1 mit_sot, 1 seq"]
    taps = [slot.taps for slot in view_of(after, "grad_of_lagged").slots if slot.taps]
    assert taps == [(-3,), (-1,)]


def kinds(graph: Graph) -> list[str]:
    (view,) = scan_views(graph.fgraph)
    return sorted((str(slot.kind) for slot in view.slots), key=KINDS.index)


KINDS = ["seq", "mit_mot", "mit_sot", "sit_sot", "nit_sot", "non_seq"]
BESIDE = ["seq", "sit_sot", "nit_sot"]
"""What stands beside the mit_mot in a hand-built loop."""


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"readers": ("whole",), "steps": 3}, ["seq", "nit_sot"]),
        ({"readers": ("whole",)}, ["seq", "nit_sot"]),
        # The rows of a nit_sot of no steps would lose their shape.
        ({"readers": ("whole",), "is_vector": True}, ["seq", "sit_sot"]),
        ({"readers": ("whole",), "is_vector": True, "steps": 3}, ["seq", "nit_sot"]),
        ({"readers": ("reversed first",)}, ["seq"]),
    ],
)
def test_case_1_trace_only_where_it_is_read(changes, expected: list[str]) -> None:
    """Of the second gradient of a state: the earliest row is written, and read at the same time."""
    after, _ = check_loop(loop_of(taps=(-1, 0), out_taps=(0, -1), **changes))
    assert kinds(after) == sorted([*BESIDE, *expected, "sit_sot"], key=KINDS.index)


UNFIT: list[tuple[dict[str, Any], str]] = [
    ({"taps": (1,)}, "PyTensor's backends disagree on the rows of taps that are all on one side"),
    ({"taps": (-2,), "out_taps": (-1,)}, "PyTensor's backends disagree"),
    ({"taps": (0, 1), "out_taps": (-1,)}, "it writes rows before the earliest that it reads"),
    ({"taps": (0, 1), "out_taps": (1, 1)}, "a step writes one row twice"),
]


@pytest.mark.parametrize(("changes", "reason"), UNFIT)
def test_twin_taps_that_have_no_form(changes, reason: str) -> None:
    graph = from_io(*loop_of(**changes).built())
    after, remarks = taken_apart(graph)
    assert digest(after.fgraph) == digest(graph.fgraph)
    assert len(remarks) == 1
    assert remarks[0].startswith(f"missed keeps mit_mot `mit_mot[0]`: {reason}")


def test_twin_while_loop() -> None:
    y, z = pt.dscalars("y", "z")
    info = scan_info(mit_mot_in_slices=((0, 1),), mit_mot_out_slices=((1,),), as_while=True)
    total = y + z
    op = Scan([y, z], [total, total > 2.0], info, name="early")
    buffer = op.make_node(N, pt.ones((N + 1,))).outputs[0]
    graph = graph_of(buffer)
    after, remarks = check(graph)
    assert statistics(after.fgraph).mit_mot == 1
    assert "the loop may stop early" in remarks[0]


def test_twin_buffer_that_may_be_too_short() -> None:
    loop = loop_of()
    inputs, _ = loop.built()
    length, *_ = inputs
    short = pt.dvector("short")
    y, z = pt.dscalars("y", "z")
    info = scan_info(mit_mot_in_slices=((0, 1),), mit_mot_out_slices=((1,),))
    graph = graph_of(Scan([y, z], [y + z], info).make_node(length, short).outputs[0])
    after, remarks = taken_apart(graph)
    assert remarks == [
        "missed keeps mit_mot `short`: its buffer is not proved to be long enough for n steps"
    ]
    for rows in ([1.0, 2.0], [1.0, 2.0, 3.0, 4.0]):
        values = {"n": 2, "short": rows}
        assert_same_outcomes(outputs_of(graph, **values), outputs_of(after, **values))


def test_case_2_sequence_of_rows_that_are_not_written_yet() -> None:
    after, remarks = check_loop(loop_of(taps=(0, 1, 2), out_taps=(1,)))
    assert remarks == ["passed turned mit_mot `mit_mot[0]` into 1 sit_sot, 2 seq"]
    assert kinds(after) == sorted([*BESIDE, "sit_sot", "seq", "seq"], key=KINDS.index)


@STEPS
def test_case_3_cost_on_the_last_state_has_no_sequence(steps: Any) -> None:
    x, xs = power(steps)
    after, remarks = check(graph_of(pt.grad(xs[-1], x)))
    assert labels(view_of(after, "grad_of_square")) == ["seq[0]", "sit_sot[0]"]
    assert remarks == [
        "passed turned mit_mot `mit_mot[0]` into 1 sit_sot",
        "passed needs no sequence for `mit_mot[0]`: the rows that it reads ahead are all zero",
    ]


@STEPS
@pytest.mark.parametrize("loop", [vector_power, ar2])
def test_case_3_vectors_and_several_taps(loop, steps: Any) -> None:
    start, xs = loop(steps)
    after, _ = check(graph_of(pt.grad(xs[-1].sum(), start)))
    assert statistics(after.fgraph).seqs == 1


def test_case_3_the_seed_is_read_from_the_cost_where_it_cannot_fail() -> None:
    x, xs = power(5)
    after, _ = taken_apart(graph_of(pt.grad(3 * xs[-1], x)))
    assert (
        statistics(after.fgraph).outer_nodes
        < statistics(graph_of(pt.grad(3 * xs[-1], x)).fgraph).outer_nodes
    )


def test_case_3_error_of_no_steps_stays() -> None:
    x, xs = power(N)
    after, _ = taken_apart(graph_of(pt.grad(xs[-1], x)))
    (outcome,) = outputs_of(after, n=0, x=1.0)
    assert isinstance(outcome, IndexError)


CONSTANT: list[tuple[str, str]] = [
    ("zeros", "zero"),
    ("seed at the end", "zero"),
    ("seed at the start", "zero"),
    ("late seed", "zero"),
    ("zero set", "zero"),
    ("ones", "equal"),
    ("filled", "equal"),
    ("joined", "zero"),
]


@pytest.mark.parametrize("is_vector", [False, True])
@pytest.mark.parametrize(("buffer", "told"), CONSTANT)
def test_case_3_rows_that_are_all_the_same(buffer: str, told: str, is_vector: bool) -> None:
    taps = (-2, -1, 0) if buffer == "joined" else (0, 1)
    loop = loop_of(taps=taps, out_taps=(max(taps),), buffer=buffer, is_vector=is_vector)
    after, remarks = check_loop(loop)
    assert f"the rows that it reads ahead are all {told}" in remarks[1]
    assert kinds(after).count("seq") == 1


@pytest.mark.parametrize(
    ("buffer", "extra"),
    [
        ("given", 1),
        ("seed in the middle", 1),
        ("two zero", 1),
        ("sum", 0),
        ("every other", 1),
    ],
)
def test_case_3_twin_rows_that_differ(buffer: str, extra: int) -> None:
    """A row that is not proved to be as the others is read."""
    after, _ = check_loop(loop_of(buffer=buffer, extra=extra, readers=("whole", "last")))
    assert kinds(after).count("seq") == 2


def test_case_3_twin_seed_at_an_unknown_place() -> None:
    x, xs = power(N)
    place = pt.lscalar("place")
    graph = graph_of(pt.grad(xs[place], x))
    after, _ = check(graph, place=0)
    assert statistics(after.fgraph).seqs == 2


def test_case_3_twin_negative_zero() -> None:
    """PyTensor keeps 0.0 and -0.0 as one constant in bodies."""
    y, z = pt.dscalars("y", "z")
    info = scan_info(mit_mot_in_slices=((0, 1),), mit_mot_out_slices=((1,),))
    start = pt.alloc(pt.constant(np.float64(-0.0)), N + 1)
    after, _ = taken_apart(graph_of(Scan([y, z], [y + 1 / z], info).make_node(N, start).outputs[0]))
    assert statistics(after.fgraph).seqs == 1


def test_case_3_twin_error_that_nothing_else_would_raise() -> None:
    """Setting the last row of none fails, and no state reads what the buffer starts with."""
    y = pt.dscalar("y")
    info = scan_info(mit_mot_in_slices=((0,),), mit_mot_out_slices=((0,),))
    start = pt.zeros((N,))[-1].set(0.0)
    graph = graph_of(Scan([y], [y + 1], info).make_node(N, start).outputs[0])
    after, _ = check(graph)
    assert statistics(after.fgraph).seqs == 1


@STEPS
@pytest.mark.parametrize("loop", [power, vector_power])
def test_case_4_sum_of_all_states_has_no_sequence(loop, steps: Any) -> None:
    start, xs = loop(steps)
    after, remarks = check(graph_of(pt.grad(xs.sum(), start)))
    assert labels(view_of(after, "grad_of_square")) == ["seq[0]", "sit_sot[0]"]
    assert remarks[1].endswith("where they are read: all are equal")


@pytest.mark.parametrize(
    "changes",
    [
        {"readers": ("whole",)},
        {"readers": ("first",)},
        {"readers": ("last",), "adds": False},
        {"readers": ("last",), "buffer": "two zero"},
        {"readers": ("last",), "buffer": "another last"},
        {"readers": ("last",), "buffer": "late equal"},
        {"readers": ("last",), "buffer": "two zero", "taps": (-1, 0, 1)},
        {"readers": ("last",), "out_taps": (0, 1)},
    ],
)
def test_case_4_twins(changes) -> None:
    """Read outside; no sum; rows that differ; an error; rows read in between; several writes."""
    _, remarks = check_loop(loop_of(**{"buffer": "last rows zero", **changes}))
    assert "where they are read" not in " ".join(remarks)


def test_case_4_twin_row_that_something_else_reads() -> None:
    """The state beside it reads the first tap of a hand-built loop."""
    loop = loop_of(buffer="last rows zero", readers=("last",))
    assert "where they are read" in check_loop(loop)[1][1]
    turned = dataclasses.replace(loop, taps=(1, 0))
    assert "where they are read" not in " ".join(check_loop(turned)[1])


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize("reader", [*READERS])
@pytest.mark.parametrize("out_taps", [(1,), (0,), (1, 2), (0, 2)])
def test_case_5_readers(reader: str, out_taps: tuple[int, ...]) -> None:
    after, _ = check_loop(loop_of(readers=(reader,), out_taps=out_taps, extra=1))
    assert statistics(after.fgraph).mit_mot == 0


def test_case_5_last_rows_are_read_from_the_end_of_a_state() -> None:
    """So that save-mem keeps no more of them."""
    x, xs = power(N)
    graph = graph_of(pt.grad(xs[-1], x))
    after, _ = taken_apart(graph)
    run_pipeline(after.fgraph, [SaveMem()])
    assert statistics(graph.fgraph).buffers == "2*n+2"
    assert statistics(after.fgraph).buffers == "min(1,n)+n+2"


def test_limit_leaves_the_rest_alone() -> None:
    x, xs = power(N)
    gradient = pt.grad(xs[-1], x)
    work = graph_of(pt.grad(gradient, x)).copy()
    run_pipeline(work.fgraph, [MitMotToSitSot()], limit=1)
    assert statistics(work.fgraph).mit_mot == 2


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"taps": (0, -1), "out_taps": (0, -1)},
        {"taps": (-2, 0, 1), "out_taps": (1, -1)},
        {"taps": (0, 1, 2), "out_taps": (2, 1), "adds": False},
        {"taps": (-1, 1), "out_taps": (0,), "adds": False},
    ],
)
def test_mit_mot_is_what_we_take_it_for(changes) -> None:
    """PyTensor's loops do what the definition says, and so do the loops taken apart."""
    loop = loop_of(**changes)
    graph = from_io(*loop.built())
    after, _ = taken_apart(graph)
    for n in (0, 1, 3, 6):
        _, _, start, s = given_arguments = loop.arguments(n)
        expected = simulated(loop, start, s)
        for work in (graph, after):
            (buffer, *_) = evaluator(work.inputs, work.outputs)(given_arguments)
            np.testing.assert_allclose(buffer, expected, rtol=1e-12)


@given(loop=mit_mot_loops())
def test_any_mit_mot_keeps_values_and_settles(loop: MitMotLoop) -> None:
    after, remarks = check_loop(loop)
    note("; ".join(remarks))
    before = digest(after.fgraph)
    (again,) = run_pipeline(after.fgraph, [MitMotToSitSot()])
    assert not again.changed
    assert digest(after.fgraph) == before


def test_twin_no_write() -> None:
    """The gradient of a while loop may have such a mit_mot; its elements count too."""
    info = scan_info(mit_mot_in_slices=((0,), (0,)), mit_mot_out_slices=((), (0,)))
    row, number, n = pt.dvector(), pt.dscalar(), pt.lscalar("n")
    op = Scan([row, number], [number * 2], info)
    graph = graph_of(*op(n, pt.dmatrix("b"), pt.dvector("c")))
    assert statistics(graph.fgraph).buffers == "b.shape[0]*b.shape[1]+c.shape[0]"
    _, remarks = taken_apart(graph)
    assert "missed keeps mit_mot `b`: it is never read or never written" in remarks[0]

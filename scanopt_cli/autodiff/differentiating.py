"""`grad`: the n-th derivative of a graph, with a record of the Scans in it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from time import perf_counter, thread_time
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.analysis.provenance.inference import infer
from scanopt_cli.analysis.provenance.nearest_scans import NearestScans
from scanopt_cli.analysis.statistics import Statistics, statistics
from scanopt_cli.autodiff.activity import useful
from scanopt_cli.autodiff.candidates import StrategyComparison
from scanopt_cli.autodiff.checking import check_derivative
from scanopt_cli.autodiff.choices import Stage, Strategy
from scanopt_cli.autodiff.choosing import ROOT_OF_ZERO, Choice, choose, may_take_root_of_zero
from scanopt_cli.autodiff.derivative import Derivative, OrderReport
from scanopt_cli.autodiff.diagnose import error_naming_the_op
from scanopt_cli.autodiff.hessian import hessian_rows
from scanopt_cli.autodiff.legality import (
    refuse_disconnected_rows,
    refuse_truncated,
    truncations,
)
from scanopt_cli.autodiff.pedigree.pedigree import pedigree_of
from scanopt_cli.autodiff.pedigree.recorder import ProvenanceRecorder
from scanopt_cli.autodiff.problem import (
    Problem,
    problem_of,
    refuse_strategy,
    strategy_named,
)
from scanopt_cli.autodiff.pushforward_rules import TangentError
from scanopt_cli.autodiff.stages import RewriteTimeoutError, StagedGraph
from scanopt_cli.autodiff.strategies import derivatives_by_order, entry_counts, record_inferred
from scanopt_cli.errors import GradientError
from scanopt_cli.ir.folding import bounded_folding
from scanopt_cli.ir.graph import Graph, GraphLike, copy_nodes, loaded_graph
from scanopt_cli.verification.modes import DEFAULT

# From this many Scans on, a note gives the reason for their number.
_MANY_SCANS = 32
# PyTensor differentiates by recursion, a few calls for each node.
_CALLS_A_NODE = 10


@bounded_folding()
def grad(
    graph: GraphLike,
    order: int = 1,
    *,
    wrt: Sequence[str | int | Variable] | None = None,
    output: int | str = 0,
    strategy: Strategy | str = Strategy.AUTO,
    full: bool = False,
    check: bool = False,
    modes: str | Sequence[str] = DEFAULT,
    timeout: float = 300.0,
    stages: Sequence[Stage | str] = (),
    stage_timeout: float = inf,
    compare: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Derivative:
    """Build the ``order``-th derivative of one output of ``graph``.

    Let f be the sum of all entries of the output (the output itself, if it is a scalar), and D the
    directional derivative along the vector of ones over all entries of all inputs of ``wrt``. The
    result for an input x is the gradient of D^(order-1) f by x. For one scalar input this is the
    n-th derivative. Order 2 is the Hessian over all of ``wrt`` times a vector of ones. Where each
    entry of the output depends on its own entry of x only, the result holds each entry's n-th
    derivative. All strategies compute the same values by different graphs.

    Parameters
    ----------
    graph
        A loaded graph, the path of its file, a FunctionGraph or an ``(inputs, outputs)`` pair. It
        is not modified.
    order
        1 for the gradient.
    wrt
        Inputs to differentiate by: names, positions (``2`` or ``"#2"``) or variables of ``graph``.
        By default every floating-point input that the output depends on, shared variables
        included.
    output
        The output to differentiate: its position, its name or ``"#2"``.
    strategy
        ``reverse``, ``forward``, ``forward-over-reverse`` or ``taylor``, see `Strategy`. ``auto``
        chooses, and ``Derivative.reason`` says why.
    full
        For order 2: the whole Hessian. For each input x of ``wrt`` a block of shape
        ``(m, *x.shape)``, where m is the number of entries of all of ``wrt``: row i holds the
        derivative by x of the derivative by entry i, entries being counted as the inputs raveled
        and joined in the order of ``wrt``.
    check
        Whether to compare values with another strategy, or with finite differences, on random
        inputs, in a child process.
    modes
        The modes that compile the derivative for the check, see `scanopt_cli.verify`. ``plain``
        compiles nothing, which takes least time.
    timeout
        Seconds of processor time that the check may take, see `scanopt_cli.verify`.
    stages
        For each order, collect statistics after these stages too, beside those of the graph as
        built: see `Stage`.
    stage_timeout
        Seconds of processor time that all stages together may take. Those that PyTensor does not
        finish are left out, and a note says so.
    compare
        Whether to count what other strategies would build, too: `Derivative.candidates`. Of large
        graphs they are left out.
    progress
        Called with a few words on what is done next.

    Returns
    -------
    Derivative
        The derivative's graph has the inputs of ``graph``, and for each of ``wrt`` one output of
        the shape and dtype of that input, called ``d2 out/d x`` (for order 2). With ``full`` it is
        a block of that dtype, called ``d2 out/d * d x``.

    Raises
    ------
    GradientError
        If ``order`` is below 1, or not 2 with ``full``; if an input or the output does not exist,
        holds no floats, is not connected, or only through complex numbers; if there is no such
        strategy, or it cannot build this derivative; if an Op has no derivative, or none that the
        strategy can use; or if PyTensor would get the derivative wrong: of a Scan whose buffers do
        not provably hold every step or whose initial rows it loses, of a graph that works in place,
        and of a truncated gradient.
    ScanoptError
        If ``graph`` is not a graph, or its file cannot be loaded.
    """
    announce = progress or (lambda _: None)
    problem = problem_of(loaded_graph(graph), order, wrt, output)
    wanted = strategy_named(strategy, problem.source)
    if full and order != 2:
        raise GradientError(
            f"a whole Hessian is of order 2, not of order {order}", where=problem.source
        )
    built, notes, choice = _solve(problem, order, wanted, full=full, announce=announce)
    orders = []
    deadline = thread_time() + stage_timeout
    for report in built:
        counted, work = [], StagedGraph(report.graph)
        for stage in map(Stage, stages):
            if stage is Stage.RAW:
                continue
            announce(f"{choice.strategy}, order {report.order}: {stage}")
            try:
                counted.append(work.after(stage, deadline))
            except RewriteTimeoutError as error:
                notes.append(f"order {report.order} has no counts for the stage {stage}: {error}")
        orders.append(replace(report, stages=tuple(counted)))
    derivative = Derivative(
        output=problem.output_name,
        wrt=problem.names,
        strategy=choice.strategy,
        reason=choice.reason,
        full=full,
        orders=tuple(orders),
        notes=tuple(notes),
    )
    if compare:
        contest = _contest(problem, order, orders[0].statistics, full=full, announce=announce)
        derivative = replace(derivative, candidates=contest.run(choice, derivative.graph))
    if not check:
        return derivative
    announce(f"{choice.strategy}, order {order}: checking values")
    start = perf_counter()
    with _recursion(orders[-1].statistics):
        checked = check_derivative(
            derivative, problem.original, problem.by, modes, timeout, progress
        )
    return replace(derivative, check=replace(checked, seconds=round(perf_counter() - start, 2)))


def _solve(
    problem: Problem, order: int, wanted: Strategy, *, full: bool, announce: Callable[[str], None]
) -> tuple[list[OrderReport], list[str], Choice]:
    """Build every order by the wanted strategy; return the notes on them and the choice as well.

    ``auto`` falls back to reverse mode if an Op has no pushforward.
    """
    if wanted is not Strategy.AUTO:
        choice = Choice(wanted, "as asked for")
        refuse_strategy(problem, wanted, full=full)
    else:
        choice = choose(problem.target, problem.inputs, order, full=full)
    announce(f"{choice.strategy}, order {order}")
    try:
        return *_orders(problem, order, choice.strategy, full=full), choice
    except TangentError as error:
        if wanted is not Strategy.AUTO:
            raise GradientError(
                str(error), where=problem.source, hint="use strategy reverse, which needs none"
            ) from error
        choice = Choice(Strategy.REVERSE, f"reverse mode only: {error}")
    announce(f"{choice.strategy}, order {order}")
    return *_orders(problem, order, choice.strategy, full=full), choice


def _contest(
    problem: Problem,
    order: int,
    counts: Statistics,
    *,
    full: bool,
    announce: Callable[[str], None],
) -> StrategyComparison:
    """Return what compares other strategies for a derivative with the one that was chosen."""

    def build(strategy: Strategy) -> Graph:
        orders, _ = _orders(problem, order, strategy, full=full)
        return orders[-1].graph

    def why_not(strategy: Strategy) -> str | None:
        try:
            refuse_strategy(problem, strategy, full=full)
            if strategy in (Strategy.FORWARD, Strategy.TAYLOR):
                entry_counts(problem.inputs, problem.names)
        except GradientError as error:
            return error.what
        is_forward = strategy is not Strategy.REVERSE
        return ROOT_OF_ZERO if is_forward and may_take_root_of_zero(problem.target) else None

    return StrategyComparison(
        order=order,
        counts=counts,
        build=build,
        why_not=why_not,
        announce=announce,
    )


def _orders(
    problem: Problem, order: int, strategy: Strategy, *, full: bool
) -> tuple[list[OrderReport], list[str]]:
    """Build every order up to ``order``, and return notes on them."""
    original, inputs, names = problem.original, problem.inputs, problem.names
    notes = _notes(order, problem, full=full)
    fgraph = original.fgraph
    recorder = ProvenanceRecorder(infer(NearestScans(fgraph.inputs, fgraph.toposort())))
    orders = [_report(0, original.fgraph, original, recorder, [problem.output_name])]
    results: list[Variable] = [problem.target]
    building = derivatives_by_order(strategy, problem.target, inputs, names, recorder)
    for number in range(1, order + 1):
        if number > 1:
            refuse_truncated(inputs, results, problem.source)
            notes += _zero_notes(number, results, inputs, names)
        if _is_reverse(strategy, number):
            refuse_disconnected_rows(inputs, results, problem.source)
        try:
            with _recursion(orders[-1].statistics):
                if full and number == order:
                    results = hessian_rows(results, inputs, strategy, recorder)
                else:
                    results = next(building)
        except GradientError as error:
            raise GradientError(error.what, where=problem.source, hint=error.hint) from error
        except Exception as error:
            if not _is_reverse(strategy, number):
                raise
            raise error_naming_the_op(error, inputs, names, results, problem.source) from error
        # The derivative of an Op may hold copies of the loops before it.
        record_inferred(results, recorder)
        fgraph = FunctionGraph(original.fgraph.inputs, results, clone=False)
        orders.append(_report(number, fgraph, original, recorder, _titles(number, problem, full)))
    scans = orders[-1].statistics.scans
    if scans >= _MANY_SCANS and strategy is Strategy.REVERSE:
        notes.append(f"{scans} Scans: each order of repeated reverse mode doubles them")
    return orders, notes


def _is_reverse(strategy: Strategy, number: int) -> bool:
    """Whether PyTensor's reverse mode builds this order, so that an Op is to be named in errors."""
    is_first = strategy is Strategy.FORWARD_OVER_REVERSE and number == 1
    return strategy is Strategy.REVERSE or is_first


def _titles(number: int, problem: Problem, full: bool) -> list[str]:
    above = f"{'d' if number == 1 else f'd{number}'} {problem.output_name}"
    below = "d * d" if full and number == 2 else "d"
    return [f"{above}/{below} {name}" for name in problem.names]


def _report(
    order: int,
    fgraph: FunctionGraph,
    original: Graph,
    recorder: ProvenanceRecorder,
    titles: list[str],
) -> OrderReport:
    """Report on a copy of ``fgraph``, which shares no node with the graphs of other orders."""
    copies: dict[Any, Any] = {}
    copied = copy_nodes(fgraph, copies)
    nodes: dict[Apply, Any] = {old: new for old, new in copies.items() if isinstance(old, Apply)}
    return OrderReport(
        order=order,
        statistics=statistics(copied),
        pedigree=pedigree_of(copied, recorder.within(nodes)),
        graph=replace(original, fgraph=copied, output_names=tuple(titles)),
    )


def _notes(order: int, problem: Problem, *, full: bool) -> list[str]:
    """Explain the result where it is not the plain derivative of a scalar by a scalar."""
    notes, inputs = [], problem.inputs
    if problem.target.type.ndim:
        name = problem.output_name
        notes.append(f"{name} is not a scalar: what is differentiated is the sum of its entries")
    if full:
        notes.append(
            "the whole Hessian: for each input a block, with a row for each entry of all inputs, "
            "raveled and joined"
        )
    elif order > 1 and (len(inputs) > 1 or inputs[0].type.ndim):
        notes.append(
            "each order after the first is the gradient of the sum of all entries of the order "
            "before, over all inputs: order 2 is the Hessian times a vector of ones"
        )
    return notes + list(dict.fromkeys(truncations(inputs, problem.target)))


def _zero_notes(
    order: int, results: Sequence[Variable], inputs: Sequence[Variable], names: Sequence[str]
) -> list[str]:
    """Name the inputs by which order ``order`` is zero.

    ``results``, the order before, do not depend on them.
    """
    smooth = useful(results)
    return [
        f"order {order} is zero for {name}: order {order - 1} does not depend on it smoothly"
        for variable, name in zip(inputs, names, strict=True)
        if variable not in smooth
    ]


@contextmanager
def _recursion(counts: Statistics) -> Iterator[None]:
    """Raise the recursion limit, so that PyTensor can recurse through all nodes."""
    before = sys.getrecursionlimit()
    nodes = counts.outer_nodes + counts.inner_nodes
    sys.setrecursionlimit(before + _CALLS_A_NODE * nodes)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)

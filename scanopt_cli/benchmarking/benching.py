"""`bench`: what graphs cost, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scanopt_cli.analysis.named_loops import named_loops
from scanopt_cli.benchmarking.growing import GrowthLike, growth_of
from scanopt_cli.benchmarking.requests import BenchRequest
from scanopt_cli.benchmarking.result import Benchmark, Clock
from scanopt_cli.benchmarking.taking_turns import Entry, Turns
from scanopt_cli.errors import ScanoptError, VerificationError
from scanopt_cli.ir.folding import bounded_folding
from scanopt_cli.ir.graph import Graph, GraphLike, as_graph, loaded_graph
from scanopt_cli.tracing.arguments_given import ArgumentsLike, arguments_of
from scanopt_cli.tracing.requests import Arguments
from scanopt_cli.verification.input_pairing import matched
from scanopt_cli.verification.modes import DEFAULT, PLAIN, compiling_modes
from scanopt_cli.verification.spawning import tables

STEPS = 1_000
"""How many steps the loops have whose trip count drawn arguments decide."""


@bounded_folding()
def bench(
    *graphs: GraphLike,
    modes: str | Sequence[str] = DEFAULT,
    arguments: ArgumentsLike = None,
    grow: GrowthLike = None,
    steps: int = STEPS,
    rounds: int = 3,
    seconds: float = 1.0,
    clock: Clock | str = Clock.PROCESSOR,
    fail_slower: float | None = None,
    profile: bool = False,
    seed: int = 0,
    timeout: float = 300.0,
    progress: Callable[[str], None] | None = None,
) -> Benchmark:
    """Measure what a call of each graph costs, and its compilation: time and memory.

    Each graph and mode has a process of its own, and all take turns, so that what else the machine
    does falls on all of them; in each of several rounds, the processes are started anew. Each graph
    is compiled as a user would compile it, by PyTensor alone, with nothing of Numba's cached.
    Linear algebra has one thread, unless ``OMP_NUM_THREADS`` and the like say otherwise.

    Times are medians of the turns, with an interval of 95% confidence; ratios are the medians of
    those in the same turn.

    Parameters
    ----------
    graphs
        Loaded graphs, paths of their files, FunctionGraphs or ``(inputs, outputs)`` pairs, over the
        same inputs as in `verify`. The others are compared with the first.
    modes
        Names of modes, in a list or separated by commas, as of `verify`.
    arguments
        As of `trace`: by default those of the first recorded call, else they are drawn.
    grow
        An input and its sizes, ``n=10,100,1000``: the values of a whole number, or the lengths of
        an array, with which all lengths grow that must be equal; if that alone does not fit the
        graph, so do numbers of steps, and lengths that decide them, that are about as large.
    steps
        How many steps the loops have whose trip count drawn arguments decide.
    rounds
        How many times all processes are started anew.
    seconds
        For about how long each graph is called in each round, on each size.
    clock
        Which time is compared, ``processor`` or ``wall``.
    fail_slower
        How many times as long as the first graph the others may take: `Benchmark.slower` lists
        those that surely take longer.
    profile
        Whether to find out where the time of a call goes, on the largest size.
    seed
        The seed of arguments that are drawn.
    timeout
        Seconds of processor time for each process.
    progress
        Called with a short description of what is being done.

    Raises
    ------
    VerificationError
        If the graphs' signatures do not match, or one cannot be compiled or called.
    ScanoptError
        If a graph is none, its file cannot be loaded, or an option is wrong.
    """
    if not graphs:
        raise ScanoptError("there is no graph to measure", where="bench")
    if rounds < 1 or steps < 1 or seconds <= 0 or timeout <= 0:
        raise ScanoptError("rounds, steps, seconds and timeout must be positive", where="bench")
    compiling = compiling_modes(modes)
    if not compiling:
        raise ScanoptError(
            f"mode {PLAIN} compiles nothing", where="--mode", hint="name one that compiles"
        )
    if fail_slower is not None and (len(graphs) < 2 or not fail_slower > 0):
        what = "must be positive" if len(graphs) > 1 else "takes a second graph to compare"
        raise ScanoptError(what, where="--fail-slower")
    works = over_one_signature([as_graph(loaded_graph(graph)) for graph in graphs])
    given = _arguments(works, arguments, seed)
    request = BenchRequest(
        graphs=tables(*works),
        which=0,
        modes=compiling[:1],
        arguments=given,
        steps=steps,
        growth=growth_of(works[0].fgraph.inputs, grow),
        timeout=timeout,
    )
    sources = _distinct([work.source for work in works])
    entries = [
        Entry(source, mode, which, places_of_loops(work) if profile else {})
        for mode in compiling
        for which, (source, work) in enumerate(zip(sources, works, strict=True))
    ]
    turns = Turns(request, entries, Clock(clock), seconds, progress or (lambda _: None))
    turns.find_arguments()
    for number in range(rounds):
        turns.take(number, rounds)
    if profile:
        turns.profile()
    return turns.result(
        rounds=rounds, bound=fail_slower, text=given.text, is_drawn=given.values is None
    )


def over_one_signature(graphs: Sequence[Graph]) -> list[Graph]:
    """Return the graphs over the inputs of the one that has most.

    Raises
    ------
    VerificationError
        If another one has an input that this one has not, or they differ in their outputs.
    """
    widest = max(graphs, key=lambda graph: len(graph.fgraph.inputs))
    found = []
    for graph in graphs:
        pair = matched(widest, graph)
        if len(pair.b.fgraph.inputs) != len(widest.fgraph.inputs):
            raise VerificationError(
                f"{graph.source} has inputs that {widest.source} has not",
                hint="give all graphs the same inputs",
            )
        found.append(pair.b)
    return found


def _arguments(graphs: Sequence[Graph], given: ArgumentsLike, seed: int) -> Arguments:
    """Return the arguments of all: recorded ones are those of the first graph that has some."""
    contents = {place: value for graph in reversed(graphs) for place, value in graph.values.items()}
    reference = next((graph for graph in graphs if graph.recorded), graphs[0])
    found = arguments_of(reference, given, seed)
    return Arguments(values=found.values, text=found.text, contents=contents, seed=seed)


def places_of_loops(graph: Graph) -> dict[str, str]:
    """Return where loops were written, by their titles."""
    loops = named_loops(graph.fgraph)
    return {loop.title: loop.place for loop in loops if loop.place is not None}


def _distinct(sources: Sequence[str]) -> list[str]:
    """Return the names of graphs, numbered where they repeat."""
    seen: dict[str, int] = {}
    found = []
    for source in sources:
        seen[source] = seen.get(source, 0) + 1
        found.append(source if seen[source] == 1 else f"{source} ({seen[source]})")
    return found

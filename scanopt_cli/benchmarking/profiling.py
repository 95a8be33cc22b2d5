"""Where the time of a call goes: by loop, and by operation where the mode computes them one by one.

PyTensor's virtual machines note the time of each node, and those of loops that of each node of a
step. Modes such as Numba make one function of all nodes: there each loop is compiled and timed
alone, on the values that it has in a call, and the rest is the difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy, deepcopy
from dataclasses import asdict, dataclass, field
from math import inf
from time import perf_counter, process_time
from typing import Any

from pytensor.compile.debug.profiling import ProfileStats
from pytensor.compile.executor import Function
from pytensor.compile.inner_function import link_only_mode
from pytensor.compile.mode import Mode
from pytensor.configdefaults import config
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.link.vm import VMLinker

from scanopt_cli.benchmarking.calling import await_results, compiled_as_users_do
from scanopt_cli.benchmarking.result import Profile, ProfiledLoop, ProfiledOperation
from scanopt_cli.ir.inner_graphs import inner_graphs, walk
from scanopt_cli.ir.naming import titles
from scanopt_cli.ir.scan_view import is_loop
from scanopt_cli.text import cut, plural
from scanopt_cli.verification.child_process import fine_clock
from scanopt_cli.verification.modes import compiling_mode
from scanopt_cli.verification.worker import compiled, error_text

_LONGEST_NAME = 80
# An attribute that PyTensor declares as None, and sets later.
_PROFILE = "profile"
_MOST_CALLS = 1_000
# Bytes of copies of arguments, and seconds of a batch of calls.
_COPIES = 64 << 20
_BATCH = 0.01
_FEWEST_BATCHES = 3


def profiled(
    fgraph: FunctionGraph, mode_name: str, arguments: Sequence[Any], seconds: float
) -> Mapping[str, Any]:
    """Return the fields of a `Profile`, of calls that take about so many seconds."""
    mode = compiling_mode(mode_name)
    if isinstance(mode.linker, VMLinker):
        found = _by_node(fgraph, mode, arguments, seconds)
    else:
        found = _by_loop_alone(fgraph, mode, arguments, seconds)
    return asdict(found)


def _least(
    function: Function, arguments: Sequence[Any], seconds: float, *, overwrites: bool = False
) -> float:
    """Return the processor time of a call, the least of several batches of calls.

    A function that ``overwrites`` its arguments gets copies, made before the clock is read.
    """
    size = sum(getattr(value, "nbytes", 0) for value in arguments)
    most = max(1, min(_MOST_CALLS, _COPIES // max(size, 1)))
    await_results(function(*deepcopy(arguments)))  # which may compile it
    start = perf_counter()
    await_results(function(*deepcopy(arguments)))
    took = perf_counter() - start
    count = max(1, min(most, int(_BATCH / max(took, 1e-6))))
    best, batches = inf, 0
    end = perf_counter() + seconds
    while not batches or perf_counter() < end or (batches < _FEWEST_BATCHES and took < seconds):
        batches += 1
        given = [deepcopy(arguments) if overwrites else arguments for _ in range(count)]
        with fine_clock():
            start = process_time()
            for values in given:
                outputs = function(*values)
            await_results(outputs)
            best = min(best, (process_time() - start) / count)
    return best


# Virtual machines


@dataclass(slots=True)
class _Split:
    """The times of nodes, summed up over the calls."""

    loops: list[ProfiledLoop] = field(default_factory=list)
    operations: dict[tuple[str, str | None], tuple[float, float]] = field(default_factory=dict)
    shared: set[int] = field(default_factory=set)


@contextmanager
def _noting_times() -> Iterator[None]:
    with config.change_flags(profile=True, profile_memory=False):
        yield


def _by_node(
    fgraph: FunctionGraph, mode: Mode, arguments: Sequence[Any], seconds: float
) -> Profile:
    with _noting_times():
        function = compiled(fgraph, mode)
        _watch_steps(function, set())
        end = perf_counter() + seconds
        n_calls = 0
        while not n_calls or (perf_counter() < end and n_calls < _MOST_CALLS):
            function(*deepcopy(arguments))
            n_calls += 1
    split = _Split()
    _add(split, function, n_calls, None, ())
    whole = _profile_of(function).fct_call_time / n_calls
    outermost = sum(loop.seconds for loop in split.loops if not loop.depth)
    outside = sum(
        seconds for (_, within), (_, seconds) in split.operations.items() if within is None
    )
    listed = sorted(split.operations.items(), key=lambda item: -item[1][1])
    return Profile(
        seconds=whole,
        loops=tuple(split.loops),
        operations=tuple(
            ProfiledOperation(name=name, within=within, calls=calls, seconds=taken)
            for (name, within), (calls, taken) in listed
        ),
        rest=max(whole - outermost - outside, 0.0),
        note="the clock is read at each node, so that a call takes longer than without",
    )


def _profile_of(function: Function) -> Any:
    return getattr(function, _PROFILE)


def _watch_steps(function: Function, seen: set[int]) -> None:
    """Let what runs the steps of loops keep a profile, too; of Scans, it does so by itself."""
    seen.add(id(function))
    for node in function.maker.fgraph.apply_nodes:
        inner = getattr(node.op, "_fn", None)
        if isinstance(inner, Function) and id(inner) not in seen:
            if inner.profile is None:
                setattr(inner, _PROFILE, ProfileStats(False))
            _watch_steps(inner, seen)


def _add(
    split: _Split, function: Function, n_calls: int, within: str | None, path: tuple[str, ...]
) -> float:
    """Add the nodes of a function; return the time of all of them in a call."""
    graph = function.maker.fgraph
    names = titles(graph.outputs)
    total = 0.0
    profile = _profile_of(function)
    for node in graph.toposort():
        seconds = profile.apply_time.get((graph, node), 0.0) / n_calls
        count = profile.apply_callcount.get((graph, node), 0) / n_calls
        total += seconds
        if not holds_loop(node):
            key = (cut(str(node.op), _LONGEST_NAME), within)
            before = split.operations.get(key, (0.0, 0.0))
            split.operations[key] = (before[0] + count, before[1] + seconds)
            continue
        here = (*path, names.get(node, str(node.op)))
        position = len(split.loops)
        inside, steps = _inside(split, node, n_calls, here)
        split.loops.insert(
            position,
            ProfiledLoop(
                title="/".join(here),
                place=None,
                depth=len(path),
                calls=count,
                steps=steps,
                seconds=seconds,
                overhead=None if inside is None else max(seconds - inside, 0.0),
            ),
        )
    return total


def _inside(
    split: _Split, node: Apply, n_calls: int, path: tuple[str, ...]
) -> tuple[float | None, float | None]:
    """Add what is in a loop; return the time of its nodes, and its steps, if they are its own.

    Equal loops may share what runs their steps, whose times are then those of both.
    """
    function = getattr(node.op, "_fn", None)
    profile = getattr(function, "profile", None)
    if function is None or profile is None or id(function) in split.shared:
        return None, None
    split.shared.add(id(function))
    inside = _add(split, function, n_calls, "/".join(path), path)
    steps = getattr(profile, "nbsteps", None)
    return inside, (profile.fct_callcount if steps is None else steps) / n_calls


def holds_loop(node: Apply) -> bool:
    """Whether a node is a loop, or has one in a graph that it holds."""
    return is_loop(node) or any(
        is_loop(inner) for graph in inner_graphs(node.op) for inner in walk(graph)
    )


# Modes that make one function of all nodes


def _by_loop_alone(
    fgraph: FunctionGraph, mode: Mode, arguments: Sequence[Any], seconds: float
) -> Profile:
    """Time each loop alone, on what it reads in a call."""
    function, overwrites = compiled_as_users_do(fgraph, mode)
    whole = _least(function, arguments, seconds, overwrites=overwrites)
    graph = function.maker.fgraph
    loops = _titled_loops(graph)
    found: list[ProfiledLoop] = []
    failure = ""
    try:
        values = _values(fgraph, mode, arguments) if loops else {}
        for place, (title, node) in enumerate(loops):
            alone = _alone(node, mode)
            read = values[place, title]
            share = seconds / len(loops)
            called = _least(_alone(node, mode, computes=False), read, share / 2)
            taken = max(_least(alone, read, share, overwrites=True) - called, 0.0)
            found.append(
                ProfiledLoop(
                    title=title,
                    place=None,
                    depth=0,
                    calls=1.0,
                    steps=None,
                    seconds=taken,
                    overhead=None,
                )
            )
    except MemoryError:
        raise
    except Exception as error:  # no mode promises to compile a part of a graph
        why = "it has other loops" if isinstance(error, KeyError) else error_text(error)
        failure = f"; not all loops can be compiled alone: {why}"
    others = plural(len(graph.apply_nodes) - len(loops), "other operation")
    total = sum(loop.seconds for loop in found)
    note = (
        "the mode makes one function of all operations: each loop is compiled and timed alone, "
        f"without what a call takes that computes nothing, and the rest is the difference, of "
        f"{others}; operations are timed one by one in the modes vm and cvm{failure}"
    )
    if total > whole:
        note += "; the loops alone take longer than the call"
    return Profile(
        seconds=whole, loops=tuple(found), operations=(), rest=max(whole - total, 0.0), note=note
    )


def _titled_loops(graph: FunctionGraph) -> list[tuple[str, Apply]]:
    names = titles(graph.outputs)
    nodes = [node for node in graph.toposort() if holds_loop(node)]
    return sorted(((names.get(node, str(node.op)), node) for node in nodes), key=lambda one: one[0])


def _linking(mode: Mode) -> Mode:
    """Return a mode that compiles a graph which the mode has rewritten."""
    return link_only_mode(copy(mode.linker))


def _values(
    fgraph: FunctionGraph, mode: Mode, arguments: Sequence[Any]
) -> dict[tuple[int, str], list[Any]]:
    """Return what each loop reads in a call, but for constants.

    It is that of a graph with nothing done in place, where no loop overwrites what is to be seen.
    """
    plain = mode.excluding("inplace")
    graph = compiled(fgraph, plain, overwrites=False).maker.fgraph
    loops = _titled_loops(graph)
    wanted = dict.fromkeys(v for _, node in loops for v in _read(node))
    given = dict(zip(graph.inputs, deepcopy(list(arguments)), strict=True))
    computed = [v for v in wanted if v not in given]
    if computed:
        part = FunctionGraph(graph.inputs, computed, clone=True)
        made = compiled(part, _linking(plain), overwrites=False)
        given |= dict(zip(computed, made(*given.values()), strict=True))
    return {
        (place, title): [given[v] for v in _read(node)] for place, (title, node) in enumerate(loops)
    }


def _read(node: Apply) -> list[Variable]:
    return [v for v in node.inputs if not isinstance(v, Constant)]


def _alone(node: Apply, mode: Mode, *, computes: bool = True) -> Function:
    """Compile a loop alone, which may overwrite what it is given; or only what it is called with.

    The latter takes as long as the call itself does, whatever is computed.
    """
    inputs = [v if isinstance(v, Constant) else v.type() for v in node.inputs]
    outputs = node.op.make_node(*inputs).outputs if computes else []
    part = FunctionGraph([v for v in inputs if not isinstance(v, Constant)], outputs, clone=False)
    return compiled(part, _linking(mode))

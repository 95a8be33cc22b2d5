"""The child process: it evaluates two graphs on the same arguments and records the results.

Foreign graphs are evaluated only here. A wrong index can kill this process (Numba does not check
bounds), so the child records every step before it takes it: the last line of the record names the
step at which it died.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, TextIO

import numpy as np
from pytensor.compile.executor import Function
from pytensor.compile.inner_function import HasInnerFunction
from pytensor.compile.io import In
from pytensor.compile.maker import function
from pytensor.compile.mode import Mode
from pytensor.configdefaults import config
from pytensor.graph.fg import FunctionGraph
from pytensor.scalar.basic import Composite
from pytensor.scan.op import Scan
from pytensor.tensor.elemwise import CAReduce

from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.serialization.payload import decode
from scanopt_cli.serialization.unpickler.generators import as_text
from scanopt_cli.verification.arguments import UndrawableError, attempts, draw, settings
from scanopt_cli.verification.checking_linker import StaticShapeError, filled_buffers
from scanopt_cli.verification.child_process import limit_process, read_request
from scanopt_cli.verification.child_record import (
    CompiledRun,
    Doing,
    Done,
    Entry,
    Failed,
    ModeNote,
    Rewritten,
    Timed,
    Unevaluated,
    to_line,
)
from scanopt_cli.verification.comparison import Comparison, Sample, compare
from scanopt_cli.verification.input_constraints import InputConstraints, input_constraints
from scanopt_cli.verification.modes import PLAIN, compiling_mode, inner_mode, plain_mode
from scanopt_cli.verification.result import Difference, DifferenceKind
from scanopt_cli.verification.rewrite_failures import failing_rewrites
from scanopt_cli.verification.rewrite_gate import rewrite_gate
from scanopt_cli.verification.spawning import ARGUMENTS, RECORD, Gate, Request

type Outcome = list[Any] | Exception

# The errors that arguments of a wrong shape or size cause. If only the first graph raises one, the
# run tries other arguments, and reports the error only if none of them is better.
_MISFIT = (ValueError, IndexError, TypeError)

_ARBITRARY = "the first graph reads memory that it never wrote"


def main(directory: str) -> None:
    """Evaluate the request in ``directory`` and write the record there."""
    carry_out(directory, lambda request, record: _Session(request, record).run())


def carry_out(directory: str, run: Callable[[Any, TextIO], None]) -> None:
    """Let ``run`` carry out the request in ``directory``, in its limits, and write the record."""
    request = read_request(directory)
    limit_process(request.timeout)
    Scan.link_mode = HasInnerFunction.link_mode = inner_mode  # type: ignore[assignment, method-assign]
    with (Path(directory) / RECORD).open("w") as file:
        run(request, file)


def needs_c(fgraph: FunctionGraph) -> bool:
    """Whether an Op from a rewrite for C is wrong without C: a reduction by a Composite."""
    return any(
        isinstance(node.op, CAReduce) and isinstance(node.op.scalar_op, Composite)
        for node in walk(fgraph)
    )


def compiled(fgraph: FunctionGraph, mode: Mode, *, overwrites: bool = True) -> Function:
    """Compile a graph; if it ``overwrites`` its arguments, callers pass copies."""
    inputs = [In(v, mutable=overwrites, borrow=overwrites) for v in fgraph.inputs]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made: Function = function(
            inputs,  # type: ignore[arg-type]
            fgraph.outputs,
            mode=mode,
            accept_inplace=True,
            on_unused_input="ignore",
        )
    return made


def _call(function: Function, arguments: Sequence[Any]) -> Outcome:
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            values: list[Any] = function(*deepcopy(list(arguments)))
    except MemoryError:
        raise
    except Exception as error:
        return error
    return values


class CompiledPair:
    """Both graphs compiled by one mode, each on first use.

    ``name`` is that of the mode, in what the record says that is being done, and how long it took.
    With a ``gate``, PyTensor's rewrites of the second graph are counted.
    """

    def __init__(
        self,
        mode: Mode,
        name: str,
        graphs: Sequence[FunctionGraph],
        write: Callable[[Entry], None],
        gate: Gate | None = None,
    ) -> None:
        self._mode = mode
        self._gate = gate
        self._name = name
        self._how = "" if name == PLAIN else f" in mode {name}"
        self._graphs = graphs
        self._write = write
        self._functions: dict[int, Function | Exception] = {}
        self._failing: dict[int, dict[str, BaseException | None]] = {}

    def values(self, side: int, sample: Sample) -> Outcome:
        """Return a graph's values, or the error if it raises or does not compile."""
        function = self.function(side)
        if isinstance(function, Exception):
            return function
        self._write(Doing(f"evaluating graph {'ab'[side]}{self._how} in run {sample.run}"))
        with self._timed(side, is_call=True):
            return _call(function, sample.arguments)

    def function(self, side: int) -> Function | Exception:
        """Return a compiled graph, or the error if it does not compile."""
        if side not in self._functions:
            self._write(Doing(f"compiling graph {'ab'[side]}{self._how}"))
            with self._gated(side), failing_rewrites() as failures:
                try:
                    with self._timed(side, is_call=False):
                        self._functions[side] = compiled(self._graphs[side], self._mode)
                except Exception as error:
                    self._functions[side] = error
            self._failing[side] = failures.errors
        return self._functions[side]

    @contextmanager
    def _timed(self, side: int, *, is_call: bool) -> Iterator[None]:
        """Record how long something takes, whether it ends by an error or not."""
        started = perf_counter()
        try:
            yield
        finally:
            seconds = perf_counter() - started
            self._write(Timed("ab"[side], self._name, is_call, seconds))

    @contextmanager
    def _gated(self, side: int) -> Iterator[None]:
        """Count PyTensor's rewrites, and keep the graphs around the last one, if that is asked."""
        gate = self._gate
        if gate is None or side == 0:
            yield
            return
        keeps_graphs = gate.directory is not None
        with rewrite_gate(gate.most, gate.without, keeps_graphs=keeps_graphs) as counted:
            yield
        made = self._functions[side]
        error = error_text(made) if isinstance(made, Exception) else None
        self._write(Rewritten(counted.count, counted.last, error))
        if gate.directory is not None:
            counted.save_graphs(gate.directory)

    def newly_failing(self) -> Iterator[tuple[str, BaseException | None]]:
        """Yield the rewrites that fail on the second graph, and not on the first, with errors.

        A graph that does not compile at all says so when it is evaluated.
        """
        if isinstance(self.function(1), Exception) or not self._failing[1]:
            return
        if not isinstance(self.function(0), Exception):
            known = self._failing[0]
            yield from ((n, error) for n, error in self._failing[1].items() if n not in known)


class _Session:
    """Carries out one request, from the first compilation to the last run."""

    def __init__(self, request: Request, record: TextIO) -> None:
        self.request = request
        self.record = record
        self.rng = np.random.default_rng(request.seed)
        # The runs in which both graphs, as they are, agree, and the values of the first.
        self.agreeing: list[tuple[Sample, list[Any]]] = []

    def run(self) -> None:
        request = self.request
        graphs = [decode(tables, "the request").fgraph for tables in request.graphs]
        self.graphs = graphs
        self.outputs = graphs[0].outputs
        self.types = [variable.type for variable in graphs[0].inputs]
        with_c = any(map(needs_c, graphs))
        if with_c and not config.cxx:
            self._write(Failed("a graph was compiled for C, and needs it; use --mode cvm"))
            return
        self.plain = CompiledPair(plain_mode(with_c=with_c), PLAIN, graphs, self._write)
        for side in (0, 1):
            failed = self.plain.function(side)
            if isinstance(failed, Exception):
                self._write(Failed(f"graph {'ab'[side]} does not compile: {error_text(failed)}"))
                return
        try:
            self._runs(input_constraints(graphs))
            for mode in request.modes:
                self._compiled_runs(mode)
            self._write(Done())
        except MemoryError as error:
            self._write(Failed(f"out of memory: {error_text(error)}"))
        except UndrawableError as error:
            self._write(Failed(str(error)))
        except Exception as error:
            self._write(Failed(f"no arguments can be drawn: {error_text(error)}"))

    def _compiled_runs(self, name: str) -> None:
        """Compile the second graph by the mode ``name`` and evaluate it on all samples.

        It must give the values of the first graph as it is, or of the first graph compiled by the
        same mode. In the latter case, PyTensor itself changes the values.
        """
        try:
            mode = compiling_mode(name)
        except Exception as error:
            self._write(Failed(f"mode {name} cannot be used: {error_text(error)}"))
            return
        gate = self.request.gate
        compiled = CompiledPair(mode, name, self.graphs, self._write, gate)
        failed = compiled.function(1) if self.agreeing else None
        if gate is not None and isinstance(failed, Exception):
            self._write(Failed(f"mode {name} does not compile the graph: {error_text(failed)}"))
            return
        if isinstance(failed, Exception) and isinstance(compiled.function(0), Exception):
            self._write(Failed(f"mode {name} compiles neither graph: {error_text(failed)}"))
            return
        failing = compiled.newly_failing() if self.agreeing and gate is None else ()
        self._write(CompiledRun(tuple(_fails(name, item, error) for item, error in failing)))
        for sample, values in self.agreeing:
            if gate is not None and sample.specials:
                continue  # PyTensor's rewrites may take zero times infinity for zero
            got = compiled.values(1, sample)
            differences = self._against(got, values, sample, name)
            if differences and gate is None:
                compiled_a = compiled.values(0, sample)
                genuine = {item.output for item in self._against(got, compiled_a, sample, name)}
                if any(item.output not in genuine for item in differences):
                    text = f"mode {name} itself changes values, of the original as well"
                    self._write(ModeNote(text))
                differences = tuple(item for item in differences if item.output in genuine)
            elif differences:
                differences = self._not_arbitrary(differences, values, sample)
                if differences:
                    self._keep_arguments(sample)
            self._write(CompiledRun(differences))

    def _keep_arguments(self, sample: Sample) -> None:
        """Write the arguments of the first run that differs, if that is asked for.

        They are arrays, or the states of random generators as JSON.
        """
        gate = self.request.gate
        arrays = [
            np.asarray(as_text(value) if isinstance(value, np.random.Generator) else value)
            for value in sample.arguments
        ]
        if (
            gate is not None
            and gate.directory is not None
            and not (gate.directory / ARGUMENTS).exists()
            and all(a.dtype != object for a in arrays)
        ):
            np.savez(gate.directory / ARGUMENTS, *arrays, allow_pickle=False)

    def _against(
        self, got: Outcome, wanted: Outcome, sample: Sample, mode: str
    ) -> tuple[Difference, ...]:
        """Return how ``got``, of the second graph compiled by ``mode``, differs from ``wanted``."""
        if isinstance(wanted, Exception) and isinstance(got, Exception):
            return ()
        if isinstance(wanted, Exception) or isinstance(got, Exception):
            return (replace(_one_raises(wanted, got, sample), mode=mode),)
        found = self._compare(wanted, got, sample)
        return tuple(replace(item, mode=mode) for item in found.differences)

    def _runs(self, wanted: InputConstraints) -> None:
        recorded, contents = self.request.recorded, self.request.contents
        first = next(iter(recorded), ())
        for run, arguments in enumerate(recorded):
            self._one_run([Sample(run, f"recorded call {run + 1}", arguments)], known_good=True)
        for run, setting in enumerate(settings(self.request.runs, wanted), len(recorded)):
            ways = attempts(setting, recorded=bool(recorded))
            drawn = (
                (way, draw(way, wanted, self.types, contents, first, self.rng)) for way in ways
            )
            self._one_run(Sample(run, str(way), values, way.special) for way, values in drawn)

    def _one_run(self, candidates: Iterable[Sample], *, known_good: bool = False) -> None:
        """Evaluate candidates until both graphs give values to compare; record the comparison.

        ``known_good`` arguments are not to blame if a graph raises or gives no finite number.
        """
        best: tuple[Comparison, Sample, list[Any]] | None = None
        lone: Difference | None = None
        reason = ""
        for sample in candidates:
            a, b = (self.plain.values(side, sample) for side in (0, 1))
            if isinstance(a, StaticShapeError):
                reason = error_text(a)
            elif isinstance(a, Exception) and isinstance(b, Exception):
                reason = _both_raise(error_text(a), error_text(b))
            elif isinstance(a, Exception) or isinstance(b, Exception):
                lone = _one_raises(a, b, sample)
                if known_good or not isinstance(a, _MISFIT):
                    best = None
                    break
            else:
                found = self._compare(a, b, sample)
                if found.differences and self._is_arbitrary(found, a, sample):
                    reason = _ARBITRARY
                    continue
                best = found, sample, a
                if found.settles or sample.specials or known_good:
                    break
        if best is not None:
            comparison, sample, values = best
            if not comparison.differences:
                self.agreeing.append((sample, values))
            self._write(comparison)
        elif lone is not None:
            self._write(Comparison(False, False, (lone,)))
        else:
            self._write(Unevaluated(reason))

    def _is_arbitrary(self, comparison: Comparison, a: list[Any], sample: Sample) -> bool:
        """Whether only outputs differ that depend on memory that the first graph never wrote."""
        return not self._not_arbitrary(comparison.differences, a, sample)

    def _not_arbitrary(
        self, differences: Sequence[Difference], a: list[Any], sample: Sample
    ) -> tuple[Difference, ...]:
        """Return differences of outputs that do not depend on memory that nobody wrote."""
        with filled_buffers():
            again = self.plain.values(0, sample)
        if isinstance(again, Exception):
            return ()
        repeated = self._compare(a, again, replace(sample, specials=False))
        changed = {item.output for item in repeated.differences}
        return tuple(item for item in differences if item.output not in changed)

    def _compare(self, a: list[Any], b: list[Any], sample: Sample) -> Comparison:
        request = self.request
        return compare(a, b, sample, self.outputs, request.names, request.rtol)

    def _write(self, entry: Entry) -> None:
        self.record.write(to_line(entry) + "\n")
        self.record.flush()


def _both_raise(a: str, b: str) -> str:
    told = f"both raise {a}" if a == b else f"the first graph raises {a}, the second {b}"
    return f"in the rest {told}"


def _one_raises(a: Any, b: Any, sample: Sample) -> Difference:
    a_raises = isinstance(a, Exception)
    return Difference(
        kind=DifferenceKind.ONLY_A_RAISES if a_raises else DifferenceKind.ONLY_B_RAISES,
        run=sample.run,
        arguments=sample.text,
        a=error_text(a) if a_raises else "values",
        b="values" if a_raises else error_text(b),
    )


def _fails(mode: str, rewrite: str, error: BaseException | None) -> Difference:
    return Difference(
        kind=DifferenceKind.REWRITE_FAILS,
        run=None,
        mode=mode,
        arguments="",
        a="works",
        b="fails" if error is None else error_text(error),
        rewrite=rewrite,
    )


def error_text(error: BaseException) -> str:
    """Return an error's class and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__

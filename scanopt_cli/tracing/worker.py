"""The child process: it runs loops step by step, and writes what they compute beside its record."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from pytensor.configdefaults import config
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.analysis.named_loops import named_loops
from scanopt_cli.serialization.payload import decode
from scanopt_cli.tracing.child import FACTS, VALUES
from scanopt_cli.tracing.comparing import LoopsOfTwo
from scanopt_cli.tracing.nan_result import FirstNan
from scanopt_cli.tracing.nan_search import NanSearch
from scanopt_cli.tracing.reaching import Outside, UnreachableError, holders
from scanopt_cli.tracing.recording import Recording, TooLargeError, node_names, record
from scanopt_cli.tracing.requests import Arguments, DifferenceRequest, NanRequest, TraceRequest
from scanopt_cli.tracing.result import FirstDifference
from scanopt_cli.tracing.stepping import StepFunction, StepGraph
from scanopt_cli.tracing.values import npz
from scanopt_cli.verification.arguments import Setting, UndrawableError, attempts, draw
from scanopt_cli.verification.child_record import Doing, Done, Entry, Failed, to_line
from scanopt_cli.verification.input_constraints import input_constraints
from scanopt_cli.verification.worker import carry_out, error_text, needs_c


def main(directory: str) -> None:
    """Carry out the request in ``directory``."""
    carry_out(directory, lambda request, file: _Session(request, file, Path(directory)).run())


class _Session:
    """Carries out one request."""

    def __init__(
        self, request: TraceRequest | DifferenceRequest | NanRequest, file: TextIO, directory: Path
    ) -> None:
        self._request = request
        self._file = file
        self._directory = directory

    def run(self) -> None:
        request = self._request
        graphs = [decode(tables, "the request").fgraph for tables in request.graphs]
        self._with_c = any(map(needs_c, graphs))
        if self._with_c and not config.cxx:
            self._write(Failed("the graph was compiled for C, and needs it"))
            return
        try:
            if isinstance(request, TraceRequest):
                self._trace(request, graphs[0])
            elif isinstance(request, NanRequest):
                self._find_nan(request, graphs[0])
            else:
                self._compare(request, graphs)
            self._write(Done())
        except MemoryError as error:
            self._write(Failed(f"out of memory: {error_text(error)}"))
        except TooLargeError:
            self._write(Failed("the values of all steps take more than 256 MB; ask for fewer"))
        except UnreachableError as error:
            self._write(Failed(str(error)))
        except UndrawableError as error:
            self._write(Failed(f"{error}; give arguments"))
        except Exception as error:
            self._write(Failed(error_text(error)))

    def _write(self, entry: Entry) -> None:
        self._file.write(to_line(entry) + "\n")
        self._file.flush()

    def _trace(self, request: TraceRequest, fgraph: FunctionGraph) -> None:
        self._write(Doing("compiling the graph around the loops"))
        known = list(named_loops(fgraph, each_place=True))
        wanted = [(known[loop.position], loop) for loop in request.loops]
        first = [(*holders(loop), loop.view.node)[0] for loop, _ in wanted]
        outside = Outside(fgraph.inputs, first, with_c=self._with_c)
        functions = [
            StepFunction(
                StepGraph.of(loop.view.op.fgraph), notes_nodes=request.inner, with_c=self._with_c
            )
            for loop, _ in wanted
        ]

        def trace(values: tuple[Any, ...]) -> list[Recording]:
            self._write(Doing("evaluating the graph around the loops"))
            around = outside.values(values)
            found = []
            for (loop, how), function in zip(wanted, functions, strict=True):
                self._write(Doing(f"running {loop.title}"))
                slots = [loop.view.slots[place] for place in how.slots]
                nodes = node_names(loop) if request.inner else {}
                read = outside.into(loop, around, how.outer_steps)
                found.append(record(loop, function, read, slots, request.steps, nodes=nodes))
            return found

        def is_good(found: list[Recording]) -> bool:
            return all(one.error is None and one.is_finite and one.count for one in found)

        recordings, text = self._on_arguments(request.arguments, [fgraph], trace, is_good)
        facts: list[Any] = []
        arrays: dict[str, np.ndarray] = {}
        for place, one in enumerate(recordings):
            told, values = one.written(str(place), request.steps)
            facts.append(told)
            arrays |= values
        self._save({"arguments": text, "loops": facts}, arrays)

    def _compare(self, request: DifferenceRequest, graphs: list[FunctionGraph]) -> None:
        self._write(Doing("matching the loops"))
        loops = LoopsOfTwo(*graphs, with_c=self._with_c)

        def compare(values: tuple[Any, ...]) -> FirstDifference:
            self._write(Doing("running the loops side by side"))
            return loops.compare(values)

        found, text = self._on_arguments(
            request.arguments, graphs, compare, lambda found: found.steps > 0
        )
        self._save(asdict(found) | {"arguments": text}, {})

    def _find_nan(self, request: NanRequest, fgraph: FunctionGraph) -> None:
        self._write(Doing("compiling the graph"))
        search = NanSearch(
            fgraph,
            allow_inf=request.allow_inf,
            masked=request.masked,
            with_c=self._with_c,
        )

        def find(values: tuple[Any, ...]) -> FirstNan:
            self._write(Doing("running the graph"))
            return search.find(values)

        found, text = self._on_arguments(request.arguments, [fgraph], find, lambda _: True)
        self._save(asdict(found) | {"arguments": text}, {})

    def _save(self, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        (self._directory / VALUES).write_bytes(npz(arrays))
        (self._directory / FACTS).write_text(json.dumps(facts))

    def _on_arguments[F](
        self,
        arguments: Arguments,
        graphs: list[FunctionGraph],
        evaluate: Callable[[tuple[Any, ...]], F],
        is_good: Callable[[F], bool],
    ) -> tuple[F, str]:
        """Return what is found on the arguments, and where these are from.

        If they are drawn, those are taken on which all runs and is finite, else those on which it
        runs.
        """
        if arguments.values is not None:
            return evaluate(deepcopy(arguments.values)), arguments.text
        fallback: tuple[F, str] | None = None
        first: Exception | None = None
        for text, values in _drawn(arguments, graphs):
            try:
                found = evaluate(values)
            except (MemoryError, TooLargeError):
                raise
            except Exception as error:
                # Arguments that fit no graph say less than a loop that is never run.
                if first is None or isinstance(error, UnreachableError):
                    first = error
                continue
            if is_good(found):
                return found, text
            fallback = fallback or (found, text)
        if fallback is None:
            raise first or UndrawableError("no arguments can be drawn")
        return fallback


def _drawn(
    arguments: Arguments, graphs: list[FunctionGraph]
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    constraints = input_constraints(graphs)
    types = [variable.type for variable in graphs[0].inputs]
    rng = np.random.default_rng(arguments.seed)
    for way in attempts(Setting(contents=True), recorded=False):
        yield (
            f"{way}, seed {arguments.seed}",
            draw(way, constraints, types, arguments.contents, (), rng),
        )

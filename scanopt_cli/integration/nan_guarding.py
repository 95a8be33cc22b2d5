"""`nan_guard`: functions that say where a NaN or infinity that they return was made.

What a compiled function returns is checked after each call, which costs little beside the loops in
it. Only if it is bad, the graph that the program compiled, as it was before PyTensor rewrote it, is
run again on the same values, step by step in Python, in a child process.
"""

from __future__ import annotations

import copyreg
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from pytensor.compile import executor
from pytensor.compile.executor import Function
from pytensor.compile.io import SymbolicOutput
from pytensor.compile.maker import FunctionMaker
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.analysis.provenance.locating import locate
from scanopt_cli.errors import NanError, ScanoptError
from scanopt_cli.integration.capture.hooks import listen, stop_listening
from scanopt_cli.integration.scan_calls import recorded_scan_calls
from scanopt_cli.ir.graph import Graph, as_graph
from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.ir.scan_view import is_loop
from scanopt_cli.ir.written import caller
from scanopt_cli.presentation import Presented, line_of
from scanopt_cli.text import at_place, few
from scanopt_cli.tracing.finding_nan import allows_inf, first_nan
from scanopt_cli.tracing.nan_result import FirstNan

_lock = threading.Lock()
_NAMED = 3


class NanGuard(Presented):
    """What the functions compiled inside of a block of `nan_guard` returned.

    Attributes
    ----------
    functions
        How many functions with loops were compiled.
    found
        What was found, one for each call that returned a NaN or infinity.
    """

    def __init__(self, *, allow_inf: bool, raises: bool) -> None:
        self.functions = 0
        self.found: list[FirstNan] = []
        self.allow_inf = allow_inf
        self.raises = raises
        self._graphs: WeakKeyDictionary[FunctionGraph, Graph] = WeakKeyDictionary()

    def compiling(
        self,
        fgraph: FunctionGraph,
        outputs: Sequence[SymbolicOutput],  # noqa: ARG002
        name: str | None,
    ) -> None:
        """Keep a graph with loops as the program built it."""
        if not any(map(is_loop, walk(fgraph))):
            return
        # Copies of shared variables have no default updates: here, updates are outputs.
        copied, _ = fgraph.clone_get_equiv(check_integrity=False, attach_feature=False)
        asked = caller()
        place = "" if asked is None else at_place(asked.place)
        graph = as_graph(copied, source=(name or "a function") + place)
        locate(graph.fgraph)
        self._graphs[fgraph] = graph

    def create(self, maker: FunctionMaker, make: Callable[[], Any]) -> Any:
        """Return the function that ``make`` makes; with loops, it checks what it returns."""
        graph = self._graphs.pop(maker.fgraph, None)
        if graph is None or maker.function_class is not Function:
            return make()
        maker.function_class = GuardedFunction
        try:
            function = make()
        finally:
            maker.function_class = Function
        self.functions += 1
        function.guard, function.graph = self, graph
        return function

    def is_bad(self, values: Sequence[Any]) -> bool:
        """Whether a result is a NaN, or an infinity that is not allowed."""
        return any(map(self._is_bad, values))

    def _is_bad(self, value: Any) -> bool:
        if not isinstance(value, np.ndarray | np.generic) or value.dtype.kind not in "fc":
            return False
        # The sum tells at once that all entries are finite; if it is not, it may have overflowed.
        with np.errstate(all="ignore"):
            if np.isfinite(np.sum(value)):
                return False
            bad = np.isnan(value) if self.allow_inf else ~np.isfinite(value)
        return bool(np.any(bad))

    def tell(self, graph: Graph, values: tuple[Any, ...]) -> None:
        """Find where a NaN was made, and raise an error that says so, or warn.

        Raises
        ------
        NanError
            If that is wanted.
        """
        recorded = replace(graph, recorded=(values,))
        found: FirstNan | None = None
        hint = None
        try:
            found = first_nan(recorded, allow="inf" if self.allow_inf else ())
        except ScanoptError as error:
            what = f"a NaN was returned, and the graph could not be run again: {error}"
        else:
            found = replace(found, arguments="the values of the call")
            self.found.append(found)
            what = line_of(found)
            if found.node is not None:
                read = [f"{one.name} = {one.value}" for one in found.node.inputs]
                hint = f"it reads {few(read, _NAMED)}" if read else None
            if not found.is_bad:
                what = "compiled, it returns a NaN or infinity; as it stands, it does not"
                hint = "rewrites made it: compare modes by scanopt verify"
        told = NanError(what, where=graph.source, hint=hint)
        told.found = found
        if self.raises:
            raise told
        warnings.warn(str(told), RuntimeWarning, stacklevel=3)


class GuardedFunction(Function):
    """A function that checks what it returns; copied or pickled it is a plain one."""

    guard: NanGuard
    graph: Graph

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function; errors as of `NanGuard.tell`."""
        vm: Any = self.vm
        bad: list[tuple[Any, ...]] = []

        def run() -> Any:
            self.vm = vm
            values = self._values()
            results = vm()
            cells = (container.storage[0] for container in self.output_storage)
            if self.guard.is_bad(list(cells) if results is None else results):
                bad.append(values)
            return results

        # PyTensor checks and stores the arguments, then calls the vm: there, all values are final.
        self.vm = run  # type: ignore[assignment]
        try:
            found = super().__call__(*args, **kwargs)
        finally:
            self.vm = vm
        for values in bad:
            self.guard.tell(self.graph, tuple(map(deepcopy, values)))
        return found

    def _values(self) -> tuple[Any, ...]:
        """Return what the inputs are, copies of those that the function may overwrite."""
        pairs = zip(self.maker.expanded_inputs, self.input_storage, strict=True)
        return tuple(
            deepcopy(container.storage[0])
            if spec.mutable or spec.update is not None
            else container.storage[0]
            for spec, container in pairs
        )


copyreg.pickle(GuardedFunction, executor._pickle_Function)


@contextmanager
def nan_guard(*, allow: str | Sequence[str] = (), raises: bool = True) -> Iterator[NanGuard]:
    """Let functions that are compiled inside of the ``with`` block say where a NaN was made.

    ::

        with scanopt_cli.nan_guard():
            dlogp = model.compile_dlogp()
        dlogp(point)

    A function with loops checks what it returns, after the block as well, in any mode. If that is
    NaN or infinite, the graph is run again on the same values, step by step in Python, and
    `NanError` says in which step of which loop it was made, by what, and from which numbers. What
    reaches no result is no error. Functions that are passed on compiled, as to nutpie, are not
    checked.

    Parameters
    ----------
    allow
        ``inf``: infinities are as good as numbers.
    raises
        Whether to raise an error; otherwise, a warning is given.

    Yields
    ------
    NanGuard
        The record of what was found.

    Raises
    ------
    ScanoptError
        If something else than ``inf`` is allowed.
    """
    guard = NanGuard(allow_inf=allows_inf(allow), raises=raises)
    listen(guard)
    try:
        with recorded_scan_calls(), _guarded_functions(guard):
            yield guard
    finally:
        stop_listening(guard)


_guards: list[NanGuard] = []
_original: list[Callable[..., Any]] = []


@contextmanager
def _guarded_functions(guard: NanGuard) -> Iterator[None]:
    """Give new functions to ``guard``; blocks may be nested, and the innermost counts."""
    with _lock:
        if not _guards:
            _original.append(FunctionMaker.create)
            FunctionMaker.create = _creating(FunctionMaker.create)  # type: ignore[method-assign]
        _guards.append(guard)
    try:
        yield
    finally:
        with _lock:
            _guards.remove(guard)
            if not _guards:
                FunctionMaker.create = _original.pop()  # type: ignore[method-assign]


def _creating(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def create(maker: FunctionMaker, *args: Any, **kwargs: Any) -> Any:
        innermost = _guards[-1] if _guards else None
        if innermost is None:
            return original(maker, *args, **kwargs)
        return innermost.create(maker, lambda: original(maker, *args, **kwargs))

    return create

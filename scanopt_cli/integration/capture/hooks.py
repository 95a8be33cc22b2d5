"""Where scanopt listens in PyTensor: what is compiled, and what it is first called with.

Every compilation goes through ``FunctionMaker.create_fgraph``, which builds the graph that the
rewrites then work on: `givens` are applied, updates are among the outputs, nothing is optimized.
A caller that already has a graph passes it in (the bodies of loops, copies of functions); those
are no new graphs. The hook is on the class, so it does not matter how a program got hold of
``pytensor.function``. The first call is seen from inside ``Function.__call__``, where all values,
shared variables included, lie ready in the function's storage.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from pytensor.compile.executor import Function
from pytensor.compile.io import SymbolicInput, SymbolicOutput
from pytensor.compile.maker import FunctionMaker
from pytensor.graph.fg import FunctionGraph

type FirstCall = Callable[[Sequence[Any]], None]
"""Takes the values of all inputs of a graph, in order, when its function is first called."""


class Listener(Protocol):
    """What is told of compilations. Its methods must not raise."""

    def compiling(
        self, fgraph: FunctionGraph, outputs: Sequence[SymbolicOutput], name: str | None
    ) -> FirstCall | None:
        """Look at an unoptimized graph, without changing it; say who wants its first call.

        ``outputs`` are the outputs that the program asked for; those of ``fgraph`` behind them
        are updates. ``name`` is the function's name.
        """


_listeners: list[Listener] = []
_lock = threading.Lock()
_names = threading.local()
_waiting: WeakKeyDictionary[FunctionGraph, list[FirstCall]] = WeakKeyDictionary()
_originals: dict[tuple[type, str], Any] = {}


def listen(listener: Listener) -> None:
    """Tell ``listener`` of every compilation from now on."""
    with _lock:
        if not _listeners:
            _replace(FunctionMaker, "__init__", _remembering_name(FunctionMaker.__init__))
            _replace(
                FunctionMaker,
                "create_fgraph",
                staticmethod(_telling(FunctionMaker.create_fgraph)),
            )
            _replace(Function, "__call__", _showing_values(Function.__call__))
        _listeners.append(listener)


def stop_listening(listener: Listener) -> None:
    """Undo `listen`; with the last listener PyTensor is as it was."""
    with _lock:
        _listeners.remove(listener)
        if not _listeners:
            for (owner, name), original in _originals.items():
                setattr(owner, name, original)
            _originals.clear()
            _waiting.clear()


def _replace(owner: type, name: str, hook: Any) -> None:
    _originals[owner, name] = vars(owner)[name]
    setattr(owner, name, hook)


def _remembering_name(original: Callable[..., None]) -> Callable[..., None]:
    @wraps(original)
    def initialize(maker: FunctionMaker, *args: Any, **kwargs: Any) -> None:
        outer = getattr(_names, "current", None)
        _names.current = kwargs.get("name")
        try:
            original(maker, *args, **kwargs)
        finally:
            _names.current = outer

    return initialize


def _telling(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def create_fgraph(
        input_specs: list[SymbolicInput],
        output_specs: list[SymbolicOutput],
        accept_inplace: bool = False,
        fgraph: FunctionGraph | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        made = original(input_specs, output_specs, accept_inplace, fgraph, *args, **kwargs)
        if fgraph is None:
            name = getattr(_names, "current", None)
            told = [listener.compiling(made[0], output_specs, name) for listener in _listeners]
            wanted = [first_call for first_call in told if first_call is not None]
            if wanted:
                _waiting[made[0]] = wanted
        return made

    return create_fgraph


def _showing_values(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def call(function: Function, *args: Any, **kwargs: Any) -> Any:
        fgraph = function.maker.fgraph
        if fgraph not in _waiting:
            return original(function, *args, **kwargs)
        vm: Any = function.vm

        def show_and_run() -> Any:
            function.vm = vm
            values = [container.storage[0] for container in function.input_storage]
            for first_call in _waiting.pop(fgraph, ()):
                first_call(values)
            return vm()

        # PyTensor checks and stores the arguments, then calls the vm: there, all values are final.
        function.vm = show_and_run  # type: ignore[assignment]
        try:
            return original(function, *args, **kwargs)
        finally:
            function.vm = vm

    return call

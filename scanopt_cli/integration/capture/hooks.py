"""Hooks in PyTensor that report each compiled graph and the values of its first call.

Every compilation goes through ``FunctionMaker.create_fgraph``, which builds the graph that the
rewrites then work on: `givens` are applied, updates are among the outputs, nothing is optimized.
A caller that already has a graph passes it in (the bodies of loops, copies of functions); such
graphs are not new and are not reported. The hook is on the class, so it works however a program
imported ``pytensor.function``. The first call is observed inside ``Function.__call__``, where the
function's storage holds all values, shared variables included.
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
"""Receives the values of all inputs of a graph, in order, at the first call of its function."""


class Listener(Protocol):
    """An object that is notified of compilations. Its methods must not raise."""

    def compiling(
        self, fgraph: FunctionGraph, outputs: Sequence[SymbolicOutput], name: str | None
    ) -> FirstCall | None:
        """Read an unoptimized graph, without changing it; return a callback for its first call.

        ``outputs`` are the outputs that the program asked for; the further outputs of ``fgraph``
        are updates. ``name`` is the function's name. ``None`` means no callback.
        """


_listeners: list[Listener] = []
_lock = threading.Lock()
_names = threading.local()
_waiting: WeakKeyDictionary[FunctionGraph, list[FirstCall]] = WeakKeyDictionary()
_originals: dict[tuple[type, str], Any] = {}


def listen(listener: Listener) -> None:
    """Notify ``listener`` of every compilation from now on."""
    with _lock:
        if not _listeners:
            _replace(FunctionMaker, "__init__", _remembering_name)
            _replace(FunctionMaker, "create_fgraph", _notifying)
            _replace(Function, "__call__", _reporting_first_call)
        _listeners.append(listener)


def stop_listening(listener: Listener) -> None:
    """Undo `listen`; after the last listener, PyTensor is as it was before the first."""
    with _lock:
        _listeners.remove(listener)
        if not _listeners:
            for (owner, name), original in _originals.items():
                setattr(owner, name, original)
            _originals.clear()
            _waiting.clear()


def _replace(
    owner: type, name: str, hooked: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> None:
    """Put what ``hooked`` makes of a method in its place."""
    found = _originals[owner, name] = vars(owner)[name]
    original = getattr(owner, name)
    hook = wraps(original)(hooked(original))
    setattr(owner, name, staticmethod(hook) if isinstance(found, staticmethod) else hook)


def _remembering_name(original: Callable[..., None]) -> Callable[..., None]:
    def initialize(maker: FunctionMaker, *args: Any, **kwargs: Any) -> None:
        outer = getattr(_names, "current", None)
        _names.current = kwargs.get("name")
        try:
            original(maker, *args, **kwargs)
        finally:
            _names.current = outer

    return initialize


def _notifying(original: Callable[..., Any]) -> Callable[..., Any]:
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
            # A copy: another thread may stop listening meanwhile.
            listeners = tuple(_listeners)
            answers = [one.compiling(made[0], output_specs, name) for one in listeners]
            callbacks = [first_call for first_call in answers if first_call is not None]
            if callbacks:
                _waiting[made[0]] = callbacks
        return made

    return create_fgraph


def _reporting_first_call(original: Callable[..., Any]) -> Callable[..., Any]:
    def call(function: Function, *args: Any, **kwargs: Any) -> Any:
        fgraph = function.maker.fgraph
        if fgraph not in _waiting:
            return original(function, *args, **kwargs)
        vm: Any = function.vm

        def report_and_run() -> Any:
            function.vm = vm
            values = [container.storage[0] for container in function.input_storage]
            for first_call in _waiting.pop(fgraph, ()):
                first_call(values)
            return vm()

        # PyTensor checks and stores the arguments, then calls the vm: there, all values are final.
        function.vm = report_and_run  # type: ignore[assignment]
        try:
            return original(function, *args, **kwargs)
        finally:
            function.vm = vm

    return call

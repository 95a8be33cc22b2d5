"""Hooks in PyTensor that report each compiled graph and the values of its first call.

Every compilation goes through ``FunctionMaker.create_fgraph``, which builds the graph that the
rewrites then work on: `givens` are applied, updates are among the outputs, nothing is optimized.
A caller that already has a graph passes it in (the bodies of loops, copies of functions); such
graphs are not new and are not reported. The hook is on the class, so it works however a program
imported ``pytensor.function``. The first call is observed inside ``Function.__call__``, where the
function's storage holds all values, shared variables included.

A `Watch` is also told how long the compilation took, that is all of ``FunctionMaker.__init__`` and
``create``, how long the first call took, and which of them raised an error.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from pytensor.compile.executor import Function
from pytensor.compile.io import SymbolicInput, SymbolicOutput
from pytensor.compile.maker import FunctionMaker
from pytensor.graph.fg import FunctionGraph

type FirstCall = Callable[[Sequence[Any]], None]
"""Receives the values of all inputs of a graph, in order, at the first call of its function."""


class Watch(ABC):
    """Follows what becomes of one compilation. Its methods must not raise."""

    @abstractmethod
    def __call__(self, values: Sequence[Any]) -> None:
        """Note that the first call begins, as a `FirstCall` does."""

    @abstractmethod
    def compiled(self, seconds: float) -> None:
        """Note that the function is made."""

    @abstractmethod
    def called(self, seconds: float) -> None:
        """Note that the first call has returned."""

    @abstractmethod
    def failed(self, what: str, error: BaseException) -> None:
        """Note that the ``compilation``, or the ``first call``, has raised an error."""


class Listener(Protocol):
    """An object that is notified of compilations. Its methods must not raise."""

    def compiling(
        self, fgraph: FunctionGraph, outputs: Sequence[SymbolicOutput], name: str | None
    ) -> FirstCall | None:
        """Read an unoptimized graph, without changing it; return a callback for its first call.

        ``outputs`` are the outputs that the program asked for; the further outputs of ``fgraph``
        are updates. ``name`` is the function's name. ``None`` means no callback; a `Watch` is told
        of more than the call.
        """


@dataclass(slots=True)
class _Making:
    """A maker at work: the name of its function, who watches it, and how long it took so far."""

    name: str | None
    mode: Any
    watches: list[Watch] = field(default_factory=list)
    seconds: float = 0.0

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Add the time of what is done inside, and tell of an error that it raises."""
        start = time.perf_counter()
        try:
            yield
        except BaseException as error:
            for watch in self.watches:
                watch.failed("compilation", error)
            raise
        finally:
            self.seconds += time.perf_counter() - start


_listeners: list[Listener] = []
_lock = threading.Lock()
_makers = threading.local()
_waiting: WeakKeyDictionary[FunctionGraph, list[FirstCall]] = WeakKeyDictionary()
_unmade: WeakKeyDictionary[FunctionMaker, _Making] = WeakKeyDictionary()
_originals: dict[tuple[type, str], Any] = {}


def listen(listener: Listener) -> None:
    """Notify ``listener`` of every compilation from now on."""
    with _lock:
        if not _listeners:
            _replace(FunctionMaker, "__init__", _timing)
            _replace(FunctionMaker, "create", _telling)
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
            _unmade.clear()


def _replace(
    owner: type, name: str, hooked: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> None:
    """Put what ``hooked`` makes of a method in its place."""
    found = _originals[owner, name] = vars(owner)[name]
    original = getattr(owner, name)
    hook = wraps(original)(hooked(original))
    setattr(owner, name, staticmethod(hook) if isinstance(found, staticmethod) else hook)


def mode_of_compilation() -> Any:
    """Return the mode of the compilation that a listener is told of, as the program gave it."""
    making: _Making | None = getattr(_makers, "current", None)
    return making and making.mode


def _timing(original: Callable[..., None]) -> Callable[..., None]:
    def initialize(maker: FunctionMaker, *args: Any, **kwargs: Any) -> None:
        outer = getattr(_makers, "current", None)
        mode = kwargs.get("mode", args[2] if len(args) > 2 else None)
        making = _makers.current = _Making(kwargs.get("name"), mode)
        try:
            with making.timed():
                original(maker, *args, **kwargs)
        finally:
            _makers.current = outer
        if making.watches:
            _unmade[maker] = making

    return initialize


def _telling(original: Callable[..., Any]) -> Callable[..., Any]:
    def create(maker: FunctionMaker, *args: Any, **kwargs: Any) -> Any:
        making = _unmade.pop(maker, None)
        if making is None:
            return original(maker, *args, **kwargs)
        with making.timed():
            made = original(maker, *args, **kwargs)
        for watch in making.watches:
            watch.compiled(making.seconds)
        return made

    return create


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
            making = getattr(_makers, "current", None) or _Making(None, None)
            # A copy: another thread may stop listening meanwhile.
            listeners = tuple(_listeners)
            answers = [one.compiling(made[0], output_specs, making.name) for one in listeners]
            callbacks = [first_call for first_call in answers if first_call is not None]
            if callbacks:
                _waiting[made[0]] = callbacks
                making.watches.extend(each for each in callbacks if isinstance(each, Watch))
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
            callbacks = _waiting.pop(fgraph, [])
            for first_call in callbacks:
                first_call(values)
            with _timed_call([each for each in callbacks if isinstance(each, Watch)]):
                return vm()

        # PyTensor checks and stores the arguments, then calls the vm: there, all values are final.
        function.vm = report_and_run  # type: ignore[assignment]
        try:
            return original(function, *args, **kwargs)
        finally:
            function.vm = vm

    return call


@contextmanager
def _timed_call(watches: list[Watch]) -> Iterator[None]:
    """Tell ``watches`` how long the first call took, or what it raised."""
    start = time.perf_counter()
    try:
        yield
    except BaseException as error:
        for watch in watches:
            watch.failed("first call", error)
        raise
    for watch in watches:
        watch.called(time.perf_counter() - start)

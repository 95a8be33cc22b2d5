"""Record where ``scan`` is called, and what the step calls its arguments, while a program runs.

PyTensor does not keep the names, and no place of a loop inside of another one. Both are read off
the call of ``scan`` that makes a Scan: its frame knows the step, what it was given, and which inner
input that became. Loops that rewrites make of others are told where those were written.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from itertools import takewhile
from operator import itemgetter
from typing import Any

from pytensor.graph.basic import FrozenApply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.scan.basic import scan
from pytensor.scan.op import Scan

from scanopt_cli.integration.density_loops import of_density
from scanopt_cli.integration.replaced_loops import handing_on, keeping_apart, of_log_density
from scanopt_cli.ir.scan_view import inner_slots
from scanopt_cli.ir.written import Written, caller, mark

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

_lock = threading.Lock()
_users = 0
_original: Any = None
_replace: Any = None
_freeze: Any = None


@contextmanager
def recorded_scan_calls() -> Iterator[None]:
    """Let each Scan that ``scan`` makes in a block say where it was written."""
    begin()
    try:
        yield
    finally:
        end()


def begin() -> None:
    """Let each Scan that ``scan`` makes say where it was written, until as many calls of `end`."""
    global _users, _original, _replace, _freeze
    with _lock:
        _users += 1
        if _users == 1:
            _original = Scan.__init__
            Scan.__init__ = _recording(_original)  # type: ignore[method-assign]
            _replace = FunctionGraph.replace
            FunctionGraph.replace = handing_on(_replace)  # type: ignore[method-assign]
            _freeze = FrozenApply.__new__
            FrozenApply.__new__ = keeping_apart(_freeze)  # type: ignore[method-assign]


def end() -> None:
    """Undo one call of `begin`."""
    global _users
    with _lock:
        _users -= 1
        if not _users:
            Scan.__init__ = _original  # type: ignore[method-assign]
            FunctionGraph.replace = _replace  # type: ignore[method-assign]
            FrozenApply.__new__ = _freeze  # type: ignore[method-assign]


def _recording(original: Callable[..., None]) -> Callable[..., None]:
    @wraps(original)
    def initialize(op: Scan, *args: Any, **kwargs: Any) -> None:
        original(op, *args, **kwargs)
        frame = sys._getframe(1)
        # A program shall not fail for what is only shown.
        with suppress(Exception):
            if frame.f_code is scan.__code__:
                place = of_density(frame) or caller() or Written("", 0, "")
                mark(op, place._replace(arguments=_arguments(op, frame.f_locals)))
            else:
                of_log_density(op, frame)

    return initialize


def _arguments(op: Scan, values: Any) -> tuple[str | None, ...]:
    """Return what the step calls what each slot reads, given the variables of a call of ``scan``.

    A slot with several taps has the name of its newest row. Of a step that takes any number of
    arguments, those in front have names.
    """
    given, inner, replaced = values["args"], values["inner_inputs"], values["inner_replacements"]
    names = dict(zip(given, _parameters(values["fn"]), strict=False))
    called = {replaced.get(v, v): name for v, name in names.items()}
    rows: Iterator[Variable] = iter(inner)
    found: list[str | None] = []
    for slot in inner_slots(op):
        read: Sequence[Variable] = [next(rows) for _ in slot.inner_inputs]
        places = range(len(read)) if len(slot.taps) != len(read) else slot.taps
        newest = max(zip(places, read, strict=True), default=None, key=itemgetter(0))
        found.append(None if newest is None else called.get(newest[1]))
    return tuple(found) if any(found) else ()


def _parameters(step: Callable[..., Any]) -> list[str]:
    """Return the names of the positional parameters of a step."""
    parameters = inspect.signature(step).parameters.values()
    return [p.name for p in takewhile(lambda p: p.kind in _POSITIONAL, parameters)]

"""Starts scanopt with PyTensor in the programs that ``capture`` and ``bisect --check`` run.

Python imports a module of this name at startup, from the first directory of its path that has one.
This file imports scanopt only once PyTensor is imported: the program's interpreter may not have
scanopt installed, and a program that never imports PyTensor pays only for the comparison of each
name that it imports.
"""

import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

_CAPTURE = "SCANOPT_CAPTURE"
_GATE = "SCANOPT_GATE"


class _PyTensorWatcher:
    """Acts as soon as PyTensor is imported."""

    @classmethod
    def find_spec(cls, name: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
        if name != "pytensor":
            return None
        sys.meta_path.remove(cls)
        spec = importlib.util.find_spec(name)
        loader: Any = spec.loader if spec is not None else None
        if loader is not None:
            execute = loader.exec_module

            def execute_and_start(module: ModuleType) -> None:
                execute(module)
                _start()

            loader.exec_module = execute_and_start
        return spec


def _start() -> None:
    """Do in this process, until it exits, what the variables say."""
    for variable, begin, tell in (
        (_CAPTURE, _capture, _print),
        (_GATE, _limit_rewrites, _write),
    ):
        directory = os.environ.get(variable)
        if directory:
            _begin(begin, tell, directory, is_importing="scanopt_cli" in sys.modules)


def _begin(
    begin: Callable[[str], None],
    tell: Callable[[str, str], None],
    directory: str,
    *,
    is_importing: bool,
) -> None:
    """Begin now; or at the first compilation, if a part of scanopt has imported PyTensor."""
    try:
        begin(directory)
    except Exception as error:
        if is_importing:
            _at_first_compilation(lambda: _begin(begin, tell, directory, is_importing=False))
        else:
            tell(directory, _no_scanopt(error))


def _at_first_compilation(act: Callable[[], None]) -> None:
    from pytensor.compile.maker import FunctionMaker

    original: Any = FunctionMaker.__init__
    waiting = [act]

    def initialize(maker: Any, *args: Any, **kwargs: Any) -> None:
        if waiting:
            waiting.pop()()
            FunctionMaker.__init__(maker, *args, **kwargs)  # which is another one now
        else:
            original(maker, *args, **kwargs)

    FunctionMaker.__init__ = initialize  # type: ignore[method-assign, assignment]


def _print(_: str, why: str) -> None:
    print(f"scanopt: nothing is captured: {why}", file=sys.stderr)


def _write(directory: str, why: str) -> None:
    with open(os.path.join(directory, "failed"), "w") as file:  # the streams are the command's own
        file.write(why)


def _no_scanopt(error: Exception) -> str:
    return f"{sys.executable} cannot use scanopt ({error}); install scanopt beside PyTensor there"


def _capture(directory: str) -> None:
    """Keep every graph with a loop that is compiled."""
    from scanopt_cli.integration.capture.hooks import listen
    from scanopt_cli.integration.capture.recording import Capture
    from scanopt_cli.integration.scan_calls import begin

    begin()
    listen(Capture.of_environment(directory))


def _limit_rewrites(directory: str) -> None:
    """Count PyTensor's rewrites, and apply no more than the first so many."""
    from pathlib import Path

    from scanopt_cli.integration.limited_program import limit_rewrites

    limit_rewrites(Path(directory))


def _run_next() -> None:
    """Remove this directory from the path, and run the ``sitecustomize`` that it shadows."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize")
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.environ.get(_CAPTURE) or os.environ.get(_GATE):
    sys.meta_path.insert(0, _PyTensorWatcher)
_run_next()

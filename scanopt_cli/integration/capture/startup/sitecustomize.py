"""Switches capture on in the programs that ``scanopt capture -- ...`` runs.

Python imports a module of this name at startup, from the first directory of its path that has one.
This file imports scanopt only once PyTensor is imported: the program's interpreter may not have
scanopt installed, and a program that never imports PyTensor pays only for the comparison of each
name that it imports.
"""

import importlib.machinery
import importlib.util
import os
import sys
from types import ModuleType
from typing import Any

_VARIABLE = "SCANOPT_CAPTURE"


class _PyTensorWatcher:
    """Starts capture as soon as PyTensor is imported."""

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
                _start(os.environ[_VARIABLE])

            loader.exec_module = execute_and_start
        return spec


def _start(directory: str) -> None:
    """Capture in this process, until it exits."""
    try:
        from pathlib import Path

        from scanopt_cli.integration.capture.hooks import listen
        from scanopt_cli.integration.capture.recording import Capture
        from scanopt_cli.integration.scan_calls import begin

        begin()
        listen(Capture(Path(directory)))
    except Exception as error:
        print(
            f"scanopt: nothing is captured: {sys.executable} cannot use scanopt ({error}); "
            "install scanopt beside PyTensor there",
            file=sys.stderr,
        )


def _run_next() -> None:
    """Remove this directory from the path, and run the ``sitecustomize`` that it shadows."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize")
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.environ.get(_VARIABLE):
    sys.meta_path.insert(0, _PyTensorWatcher)
_run_next()

"""Run an action as soon as a module is imported, without importing it.

``startup/sitecustomize.py`` waits for PyTensor in the same way, in code of its own, because
it runs in interpreters that may not have scanopt.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any


def after_import(name: str, action: Callable[[], None]) -> None:
    """Call ``action`` once, when the module ``name`` has been imported; now if it already is."""
    module = sys.modules.get(name)
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        action()
    else:
        sys.meta_path.insert(0, _Watcher(name, action))


class _Watcher:
    """An import finder that delegates to the others, and acts once the module has executed."""

    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self._name = name
        self._action = action
        self._is_looking = False

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        if name != self._name or self._is_looking:
            return None
        self._is_looking = True
        try:
            spec = find_spec(name)
        finally:
            self._is_looking = False
        loader: Any = spec.loader if spec is not None else None
        if hasattr(loader, "exec_module"):
            execute = loader.exec_module

            def execute_and_act(module: ModuleType) -> None:
                execute(module)
                # A failed import may be tried again, so the watcher stays until one succeeds.
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                    self._action()

            loader.exec_module = execute_and_act
        return spec

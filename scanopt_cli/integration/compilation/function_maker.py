"""The methods of PyTensor's ``FunctionMaker`` that are replaced inside of `enabled`.

It asks here before it rewrites a graph and after it has linked it. A graph without a loop costs
nothing: what handles those with loops (`keeping`) is imported when the first one is compiled.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

from pytensor.compile.maker import FunctionMaker
from pytensor.compile.mode import Mode
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.integration.compilation.blocks import innermost
from scanopt_cli.integration.compilation.compilation_stages import has_loops, uses_passes
from scanopt_cli.ir.older_objects import older_objects_set_aside

_KEEPING = "scanopt_cli.integration.compilation.keeping"
_lock = threading.Lock()
_users = 0
_original: dict[str, Any] = {}


@contextmanager
def kept_compilations() -> Iterator[None]:
    """Let PyTensor ask here in a block of code."""
    global _users, _original
    with _lock:
        _users += 1
        if _users == 1:
            _original = {name: vars(FunctionMaker)[name] for name in _replaced}
            for name, replacing in _replaced.items():
                setattr(FunctionMaker, name, replacing(getattr(FunctionMaker, name)))
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                for name, method in _original.items():
                    setattr(FunctionMaker, name, method)


def _preparing(original: Callable[..., None]) -> Any:
    @wraps(original)
    def prepare_fgraph(
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        additional_outputs: Sequence[Any],
        fgraph: FunctionGraph,
        mode: Mode,
        profile: Any,
    ) -> None:
        def rewrite() -> None:
            original(inputs, outputs, additional_outputs, fgraph, mode, profile)

        block = innermost()
        if block is None or profile or not has_loops(fgraph) or not uses_passes(mode):
            rewrite()
            return
        from scanopt_cli.integration.compilation.keeping import rewrite_or_read

        with older_objects_set_aside():
            rewrite_or_read(rewrite, block, fgraph, mode, inputs, (*outputs, *additional_outputs))

    return staticmethod(prepare_fgraph)


def _creating(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def create(maker: FunctionMaker, *args: Any, **kwargs: Any) -> Any:
        keeping = sys.modules.get(_KEEPING)
        if keeping is None:
            return original(maker, *args, **kwargs)
        return keeping.link(maker, lambda: original(maker, *args, **kwargs))

    return create


_replaced: dict[str, Callable[[Any], Any]] = {"prepare_fgraph": _preparing, "create": _creating}
"""The methods that are replaced in a block, and by what."""

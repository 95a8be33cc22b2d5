"""What a process remembers of graphs, and how it forgets them.

A process that works on one graph after the other should do to each what it would do to that alone.
PyTensor keeps one node for equal nodes of bodies, and takes more for equal than are: 0.0 for -0.0,
say. So a graph whose body stays in memory may be confused with the next one. Bodies stay in cycles
that are not collected yet, in results that are remembered, and in PyTensor's rewriters: for each Op
that one meets it notes, without limit, which rewrites are for it, as long as the process runs.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from pytensor.graph.basic import FrozenApply
from pytensor.graph.rewriting.basic import OpToRewriterTracker

_MOST = 512
# What a weak dictionary has for what is collected is collected in the next round.
_ROUNDS = 5
# So many objects take garbage collection a few thousandths of a second.
_MANY = 20_000
_caches: list[Any] = []
_rewriters: list[OpToRewriterTracker] = []
"""The notes of rewriters that are set aside."""


def remembered[**P, R](function: Callable[P, R]) -> Callable[P, R]:
    """Remember the last results of a function of graphs, until `forget_graphs`."""
    cached: Any = lru_cache(maxsize=_MOST)(function)
    _caches.append(cached)
    return cached  # type: ignore[no-any-return]


def forget_graphs() -> None:
    """Forget the graphs that are gone, in a process that is scanopt's own.

    What is left, as of modules that were imported meanwhile, is set aside if it is much, so that
    garbage collection looks at what is newer: a few thousandths of a second.
    """
    for cache in _caches:
        cache.cache_clear()
    _forget_ops(_rewriters)
    _collect()
    left = len(gc.get_objects())
    if FrozenApply._cache or left > _MANY:
        newer = _newer_rewriters()
        _forget_ops(newer)
        _collect()
        if left > _MANY:
            _rewriters.extend(newer)
            gc.freeze()


def _newer_rewriters() -> list[OpToRewriterTracker]:
    return [each for each in gc.get_objects() if isinstance(each, OpToRewriterTracker)]


def _forget_ops(rewriters: list[OpToRewriterTracker]) -> None:
    for each in rewriters:
        # In other versions of PyTensor it may be a plain function.
        clear = getattr(each.get_trackers, "cache_clear", None)
        if clear is not None:
            clear()


def _collect() -> None:
    """Collect what nobody refers to, as long as any body is left."""
    for _ in range(_ROUNDS):
        if not (gc.collect() and FrozenApply._cache):
            return

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
from itertools import count
from typing import Any

from pytensor.graph.basic import FrozenApply
from pytensor.graph.rewriting.basic import OpToRewriterTracker

_MOST = 512
# What a weak dictionary has for what is collected is collected in the next round.
_ROUNDS = 5
_times = count(1)
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

    The first time, it looks through all objects of the process, which takes some hundredths of a
    second, and sets them aside; from then on, through those that are newer.
    """
    for cache in _caches:
        cache.cache_clear()
    number = next(_times)
    sets_aside = not number & (number - 1)  # ever more rarely, since ever less is new and stays
    if sets_aside:
        _rewriters.extend(_newer_rewriters())
    _forget_ops(_rewriters)
    _collect()
    if FrozenApply._cache and not sets_aside:
        _forget_ops(_newer_rewriters())
        _collect()
    if sets_aside:
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

"""Spare Python's garbage collection from looking at what was there before a compilation.

A compilation makes some hundred thousand objects, so Python looks now and then at all there is for
cycles that nobody refers to. Most exist since PyTensor, Numba and others were imported: one look at
them takes 0.15 s, a tenth of compiling a Kalman filter. What the compilation itself drops is still
collected while it runs, so memory does not grow; what was dropped before it is collected after it.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_NEW_OBJECTS = 10_000

_lock = threading.Lock()
_users = 0
_is_set_aside = False
_is_own = False


@contextmanager
def older_objects_set_aside() -> Iterator[None]:
    """Have garbage collection look only at objects that are made from here on, in a block of code.

    Blocks may be nested and run in several threads: the last one that ends gives the objects back.
    In a program that has set objects aside itself (``gc.freeze``), nothing is done, since giving
    ours back would give back its own.
    """
    global _users, _is_set_aside
    with _lock:
        _users += 1
        if _users == 1 and gc.isenabled() and not gc.get_freeze_count():
            gc.freeze()
            _is_set_aside = True
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users and _is_set_aside:
                gc.unfreeze()
                _is_set_aside = False


def collect_rarely() -> None:
    """Have garbage collection wait for more new objects, in a process that is scanopt's own.

    A pass copies whole graphs, so that Python looks at all objects again and again: up to a quarter
    of a command's time on graphs of ten thousand nodes.
    """
    global _is_own
    _is_own = True
    gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])


def is_own() -> bool:
    """Whether this process is scanopt's own, so that its garbage collection is ours to arrange."""
    return _is_own

"""Spare Python's garbage collection from looking at what was there before a compilation.

A compilation makes some hundred thousand objects, so Python looks now and then at all there is for
cycles that nobody refers to. Most exist since PyTensor, Numba and others were imported: one look at
them takes 0.15 s, a tenth of compiling a Kalman filter. What the compilation itself drops is still
collected while it runs, so memory does not grow; what was dropped before it is collected after it.

Python looks at new objects whenever there are 2,000 more, most of which a compilation still needs.
Here it looks less often.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_MANY = 50_000
"""So many more objects, some 10 MB, are made before Python looks for those to collect."""

_lock = threading.Lock()
_users = 0
_is_set_aside = False
_before: tuple[int, int, int] | None = None
"""The thresholds of garbage collection as they were, if they are changed."""


@contextmanager
def older_objects_set_aside() -> Iterator[None]:
    """Have garbage collection look only at objects that are made from here on, in a block of code.

    Blocks may be nested and run in several threads: the last one that ends gives the objects back.
    In a program that has set objects aside itself (``gc.freeze``), nothing is done, since giving
    ours back would give back its own.
    """
    global _users, _is_set_aside, _before
    with _lock:
        _users += 1
        if _users == 1 and gc.isenabled() and not gc.get_freeze_count():
            gc.freeze()
            _is_set_aside = True
            thresholds = gc.get_threshold()
            if 0 < thresholds[0] < _MANY:
                _before = thresholds
                gc.set_threshold(_MANY, *thresholds[1:])
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users and _is_set_aside:
                gc.unfreeze()
                _is_set_aside = False
                if _before is not None and gc.get_threshold()[0] == _MANY:
                    gc.set_threshold(*_before)
                _before = None

"""How the work of a function grows with the size of what it is given."""

from __future__ import annotations

from collections.abc import Callable
from cProfile import Profile
from math import log


def calls(function: Callable[[], object]) -> int:
    """Return how many functions are called, in Python and in C, which no busy machine changes."""
    profile = Profile()
    profile.runcall(function)
    return sum(entry.callcount for entry in profile.getstats())


def exponent(small: float, large: float, factor: float) -> float:
    """Return ``e`` of a cost that grows as ``size**e``, from the costs of two sizes."""
    return log(large / small) / log(factor)

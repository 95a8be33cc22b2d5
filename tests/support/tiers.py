"""What the tiers try: few examples and arguments in `make test`, many in `make test-deep`."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import settings

IS_DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"


def examples(quick: int, deep: int) -> int:
    """Return how many examples a property is tried on, where the profile's number does not suit.

    In the quick tier they are no more than the profile's.
    """
    return deep if IS_DEEP else min(quick, settings.default.max_examples)


def deep(*arguments: Any) -> list[Any]:
    """Return arguments of a parametrized test that only the deep tier tries."""
    return [
        pytest.param(*(each if isinstance(each, tuple) else (each,)), marks=pytest.mark.deep)
        for each in arguments
    ]

"""How many examples a property is tried on: few in `make test`, many in `make test-deep`."""

from __future__ import annotations

import os

IS_DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"


def examples(quick: int, deep: int) -> int:
    """Return how many examples a property is tried on, where the profile's number does not suit."""
    return deep if IS_DEEP else quick

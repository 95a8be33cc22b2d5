"""A program that compiles and calls graphs with loops, for `scanopt capture` to keep them.

``python -m support.benchmarks.captured_kinds COUNT SEED``: the values and the derivatives of PyMC
models, if PyMC is there, and random loops, nine before each of these.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from functools import partial
from importlib.util import find_spec
from itertools import islice
from typing import Any

import pytensor

from support.benchmarks.drawn_kinds import distinct_loops
from support.generated.strategies import GeneratedScan
from support.pymc_models import REAL_MODELS

_PACKAGES = {"statespace SARIMA": "pymc_extras"}
_LOOPS = 9
"""Random loops before each model."""


def _models() -> Iterator[Callable[[], None]]:
    if find_spec("pymc") is None:
        return
    for name, make in REAL_MODELS.items():
        if find_spec(_PACKAGES.get(name, "pymc")) is not None:
            for compile_by in ("compile_logp", "compile_dlogp", "compile_d2logp"):
                yield partial(_compile_model, make, compile_by)


def _compile_model(make: Callable[[], Any], compile_by: str) -> None:
    model = make()
    with suppress(NotImplementedError):  # a density without a second derivative
        getattr(model, compile_by)(mode="FAST_COMPILE")(model.initial_point())


def _loops(seed: int) -> Iterator[Callable[[], None]]:
    return (partial(_compile_loop, each) for each in distinct_loops(seed, generators=True))


def _compile_loop(each: GeneratedScan) -> None:
    function = pytensor.function(
        each.inputs, each.outputs, mode="FAST_COMPILE", on_unused_input="ignore"
    )
    with suppress(Exception):  # what a loop of no steps lacks, for one
        function(*deepcopy(each.arguments[0]))


def main() -> None:
    """Compile so many graphs."""
    count, seed = map(int, sys.argv[1:])
    for one in islice(_all(seed), count):
        one()


def _all(seed: int) -> Iterator[Callable[[], None]]:
    models, loops = _models(), _loops(seed)
    while True:
        yield from islice(loops, _LOOPS)
        yield from islice(models, 1)


if __name__ == "__main__":
    main()

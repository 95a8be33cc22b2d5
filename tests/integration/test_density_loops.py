"""Loops of log-densities that distributions of PyMC write have the line that made the variable."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytensor
import pytensor.tensor as pt
import pytest

import scanopt_cli as so
from scanopt_cli.autodiff.pedigree.pedigree import pedigree
from scanopt_cli.ir.written import shown_path

pytestmark = [pytest.mark.pymc, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def _stacks_are_kept() -> Iterator[None]:
    """As in a user's program; the other tests note no stacks."""
    with pytensor.config.change_flags(traceback__limit=8):
        yield


def place(function: Callable[..., Any], text: str) -> str:
    """Where the line with ``text`` is in ``function``."""
    lines, first = inspect.getsourcelines(function)
    (offset,) = (number for number, line in enumerate(lines) if text in line)
    return f"{shown_path(__file__)}:{first + offset} in {function.__name__}"


def volatile() -> Any:
    import pymc as pm

    with pm.Model() as model:
        omega = pm.HalfNormal("omega")
        pm.GARCH11(
            "returns",
            omega=omega,
            alpha_1=0.2,
            beta_1=0.3,
            initial_vol=1.0,
            observed=[0.1, -0.2, 0.3, 0.05],
        )
    return model


def two() -> Any:
    """Two variables, the second of which reads a draw of the first."""
    import pymc as pm

    with pm.Model() as model:
        first = pm.GARCH11("first", omega=1.0, alpha_1=0.2, beta_1=0.3, initial_vol=1.0, steps=3)
        pm.GARCH11(
            "second",
            omega=pt.exp(first[-1]),
            alpha_1=0.1,
            beta_1=0.1,
            initial_vol=1.0,
            observed=[0.1, -0.2, 0.3],
        )
    return model


def computed_here() -> Any:
    import pymc as pm

    def logp(value: Any, rho: Any) -> Any:
        levels = pytensor.scan(
            lambda v, level, rho: rho * level + v,
            sequences=[value],
            outputs_info=[pt.zeros_like(rho)],
            non_sequences=[rho],
            return_updates=False,
        )
        return -(levels**2)

    with pm.Model() as model:
        rho = pm.Uniform("rho")
        pm.CustomDist("y", rho, logp=logp, shape=2, observed=[1.0, 2.0])
    return model


def loops_of(compile_model: Callable[[], Any]) -> set[str | None]:
    with so.enabled("grad") as done:
        compile_model()
    found = {loop.place for each in done.compilations for loop in each.left}
    assert found
    return found


@pytest.mark.parametrize("function", ["compile_logp", "compile_dlogp"])
def test_a_variable_made_before_the_block(function: str) -> None:
    model = volatile()
    assert loops_of(getattr(model, function)) == {place(volatile, "pm.GARCH11(")}


def test_a_variable_made_inside_of_the_block() -> None:
    assert loops_of(lambda: volatile().compile_logp()) == {place(volatile, "pm.GARCH11(")}


def test_a_density_that_the_program_computes_has_the_line_of_its_scan() -> None:
    model = computed_here()
    assert loops_of(model.compile_logp) == {
        place(computed_here, "levels = pytensor.scan(").replace("computed_here", "logp")
    }


def test_without_stacks_it_is_the_line_of_the_library() -> None:
    """Never the line that compiles: it says nothing of the loop."""
    with pytensor.config.change_flags(traceback__limit=1):
        model = volatile()
        (found,) = loops_of(model.compile_logp)
    assert found is not None
    assert found.startswith("pymc/distributions/timeseries.py:")
    assert found.endswith(" in garch11_logp")


def test_of_a_density_made_before_the_block_too() -> None:
    model = volatile()
    with pytensor.config.change_flags(traceback__limit=30, traceback__compile_limit=30):
        density = model.logp()
    (found,) = loops_of(lambda: model.compile_fn(density))
    assert found is not None
    assert found.startswith("pymc/distributions/timeseries.py:")


def captured(model: Any, directory: Path) -> list[str | None]:
    with so.capture(directory):
        model.compile_logp()
    (file,) = directory.glob("*.scanopt")
    return [record.place for record in pedigree(so.load(file)).scans]


def test_captured_graphs_have_it(tmp_path: Path) -> None:
    assert captured(volatile(), tmp_path) == [place(volatile, "pm.GARCH11(")]


def test_variables_have_their_own_lines(tmp_path: Path) -> None:
    found = captured(two(), tmp_path)
    assert set(found) == {place(two, '"first"'), place(two, "        pm.GARCH11(\n")}

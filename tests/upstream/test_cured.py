"""What PyTensor compiles wrongly, it compiles right with scanopt: inside of `enabled`, and saved.

The reproducers are those of the other files of this directory, and fail there. Here a graph goes
through scanopt before it is evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytensor
import pytest
import test_merging
import test_pushing_out
import test_trimming
from pytensor.compile.mode import Mode

import scanopt_cli as so
from support.evaluating import PLAIN
from support.later_forms import MISREAD
from support.tiers import deep
from support.upstream_modes import value

VM = Mode("vm", "fast_run").excluding("fusion")


def _enabled(output: Any, arguments: dict[Any, Any], mode: object) -> Any:
    with so.enabled():
        function = pytensor.function(list(arguments), output, mode=VM, on_unused_input="ignore")
    with np.errstate(all="ignore"):
        return function(*arguments.values())


def _saved(preset: str) -> Callable[..., Any]:
    def value(output: Any, arguments: dict[Any, Any], mode: object) -> Any:
        graph = so.optimize((list(arguments), [output]), preset).graph
        function = pytensor.function(graph.inputs, graph.outputs, mode=VM, on_unused_input="ignore")
        with np.errstate(all="ignore"):
            return function(*arguments.values())[0]

    return value


WAYS = {
    "enabled": _enabled,
    "default": _saved("default"),
    "grad": _saved("grad"),
    "merge-equal": _saved("merge-equal"),
}

# No rewrite of loops is at fault.
OTHERS = {
    "test_a_constant_loop_of_no_steps_can_be_folded",
    "test_a_map_of_no_steps_has_the_shape_of_its_rows",
    "test_bodies_that_differ_by_the_sign_of_a_zero_are_two",
    "test_symbolic_ops_of_different_properties_are_different",
    "test_zeros_of_both_signs_are_two_values",
}
# An error is lost (or, of what no step computes, raised), which is no wrong value.
ERRORS = {
    "test_a_constant_sequence_that_is_too_short_raises",
    "test_a_loop_of_no_steps_has_no_last_one",
    "test_a_state_that_nobody_reads_may_raise",
}
ERRORS_OF_SAVED_GRAPHS = ERRORS | {
    "test_a_row_behind_the_last_raises",
    "test_a_sequence_that_is_too_short_raises",
    "test_what_no_step_computes_does_not_raise",
}


def _cases(test: Any) -> Iterator[dict[str, Any]]:
    """The arguments with which a parametrized test is called."""
    cases: list[dict[str, Any]] = [{}]
    for mark in getattr(test, "pytestmark", []):
        if mark.name == "parametrize":
            names, rows = mark.args[0], mark.args[1]
            names = names.split(",") if isinstance(names, str) else names
            rows = [getattr(row, "values", row if len(names) > 1 else [row]) for row in rows]
            named = [dict(zip(names, row, strict=True)) for row in rows]
            cases = [{**case, **row} for case in cases for row in named]
    yield from cases


REPRODUCERS = [
    pytest.param(module, test, case, id=f"{name}-{number}")
    for module in (test_pushing_out, test_trimming, test_merging)
    for name, test in vars(module).items()
    if name.startswith("test_") and name not in OTHERS
    for number, case in enumerate(_cases(test))
]


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize("way", ["default", *deep("enabled", "grad", "merge-equal")])
@pytest.mark.parametrize(("module", "test", "case"), REPRODUCERS)
def test_reproducers_are_right(
    module: ModuleType,
    test: Callable[..., None],
    case: dict[str, Any],
    way: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if test.__name__ in (ERRORS if way == "enabled" else ERRORS_OF_SAVED_GRAPHS):
        pytest.skip("it is about an error")
    monkeypatch.setattr(module, "value", WAYS[way])
    test(**case)


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize("way", ["default", *deep("enabled", "grad", "merge-equal")])
@pytest.mark.parametrize("name", MISREAD)
def test_forms_that_appear_while_compiling_are_right(name: str, way: str) -> None:
    output, arguments = MISREAD[name][0]()
    right = value(output, arguments, PLAIN)
    np.testing.assert_allclose(WAYS[way](output, arguments, VM), right)

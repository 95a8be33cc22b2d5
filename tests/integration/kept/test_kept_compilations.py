"""What one process has rewritten and compiled is read by the next, if it compiles the very same.

In one process a second compilation stands for that of another process, where that is enough: the
passes are then made to fail, so a graph that is rewritten again is an error.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.maker import FunctionMaker
from pytensor.compile.mode import Mode
from pytensor.configdefaults import config

import scanopt_cli as so
from scanopt_cli.integration.compilation import optimizing_stage
from scanopt_cli.store import Store
from support.benchmarks.fresh_process import run
from support.compiled_ways import VM
from support.graph_building import scan
from support.kept import ARGUMENTS, NUMBA, compiled, count, recorded, slope


@pytest.mark.parametrize("mode", [VM, NUMBA], ids=["VM", "Numba"])
def test_the_second_compilation_rewrites_nothing(
    mode: Mode, no_passes: Callable[[], None], store: Store
) -> None:
    first, noted = recorded(slope(), mode)
    wanted = first(*ARGUMENTS)
    assert count(store) == 1
    assert count(store, "code") == (mode is NUMBA)
    no_passes()
    second, read = recorded(slope(), mode)
    for one, other in zip(wanted, second(*ARGUMENTS), strict=True):
        np.testing.assert_array_equal(one, other)
    (before,), (after,) = noted.compilations, read.compilations
    assert (after.before, after.after, after.left) == (before.before, before.after, before.left)
    assert [run.remarks for run in after.passes] == [run.remarks for run in before.passes]
    assert before.stages.passes > 0 == before.stages.reading
    assert after.stages.reading > 0 == after.stages.passes == after.stages.rewriting
    assert after.seconds == read.seconds == 0
    if mode is NUMBA:
        assert before.stages.llvm > 0 < before.stages.writing
        assert after.stages.llvm == after.stages.writing == 0


def test_updates_stay_with_their_outputs(no_passes: Callable[[], None]) -> None:
    def made() -> tuple[Any, Any]:
        total = pytensor.shared(np.array(1.0), name="total")
        inputs, (value, *_) = slope()
        return compiled((inputs, [value]), updates={total: total + value}), total

    first, one = made()
    no_passes()
    second, other = made()
    for _ in range(2):
        np.testing.assert_array_equal(first(*ARGUMENTS), second(*ARGUMENTS))
    assert one.get_value() == other.get_value() != 1


@pytest.mark.parametrize("mode", [VM, NUMBA], ids=["VM", "Numba"])
def test_an_output_that_is_an_update_too(mode: Mode, no_passes: Callable[[], None]) -> None:
    """Each of several outputs that are one variable has its place."""

    def made() -> tuple[Any, Any]:
        total = pytensor.shared(np.zeros(3), name="total")
        x = pt.vector("x")
        added = total + _sums(x)[-1]
        return compiled(([x], [added, added, x, added * 2]), mode, updates={total: added}), total

    first, one = made()
    no_passes()
    second, other = made()
    for _ in range(2):
        results = first(np.ones(4)), second(np.ones(4))
        for wanted, got in zip(*results, strict=True):
            np.testing.assert_array_equal(wanted, got)
        results[1][0][:] = -1  # what is returned is the caller's
        np.testing.assert_array_equal(one.get_value(), other.get_value())


@pytest.mark.parametrize("mode", [VM, NUMBA], ids=["VM", "Numba"])
def test_what_is_overwritten_is_known(mode: Mode, no_passes: Callable[[], None]) -> None:
    """A node that overwrites an array runs after all that read the array."""

    def made() -> Any:
        x = pt.vector("x")
        ys = scan(lambda y: y * 1.5, outputs_info=[x], n_steps=3)[-1]
        z = pt.exp(x) * 2
        return compiled(([x], [pt.set_subtensor(z[0], 7.0), z.sum() + ys, z[::-1] * ys]), mode)

    values = np.linspace(0, 1, 5)
    wanted = made()(values)
    no_passes()
    again = made()
    for _ in range(2):
        for one, other in zip(wanted, again(values), strict=True):
            np.testing.assert_array_equal(one, other)


def test_what_is_not_written_yet_is_not_checked_for_nan(no_passes: Callable[[], None]) -> None:
    def unchecked() -> int:
        with so.enabled("grad"):
            function = pytensor.function(*slope(), mode=VM)
        made = [v for node in function.maker.fgraph.toposort() for v in node.outputs]
        return sum(not getattr(v.tag, "nan_guard_mode_check", True) for v in made)

    first = unchecked()
    assert first > 0
    no_passes()
    assert unchecked() == first


def _sums(values: Any) -> Any:
    return scan(lambda v, y: y + v, sequences=[values], outputs_info=[np.float64(0)])


def test_equal_constants_may_be_one_array_or_two(no_passes: Callable[[], None]) -> None:
    def made(data: list[np.ndarray]) -> Any:
        x = pt.vector("x")
        rows = [pt.as_tensor(one) for one in data]
        ys = [
            scan(lambda v, y: y + v, sequences=[x * row], outputs_info=[np.float64(0)])
            for row in rows
        ]
        return compiled(([x], ys))

    two = [np.arange(300.0), np.arange(300.0), np.arange(300.0) * 3]
    wanted = made([two[0], two[0], two[2]])(np.ones(300))
    no_passes()
    got = made(two)(np.ones(300))
    for one, other in zip(wanted, got, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_warning_is_given_again(no_passes: Callable[[], None]) -> None:
    def made() -> Any:
        rng = pytensor.shared(np.random.default_rng(3), name="rng")
        x = pt.vector("x")
        return compiled(
            (
                [x],
                [scan(lambda v: v + pt.random.normal(rng=rng), sequences=[x], strict=False)],
            )
        )

    with pytest.warns(UserWarning, match="scanopt") as first:
        made()
    no_passes()
    with pytest.warns(UserWarning, match="scanopt") as second:
        made()
    told = [
        [str(w.message) for w in all_ if "scanopt" in str(w.message)] for all_ in (first, second)
    ]
    assert told[0] == told[1] != []


def _texts(caught: Any) -> list[str]:
    return [text for one in caught if "scanopt" in (text := str(one.message))]


def test_a_graph_on_which_a_pass_failed_is_not_kept(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("failed")

    monkeypatch.setattr(optimizing_stage, "run_pipeline", fail)
    with config.change_flags(on_opt_error="ignore"):
        compiled(slope())
    assert count(store) == 0


@pytest.mark.parametrize("off", ["the argument", "the environment", "no passes", "no loop"])
def test_nothing_is_kept(off: str, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    if off == "the environment":
        monkeypatch.setenv("SCANOPT_CACHE", "off")
    if off == "no passes":
        with so.enabled("none"):
            pytensor.function(*slope(), mode=VM)
    elif off == "no loop":
        x = pt.vector("x")
        compiled(([x], [x + 1]))
    else:
        compiled(slope(), NUMBA, cache=off != "the argument")(*ARGUMENTS)
    assert count(store) == count(store, "code") == 0


def test_nothing_is_kept_outside_of_a_block(store: Store) -> None:
    methods = dict(vars(FunctionMaker))
    compiled(slope())
    assert dict(vars(FunctionMaker)) == methods
    pytensor.function(*slope(), mode=VM.including("scanopt"))
    assert count(store) == 1


@pytest.mark.parametrize("content", [b"", b"no pickle", b"\x80\x05]."])
def test_an_entry_that_is_none_is_compiled_again(content: bytes, store: Store) -> None:
    wanted = compiled(slope(), NUMBA)(*ARGUMENTS)
    for path in list(store.directory.iterdir()):
        store.put(path.stem, content)  # whole, but nothing that scanopt has written
    for _ in range(2):
        got = compiled(slope(), NUMBA)(*ARGUMENTS)
        for one, other in zip(wanted, got, strict=True):
            np.testing.assert_array_equal(one, other)
    assert count(store) == count(store, "code") == 1


def test_a_full_disk_compiles(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    wanted = compiled(slope(), NUMBA)(*ARGUMENTS)
    store.clear()
    monkeypatch.setattr("os.replace", fail)
    got = compiled(slope(), NUMBA)(*ARGUMENTS)
    for one, other in zip(wanted, got, strict=True):
        np.testing.assert_array_equal(one, other)
    assert count(store) == 0


def test_code_that_calls_what_is_not_there_is_compiled_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from scanopt_cli.loop.codegen import kept_code

    with monkeypatch.context() as patch:
        patch.setattr(kept_code, "_called", lambda _: ["of_another_library"])
        wanted = compiled(slope(), NUMBA)(*ARGUMENTS)
    function, done = recorded(slope(), NUMBA)
    np.testing.assert_array_equal(wanted[0], function(*ARGUMENTS)[0])
    assert done.compilations[0].stages.llvm > 0


def test_each_signature_has_code_of_its_own(store: Store) -> None:
    function = compiled(slope(), NUMBA)
    wanted = function(*ARGUMENTS)
    backwards = np.ascontiguousarray(ARGUMENTS[0][::-1])[::-1]
    np.testing.assert_array_equal(function(backwards, 0.3)[0], wanted[0])
    assert count(store, "code") == 2


_PROGRAM = """
import json, sys, warnings
warnings.simplefilter("ignore")
import numpy as np
import pytensor
import scanopt_cli as so
from support.zoo.model import outputs_of
from support.zoo.models import MODELS

found = []
for model in MODELS:
    if model.name in sys.argv[1].split(";"):
        with so.enabled() as done:
            f = pytensor.function(*outputs_of(model, 1), mode="NUMBA", on_unused_input="ignore")
        value = [np.asarray(one).tolist() for one in f(*model.fresh_arguments())]
        stages = [one.stages for one in done.compilations]
        found.append([value, stages[0].passes, stages[0].llvm, stages[0].reading])
print(json.dumps(found))
"""


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param("", id="by scanopt"),
        pytest.param("off", id="by PyTensor alone", marks=pytest.mark.deep),
    ],
)
def test_another_process_compiles_nothing(kept: str, tmp_path: Path) -> None:
    """The code calls BLAS and LAPACK, which the second process must know by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCANOPT_CACHE", kept)
        names = "Kalman;GARCH(1,1)"
        first, second = (run(_PROGRAM, names, cache=str(tmp_path), keep=kept) for _ in range(2))
    assert [one[0] for one in first] == [one[0] for one in second]
    assert all(passes > 0 < llvm for _, passes, llvm, _ in first)
    assert all(llvm == 0 < reading for _, _, llvm, reading in second)
    assert all((passes == 0) == (not kept) for _, passes, _, _ in second)


_IN_NUMBA_FIRST = """
import json, sys
import numba
import numpy as np
import pytensor
import pytensor.tensor as pt
import scanopt_cli
from scanopt_cli.loop.codegen.kept_code import KeptCode

loads = []
load_overload = KeptCode.load_overload
KeptCode.load_overload = lambda *given: loads.append(given) or load_overload(*given)
x = pt.dvector("x")
states = pytensor.scan(
    lambda x, s: s * 0.5 + x, sequences=[x], outputs_info=[np.float64(0)], return_updates=False
)
with scanopt_cli.enabled():
    function = pytensor.function([x], [states[-1]], mode="NUMBA", trust_input=True)
inner, rows = function.vm.jit_fn, np.ones(3)
if sys.argv[1] == "inside":  # as nutpie calls it
    found = numba.njit(lambda x: inner(x)[0].item())(rows)
else:
    (found,) = {float(function(rows)[0]) for _ in range(4)}
print(json.dumps([found, len(loads)]))
"""


def test_code_that_was_compiled_for_a_caller_in_numba_is_read_once(tmp_path: Path) -> None:
    """Numba packs arguments into a tuple of another type there, which has the same name."""
    found = [run(_IN_NUMBA_FIRST, how, cache=str(tmp_path)) for how in ("inside", "from Python")]
    assert found == [[1.75, 1], [1.75, 1]]


@pytest.mark.deep
def test_twenty_processes_at_once(tmp_path: Path) -> None:
    """Each compiles or reads, as it comes, and all compute the same; one that comes later reads."""

    def once(_: int) -> Any:
        return run(_PROGRAM, "GARCH(1,1)", cache=str(tmp_path))

    with ThreadPoolExecutor(20) as pool:
        found = [value for ((value, *_),) in pool.map(once, range(20))]
    assert all(value == found[0] for value in found)
    ((value, passes, llvm, reading),) = once(20)
    assert value == found[0]
    assert passes == llvm == 0 < reading
    unfinished = [path for path in (tmp_path / "scanopt").iterdir() if path.suffix != ".kept"]
    assert unfinished == []


def test_python_warnings_are_none_for_a_loop_without_draws() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            compiled(slope())

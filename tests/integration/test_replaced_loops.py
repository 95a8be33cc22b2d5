"""Loops that were built before a block and rewritten inside of it keep the line that wrote them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.configdefaults import config
from pytensor.graph.basic import Apply, FrozenApply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.scan.utils import until

import scanopt_cli as so
from scanopt_cli.autodiff.pedigree.pedigree import pedigree
from scanopt_cli.integration.scan_calls import recorded_scan_calls
from scanopt_cli.ir.call_traces import written_in
from scanopt_cli.ir.scan_view import is_loop, view_of
from scanopt_cli.ir.written import place_of

scan = partial(pytensor.scan, return_updates=False)

BEFORE_DIFFERENTIATING = ("canonicalize", "stabilize")


def line_of(comment: str) -> int:
    """Return the line of this file that ends with a comment."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(n for n, line in enumerate(lines, 1) if line.endswith(f"  # {comment}"))


def place(comment: str, function: str) -> str:
    return f"{Path(__file__).name}:{line_of(comment)} in {function}"


@pytest.fixture(autouse=True)
def with_stacks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a program: the tests' configuration keeps no stacks."""
    monkeypatch.chdir(Path(__file__).parent)
    with config.change_flags(traceback__limit=8):
        yield


def decay() -> tuple[list[Any], Any]:
    """Return a loop that is built anew when rewritten: a slot of it is a constant."""
    x, w = pt.dvector("x"), pt.dscalar("w")
    ys = scan(  # decay
        lambda row, total, rate, one: total * rate * one + row + 0 * one,
        sequences=[x],
        outputs_info=[pt.zeros(())],
        non_sequences=[w, pt.ones(())],
    )
    return [x, w], ys


def growth(x: Any, w: Any) -> Any:
    return scan(  # growth
        lambda row, total, rate, one: total * rate * one + row + 0 * one,
        sequences=[x],
        outputs_info=[pt.zeros(())],
        non_sequences=[w, pt.ones(())],
    )


def loops(*outputs: Any) -> list[Apply]:
    return [node for node in FunctionGraph(outputs=outputs).toposort() if is_loop(node)]


def rewritten(*outputs: Any) -> list[Any]:
    return rewrite_graph(list(outputs), include=(*BEFORE_DIFFERENTIATING, "scan"))


def test_a_rewrite_makes_another_loop_with_the_line_of_the_first() -> None:
    _, ys = decay()
    (old,) = loops(ys)
    with recorded_scan_calls():
        (new,) = loops(*rewritten(ys))
    assert new.op != old.op
    assert place_of(new) == place_of(old) == place("decay", "decay")


def test_without_a_block_its_line_is_not_that_of_the_rewrite() -> None:
    _, ys = decay()
    (new,) = loops(*rewritten(ys.sum()))
    assert place_of(new) is None


def test_without_a_block_what_else_the_call_made_tells_it(tmp_path: Path) -> None:
    inputs, ys = decay()
    so.save((inputs, rewritten(ys.sum())), tmp_path / "graph.pkl")
    (record,) = pedigree(so.load(tmp_path / "graph.pkl")).scans
    assert record.place == place("decay", "decay")


def test_a_map_that_was_rewritten_without_a_block_has_no_line() -> None:
    x = pt.dvector("x")
    ys = scan(
        lambda row, one: (pt.exp(row) * one, until(row > 3)),
        sequences=[x],
        non_sequences=[pt.ones(())],
    )
    (new,) = loops(*rewritten(ys + 1))
    assert new.op != loops(ys)[0].op
    assert written_in(new, {}) is None


def test_a_buffer_that_loops_share_does_not_tell() -> None:
    (x, w), ys = decay()
    other, loop = (of.owner.inputs[0].owner for of in (ys, growth(x + 1, w)))
    shared = loop.op.make_node(*loop.inputs[:2], other.inputs[2], *loop.inputs[3:])
    read = shared.outputs[0][1:]
    for output in shared.outputs:
        del output.tag.trace  # as of a rewritten loop
    graph = FunctionGraph([x, w], [ys, read], clone=False)
    assert written_in(shared, graph.clients) is None


def test_names_follow_what_slots_read() -> None:
    with recorded_scan_calls():
        _, ys = decay()
        (new,) = loops(*rewritten(ys))
    slots = {slot.argument: slot.outer_input.name for slot in view_of(new).slots}
    assert slots["rate"] == "w"
    assert set(slots) <= {"row", "total", "rate", "one", None}


def test_equal_loops_of_two_lines_keep_them() -> None:
    (x, w), ys = decay()
    zs = growth(x + 1, w)
    with recorded_scan_calls():
        found = {place_of(node) for node in loops(*rewritten(ys, zs))}
    assert found <= {place("decay", "decay"), place("growth", "growth")}
    assert len(found) == 2


def test_a_loop_that_a_user_puts_in_place_of_another_keeps_its_own_line() -> None:
    (x, w), ys = decay()
    zs = growth(x, w)
    graph = FunctionGraph([x, w], [ys], clone=False)
    with recorded_scan_calls():
        graph.replace(ys.owner.inputs[0], zs.owner.inputs[0], import_missing=True)
    (node,) = (node for node in graph.toposort() if is_loop(node))
    assert place_of(node) == place("growth", "growth")


def nested(base: float, at: str) -> Any:
    def power(v: Any) -> Any:
        slots = {"outputs_info": pt.ones(()), "non_sequences": v, "n_steps": 3}
        if at == "first":
            return scan(lambda p, v: p * v, **slots)  # first
        return scan(lambda q, u: q * u, **slots)  # second

    return scan(lambda v: power(v)[-1] + base, sequences=[pt.dvector("x")])


def inner_places(outer: Any) -> set[str | None]:
    (loop,) = loops(outer)
    return {place_of(node) for node in loop.op.fgraph.apply_nodes if is_loop(node)}


def test_a_loop_in_a_body_has_its_line() -> None:
    with recorded_scan_calls():
        assert inner_places(nested(1.5, "second")) == {place("second", "power")}


def test_equal_loops_in_bodies_have_no_line_of_another() -> None:
    with recorded_scan_calls():
        ys, zs = nested(2.5, "first"), nested(3.5, "second")
        assert inner_places(ys) == inner_places(zs) == {None}
        assert inner_places(nested(2.5, "first")) == {None}


def test_the_hook_is_gone_after_the_last_block() -> None:
    replace, new = FunctionGraph.replace, FrozenApply.__new__
    with recorded_scan_calls(), recorded_scan_calls():
        assert FunctionGraph.replace is not replace
        assert FrozenApply.__new__ is not new
    assert FunctionGraph.replace is replace
    assert FrozenApply.__new__ is new


def garch() -> Any:
    import pymc as pm

    returns = np.linspace(-1, 1, 12)
    with pm.Model() as model:
        c, a, b = (pm.HalfNormal(name) for name in ("c", "a", "b"))
        variance = scan(  # garch
            lambda r, s2, c, a, b: c + a * r**2 + b * s2,
            sequences=[pt.as_tensor(returns[:-1])],
            outputs_info=[pt.ones(())],
            non_sequences=[c, a, b],
        )
        pm.Potential("p", pm.logp(pm.Normal.dist(0, pt.sqrt(variance)), returns[1:]).sum())
    return model


def autoregression(sigma: float) -> Any:
    """Return a model of a loop in a body; PyTensor takes those for one that have one ``sigma``."""
    import pymc as pm
    from pymc.pytensorf import collect_default_updates

    def dist(rho: Any, size: Any) -> Any:
        def step(old: Any, new: Any, rho: Any) -> Any:
            draw = pm.Normal.dist(rho[0] * new + rho[1] * old, sigma)
            return draw, collect_default_updates([draw])

        ys, _ = pytensor.scan(  # autoregression
            step,
            outputs_info=[{"initial": pt.zeros(2), "taps": [-2, -1]}],
            non_sequences=[rho],
            n_steps=12,
        )
        return ys

    with pm.Model() as model:
        rho = pm.Normal("rho", shape=2)
        pm.CustomDist("y", rho, dist=dist, observed=np.linspace(-1, 1, 12))
    return model


def files_of(model: Any, function: str, directory: Path) -> list[str | None]:
    """Return the places of the loops that a method of a model compiles, as files hold them."""
    with so.capture(directory):
        getattr(model, function)()
    (file,) = directory.glob("*.scanopt")
    graph = so.load(file)
    return [record.place for record in pedigree(graph).scans]


FUNCTIONS = ["compile_logp", "compile_dlogp", "logp_dlogp_function"]


@pytest.mark.pymc
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_model_that_was_built_before(function: str, tmp_path: Path) -> None:
    found = files_of(garch(), function, tmp_path)
    assert set(found) == {place("garch", "garch")}


@pytest.mark.pymc
@pytest.mark.filterwarnings("ignore")
def test_second_derivatives_of_a_model_that_was_built_before(tmp_path: Path) -> None:
    found = files_of(garch(), "compile_d2logp", tmp_path)
    # PyMC writes loops of its own there, over the rows of the Hessian.
    assert set(found) == {place("garch", "garch"), None}


def joined(model: Any) -> tuple[list[Any], list[Any]]:
    """Return what nutpie compiles: the log-density of one vector, and its gradient."""
    from pymc.pytensorf import join_nonshared_inputs

    (logp,), vector = join_nonshared_inputs(
        point=model.initial_point(), outputs=[model.logp()], inputs=model.value_vars
    )
    return [vector], [logp, pytensor.grad(logp, vector)]


def observed() -> Any:
    import pymc as pm

    with pm.Model() as model:
        k = pm.Normal("k")
        slots = {"outputs_info": [pt.ones(())], "non_sequences": [k], "n_steps": 5}
        ys = scan(lambda y, k: y * k + 0.1, **slots)  # y
        pm.Normal("y", ys, 1)
    return pm.observe(model, {"y": np.linspace(0, 1, 5)})


def done_to() -> Any:
    import pymc as pm

    return pm.do(garch(), {"c": 0.3})


def unpickled() -> Any:
    import cloudpickle

    return cloudpickle.loads(cloudpickle.dumps(garch()))


def replaced(model: Any) -> tuple[list[Any], list[Any]]:
    value = model.value_vars[0]
    cost = clone_replace(model.logp(), {value: value * 1.0}, rebuild_strict=False)
    return list(model.value_vars), [cost]


def differentiated(model: Any) -> tuple[list[Any], list[Any]]:
    return list(model.value_vars), [model.dlogp()]


@pytest.mark.pymc
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("make", "of", "where"),
    [
        (garch, joined, "garch"),
        (garch, differentiated, "garch"),
        (garch, replaced, "garch"),
        (done_to, differentiated, "garch"),
        (unpickled, differentiated, "garch"),
        (observed, differentiated, "y"),
    ],
)
def test_graphs_of_models_that_no_block_saw(make: Any, of: Any, where: str, tmp_path: Path) -> None:
    so.save(of(make()), tmp_path / "graph.pkl")
    found = {record.place for record in pedigree(so.load(tmp_path / "graph.pkl")).scans}
    assert found == {place(where, "observed" if where == "y" else where)}


@pytest.mark.pymc
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function", ["compile_logp", "compile_dlogp"])
def test_the_loop_of_a_distribution_that_was_built_before(function: str, tmp_path: Path) -> None:
    found = files_of(autoregression(1.5), function, tmp_path)
    assert set(found) == {place("autoregression", "dist")}


def elsewhere(step: Any, **slots: Any) -> Any:
    return pytensor.scan(step, **slots)


@pytest.mark.pymc
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("calls", ["none", "two"])
def test_a_function_that_does_not_call_scan_once_tells_no_line(calls: str, tmp_path: Path) -> None:
    import pymc as pm

    def step(rho: Any) -> Any:
        draw = pm.Normal.dist(rho, 4.5 + (calls == "two"))
        return draw, pm.pytensorf.collect_default_updates([draw])

    def through_another(rho: Any, size: Any) -> Any:
        return elsewhere(step, non_sequences=[rho], n_steps=3)[0]

    def either(rho: Any, size: Any) -> Any:
        if size is rho:
            return pytensor.scan(step, non_sequences=[rho], n_steps=2)[0]
        return pytensor.scan(step, non_sequences=[rho], n_steps=3)[0]

    with pm.Model() as model:
        dist = through_another if calls == "none" else either
        pm.CustomDist("y", pm.Normal("rho"), dist=dist, observed=np.ones(3))
    assert set(files_of(model, "compile_logp", tmp_path)) == {None}


@pytest.mark.pymc
@pytest.mark.filterwarnings("ignore")
def test_a_loop_in_a_distribution_that_no_block_saw_has_no_line(tmp_path: Path) -> None:
    so.save(differentiated(autoregression(2.5)), tmp_path / "graph.pkl")
    found = {record.place for record in pedigree(so.load(tmp_path / "graph.pkl")).scans}
    assert found == {None}


@pytest.mark.pymc
@pytest.mark.filterwarnings("ignore")
def test_enabled_reports_it() -> None:
    model = garch()
    with so.enabled("grad") as done:
        model.compile_dlogp()
    loops = [loop for each in done.compilations for loop in each.left]
    assert {loop.place for loop in loops} == {place("garch", "garch")}


@pytest.mark.pymc
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function", ["compile_logp", "compile_dlogp"])
def test_the_loop_of_a_log_density_has_the_line_of_the_one_that_draws(
    function: str, tmp_path: Path
) -> None:
    with recorded_scan_calls():
        model = autoregression(3.5 + (function == "compile_logp"))
    found = files_of(model, function, tmp_path)
    assert set(found) == {place("autoregression", "dist")}

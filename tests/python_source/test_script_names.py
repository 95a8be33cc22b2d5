"""Names are text from strangers: they become identifiers of their own, and never code."""

from __future__ import annotations

import ast
import builtins
import keyword

import numpy as np
import pytensor.tensor as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytensor.compile.builders import OpFromGraph

import scanopt_cli as so
from scanopt_cli.ir.graph import from_io
from scanopt_cli.python_source.names import RESERVED, Names, identifier
from support.graph_building import scan
from support.python_scripts import assert_rebuilt, built_by

HOSTILE = [
    *("x\nimport os", "x\rimport os", "x\x0cimport os", "x\u2028import os", "x\x00", "\ud800"),
    *("'); import os; ('", '"); import os; ("', "'''", '"""', "\\", "\\'", '\\"', "x'\\", "#x"),
    *("class", "lambda", "None", "match", "print", "dict", "__import__", "__name__", "_", "__"),
    *("np", "pt", "pytensor", "inputs", "outputs", "constants", "inner", "function", "Scan", "v"),
    *("x", "x", "x_1", "x 1", "1", "1x", "", " ", "\u03c3", "\u03c3\u00b2", "\uff58", "e\u0301"),
    *("\u202ex", "{x}", "{}", "{0}", "%s", "x[0]", "P[0, 1]", "a" * 2_000, "::error::x"),
]


def test_hostile_names() -> None:
    inputs = [pt.dvector(name) for name in HOSTILE]
    starts = []
    for variable in inputs:
        start = variable[0] * 2.0
        start.name = variable.name
        starts.append(start)
    traces = [
        scan(
            lambda x, y, z: [y * x, z + x],
            sequences=[v],
            outputs_info=[s, np.float64(0.0)],
            name="f(\n'",
        )
        for v, s in zip(inputs[:12], starts, strict=False)
    ]
    named = [one.sum() for pair in traces for one in pair]
    for variable, name in zip(named, HOSTILE, strict=False):
        variable.name = name
    graph = from_io(inputs, [*named, *starts, pt.add(*starts)])
    text = assert_rebuilt(graph)
    names = built_by(so.to_python(graph))
    assert [v.name for v in names["inputs"]] == HOSTILE
    assert "os" not in names
    assert not any(isinstance(n, ast.Import) and "os" in ast.dump(n) for n in _nodes(text))
    bound = {n.id for n in _nodes(text) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    assert not bound & {*keyword.kwlist, *dir(builtins), "np", "pt", "pytensor"} - {"_"}


def _nodes(text: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(text)))


@pytest.mark.parametrize("name", ["a\n'b", "import os", "", "\u03c3", "x" * 300])
def test_hostile_names_of_loops_graphs_and_files(name: str) -> None:
    x = pt.dscalar("x")
    twice = OpFromGraph([x], [x * 2], name=name)
    trace = scan(lambda y: twice(y), outputs_info=[x], n_steps=3, name=name)
    graph = from_io([x], [trace[-1]], source=f"{name}\nimport os")
    text = assert_rebuilt(graph)
    assert text.splitlines()[0].startswith("#")
    assert not any("os" in ast.dump(n) for n in _nodes(text) if isinstance(n, ast.Import))


@given(st.text())
def test_identifiers(text: str) -> None:
    found = identifier(text)
    assert found is None or (found.isidentifier() and found.isascii())
    unique = Names().unique(text, "v")
    assert unique.isidentifier()
    assert unique not in RESERVED


@given(st.lists(st.sampled_from(["x", "x_1", "x 1", "x_2", "", "print", "v", "v_1"]), max_size=20))
def test_names_are_given_once(wanted: list[str]) -> None:
    names = Names(["x_3"])
    given_names = [names.unique(name, "v") for name in wanted]
    assert len({*given_names, "x_3"}) == len(given_names) + 1


def test_names_that_people_read() -> None:
    rate, h0 = pt.dscalar("learning rate"), pt.dvector("h0")
    mean = (h0 * rate).sum()
    mean.name = "\u03bc"
    loss = mean + mean**2
    loss.name = "loss"
    text = assert_rebuilt(from_io([rate, h0], [loss]))
    assert 'learning_rate = pt.scalar("learning rate", dtype="float64")' in text
    assert "mu = (h0 * learning_rate).sum()" in text
    assert "loss = mu + mu ** 2" in text
    assert "outputs = [loss]" in text

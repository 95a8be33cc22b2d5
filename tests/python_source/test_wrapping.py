"""Long lines are broken at commas, and mean what they meant."""

from __future__ import annotations

import ast
from itertools import pairwise

import pytest

from scanopt_cli.python_source.layout import statement
from scanopt_cli.python_source.wrapping import WIDTH, joined, wrapped

_LONG = ", ".join(f"argument_{number}" for number in range(12))


@pytest.mark.parametrize(
    "line",
    [
        "short = call(a, b)",
        f"x = call({_LONG})",
        f"x = call([{_LONG}], ({_LONG}), other=call({_LONG}))",
        f"({_LONG}) = call({_LONG})",
        f"({_LONG}) = call({_LONG})[x[{_LONG}], y[1:]]",
        f"x = ({_LONG})[0](a, b)",
        f"x = call('({_LONG}', \"[{_LONG}\", '\\'({_LONG}', \"\\\\\")",
        f"x = call({'a + ' * 40}b)",
        f"return {{'a': [{_LONG}], 'b': {_LONG.replace(', ', ' + ')}}}",
        f"x = [f({_LONG}) for _ in range(3)]",
        f"x = f(inner := [{_LONG}], g(*inner))[:2]",
    ],
)
def test_lines(line: str) -> None:
    lines = list(wrapped(line))
    assert ast.dump(ast.parse("\n".join(lines))) == ast.dump(ast.parse(line))
    assert len(lines) == 1 or max(map(len, lines)) < len(line)


def test_a_bracket_that_closes_in_another_line() -> None:
    (*first, last) = wrapped(f"({_LONG}) = call(x[1], f(")
    assert last == ") = call(x[1], f("
    assert len(first) == 3


def test_what_fits_in_a_line_of_its_own_has_one() -> None:
    part = ", ".join(f"argument_{number}" for number in range(7))
    head = "value = some_function("
    assert list(wrapped(f"{head}{part})")) == [head, f"    {part}", ")"]


def test_lines_have_as_many_parts_as_fit() -> None:
    parts = [f"name_{number}={number}" for number in range(30)]
    first, *lines, last = wrapped(f"value = call({', '.join(parts)}, [{_LONG}])")
    assert (first, last) == ("value = call(", ")")
    filled = lines[: lines.index("    [")]
    assert len(filled) == 4
    assert max(map(len, lines)) <= WIDTH
    for line, following in pairwise(filled):
        assert len(f"{line} {following.split()[0]}") > WIDTH


def test_a_statement_inside_of_a_function_is_as_wide_as_others() -> None:
    call = f"a = call(\n    {'b' * 80},\n    cd,\n)"
    assert statement(call) == [joined(call)]
    assert statement(call, " " * 4) == [f"    {joined(call)}"]
    longer = call.replace("cd", "c" * 8)
    assert statement(longer) == [joined(longer)]
    inside = statement(longer, " " * 4)
    assert inside == ["    a = call(", f"        {'b' * 80}, {'c' * 8}", "    )"]

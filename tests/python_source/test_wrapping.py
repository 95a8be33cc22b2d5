"""Long lines are broken at commas, and mean what they meant."""

from __future__ import annotations

import ast

import pytest

from scanopt_cli.python_source.wrapping import wrapped

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
    assert len(first) == 13

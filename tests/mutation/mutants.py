"""Breaks code in small ways: conditions that are dropped, bounds that are shifted by one."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_SHIFTED = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """``file`` with ``new`` in place of the text ``old`` that begins at ``start``."""

    file: Path
    start: int
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.file}:{self.lines[0]}: {' '.join(self.old.split())} → {self.new}"

    @property
    def lines(self) -> range:
        """The lines of the text that is replaced, from 1 on."""
        first = self.file.read_text().count("\n", 0, self.start) + 1
        return range(first, first + self.old.count("\n") + 1)

    def source(self) -> str:
        """Return the broken text of the file."""
        text = self.file.read_text()
        assert text[self.start :].startswith(self.old)
        return text[: self.start] + self.new + text[self.start + len(self.old) :]


def mutants(files: Sequence[Path], count: int, seed: int) -> list[Mutant]:
    """Return up to ``count`` mutants of ``files``, drawn with ``seed``; always the same."""
    every = [mutant for file in files for mutant in _of_file(file)]
    chosen = random.Random(seed).sample(every, min(count, len(every)))
    return sorted(chosen, key=lambda mutant: (mutant.file, mutant.start))


def _of_file(file: Path) -> Iterator[Mutant]:
    text = file.read_text()
    lines = [0]
    for line in text.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))

    def replaced(node: ast.expr, new: str) -> Mutant:
        old = ast.get_source_segment(text, node)
        assert old is not None
        before = text.splitlines()[node.lineno - 1].encode()[: node.col_offset].decode()
        return Mutant(file, lines[node.lineno - 1] + len(before), old, new)

    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.If(test=test, body=[ast.Return() | ast.Continue()], orelse=[]):
                if not any(isinstance(part, ast.NamedExpr) for part in ast.walk(test)):
                    yield replaced(test, "False")
            case ast.BoolOp(op=op, values=values):
                for value in values:
                    if not any(isinstance(part, ast.NamedExpr) for part in ast.walk(value)):
                        yield replaced(value, str(isinstance(op, ast.And)))
            case ast.Compare(ops=[op], comparators=[other]) if type(op) in _SHIFTED:
                left, right = (ast.get_source_segment(text, n) for n in (node.left, other))
                yield replaced(node, f"{left} {_SHIFTED[type(op)]} {right}")
            case ast.Call(func=ast.Name(id="AffineExpr"), args=[bound]):
                yield replaced(bound, f"{ast.get_source_segment(text, bound)} + 1")

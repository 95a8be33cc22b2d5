"""Elementwise arithmetic for Numba, into arrays that there are already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numba.core.compiler import Compiler
from pytensor.graph.basic import Apply
from pytensor.link.numba.cache import compile_numba_function_src
from pytensor.link.numba.dispatch import basic


@dataclass(frozen=True, slots=True)
class Array:
    """An array in the source of a step, or a part of it.

    ``places`` has what the part is in each dimension of the array: a row, rows from one to before
    another, or ``None`` for all rows.
    """

    name: str
    places: tuple[str | tuple[str, str] | None, ...]

    def length(self, axis: int) -> str:
        """Return the source of a length of the part."""
        kept = [i for i, place in enumerate(self.places) if not isinstance(place, str)]
        place = self.places[kept[axis]]
        if isinstance(place, tuple):
            return f"({place[1]} - {place[0]})"
        return f"{self.name}.shape[{kept[axis]}]"


@dataclass(frozen=True, slots=True)
class Literal:
    """A number that is known."""

    value: Any


type Operand = Array | Literal | str
"""The name of a number stands for it."""


class _KernelCompiler(Compiler):
    """Numba's compiler, for functions that write no array which they have by another name too."""

    def __init__(self, *arguments: Any) -> None:
        *others, flags, variables = arguments
        flags = flags.copy()
        flags.noalias = True
        changed = [*others, flags, variables]
        super().__init__(*changed)


def kernel(
    node: Apply, results: Sequence[str], operands: Sequence[Operand], memo: Any
) -> tuple[Any, str | None, Sequence[str]]:
    """Return the kernel of an elementwise node, given the names of its results and its operands.

    That is a function for Numba, which does not check indices; what it is cached by, ``None`` if it
    is not; and the sources of its arguments: the arrays for the results, and what it reads.
    ``memo`` is what PyTensor's functions for Ops remember in one compilation.
    """
    op: Any = node.op
    entries = [f"k{axis}" for axis in range(node.outputs[0].type.ndim)]
    arguments = {f"out_{i}": name for i, name in enumerate(results)}
    targets = [f"{target}[{', '.join(entries)}]" for target in arguments]
    values, literals, keys = [], {}, []
    for i, (v, operand) in enumerate(zip(node.inputs, operands, strict=True)):
        match operand:
            case Literal(value):
                literals[f"c{i}"] = value
                keys.append(basic.cache_key_for_constant(value))
                values.append(f"c{i}")
            case str(name):
                arguments[f"a{i}"] = name
                values.append(f"a{i}")
            case Array(name, places):
                arguments[f"a{i}"] = name
                own = iter(["0" if v.type.shape[k] == 1 else e for k, e in enumerate(entries)])
                at = []
                for k, place in enumerate(places):
                    if place is None:
                        at.append(next(own))
                        continue
                    row = f"i{i}_{k}"
                    arguments[row] = place if isinstance(place, str) else place[0]
                    at.append(row if isinstance(place, str) else f"{row} + {next(own)}")
                values.append(f"a{i}[{', '.join(at)}]")
    function, key = basic.numba_funcify_and_cache_key(
        op.scalar_op, node=op.make_scalar_node(*node.inputs), ofg_memo=memo
    )
    source = [f"def kernel({', '.join(arguments)}):"]
    source += [
        f"{'    ' * (axis + 1)}for {entry} in range(out_0.shape[{axis}]):"
        for axis, entry in enumerate(entries)
    ]
    indent = "    " * (len(entries) + 1)
    source.append(f"{indent}{', '.join(targets)} = function({', '.join(values)})\n")
    text = "\n".join(source)
    made = compile_numba_function_src(
        text, "kernel", {**vars(basic), **literals, "function": function}
    )
    compiled = basic.numba_njit(made, boundscheck=False, pipeline_class=_KernelCompiler)
    return compiled, key and f"({text}, {key}, {keys})", list(arguments.values())

"""By what the code of a graph is cached on disk: all that it is written from.

The digests of `equivalence` say whether graphs compute the same. Code depends on more: on the order
of the nodes, on what overwrites what, and on the static shapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import llvmlite
import numba
import pytensor
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.graph.op import HasMultipleInnerGraph

from scanopt_cli.equivalence.sameness import Sameness
from scanopt_cli.version import __version__

_VERSIONS = [llvmlite.__version__, numba.__version__, pytensor.__version__, __version__]


def key_of(graph: AbstractFunctionGraph, nodes: Sequence[Apply]) -> str | None:
    """Return the key of the code of ``nodes``, which are those of ``graph`` in their order.

    Equal graphs have equal keys in every process. ``None`` if an Op cannot be told by value.
    """
    sameness = Sameness()
    content = sha256(_writers())
    for part in _described(sameness, graph.inputs, nodes, graph.outputs):
        content.update(part)
    return None if sameness.opaque else content.hexdigest()


@cache
def _writers() -> bytes:
    """Return a digest of what writes code: the source of the rules, and versions of packages."""
    content = sha256(repr(_VERSIONS).encode())
    loop = Path(__file__).parents[1]
    for path in sorted((*loop.glob("*.py"), *loop.glob("codegen/*.py"))):
        content.update(path.read_bytes())
    return content.digest()


def _described(
    sameness: Sameness,
    inputs: Iterable[Variable],
    nodes: Iterable[Apply],
    outputs: Iterable[Variable],
) -> Iterator[bytes]:
    places: dict[Variable, bytes] = {}

    def place(variable: Any) -> bytes:
        if variable not in places:
            places[variable] = sameness.of_constant(variable)
        return places[variable]

    for variable in inputs:
        if not isinstance(variable, Constant):
            places[variable] = b"%d" % len(places)
        yield sameness.of_type(variable.type)
    for node in nodes:
        op: Any = node.op
        yield sameness.of_op(op)
        yield repr((sorted(op.destroy_map.items()), sorted(op.view_map.items()))).encode()
        yield b",".join(map(place, node.inputs))
        own = getattr(op, "fgraph", None)
        several = op.inner_graphs.values() if isinstance(op, HasMultipleInnerGraph) else ()
        for inner in several if own is None else (own,):
            yield from _described(sameness, inner.inputs, inner.toposort(), inner.outputs)
        for variable in node.outputs:
            places[variable] = b"%d" % len(places)
            yield sameness.of_type(variable.type)
    yield b"=" + b",".join(map(place, outputs))

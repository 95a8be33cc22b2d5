"""Which function PyTensor is compiling, and where the program asks for it."""

from __future__ import annotations

import sys
from inspect import unwrap
from types import FrameType
from typing import NamedTuple

from pytensor.compile.maker import FunctionMaker
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.integration.capture.origin import origin
from scanopt_cli.ir.written import caller
from scanopt_cli.text import at_place


class CompiledFunction(NamedTuple):
    """A function that is compiled.

    Attributes
    ----------
    function
        Its name, or what the program asked PyMC for (``logp_dlogp``); ``None`` if it has none.
    place
        The line of the program that has it compiled, ``model.py:41 in fit``, if that is known.
    """

    function: str | None
    place: str | None

    def __str__(self) -> str:
        return (self.function or "a function") + at_place(self.place)


def compiled_function(fgraph: FunctionGraph) -> CompiledFunction:
    """Return the function that ``fgraph`` is rewritten for now, from the stack of callers."""
    asked = caller()
    place = None if asked is None else asked.place
    return CompiledFunction(_name(fgraph) or origin().name, place)


def _name(fgraph: FunctionGraph) -> str | None:
    code = unwrap(FunctionMaker.__init__).__code__  # `capture` wraps it
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is code and frame.f_locals.get("fgraph") is fgraph:
            name = frame.f_locals.get("name")
            return None if name is None else str(name)
        frame = frame.f_back
    return None

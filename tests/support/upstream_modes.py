"""How `tests/upstream` compiles: with one rewrite of PyTensor's alone, or with all.

The tests are bugs of PyTensor 3.3.7 that are about loops. Each states the right value, fails, and
is marked as a strict xfail, so that a release of PyTensor that mends the bug tells us. The reason
names the rewrite, what goes wrong, and where scanopt keeps away from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor
import pytest
from pytensor.compile.mode import Mode
from pytensor.configdefaults import config
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import GraphRewriter, NodeRewriter, dfs_rewriter


def bug(what: str, *, ours: str, raises: type[Exception] | None = None) -> pytest.MarkDecorator:
    """Mark a reproducer, which fails until PyTensor is mended: then it says so.

    ``what`` is the rewrite and what goes wrong, ``ours`` the place of scanopt that keeps away from
    it, or why nothing does. ``raises`` is what the test fails with, if that is always the same.
    """
    # Strict: these are PyTensor's bugs, not ours to mend, and a release that mends one fails here.
    return pytest.mark.xfail(strict=True, raises=raises, reason=f"{what}; scanopt: {ours}")


FAST = Mode(linker="vm", optimizer="fast_run")
"""What users get, but for the linker: every rewrite of PyTensor's."""


def alone(rewriter: NodeRewriter | GraphRewriter) -> Mode:
    """Return a mode that runs one rewriter, and nothing else."""
    if isinstance(rewriter, NodeRewriter):
        rewriter = dfs_rewriter(rewriter, ignore_newtrees=True)
    return Mode(linker="vm", optimizer=rewriter)


def value(output: Any, arguments: dict[Any, Any], mode: Any) -> Any:
    """Compile one output in ``mode`` and return what it is for the ``arguments``, by input.

    A rewrite that raises is left out, as it is for a user.
    """
    with config.change_flags(on_opt_error="ignore"):
        function = pytensor.function(list(arguments), output, mode=mode, on_unused_input="ignore")
    with np.errstate(all="ignore"):
        return function(*arguments.values())


def buffer_of(states: Any) -> Any:
    """Return the buffer of a state, start included; ``scan`` returns what is behind the start."""
    return states.owner.inputs[0]


def trimmed(inputs: Sequence[Any], output: Any, rewriter: NodeRewriter) -> tuple[list[Any], Any]:
    """Return the inputs and the output of a graph whose loops ``rewriter`` has trimmed."""
    fgraph = FunctionGraph(list(inputs), [output], clone=True)
    dfs_rewriter(rewriter, ignore_newtrees=True).rewrite(fgraph)
    return list(fgraph.inputs), fgraph.outputs[0]

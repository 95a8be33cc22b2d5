"""R002: two draws of a step from one generator."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import ClassVar

from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.random.type import RandomType

from scanopt_cli.analysis.named_loops import NamedLoop
from scanopt_cli.ir.inner_graphs import core_op
from scanopt_cli.rules.rule_contract import CheckContext, Finding, Rule, Severity


class OneGenerator(Rule):
    """Two draws of a step read one generator, so they are not independent.

    Draws from one state of a generator use the same random bits: of one distribution and shape,
    they are equal up to their parameters::

        def step(rng):
            after, a = pt.random.normal(rng=rng, return_next_rng=True)
            _, b = pt.random.normal(rng=rng, return_next_rng=True)  # b equals a
            return after, a - b

    Give the second draw the generator that the first one returns (``rng=after``).
    """

    code: ClassVar[str] = "R002"
    name: ClassVar[str] = "one-generator"
    severity: ClassVar[Severity] = Severity.ERROR

    def find(self, context: CheckContext) -> Iterator[Finding]:
        """Yield a finding for each generator of a step that several draws read."""
        for loop in context.loops:
            for generator, draws in _draws(loop).items():
                if len(draws) < 2:
                    continue
                slots = [s for s in loop.view.slots if generator in s.inner_inputs]
                what = f"`{loop.names[slots[0]]}`" if slots else "one state of a generator"
                text = f"{len(draws)} draws of a step read {what}: they use the same random bits"
                yield self.at(context, loop, text, *slots)


def _draws(loop: NamedLoop) -> dict[Variable, list[Apply]]:
    """Return what draws from each generator of a step."""
    found: dict[Variable, list[Apply]] = defaultdict(list)
    for node in loop.view.op.fgraph.toposort():
        is_draw = any(isinstance(v.type, RandomType) for v in node.outputs)
        if is_draw and hasattr(core_op(node.op), "update"):
            for variable in node.inputs:
                if isinstance(variable.type, RandomType):
                    found[variable].append(node)
    return found

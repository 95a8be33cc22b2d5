"""R001: every step draws the same random numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from scanopt_cli.analysis.same_draws import is_fixed_generator
from scanopt_cli.rules.rule_contract import CheckContext, Finding, Rule, Severity


class EqualDraws(Rule):
    """Every step draws the same random numbers, from a generator that it does not carry.

    A draw leaves its generator as it is, and returns the next one. A step that reads a generator as
    a non-sequence, and does not hand the next one to the step after it, draws the same each time::

        scan(lambda rng: pt.random.normal(rng=rng), non_sequences=[rng], n_steps=9)

    Carry it as a state::

        def step(rng):
            rng, draw = pt.random.normal(rng=rng, return_next_rng=True)
            return rng, draw

        scan(step, outputs_info=[rng, None], n_steps=9)
    """

    code: ClassVar[str] = "R001"
    name: ClassVar[str] = "equal-draws"
    severity: ClassVar[Severity] = Severity.ERROR

    def find(self, context: CheckContext) -> Iterator[Finding]:
        """Yield a finding for each generator."""
        for loop in context.loops:
            for slot in loop.view.slots:
                if is_fixed_generator(loop.view, slot):
                    name = loop.names[slot]
                    text = f"every step draws the same numbers from `{name}`, which is not carried"
                    yield self.at(context, loop, text, slot)

"""R002: two draws of a step from one generator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any, ClassVar

from pytensor.graph.basic import Apply
from pytensor.scalar.basic import Switch
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.random.type import RandomType

from scanopt_cli.analysis.named_loops import NamedLoop
from scanopt_cli.analysis.same_draws import draws_of
from scanopt_cli.ir.levels import IfElse
from scanopt_cli.rules.check_context import CheckContext
from scanopt_cli.rules.equal_draws import EqualDraws, carried
from scanopt_cli.rules.rule_contract import Finding, Fix, Rule, Severity


class OneGenerator(Rule):
    """Two draws of a step read one generator, so they are not independent.

    Draws from one state of a generator use the same random bits: of one distribution and shape,
    they are equal up to their parameters::

        def step(rng):
            after, a = pt.random.normal(rng=rng, return_next_rng=True)
            _, b = pt.random.normal(rng=rng, return_next_rng=True)  # b equals a
            return after, a - b

    Give the second draw the generator that the first one returns (``rng=after``). The fix does,
    which changes what is drawn.
    """

    code: ClassVar[str] = "R002"
    name: ClassVar[str] = "one-generator"
    severity: ClassVar[Severity] = Severity.ERROR
    fix: ClassVar[Fix | None] = EqualDraws.fix

    def find(self, context: CheckContext) -> Iterator[Finding]:
        """Yield a finding for each generator of a step that several draws read."""
        for loop in context.loops:
            for generator, draws in draws_of(loop.view).items():
                if not _share_bits(loop, draws):
                    continue
                slots = [s for s in loop.view.slots if generator in s.inner_inputs]
                what = f"`{loop.names[slots[0]]}`" if slots else "one state of a generator"
                text = f"{len(draws)} draws of a step read {what}: they use the same random bits"
                yield self.at(context, loop, text, *slots, fix=carried(context, loop, *slots))


def _share_bits(loop: NamedLoop, draws: Sequence[Apply]) -> bool:
    """Whether two of ``draws`` are read that are not the branches of one condition."""
    readers = [_readers(loop, draw) for draw in draws]
    read = [found for found in readers if found]
    return any(
        not (len(a) == len(b) == 1 and _are_branches(a[0], b[0])) for a, b in combinations(read, 2)
    )


def _readers(loop: NamedLoop, draw: Apply) -> list[tuple[Any, int]]:
    """Return the uses of what is drawn, apart from the next generator."""
    clients = loop.view.op.fgraph.clients
    values = [v for v in draw.outputs if not isinstance(v.type, RandomType)]
    return [use for value in values for use in clients.get(value, ())]


def _are_branches(one: tuple[Any, int], other: tuple[Any, int]) -> bool:
    """Whether a switch or an IfElse takes one of two values, and never both."""
    (node, place), (same, other_place) = one, other
    if node is not same or place == other_place:
        return False
    if isinstance(node.op, IfElse):
        half = node.op.n_outs
        return (place <= half) is not (other_place <= half)
    return (
        isinstance(node.op, Elemwise)
        and isinstance(node.op.scalar_op, Switch)
        and bool(place and other_place)
    )

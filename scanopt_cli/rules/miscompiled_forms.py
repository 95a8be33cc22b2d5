"""C003: loops that the installed PyTensor compiles wrongly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.named_loops import NamedLoop
from scanopt_cli.ir.slots import SlotKind
from scanopt_cli.rules.check_context import CheckContext
from scanopt_cli.rules.miscompiled.misread_bodies import dropped_terms, lost_starts, mixed_rows
from scanopt_cli.rules.miscompiled.misread_rows import misread_gradients, misread_rows
from scanopt_cli.rules.miscompiled.misread_states import merged_states, merged_while_loops
from scanopt_cli.rules.rule_contract import Finding, Fix, Rule, Severity

_CASES = (dropped_terms, lost_starts, mixed_rows, merged_states, misread_rows)


class MiscompiledForms(Rule):
    """The installed PyTensor compiles the loop to one that returns other values.

    Some of PyTensor's rewrites of loops are unsound. The graph is right, and what runs is not::

        taps = {"initial": pt.stack([p, q]), "taps": [-2, -1]}
        last = scan(lambda y2, y1: y1 * y2, outputs_info=[taps], n_steps=n)[-1]
        pytensor.function([p, q, n], pt.grad(last, q))  # 0, whatever the gradient is

    Reported is what a rewrite of the installed version does to this loop, asked on a copy of it,
    where that provably changes values: ``scan_push_out_add`` drops the third term of a sum,
    ``scan_push_out_non_seq`` initial rows, ``scan_push_out_seq`` mixes up rows,
    ``scan_merge_inouts`` and ``ScanMerge`` take for one what only starts equal,
    ``scan_reduce_nsteps`` reads other rows of gradients, and ``scan_reduce_trace`` of while loops
    and of maps of few steps. The finding names the rewrite.

    The fix is what ``optimize`` ends with, whatever passes are named: it writes the loop in a form
    that PyTensor compiles right. Or compile inside of ``so.enabled()``::

        safe = so.optimize(([p, q, n], [pt.grad(last, q)]), "compile-safe").graph
    """

    code: ClassVar[str] = "C003"
    name: ClassVar[str] = "miscompiled-forms"
    severity: ClassVar[Severity] = Severity.ERROR
    fix: ClassVar[Fix | None] = Fix("compile-safe")

    def find(self, context: CheckContext) -> Iterator[Finding]:
        """Yield a finding for each loop and rewrite."""
        scans = [loop for loop in context.scans if not loop.view.batch_ndim and _may_run(loop)]
        for loop in filter(context.is_read, scans):
            for case in _CASES:
                for misread in case(loop):
                    yield self.at(context, loop, misread.text, *misread.slots)
        if any(loop.view.of_kind(SlotKind.MIT_MOT) for loop in scans):
            for title, misread in misread_gradients(context.fgraph):
                named = context.loop(title)
                if named is not None:
                    yield self.at(context, named, misread.text)
        for loop, misread in merged_while_loops(scans):
            yield self.at(context, loop, misread.text)


def _may_run(loop: NamedLoop) -> bool:
    """Whether a loop may run a step, and one with a condition a second one."""
    steps = Lengths(loop.view.n_steps).steps
    return not steps.is_constant or steps.constant > loop.view.is_while

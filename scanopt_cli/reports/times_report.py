"""How long a verification took, and of that each compilation."""

from __future__ import annotations

from collections.abc import Iterator

from scanopt_cli.reports.document import Block, Column, Paragraph, Table
from scanopt_cli.text import time_text
from scanopt_cli.verification.modes import PLAIN
from scanopt_cli.verification.result import VerificationTimes


def times_report(times: VerificationTimes) -> Iterator[Block]:
    """Yield the wall time in all, and what each graph took in each mode.

    Numba and JAX compile in the first call, so that it is told apart from the others.
    """
    compiling, running = map(time_text, (times.compiling, times.running))
    whole = time_text(times.seconds)
    yield Paragraph(
        f"verification: {whole}, of which {compiling} compiling and first calls, {running} running"
    )
    if times.compilations:
        numbers = (
            Column(title, is_number=True)
            for title in ("compiling", "first call", "other calls", "calls")
        )
        rows = [
            (
                f"{one.graph}, {'as it is' if one.mode == PLAIN else one.mode}",
                time_text(one.compiling),
                time_text(one.first_call) if one.calls else "",
                time_text(one.later_calls) if one.calls > 1 else "",
                str(one.calls),
            )
            for one in times.compilations
        ]
        yield Table((Column("graph, mode"), *numbers), rows)

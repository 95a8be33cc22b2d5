"""``scanopt explain``: what a term means; of a pass, a rule or a remark, its manual."""

from __future__ import annotations

from difflib import get_close_matches
from importlib.metadata import entry_points
from typing import Annotated

import typer

from scanopt_cli.cli.completion import complete_topic, pass_names
from scanopt_cli.cli.console import plug_in_warnings
from scanopt_cli.cli.exits import ExitCode
from scanopt_cli.cli.list_rules import rules
from scanopt_cli.cli.options import Format, OutputFormat
from scanopt_cli.cli.passes import passes
from scanopt_cli.cli.results import print_result
from scanopt_cli.errors import ScanoptError


def explain(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC",
            help="A term such as mit_mot, a pass, a rule, or the code of a remark.",
            autocompletion=complete_topic,
        ),
    ] = None,
    output_format: OutputFormat = Format.RICH,
) -> ExitCode:
    """Say what a term means, with a picture, and the command that shows it; or list the terms.

    Of a pass, a preset or a rule it prints the manual, and of a remark who leaves it.
    """
    from scanopt_cli.explain.topics import topic, topics
    from scanopt_cli.reports.explain_report import topic_report, topics_report

    if not words:
        listed = topics()
        print_result(output_format, "explain", {"topics": listed}, topics_report(listed))
        return ExitCode.CLEAN
    asked = " ".join(words)
    found = topic(asked)
    if found is not None:
        blocks = topic_report(found, as_markdown=output_format is Format.MARKDOWN)
        print_result(output_format, "explain", {"topics": [found]}, blocks)
        return ExitCode.CLEAN
    return _manual("-".join(words), output_format)


def _manual(asked: str, output_format: Format) -> ExitCode:
    """Print the manual of a pass, a preset, a rule or a remark.

    Raises
    ------
    ScanoptError
        If it is none of these; the message names the nearest topic.
    """
    from scanopt_cli.explain.topics import names
    from scanopt_cli.pipeline.names import PRESETS
    from scanopt_cli.remarks import Code, Why
    from scanopt_cli.rules.rule_names import ENTRY_POINT_GROUP, NAMES

    name = asked.lower().replace("_", "-")
    if name in PRESETS or name in pass_names():
        return passes(name, output_format)
    for code, rule in NAMES.items():
        if name in (code.lower(), rule):
            return rules(code, output_format)
    if entry_points(group=ENTRY_POINT_GROUP):  # rules of other packages, which know their codes
        from scanopt_cli.rules.rule_registry import rules as registered

        with plug_in_warnings():
            if asked.upper() in registered():
                return rules(asked.upper(), output_format)
    if name in {*Code, *Why}:
        return _remark(name, output_format)
    known = {each.lower(): each for each in (*names(), *pass_names(), *PRESETS, *NAMES)}
    known |= {each: each for each in (*NAMES.values(), *Code, *Why)}
    hint = "`scanopt explain` lists the topics"
    for nearest in get_close_matches(asked.lower(), known, n=1):
        hint = f"did you mean {known[nearest]}? {hint}"
    raise ScanoptError(f"there is no topic {asked!r}", hint=hint)


def _remark(name: str, output_format: Format) -> ExitCode:
    from scanopt_cli.reports.remark_manual import remark_manual, remark_report

    found = remark_manual(name)
    print_result(output_format, "explain", {"remarks": [found]}, remark_report(found))
    return ExitCode.CLEAN

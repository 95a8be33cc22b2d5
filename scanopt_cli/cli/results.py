"""Print what a command found, in the format that the user asked for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scanopt_cli.cli.console import err, out
from scanopt_cli.cli.options import Format, ListFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from enum import StrEnum

    from scanopt_cli.reports.as_json import JsonList
    from scanopt_cli.reports.document import Block


def print_result(output_format: Format, command: str, result: Any, blocks: Iterable[Block]) -> None:
    """Print the ``result`` of a command as JSON, or the ``blocks`` that report it as text."""
    if output_format is Format.JSON:
        print_json(command, result)
    else:
        print_blocks(output_format, blocks)


def entry_of_failure(path: Path, error: str) -> dict[str, str]:
    """Return the entry in JSON of a file that had an error."""
    return {"source": str(path), "error": error}


def entries_of[T](
    paths: Iterable[Path],
    found: Mapping[Path, T],
    failures: Mapping[Path, str],
    as_json: Callable[[T], Mapping[str, Any]],
) -> list[Mapping[str, Any]]:
    """Return the entries in JSON of files in their order; each is found, or has failed."""
    return [
        as_json(found[path]) if path in found else entry_of_failure(path, failures[path])
        for path in paths
    ]


def print_json(command: str, result: Any) -> None:
    """Print the result of a command as JSON."""
    from scanopt_cli.reports.as_json import to_json

    out().out(to_json(command, result))


def json_list(output_format: StrEnum, command: str, **head: Any) -> JsonList | None:
    """Return the JSON that a format of several results is; ``None`` if it is another one."""
    from scanopt_cli.reports.as_json import JsonList

    is_json = output_format.value in (ListFormat.JSON, ListFormat.JSONL)
    is_lines = output_format.value == ListFormat.JSONL
    return JsonList(command, is_lines, head) if is_json else None


def json_of(output_format: StrEnum, command: str, *, is_one: bool) -> JsonList | None:
    """Return the same; ``None`` of one result as well, which is no list of one, but in lines."""
    is_object = is_one and output_format.value != ListFormat.JSONL
    return None if is_object else json_list(output_format, command)


def print_blocks(output_format: Format, blocks: Iterable[Block]) -> None:
    """Print blocks as text.

    Raises
    ------
    ValueError
        If the format is none of text, such as JSON.
    """
    match output_format:
        case Format.MARKDOWN:
            from scanopt_cli.reports import as_markdown

            out().out(as_markdown.render(blocks))
        case Format.RICH:
            from scanopt_cli.reports import as_rich

            as_rich.show(out(), blocks)
        case _:
            raise ValueError(f"{output_format.value} is no format of text")


def add_to_step_summary(blocks: Iterable[Block]) -> None:
    """Print blocks in the summary of a step of GitHub Actions, if there is one."""
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        from scanopt_cli.reports.workflow import step_summary

        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(step_summary(blocks))


def print_to_stderr(blocks: Iterable[Block]) -> None:
    """Print blocks on stderr, for a person, whatever the format of the result."""
    from scanopt_cli.reports import as_rich

    as_rich.show(err(), blocks)

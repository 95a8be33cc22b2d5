"""``scanopt cache``: what is kept on disk, and removing it."""

from __future__ import annotations

from typing import Annotated

import typer

from scanopt_cli.cli.exits import ExitCode
from scanopt_cli.cli.options import Format, OutputFormat
from scanopt_cli.cli.results import print_result
from scanopt_cli.errors import ScanoptError


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove all that is kept.")] = False,
    info: Annotated[
        bool, typer.Option("--info", help="Say how much is kept and where, as without options.")
    ] = False,
    output_format: OutputFormat = Format.RICH,
) -> ExitCode:
    """Say what is kept on disk: what `enabled` compiled, and what commands found in files.

    SCANOPT_CACHE=off keeps nothing; SCANOPT_CACHE_LIMIT says how many MiB at most (1024).
    """
    from scanopt_cli.reports.cache_report import CacheUsage, cache_report
    from scanopt_cli.store import is_on, user_store

    store = user_store()
    removed = store.clear().entries if clear else 0
    usage = store.usage()
    if clear and usage.entries and not removed:
        raise ScanoptError("nothing could be removed", where=str(store.directory))
    problem = store.distrust if is_on() else "SCANOPT_CACHE is off"
    found = CacheUsage(store.directory, usage.entries, usage.bytes, store.limit, removed, problem)
    print_result(output_format, "cache", found, cache_report(found, cleared=clear and not info))
    return ExitCode.CLEAN

"""Executes the Python blocks of a page, in one namespace; what they print is handed back.

Reads a line of JSON for each block from stdin, and writes one for each to stdout.
"""

from __future__ import annotations

import json
import linecache
import os
import sys
import tempfile
import traceback
from typing import Any


def main() -> None:
    """Execute blocks until there are no more."""
    # What blocks and their child processes write to stdout and stderr is no part of the answers.
    answers = os.fdopen(os.dup(1), "w")
    scope: dict[str, Any] = {"__name__": "__main__"}
    for number, line in enumerate(sys.stdin):
        block = json.loads(line)
        os.chdir(block["cwd"])
        sys.path[0] = block["cwd"]
        with tempfile.TemporaryFile("w+", encoding="utf-8") as printed:
            os.dup2(printed.fileno(), 1)
            error = _execute(block["code"], f"<block {number + 1}>", scope)
            sys.stdout.flush()
            printed.seek(0)
            print(json.dumps({"printed": printed.read(), "error": error}), file=answers, flush=True)


def _execute(code: str, name: str, scope: dict[str, Any]) -> str | None:
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    try:
        exec(compile(code, name, "exec"), scope)
    except Exception:
        return traceback.format_exc()
    return None


if __name__ == "__main__":
    main()

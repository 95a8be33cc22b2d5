"""What `optimize` did, as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from scanopt_cli.passes.optimizing import OptimizeResult
from scanopt_cli.reports.as_json import envelope, plain


def to_json(results: Sequence[tuple[str, OptimizeResult]]) -> str:
    """Return one object for one file, and a list of them for several.

    Each is the object that the library returns, with the file's name as ``source``.
    """
    told = [envelope("optimize") | {"source": source} | plain(result) for source, result in results]
    return json.dumps(told[0] if len(told) == 1 else told, indent=2, ensure_ascii=False)

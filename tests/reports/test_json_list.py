"""The JSON of several files, printed entry by entry, is that of the whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scanopt_cli.reports.as_json import JsonList, to_json

ENTRIES = [
    {"source": Path("a.pkl"), "names": ["x", "line\nfeed", "##[error]"], "inner": {}},
    {"source": "b.pkl", "error": "no"},
    {"source": "c.pkl", "nested": [{"deep": [[], [1, None, 0.5]]}]},
]


def printed(form: JsonList, count: int) -> str:
    parts = [form.before(i) + form.entry(entry) for i, entry in enumerate(ENTRIES[:count])]
    return "".join(parts) + form.end(count)


@pytest.mark.parametrize("count", range(4))
@pytest.mark.parametrize("head", [{}, {"names": True}])
def test_entry_by_entry(count: int, head: dict[str, bool]) -> None:
    whole = to_json("hash", {**head, "graphs": ENTRIES[:count]})
    assert printed(JsonList("hash", head=head), count) == f"{whole}\n"


@pytest.mark.parametrize("count", range(4))
def test_lines(count: int) -> None:
    text = printed(JsonList("hash", is_lines=True, head={"names": True}), count)
    lines = text.splitlines(keepends=True)
    assert len(lines) == count
    assert all(line.endswith("}\n") for line in lines)
    whole = json.loads(to_json("hash", {"names": True, "graphs": ENTRIES[:count]}))
    head = {"schema": whole["schema"], "command": "hash", "names": True}
    assert [json.loads(line) for line in lines] == [head | entry for entry in whole["graphs"]]
    assert "##" not in text

"""What is in a file of data, told from its table alone: nothing of it is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scanopt_cli.text import plural, printable

_MOST_NOTES, _LONGEST = 20, 500


def class_names(document: Mapping[str, Any]) -> list[str]:
    """Return the names of the classes in a table, each as often as it occurs.

    Raises
    ------
    Exception
        Of some kind, if the table is none of a graph; so does `contents`.
    """
    return [str(row["class"]) for row in document["parts"] if "class" in row]


def contents(document: Mapping[str, Any], files: Sequence[bytes]) -> tuple[str, ...]:
    """Return what a table and its arrays hold, one line each."""
    versions = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
    inner = [row for row in document["parts"] if "nodes" in row]
    n_inner = sum(len(row["nodes"]) for row in inner)
    shared = [row for row in document["inputs"] if len(row) > 2]
    lines = [
        f"data in version {document['version']} of the format .scanopt, written with {versions}",
        f"{plural(len(document['inputs']) - len(shared), 'input')}, "
        f"{plural(len(shared), 'shared variable')}, {plural(len(document['outputs']), 'output')}",
        f"{plural(len(document['nodes']), 'node')}, and {plural(n_inner, 'node')} in "
        f"{plural(len(inner), 'inner graph')}",
    ]
    if files:
        size = sum(map(len, files))
        lines.append(f"{plural(len(files), 'array')} of {size:,} bytes in all")
    if document["recorded"]:
        lines.append(plural(len(document["recorded"]), "recorded call"))
    if document["traces"]:
        lines.append("where variables were made: files and lines of the program")
    lines += [f"note: {note}" for note in document["notes"][:_MOST_NOTES]]
    return tuple(printable(line[:_LONGEST]) for line in lines)

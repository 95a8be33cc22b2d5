"""Findings in the Static Analysis Results Interchange Format (SARIF), version 2.1.0.

The form follows the standard of OASIS; GitHub reads rules, levels, locations and fingerprints of
it, and shows them as code-scanning alerts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import quote

from scanopt_cli.reports.check_report import about, location
from scanopt_cli.rules.graph_checking import CheckResult
from scanopt_cli.rules.rule_contract import Finding
from scanopt_cli.rules.rule_manuals import HOME, rule_manual
from scanopt_cli.text import printable
from scanopt_cli.version import __version__

_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)


def sarif(results: Mapping[Path, CheckResult], errors: Sequence[str] = ()) -> str:
    """Return the findings as one run of one tool, in which files failed with ``errors``.

    What is not proved has the kind ``open``, as the standard calls what a tool cannot decide. The
    text is ASCII, and starts no command of a CI service.
    """
    found = [
        (path, finding, kind)
        for path, result in results.items()
        for kind, findings in (("fail", result.findings), ("open", result.suspects))
        for finding in findings
    ]
    codes = list(dict.fromkeys(finding.code for _, finding, _ in found))
    driver = {
        "name": "scanopt",
        "version": __version__,
        "informationUri": HOME,
        "rules": [_descriptor(code) for code in codes],
    }
    notifications = [{"level": "error", "message": {"text": printable(text)}} for text in errors]
    run = {
        "tool": {"driver": driver},
        "invocations": [
            {"executionSuccessful": not errors, "toolExecutionNotifications": notifications}
        ],
        "columnKind": "unicodeCodePoints",
        "results": [
            _result(path, finding, codes.index(finding.code), kind) for path, finding, kind in found
        ],
    }
    text = json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)
    return text.replace("##", "#\\u0023")


def _descriptor(code: str) -> dict[str, Any]:
    manual = rule_manual(code)
    link = {} if manual.link is None else {"helpUri": manual.link}
    return {
        "id": code,
        "name": manual.name,
        "shortDescription": {"text": manual.summary},
        "fullDescription": {"text": manual.text},
        "help": {"text": manual.text, "markdown": manual.text},
        "defaultConfiguration": {"level": manual.severity},
        **link,
    }


def _result(path: Path, finding: Finding, index: int, kind: str) -> dict[str, Any]:
    file, line = location(finding) or (str(path), None)
    place: dict[str, Any] = {"artifactLocation": {"uri": _uri(file)}}
    if line is not None:
        place["region"] = {"startLine": line}
    return {
        "ruleId": finding.code,
        "ruleIndex": index,
        "kind": kind,
        "level": finding.severity.value if kind == "fail" else "none",
        "message": {"text": printable(f"{about(finding)}: {finding.text} ({path})")},
        "locations": [
            {
                "physicalLocation": place,
                "logicalLocations": [{"fullyQualifiedName": printable(finding.loop)}],
            }
        ],
        "partialFingerprints": {"scanopt/v1": finding.key},
    }


def _uri(file: str) -> str:
    """Return a relative reference, or the address of a file; never that of another machine."""
    path = PurePath(file).as_posix()
    quoted = quote(path, safe="/", errors="replace")
    return f"file:///{quoted.lstrip('/')}" if PurePath(file).is_absolute() else quoted

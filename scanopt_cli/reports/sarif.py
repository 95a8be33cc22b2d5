"""Findings in the Static Analysis Results Interchange Format (SARIF), version 2.1.0.

The form follows the standard of OASIS; GitHub reads rules, levels, locations and fingerprints of
it, and shows them as code-scanning alerts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from scanopt_cli.reports.check_report import Results, about, location
from scanopt_cli.rules.rule_contract import Finding
from scanopt_cli.rules.rule_manuals import rule_manual
from scanopt_cli.text import printable
from scanopt_cli.version import __version__

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(results: Results) -> str:
    """Return the findings as one run of one tool."""
    found = [(path, f) for path, result in results.items() for f in result.findings]
    codes = list(dict.fromkeys(finding.code for _, finding in found))
    driver = {
        "name": "scanopt",
        "version": __version__,
        "rules": [_descriptor(code) for code in codes],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(path, finding, codes.index(finding.code)) for path, finding in found],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _descriptor(code: str) -> dict[str, Any]:
    manual = rule_manual(code)
    return {
        "id": code,
        "name": manual.name,
        "shortDescription": {"text": manual.summary},
        "fullDescription": {"text": manual.text},
        "defaultConfiguration": {"level": manual.severity},
    }


def _result(path: Path, finding: Finding, index: int) -> dict[str, Any]:
    file, line = location(finding) or (path.as_posix(), None)
    place: dict[str, Any] = {"artifactLocation": {"uri": _uri(file)}}
    if line is not None:
        place["region"] = {"startLine": line}
    return {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": finding.severity.value,
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
    return quote(file, safe="/", errors="replace")

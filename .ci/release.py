#!/usr/bin/env python3
"""Make a release: cut the change log, check that all agrees, print its notes, check what is built.

    .ci/release.py cut 0.2.0      turn what is not released yet into a version of today
    .ci/release.py check v0.2.0   whether the tag, version.py and the change log agree
    .ci/release.py notes v0.2.0   print the section of a version
    .ci/release.py contents dist  whether a wheel and a source distribution hold what they should

Needs Python alone. Exits with 1 if something does not agree, with a line on stderr for each reason.
"""

from __future__ import annotations

import re
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

UNRELEASED = "Not released yet"
_VERSION = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
_MAN = re.compile(r"[^/]+\.data/data/share/man/man1/scanopt(-[a-z]+)?\.1")


class NotReadyError(Exception):
    """Why a release cannot be made."""


class Repository:
    """The files that hold a version."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.changes = root / "docs" / "changes.md"
        self.version_file = root / "scanopt_cli" / "version.py"

    @property
    def version(self) -> str:
        """The version that the package says it is."""
        found = re.search(r'^__version__ = "(.+)"$', self.version_file.read_text(), re.MULTILINE)
        if found is None:
            raise NotReadyError(f"{self.version_file}: there is no __version__")
        return found[1]

    def sections(self) -> dict[str, str]:
        """Return what stands in the change log below each heading, by version."""
        _, *parts = _HEADING.split(self.changes.read_text())
        titles = (title.partition(" (")[0] for title in parts[::2])
        return dict(zip(titles, (text.strip() for text in parts[1::2]), strict=True))

    def cut(self, version: str, date: str) -> None:
        """Let what is not released yet be that version's, and the package say so."""
        if not _VERSION.fullmatch(version):
            raise NotReadyError(f"{version!r} is no version such as 0.2.0 or 0.2.0rc1")
        sections = self.sections()
        if version in sections:
            raise NotReadyError(f"{self.changes}: there is a section {version} already")
        if not sections.get(UNRELEASED):
            raise NotReadyError(f"{self.changes}: there is nothing below {UNRELEASED!r}")
        text, old = self.changes.read_text(), self.version
        heading = f"## {UNRELEASED}\n"
        text = text.replace(heading, f"{heading}\n## {version} ({date})\n", 1)
        source = self.version_file.read_text().replace(f'"{old}"', f'"{version}"')
        self.changes.write_text(text)
        self.version_file.write_text(source)

    def check(self, tag: str) -> None:
        """Raise a `NotReadyError` unless the tag, the package and the change log agree."""
        version = tag.removeprefix("v")
        if tag != f"v{self.version}":
            raise NotReadyError(f"the tag is {tag}, and {self.version_file} says {self.version}")
        sections = self.sections()
        if not sections.get(version):
            raise NotReadyError(f"{self.changes}: there is nothing of {version}")
        if sections.get(UNRELEASED):
            raise NotReadyError(
                f"{self.changes}: something is not released yet; run .ci/release.py cut"
            )

    def notes(self, tag: str) -> str:
        """Return what changed in a version."""
        found = self.sections().get(tag.removeprefix("v"))
        if not found:
            raise NotReadyError(f"{self.changes}: there is nothing of {tag}")
        return found

    def faults(self, directory: Path) -> Iterator[str]:
        """Yield what is wrong with the distributions in a directory."""
        wheels, sources = sorted(directory.glob("*.whl")), sorted(directory.glob("*.tar.gz"))
        if (len(wheels), len(sources)) != (1, 1):
            yield f"{directory}: there is not one wheel and one source distribution"
            return
        with zipfile.ZipFile(wheels[0]) as wheel:
            yield from self._faults_of_wheel(wheel.namelist())
        with tarfile.open(sources[0]) as source:
            names = {name.partition("/")[2] for name in source.getnames()}
        wanted = ("LICENSE", "README.md", "pyproject.toml", ".ci/man_hook.py", "tests/conftest.py")
        yield from (f"{sources[0].name}: {name} is missing" for name in wanted if name not in names)

    def _faults_of_wheel(self, names: Sequence[str]) -> Iterator[str]:
        about = f"scanopt-{self.version}.dist-info/"
        package = self.root / "scanopt_cli"
        here = {
            str(path.relative_to(self.root))
            for path in package.rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        held = {name for name in names if name.startswith("scanopt_cli/")}
        yield from (f"wheel: {name} is missing" for name in sorted(here - held))
        yield from (f"wheel: {name} is no file of the package" for name in sorted(held - here))
        pages = {name for name in names if _MAN.fullmatch(name)}
        if len(pages) < 2:
            yield "wheel: there are no man pages"
        others = {name for name in names if not name.startswith(about)} - held - pages
        yield from (f"wheel: {name} does not belong there" for name in sorted(others))
        for name in ("METADATA", "entry_points.txt", "licenses/LICENSE"):
            if about + name not in names:
                yield f"wheel: {about}{name} is missing"


def main(arguments: Sequence[str]) -> int:
    """Do what is asked for, in the repository that holds this file."""
    repository = Repository(Path(__file__).resolve().parent.parent)
    try:
        match arguments:
            case ["cut", version]:
                repository.cut(version, datetime.now(UTC).strftime("%Y-%m-%d"))
                print(f"next: commit, git tag v{version}, and push the tag")
            case ["check", tag]:
                repository.check(tag)
            case ["notes", tag]:
                print(repository.notes(tag))
            case ["contents", directory]:
                faults = list(repository.faults(Path(directory)))
                print("\n".join(faults), end="\n" if faults else "", file=sys.stderr)
                return int(bool(faults))
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    except NotReadyError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

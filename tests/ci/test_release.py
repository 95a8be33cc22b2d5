"""What a release is made by: cutting the change log, checks, notes, and what is built."""

from __future__ import annotations

import importlib.util
import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from scanopt_cli import __version__

ROOT = Path(__file__).parents[2]
CHANGES = """# Changes

What a user notices.

## Not released yet

### Loops

- One thing.
- Another: `## Not released yet` is no heading here.

## 0.1.0 (2026-01-02)

- The first.
"""


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / ".ci" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


release = _load()


@pytest.fixture
def repository(tmp_path: Path):
    """A repository of version 0.1.0, with something that is not released yet."""
    for name, text in {
        "docs/changes.md": CHANGES,
        "scanopt_cli/version.py": '"""The version."""\n\n__version__ = "0.1.0"\n',
        "scanopt_cli/py.typed": "",
        "scanopt_cli/part/__init__.py": '"""A part."""\n',
    }.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return release.Repository(tmp_path)


def test_what_is_not_released_becomes_a_version(repository) -> None:
    repository.cut("0.2.0", "2026-11-28")
    assert repository.version == "0.2.0"
    repository.check("v0.2.0")
    text = repository.changes.read_text()
    assert "## Not released yet\n\n## 0.2.0 (2026-11-28)\n\n### Loops\n" in text
    assert repository.notes("v0.2.0").startswith("### Loops\n\n- One thing.\n")
    assert repository.notes("v0.2.0").endswith("no heading here.")
    assert repository.notes("0.1.0") == "- The first."
    # Nothing else has changed.
    assert text.replace("\n## 0.2.0 (2026-11-28)\n", "", 1) == CHANGES


def test_a_release_candidate(repository) -> None:
    repository.cut("0.2.0rc1", "2026-11-28")
    repository.check("v0.2.0rc1")


@pytest.mark.parametrize(
    ("version", "why"), [("2", "no version"), ("v0.2.0", "no version"), ("0.1.0", "already")]
)
def test_versions_that_cannot_be_cut(repository, version: str, why: str) -> None:
    with pytest.raises(release.NotReadyError, match=why):
        repository.cut(version, "2026-11-28")
    assert repository.changes.read_text() == CHANGES
    assert repository.version == "0.1.0"


def test_nothing_to_release(repository) -> None:
    repository.cut("0.2.0", "2026-11-28")
    with pytest.raises(release.NotReadyError, match="nothing below"):
        repository.cut("0.3.0", "2026-11-29")


def test_what_does_not_agree(repository) -> None:
    with pytest.raises(release.NotReadyError, match=r"tag is v0\.2\.0, and .* says 0\.1\.0"):
        repository.check("v0.2.0")
    with pytest.raises(release.NotReadyError, match="not released yet"):
        repository.check("v0.1.0")
    with pytest.raises(release.NotReadyError, match=r"nothing of v9\.9\.9"):
        repository.notes("v9.9.9")
    repository.version_file.write_text('__version__ = "0.1.1"\n')
    with pytest.raises(release.NotReadyError, match=r"nothing of 0\.1\.1"):
        repository.check("v0.1.1")


def test_the_change_log_of_this_repository() -> None:
    """It can be cut: it has the one heading, and versions have dates."""
    here = release.Repository(ROOT)
    assert here.version == __version__
    assert here.sections()[release.UNRELEASED]
    assert here.changes.read_text().count(f"\n## {release.UNRELEASED}\n") == 1


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert release.main(["check", "v99.0.0"]) == 1
    assert "says" in capsys.readouterr().err
    assert release.main(["notes", release.UNRELEASED]) == 0
    assert capsys.readouterr().out.startswith("### ")
    assert release.main([]) == 2


WHEEL = (
    "scanopt_cli/version.py",
    "scanopt_cli/py.typed",
    "scanopt_cli/part/__init__.py",
    "scanopt-0.1.0.data/data/share/man/man1/scanopt.1",
    "scanopt-0.1.0.data/data/share/man/man1/scanopt-diff.1",
    "scanopt-0.1.0.dist-info/METADATA",
    "scanopt-0.1.0.dist-info/entry_points.txt",
    "scanopt-0.1.0.dist-info/licenses/LICENSE",
    "scanopt-0.1.0.dist-info/RECORD",
)
SOURCE = ("LICENSE", "README.md", "pyproject.toml", ".ci/man_hook.py", "tests/conftest.py")


def build(folder: Path, wheel: tuple[str, ...], source: tuple[str, ...]) -> Path:
    folder.mkdir()
    with zipfile.ZipFile(folder / "scanopt-0.1.0-py3-none-any.whl", "w") as file:
        for name in wheel:
            file.writestr(name, "")
    with tarfile.open(folder / "scanopt-0.1.0.tar.gz", "w:gz") as file:
        for name in source:
            file.addfile(tarfile.TarInfo(f"scanopt-0.1.0/{name}"), io.BytesIO())
    return folder


def without(*names: str) -> Callable[[tuple[str, ...]], tuple[str, ...]]:
    return lambda listed: tuple(name for name in listed if name not in names)


@pytest.mark.parametrize(
    ("wheel", "source", "faults"),
    [
        (WHEEL, SOURCE, []),
        (without("scanopt_cli/py.typed")(WHEEL), SOURCE, ["scanopt_cli/py.typed is missing"]),
        (without(*WHEEL[3:5])(WHEEL), SOURCE, ["no man pages"]),
        (without(WHEEL[7])(WHEEL), SOURCE, ["licenses/LICENSE is missing"]),
        ((*WHEEL, "tests/test_a.py"), SOURCE, ["tests/test_a.py does not belong there"]),
        ((*WHEEL, "scanopt_cli/left.py"), SOURCE, ["left.py is no file of the package"]),
        (WHEEL, SOURCE[1:], ["LICENSE is missing"]),
    ],
)
def test_what_is_built(repository, tmp_path: Path, wheel, source, faults: list[str]) -> None:
    found = list(repository.faults(build(tmp_path / "dist", wheel, source)))
    assert len(found) == len(faults)
    assert all(fault in text for fault, text in zip(faults, found, strict=True))


def test_nothing_is_built(repository, tmp_path: Path) -> None:
    assert list(repository.faults(tmp_path)) != []

"""Files as they are in git: what is read, and that a hostile repository runs nothing."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from scanopt_cli.errors import LoadError, ScanoptError
from scanopt_cli.serialization import files, revisions
from scanopt_cli.serialization.revisions import Revision, pointed_at
from support.git import commit, git, repository

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %d\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository with a graph file in a directory, whose content is changed since."""
    folder = repository(tmp_path / "repository")
    (folder / "graphs").mkdir()
    (folder / "graphs" / "a.pkl").write_bytes(b"before")
    commit(folder)
    (folder / "graphs" / "a.pkl").write_bytes(b"after")
    return folder


def content(path: Path, name: str = "main") -> bytes:
    revision = Revision.of(path, name)
    (stored,) = revision.files(path).values()
    return revision.read(path, stored).data


def refused(path: Path, name: str = "main") -> str:
    with pytest.raises(ScanoptError) as caught:
        content(path, name)
    return str(caught.value)


def test_a_file_is_as_it_was(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("main", "HEAD", "HEAD~0", git(folder, "rev-parse", "HEAD").strip()):
        assert content(folder / "graphs" / "a.pkl", name) == b"before"
    monkeypatch.chdir(folder / "graphs")
    assert content(Path("a.pkl")) == b"before"
    assert content(Path("../graphs/a.pkl")) == b"before"


def test_the_graphs_of_a_directory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "graphs" / "deep").mkdir()
    for name in ("b.scanopt", "deep/c.pkl.gz", "notes.txt", "[a].pkl", "*.pkl"):
        (folder / "graphs" / name).write_bytes(b"x")
    commit(folder)
    names = {"a.pkl", "b.scanopt", "deep/c.pkl.gz", "[a].pkl", "*.pkl"}
    revision = Revision.of(folder, "main")
    assert {*revision.files(folder)} == {folder / "graphs" / name for name in names}
    assert {*revision.files(folder / "graphs" / "*.pkl")} == {folder / "graphs" / "*.pkl"}
    monkeypatch.chdir(folder / "graphs")
    assert {*map(str, revision.files(Path()))} == names
    assert {*map(str, revision.files(Path("deep")))} == {"deep/c.pkl.gz"}
    assert {*map(str, revision.files(Path("..")))} == {f"../graphs/{name}" for name in names}


def test_what_is_gone_is_still_in_git(folder: Path) -> None:
    (folder / "graphs" / "a.pkl").unlink()
    (folder / "graphs").rmdir()
    assert content(folder / "graphs" / "a.pkl") == b"before"
    assert [*Revision.of(folder / "graphs", "main").files(folder / "graphs")]
    assert not Revision.of(folder / "nothing", "main").files(folder / "nothing" / "a.pkl")


def test_ugly_names(folder: Path) -> None:
    names = ["two\nlines.pkl", "ta\tb.pkl", "-o.pkl", ":(top)a.pkl", "é.pkl", "  .pkl"]
    if os.name == "posix":
        names.append(os.fsdecode(b"\xff.pkl"))
    for name in names:
        (folder / name).write_bytes(name.encode(errors="surrogateescape"))
    commit(folder)
    for name in names:
        assert content(folder / name) == name.encode(errors="surrogateescape")
    assert {folder / name for name in names} <= {*Revision.of(folder, "main").files(folder)}


def test_a_worktree_has_the_files_of_its_own(folder: Path, tmp_path: Path) -> None:
    git(folder, "worktree", "add", "-q", tmp_path / "other", "-b", "other")
    assert content(tmp_path / "other" / "graphs" / "a.pkl", "other") == b"before"


def test_the_repository_is_that_of_the_file(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hook runs with variables that name another one."""
    other = repository(tmp_path / "other")
    (other / "a.pkl").write_bytes(b"other")
    commit(other)
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
    assert content(folder / "graphs" / "a.pkl") == b"before"


def test_a_path_through_a_link_is_that_of_what_it_leads_to(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder / "graphs")
    assert content(tmp_path / "link" / "a.pkl") == b"before"


def test_repositories_with_longer_names_of_objects(tmp_path: Path) -> None:
    folder = repository(tmp_path / "repository", "--object-format=sha256")
    (folder / "a.pkl").write_bytes(b"before")
    commit(folder)
    (stored,) = Revision.of(folder, "main").files(folder).values()
    assert (stored.holds(b"before"), stored.holds(b"after")) == (True, False)
    assert content(folder / "a.pkl") == b"before"


@pytest.mark.parametrize(
    "name",
    ["", "-", "--help", "--output=x", "-h", "nothing", "main:graphs", "a b", "main\n", "x\0"],
)
def test_what_is_no_revision(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    before = sorted(folder.iterdir())
    assert "revision" in refused(folder / "graphs" / "a.pkl", name)
    assert sorted(folder.iterdir()) == before


def test_a_branch_is_no_option(folder: Path) -> None:
    """Git itself makes no such branch; a repository can hold one."""
    head = git(folder, "rev-parse", "HEAD").strip()
    (folder / ".git" / "refs" / "heads" / "--help").write_text(f"{head}\n")
    assert "revision" in refused(folder / "graphs" / "a.pkl", "--help")
    assert content(folder / "graphs" / "a.pkl", "heads/--help") == b"before"


def test_a_shallow_clone_says_what_to_do(folder: Path, tmp_path: Path) -> None:
    commit(folder)
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{folder}", "shallow")
    path = tmp_path / "shallow" / "graphs" / "a.pkl"
    assert content(path, "HEAD") == b"after"
    assert "fetch-depth: 0" in refused(path, "HEAD~1")


def test_a_clone_without_contents_fetches_nothing(folder: Path, tmp_path: Path) -> None:
    git(folder, "config", "uploadpack.allowFilter", "true")
    commit(folder)
    options = ("--filter=blob:none", "-c", "protocol.file.allow=always")
    git(tmp_path, "clone", "-q", *options, f"file://{folder}", "partial")
    partial, marker = tmp_path / "partial", tmp_path / "marker"
    path = partial / "graphs" / "a.pkl"
    assert content(path, "HEAD") == b"after"
    git(partial, "config", "remote.origin.uploadpack", f"touch {marker}; git-upload-pack")
    assert "is not in this clone" in refused(path, "HEAD~1")
    git(partial, "config", "remote.origin.url", f"ext::sh -c touch% {marker}")
    git(partial, "config", "protocol.ext.allow", "always")
    assert "is not in this clone" in refused(path, "HEAD~1")
    assert not marker.exists()


def test_nothing_that_a_repository_names_is_run(folder: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {marker}\ncat\n")
    program.chmod(0o755)
    for name in ("post-checkout", "post-index-change", "reference-transaction", "pre-commit"):
        hook = folder / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_bytes(program.read_bytes())
        hook.chmod(0o755)
    (folder / ".git" / "info" / "attributes").write_text("* filter=bad diff=bad\n")
    for key in (
        *("core.fsmonitor", "core.pager", "core.sshCommand", "core.editor", "core.askPass"),
        *("filter.bad.smudge", "filter.bad.clean", "filter.bad.process", "diff.bad.textconv"),
        *("diff.external", "diff.bad.command", "core.alternateRefsCommand", "credential.helper"),
    ):
        git(folder, "config", key, str(program))
    for alias in ("rev-parse", "ls-tree", "cat-file"):
        git(folder, "config", f"alias.{alias}", f"!{program}")
    assert content(folder / "graphs" / "a.pkl") == b"before"
    assert [*Revision.of(folder, "main").files(folder)]
    assert not marker.exists()


def test_files_that_look_like_a_repository_are_none(folder: Path, tmp_path: Path) -> None:
    inside = folder / "graphs"
    for name in ("objects", "refs"):
        (inside / name).mkdir()
    (inside / "HEAD").write_text("ref: refs/heads/main\n")
    (inside / "config").write_text("[core]\nbare = false\nworktree = /\n")
    assert "is in no git repository" in refused(inside / "a.pkl")


def test_what_is_in_no_repository(tmp_path: Path, folder: Path) -> None:
    assert "is in no git repository" in refused(tmp_path / "a.pkl")
    assert "is in no git repository" in refused(folder / ".git" / "a.pkl")
    bare = repository(tmp_path / "bare", "--bare")
    assert "is in no git repository" in refused(bare / "a.pkl")
    with pytest.raises(ScanoptError, match="another repository"):
        Revision.of(folder, "main").files(tmp_path / "a.pkl")


def test_a_damaged_repository_is_one_line(folder: Path) -> None:
    path = folder / "graphs" / "a.pkl"
    (stored,) = Revision.of(path, "main").files(path).values()
    (folder / ".git" / "objects" / stored.oid[:2] / stored.oid[2:]).unlink()
    assert "\n" not in refused(path)
    (folder / ".git" / "HEAD").write_text("nothing")
    assert "\n" not in refused(path)


def test_without_git(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder))
    assert "there is no git" in refused(folder / "graphs" / "a.pkl")


def test_sizes_and_times_are_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "graphs" / "a.pkl"
    monkeypatch.setattr(files, "MAX_BYTES", 5)
    assert "more than 5 bytes" in refused(path)
    monkeypatch.setattr(revisions, "_MOST_LISTED", 5)
    monkeypatch.setattr(revisions._ask, "__kwdefaults__", {"most": 5})
    assert "prints more than 5 bytes" in refused(path)


def test_git_that_takes_too_long_is_ended(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(revisions, "_SECONDS", 0.2)
    assert "takes more than" in refused(folder / "graphs" / "a.pkl")


def test_links_are_not_followed_in_git(folder: Path) -> None:
    (folder / "link.pkl").symlink_to("graphs/a.pkl")
    commit(folder)
    revision = Revision.of(folder, "main")
    link = folder / "link.pkl"
    with pytest.raises(LoadError, match="is a symbolic link"):
        revision.read(link, revision.files(folder)[link])


def test_a_pointer_of_lfs_stands_for_what_is_on_this_machine(folder: Path) -> None:
    oid = hashlib.sha256(b"large").hexdigest()
    path = folder / "graphs" / "a.pkl"
    path.write_bytes(POINTER % (oid.encode(), 5))
    commit(folder)
    assert pointed_at(path.read_bytes()) == oid
    assert "git lfs fetch origin main" in refused(path)
    stored = folder / ".git" / "lfs" / "objects" / oid[:2] / oid[2:4] / oid
    stored.parent.mkdir(parents=True)
    stored.write_bytes(b"other")
    assert "git lfs fetch origin main" in refused(path)
    stored.write_bytes(b"large")
    assert content(path) == b"large"


def test_a_pointer_that_was_checked_out_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.pkl"
    path.write_bytes(POINTER % (b"0" * 64, 5))
    with pytest.raises(LoadError, match="run git lfs pull"):
        files.unpacked(files.read_bytes(path), str(path))


@pytest.mark.parametrize(
    "data",
    [b"", b"version https://git-lfs.github.com/spec/v1\n", b"x" * 2000, POINTER % (b"zz", 1)],
)
def test_what_is_no_pointer(data: bytes) -> None:
    assert pointed_at(data) is None

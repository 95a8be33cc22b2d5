"""Results of commands on files, kept on disk: what did not change is not done again.

A result is kept by all that it depends on: the name and the content of what was read, the task with
the options of the user, the screens that it was printed for, and the programs: scanopt, Python,
every package that is installed, and the settings of PyTensor. So nothing has to be imported to find
out that a result is there. Results of what can change without notice are not kept: of packages that
are imported from elsewhere than where packages are installed (programs that are being written), and
of tasks that say so.
"""

from __future__ import annotations

import os
import pickle
import platform
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cache
from hashlib import sha256
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from scanopt_cli.cli.console import is_without_colour
from scanopt_cli.cli.error_text import debugging
from scanopt_cli.cli.file_work import FileResult, Task, digest_of
from scanopt_cli.cli.recording import screens
from scanopt_cli.environment import INSTALLED, STRICT, settings_of_pytensor
from scanopt_cli.errors import ScanoptError
from scanopt_cli.store import Store, is_on, user_store

_PROTOCOL = 5
_METADATA = (".dist-info", ".egg-info")
_PLUG_INS = ("scanopt.passes", "scanopt.rules")
# What Rich makes of a terminal.
_LOOKS = ("COLORTERM", "FORCE_COLOR", "TERM")


@dataclass(frozen=True, slots=True)
class KeptResults:
    """The results that a store has, and takes, for commands that run here and now."""

    store: Store
    surroundings: bytes
    _known: dict[int, tuple[Any, bytes]] = field(default_factory=dict)

    @classmethod
    def here(cls) -> KeptResults | None:
        """Return what is kept for this user and these programs, ``None`` if nothing may be."""
        if not is_on() or debugging.get():
            return None
        programs = _programs()
        if programs is None:
            return None
        looks = [os.environ.get(name) for name in _LOOKS]
        printed = (screens(), looks, is_without_colour(), _here())
        made = (settings_of_pytensor(), os.environ.get(STRICT))
        return cls(user_store(), programs + _plain(printed, made))

    def keys_of(self, tasks: Mapping[Path, Task[Any]]) -> dict[Path, str]:
        """Return the keys of the results that there are."""
        keys = {path: self._found(task, path) for path, task in tasks.items()}
        return {path: key for path, key in keys.items() if key is not None and self.store.has(key)}

    def read(self, key: str) -> FileResult[Any] | None:
        """Return a result, ``None`` if there is none that can be read."""
        content = self.store.get(key)
        if content is None:
            return None
        try:
            found: FileResult[Any] = pickle.loads(content)
        except Exception:  # of a class that is gone, say
            self.store.discard(key)
            return None
        return found

    def keep(self, task: Task[Any], result: FileResult[Any]) -> None:
        """Keep the result of what was read, if it can be kept."""
        if not task.is_kept or result.done is None or not result.done.is_kept:
            return
        key = self._key(task, result.path, result.digest)
        with suppress(Exception):  # what cannot be pickled is done again each time
            self.store.put(key, pickle.dumps(result, _PROTOCOL))

    def _found(self, task: Task[Any], path: Path) -> str | None:
        """Return the key of the result that a file has now, ``None`` if it has none."""
        if not task.is_kept:
            return None
        try:
            return self._key(task, path, digest_of(task.read(path)))
        except ScanoptError:  # which is told when the file is worked on
            return None

    def _key(self, task: Task[Any], path: Path, digest: bytes) -> str:
        content = sha256(self.surroundings)
        content.update(_plain(type(task).__module__, path, digest))
        for part in fields(task):  # type: ignore[arg-type]
            content.update(_plain(part.name) + self._plain_once(getattr(task, part.name)))
        return f"result-{content.hexdigest()}"

    def _plain_once(self, value: Any) -> bytes:
        """Return a part of a task as bytes; what is large, as a baseline, all tasks share."""
        if not isinstance(value, Mapping):
            return _plain(value)
        if id(value) not in self._known:
            self._known[id(value)] = value, _plain(value)
        return self._known[id(value)][1]


def _here() -> str:
    """Return the working directory, from which places in programs are told."""
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return ""


@cache
def _programs() -> bytes | None:
    """Return what tells the programs from others, ``None`` if one of them is being written."""
    points = [point for group in _PLUG_INS for point in entry_points(group=group)]
    packages = {"pytensor", *(point.module.partition(".")[0] for point in points)}
    if not all(map(_is_installed, packages)):
        return None
    installed: set[str] = set()
    for place in filter(os.path.isdir, dict.fromkeys(sys.path)):
        with suppress(OSError):
            installed |= {name for name in os.listdir(place) if name.endswith(_METADATA)}
    own = Path(__file__).parents[1]
    files = {
        str(file): (found.st_size, found.st_mtime_ns)
        for folder, _, names in os.walk(own)
        for file in (Path(folder, name) for name in names if name.endswith(".py"))
        for found in [file.stat()]
    }
    return _plain(sys.version, platform.platform(), installed, files)


def _is_installed(package: str) -> bool:
    try:
        found = find_spec(package)
    except (ImportError, ValueError):
        return False
    origin = "" if found is None or found.origin is None else found.origin
    return not set(INSTALLED).isdisjoint(Path(origin).parts)


def _plain(*things: Any) -> bytes:
    """Return plain data as bytes, the same in each process; others for other data.

    Raises
    ------
    TypeError
        If it is not plain data.
    """
    content = sha256()
    for thing in things:
        for part in _parts(thing):
            content.update(b"%d:%s" % (len(part), part))
    return content.digest()


def _parts(thing: Any) -> Sequence[bytes]:
    """Return a value as a kind and what it consists of, each as bytes."""
    kind = type(thing).__qualname__.encode()
    match thing:
        case None | bool() | int() | float() | str() if not isinstance(thing, Enum):
            return (kind, repr(thing).encode("utf-8", "surrogatepass"))
        case bytes():
            return (kind, thing)
        case Enum() | os.PathLike():
            value = thing.value if isinstance(thing, Enum) else os.fspath(thing)
            return (kind, _plain(value))
        case Mapping():
            return (b"mapping", *sorted(_plain(*item) for item in thing.items()))
        case frozenset() | set():
            return (b"set", *sorted(map(_plain, thing)))
        case list() | tuple():
            return (b"sequence", *map(_plain, thing))
        case ScanoptError():
            return (kind, _plain(str(thing)))
        case _ if is_dataclass(thing):
            named = ((part.name, getattr(thing, part.name)) for part in fields(thing))
            return (kind, *(_plain(*item) for item in named))
    raise TypeError(f"{type(thing).__name__} is not plain data")

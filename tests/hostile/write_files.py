"""Write the hostile files of the tests into a folder, to try them by hand.

    python tests/hostile/write_files.py FOLDER

What they would run, if it ran, makes the file ``FOLDER/marker``.
"""

from __future__ import annotations

import pickle
import re
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from scanopt_cli.serialization.payload import encode
from support.graph_building import graph_of
from support.hostile import arrays as hostile_arrays
from support.hostile import names as hostile_names
from support.hostile import state as hostile_state
from support.hostile.files import FILES
from support.hostile.graphs import HEAVY
from support.hostile.running import HOSTILE
from support.hostile.sharing import SHARING
from support.hostile.sizes import SIZES

assert hostile_names  # their import completes HOSTILE
assert hostile_state
assert hostile_arrays


def refused(marker: Path) -> dict[str, bytes]:
    """Return the files that every command refuses, by name."""
    found = {name: make(marker) for name, make in HOSTILE.items()}
    return found | {name: make() for name, make in {**FILES, **SIZES, **SHARING}.items()}


def heavy(name: str) -> bytes:
    """Return a file that loads, and is more than it seems."""
    # Not by a pickler, which recurses.
    return pickle.dumps(encode(graph_of(HEAVY[name]()), keep_traces=False))


def write(folder: Path) -> list[Path]:
    """Write all files; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    files = refused(folder / "marker") | {name: heavy(name) for name in HEAVY}
    paths = []
    for name, data in files.items():
        paths.append(folder / f"{re.sub('[^a-z0-9]+', '_', name.lower())}.pkl")
        paths[-1].write_bytes(data)
    return paths


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(f"{len(write(Path(sys.argv[1])))} files in {sys.argv[1]}")

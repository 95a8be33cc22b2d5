"""Make a directory of many graphs: ``python tests/benchmarks/many_graphs.py DIR --graphs 2000``.

They are samples, models of the zoo with their derivatives, batches, graphs with every kind of Op,
random loops with and without gradients, and what ``scanopt capture`` keeps of a program. The same
seed makes the same graphs. Prints how many there are of each kind, and how large they are.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("PYTENSOR_FLAGS", "cxx=,linker=vm,traceback__limit=0")
os.environ.setdefault("SCANOPT_CACHE", "off")

from support.benchmarks.corpus import CONTENTS, build, sizes_of, table
from support.benchmarks.figures import markdown


def main() -> None:
    """Make the directory."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("directory", type=Path, help="a new directory")
    parser.add_argument("--graphs", type=int, default=2_000, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="of those that are random")
    given = parser.parse_args()
    if given.directory.is_dir() and any(given.directory.iterdir()):
        parser.error(f"{given.directory} is not empty")
    entries = build(
        given.directory,
        sizes_of(given.graphs),
        given.seed,
        tell=lambda text: print(text, file=sys.stderr, flush=True),
    )
    print("\n".join(markdown(*table(entries))))
    print(f"{len({entry.digest for entry in entries}):,} of them are different; see {CONTENTS}")


if __name__ == "__main__":
    main()

"""Paste what commands print today into a page: ``python tests/docs/paste_outputs.py PAGE...``.

Blocks that show something get all that is printed; those with ``…`` in them stay as they are. Run
it with ``tests`` and the root of the project on PYTHONPATH, and read what it changed.
"""

from __future__ import annotations

import shutil
import sys
from contextlib import chdir, redirect_stdout
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from support.pages import ROOT, Block, Page, Reader, read_page


class Paster(Reader):
    """Replaces what a block shows by what is printed, where these differ."""

    def _compare(self, block: Block, shown: str, told: str, place: str) -> None:
        try:
            super()._compare(block, shown, told, place)
        except AssertionError:
            if "…" not in shown.split():
                lines = told.rstrip().lstrip("\n").splitlines()
                self.pasted.append((block.line, shown, "\n".join(line.rstrip() for line in lines)))

    def __post_init__(self) -> None:
        """Start without anything to paste."""
        super().__post_init__()
        self.pasted: list[tuple[int, str, str]] = []


def paste(page: Page) -> None:
    """Run a page and write what it prints into it."""
    from build import SAMPLES, write

    with TemporaryDirectory() as folder:
        here = Path(folder) / "page"
        (here / "sample_graphs").mkdir(parents=True)
        with chdir(ROOT), redirect_stdout(None):
            for name in SAMPLES:
                write(import_module(name).build(), here / "sample_graphs")
        reader = Paster(here, page, "own-cache" in page.words)
        try:
            for block in page.blocks:
                reader.read(block)
        finally:
            reader.close()
            lines = page.path.read_text(encoding="utf-8").split("\n")
            # From the last block on, so that lines stay where they were.
            for line, shown, told in sorted(reader.pasted, key=lambda found: -found[0]):
                rest = "\n".join(lines[line - 1 :]).replace(
                    f"\n{shown.strip(chr(10))}\n", f"\n{told.strip(chr(10))}\n", 1
                )
                lines[line - 1 :] = rest.split("\n")
            text = "\n".join(lines)
            page.path.write_text(text, encoding="utf-8")
            shutil.rmtree(here, ignore_errors=True)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "sample_graphs"))
    for argument in sys.argv[1:]:
        paste(read_page(Path(argument).resolve()))

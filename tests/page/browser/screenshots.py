"""Make the screenshots of the pages: ``make screenshots`` writes docs/_static/pages/*.png."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from support.browsing import READY, chromium

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs" / "_static" / "pages"


@dataclass(frozen=True, slots=True)
class Shot:
    """One screenshot: the command that writes the page, and what is clicked or pressed on it."""

    name: str
    command: tuple[str, ...]
    clicks: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    scheme: str = "light"


SHOTS = (
    Shot(
        "slot",
        ("view", "kalman_dlogp.pkl", "--values", "-o", "page.html"),
        clicks=(".box.loop .port.kind-sit_sot > .name",),
    ),
    Shot(
        "passes",
        ("optimize", "seed_grad.pkl", "-p", "grad", "--html", "page.html"),
        keys=("]", "]", "]", "b", "c"),
    ),
    Shot("findings", ("check", "garch_dlogp.pkl", "--html", "page.html"), scheme="dark"),
)


def build_samples(folder: Path) -> None:
    """Write the sample graphs into a folder; PyMC is needed for some of them."""
    command = [sys.executable, str(ROOT / "sample_graphs" / "build.py"), str(folder)]
    subprocess.run(command, capture_output=True, check=True)


def take(browser: Any, shot: Shot, samples: Path) -> bytes:
    """Return a screenshot of a page of one of the sample graphs."""
    with TemporaryDirectory() as folder:
        shutil.copytree(samples, folder, dirs_exist_ok=True)
        command = [sys.executable, "-m", "scanopt_cli", *shot.command]
        subprocess.run(command, cwd=folder, capture_output=True, check=False)
        tab = browser.new_page(
            viewport={"width": 1360, "height": 800}, color_scheme=shot.scheme, device_scale_factor=1
        )
        tab.goto((Path(folder) / "page.html").as_uri())
        tab.wait_for_selector(READY, state="attached")
        for place in shot.clicks:
            tab.locator(place).first.click()
            tab.wait_for_selector(READY, state="attached")
        for key in shot.keys:
            tab.keyboard.press(key)
            tab.wait_for_selector(READY, state="attached")
        image: bytes = tab.screenshot()
        tab.close()
        return image


def main() -> None:
    """Write all screenshots."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with chromium() as browser, TemporaryDirectory() as samples:
        build_samples(Path(samples))
        for shot in SHOTS:
            (FOLDER / f"{shot.name}.png").write_bytes(take(browser, shot, Path(samples)))


if __name__ == "__main__":
    main()

"""A browser: that of the system, or the one that Playwright installed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_QUIET = ["--disable-gpu", "--disable-background-networking", "--disable-component-update"]
READY = "#picture:not([aria-busy]) .box"
"""What is there once the picture of a page is drawn."""


@contextmanager
def chromium() -> Iterator[Any]:
    """Start Chromium, or the browser that the environment variable SCANOPT_BROWSER names."""
    from playwright.sync_api import sync_playwright

    found = os.environ.get("SCANOPT_BROWSER") or next(filter(None, map(shutil.which, _NAMES)), None)
    with sync_playwright() as playwright:
        # Chromium has no sandbox of its own for who is root, as in a container.
        root = ["--no-sandbox"] if os.geteuid() == 0 else []
        started = playwright.chromium.launch(executable_path=found, args=[*root, *_QUIET])
        yield started
        started.close()

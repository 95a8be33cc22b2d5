"""Pages opened in a browser, of which nothing may be complained, and which load nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scanopt_cli.page.page import Page
from scanopt_cli.page.rendering import render
from support.browsing import READY, chromium


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Start a browser for all tests of a run."""
    with chromium() as started:
        yield started


class Opened:
    """A page in a browser, with all that it complained of and asked for."""

    def __init__(self, tab: Any) -> None:
        self.tab = tab
        self.complaints: list[str] = []
        self.asked: list[str] = []
        tab.on("console", lambda message: self.complaints.append(message.text))
        tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        tab.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        tab.on("request", lambda request: self.asked.append(request.url))

    def ready(self) -> None:
        """Wait until the picture is drawn."""
        self.tab.wait_for_selector(READY, state="attached")

    def press(self, *keys: str) -> None:
        """Press keys, one after the other, each when the picture is drawn."""
        for key in keys:
            self.tab.keyboard.press(key)
            self.ready()

    def click(self, selector: str) -> None:
        """Click on the first part that a selector finds, when the picture is drawn."""
        self.tab.locator(selector).first.click()
        self.ready()

    def texts(self, selector: str) -> list[str]:
        """Return the texts of the parts that a selector finds."""
        found: list[str] = self.tab.locator(selector).all_text_contents()
        return found

    def count(self, selector: str) -> int:
        """Return how many parts a selector finds."""
        return int(self.tab.locator(selector).count())


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """Open a page from disk; at the end, nothing may have been complained of or loaded."""
    contexts: list[Any] = []
    pages: list[Opened] = []

    def open_page(page: Page, *, width: int = 1400, height: int = 900, **how: Any) -> Opened:
        file = tmp_path / f"page{len(pages)}.html"
        file.write_text(render(page), "utf-8")
        context = browser.new_context(viewport={"width": width, "height": height}, **how)
        contexts.append(context)
        one = Opened(context.new_page())
        pages.append(one)
        one.tab.goto(file.as_uri())
        if page.drawn:
            one.ready()
        return one

    yield open_page
    for context in contexts:
        context.close()
    for one in pages:
        assert one.complaints == []
        assert all(url.startswith(("file:", "blob:")) for url in one.asked)
        assert sum(url.startswith("file:") for url in one.asked) == 1

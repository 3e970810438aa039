"""Pages of reports in a real Chromium: each page watched for what it must not do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import ggmltool

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SAMPLES = Path(__file__).resolve().parents[3] / "sample_graphs"


class Shown:
    """A report in a browser: `page` is the driver's, `said` what the console and errors said, `asked` every request."""

    def __init__(self, browser: Browser, path: Path, fragment: str = "", **options: Any) -> None:
        self.context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
        self.page: Page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.said.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.url = path.as_uri()
        self.open(fragment)

    def open(self, fragment: str = "") -> None:
        """The page anew, with what its address says behind #."""
        self.page.goto("about:blank")
        self.page.goto(self.url + fragment)
        self.page.wait_for_selector("[data-ready=true]")

    def js(self, expression: str, argument: Any = None) -> Any:
        """The value of an expression in the page, after what is asked for the next frame was drawn."""
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return self.page.evaluate(expression, argument)

    def until(self, condition: str) -> None:
        """Waits until an expression is true; what waits in the page itself is code made of text, which it forbids."""
        end = time.monotonic() + 10
        while not self.js(condition):
            assert time.monotonic() < end, condition

    def text(self, selector: str) -> str:
        """What an element says, after the next frame."""
        self.js("0")
        return self.page.inner_text(selector)

    def close(self) -> None:
        """Ends the page; nothing was said, and nothing but the file itself was asked for."""
        self.context.close()
        assert self.said == []
        assert {url.split("#")[0] for url in self.asked} <= {self.url, "about:blank"}


Show = Callable[..., Shown]


@pytest.fixture(scope="session")
def report_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Writes the page of a sample, or of a scenario's text; each once."""
    folder = tmp_path_factory.mktemp("reports")
    written: dict[Any, Path] = {}

    def write(source: str, compare: str | None = None) -> Path:
        key = source, compare
        if key not in written:
            path = written[key] = folder / f"{len(written)}.html"
            loaded = ggmltool.load(yaml.safe_load(source) if "\n" in source else SAMPLES / source)
            loaded.report(None if compare is None else SAMPLES / compare).save(path)
        return written[key]

    return write


@pytest.fixture(scope="module")
def show(browser: Browser, report_of: Callable[..., Path]) -> Iterator[Show]:
    """Opens reports; the page of one is opened once for a module, and begins anew for each test that asks for it."""
    opened: dict[Any, Shown] = {}

    def open_report(source: str, fragment: str = "", compare: str | None = None, **options: Any) -> Shown:
        key = source, compare, repr(options)
        if key in opened:
            opened[key].open(fragment)
        else:
            opened[key] = Shown(browser, report_of(source, compare), fragment, **options)
        return opened[key]

    yield open_report
    for shown in opened.values():
        shown.close()

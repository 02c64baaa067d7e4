"""A headless Chromium for tests of pages: the distribution's own package; nothing is ever downloaded."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser")
CHROMEDRIVER: Final = shutil.which("chromedriver")
LACKING: Final = (
    "There is no browser to open the page with: install chromium and chromium-driver (apt-get install "
    "chromium chromium-driver; tests/run does this as root on Debian)."
)
SECONDS: Final = 60  # for a page to load, a script to end, the driver to answer


class Browser:
    """Chromium with one page."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def command(self, name: str, **values: Any) -> dict[str, Any]:
        """Sends a command of the DevTools protocol."""
        return dict(self.driver.execute_cdp_cmd(name, values))

    def look(self, width: int, height: int = 900, media: str = "", **features: str) -> None:
        """Sets the page's size in CSS pixels, its medium and its reader's preferences (color_scheme)."""
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        asked = [
            {"name": f"prefers-{name.replace('_', '-')}", "value": value} for name, value in features.items()
        ]
        self.command("Emulation.setEmulatedMedia", media=media, features=asked)

    def open(self, page: Path) -> None:
        """Opens a file."""
        self.driver.get(page.resolve().as_uri())

    def ask(self, script: str, *values: Any) -> Any:
        """Runs a script in the page and returns its result."""
        return self.driver.execute_script(script, *values)

    def requests(self) -> list[str]:
        """The addresses requested since the last call."""
        messages = [json.loads(entry["message"])["message"] for entry in self._log("performance")]
        sent = [each["params"] for each in messages if each["method"] == "Network.requestWillBeSent"]
        return [each["request"]["url"] for each in sent]

    def complaints(self) -> list[Mapping[str, Any]]:
        """The browser's console messages since the last call."""
        return self._log("browser")

    def _log(self, kind: str) -> list[Mapping[str, Any]]:
        return list(self.driver.get_log(kind))  # type: ignore[no-untyped-call]


def pages(pdf: bytes) -> int:
    """The number of pages of a PDF written by Chromium, which leaves page objects uncompressed."""
    return len(re.findall(rb"/Type\s*/Page\b", pdf))


@contextmanager
def chromium(folder: Path) -> Iterator[Browser]:
    """A browser with its profile in `folder`, closed at the end."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    # /dev/shm is small in containers; names are not resolved, so nothing can leave the machine.
    for argument in (
        "--headless=new",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--no-proxy-server",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost",
        f"--user-data-dir={folder}",
        *(["--no-sandbox"] if os.geteuid() == 0 else []),  # Chromium's sandbox refuses root
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("no_proxy", "localhost,127.0.0.1")  # the driver is on this machine
        usual = socket.getdefaulttimeout()
        socket.setdefaulttimeout(SECONDS * 2)  # the only way to tell selenium how long to wait for its driver
        try:
            driver = webdriver.Chrome(options=options, service=Service(executable_path=CHROMEDRIVER))
            try:
                driver.set_page_load_timeout(SECONDS)
                driver.set_script_timeout(SECONDS)
                yield Browser(driver)
            finally:
                driver.quit()
        finally:
            socket.setdefaulttimeout(usual)

"""A real Chromium, for tests of pages.

with chromium() as browser, browser.open("http://127.0.0.1:8080/") as tab:
    tab.press("Tab")
    assert tab.run("document.title") == "home"
    assert tab.axe() == []

It is spoken to by its own protocol over a pipe. axe-core comes from npm, once, into the user's
cache folder. Whatever is missing is named by `missing_browser` and `axe_source`.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cache import cache_folder
from tests.support.wait import PATIENCE_S, wait_for

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_AXE = "axe-core@4.14.1"
_OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--mute-audio"),
    *("--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking"),
    *("--ignore-certificate-errors", "--remote-debugging-pipe"),
)
# Chromium reads descriptor 3 and writes 4.
_EXEC = (
    "import fcntl, os, sys; high = [fcntl.fcntl(int(n), fcntl.F_DUPFD, 10) for n in sys.argv[1:3]];"
    " [os.dup2(n, at) for n, at in zip(high, (3, 4))]; os.execvp(sys.argv[3], sys.argv[3:])"
)
_KEYS = {"Tab": 9, "Enter": 13}


def missing_browser() -> str | None:
    """Why no page can be looked at here; None: it can."""
    return None if _program() else f"none of {', '.join(_NAMES)} is installed"


def _program() -> str | None:
    return next(filter(None, map(shutil.which, _NAMES)), None)


def axe_source() -> str:
    """axe-core's script, fetched if it must be. Skips the test where it cannot be."""
    folder = cache_folder() / _AXE.replace("@", "-")
    script = folder / "node_modules" / "axe-core" / "axe.min.js"
    if not script.exists():
        if shutil.which("npm") is None:
            pytest.skip("npm, which fetches axe-core, is not installed")
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            words = ("npm", "install", "--ignore-scripts", "--no-audit", "--no-fund")
            done = subprocess.run(
                [*words, "--prefix", folder, _AXE], capture_output=True, text=True, check=False
            )
        if done.returncode:
            pytest.skip(f"npm could not fetch {_AXE}: {done.stderr.strip()[-200:]}")
    return script.read_text()


class Tab:
    """One page. Its methods raise AssertionError with what Chromium says."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **parameters)

    def go(self, url: str) -> None:
        """Until it is loaded."""
        self.call("Page.navigate", url=url)
        wait_for(
            lambda: self.run("document.readyState == 'complete' && location.href != 'about:blank'"),
            url,
        )

    def run(self, expression: str) -> Any:
        """The value of an expression of JavaScript; a promise's, once it is settled."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    @property
    def text(self) -> str:
        """What a person reads on it."""
        return " ".join(str(self.run("document.body?.innerText ?? ''")).split())

    def press(self, key: str) -> None:
        code = {"key": key, "code": key, "windowsVirtualKeyCode": _KEYS[key]}
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **code)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def look(self, width: int, scheme: str) -> None:
        """As somebody with such a window and such a taste."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def without_scripts(self) -> None:
        self.call("Emulation.setScriptExecutionDisabled", value=True)

    def axe(self, source: str) -> list[str]:
        """axe-core's findings."""
        self.run(f"{source}; 0")
        found = self.run("axe.run().then(result => result.violations)")
        return [f"{v['id']}: {', '.join(n['html'][:90] for n in v['nodes'])}" for v in found]

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))


class Browser:
    """One Chromium process."""

    def __init__(self, read: int, write: int) -> None:
        self._in, self._out = (
            os.fdopen(read, "rb", buffering=0),
            os.fdopen(write, "wb", buffering=0),
        )
        self._numbers = itertools.count(1)
        self._left = b""

    def close(self) -> None:
        self._in.close()
        self._out.close()

    @contextlib.contextmanager
    def open(self, url: str) -> Iterator[Tab]:
        """A tab with cookies of its own."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        tab = Tab(self, attached["sessionId"])
        try:
            tab.call("Page.enable")
            tab.call("Emulation.setFocusEmulationEnabled", enabled=True)
            tab.go(url)
            yield tab
        finally:
            self.call("Target.disposeBrowserContext", browserContextId=context)

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        sent = {"id": number, "method": method, "params": parameters}
        sent |= {"sessionId": session} if session else {}
        self._out.write(json.dumps(sent).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            part = self._in.read(1 << 16)
            assert part, "Chromium has ended"
            self._left += part
        text, _, self._left = self._left.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """For as long as it is needed."""
    program = _program()
    assert program is not None
    its_input, our_output = os.pipe()
    our_input, its_output = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [
                *(sys.executable, "-c", _EXEC, str(its_input), str(its_output)),
                *(program, *_OPTIONS, f"--user-data-dir={profile}", "about:blank"),
            ],
            pass_fds=(its_input, its_output),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(its_input)
        os.close(its_output)
        browser = Browser(our_input, our_output)
        try:
            yield browser
        finally:
            with contextlib.suppress(AssertionError, OSError):
                browser.call("Browser.close")
            browser.close()
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

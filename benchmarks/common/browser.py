"""Open pages in a headless Chromium over the DevTools protocol, without any other package."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",  # which containers do not allow
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


def find_chromium() -> str | None:
    """The path of a Chromium or Chrome; None if there is none."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """A tab of a running browser."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, os.fdopen(from_browser, "rb")
        self._count, self._rest = 0, b""
        self.errors: list[str] = []
        self.requests: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the DevTools protocol in the tab."""
        return self._call(method, self._session, **parameters)

    def version(self) -> str:
        """Name and version of the browser."""
        return self._call("Browser.getVersion")["product"]

    def open(self, path: Path) -> None:
        """Open a file, and wait until it is loaded."""
        self.errors.clear()
        self.requests.clear()
        self._loaded = False
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not self._loaded:
            self._note(self._read())

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise AssertionError(found["exceptionDetails"])
        return found["result"].get("value")

    def press(self, key: str, shift: bool = False) -> None:
        """Press and release a key."""
        codes = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Home": 36, "End": 35, "Tab": 9}
        common = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key], "modifiers": 8 if shift else 0}
        self.call("Input.dispatchKeyEvent", type="rawKeyDown", **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def look(self, width: int, height: int, dark: bool = False, phone: bool = False) -> None:
        """Take on a window's size, and light or dark colours."""
        scale = 2 if phone else 1
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=phone
        )
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def screenshot(self, path: Path, whole: bool = True) -> None:
        """Write a picture of the page."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data) :]
        while True:
            answer = self._read()
            if answer.get("id") == message["id"]:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = self._from.read1(2**20)
            if not part:
                raise RuntimeError("the browser has ended")
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def _note(self, message: dict[str, Any]) -> None:
        """Keep what a page did wrong, and what it asked for."""
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(parameters["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled":
            self.errors.append(f"{parameters['type']}: {parameters['args']}")
        elif method == "Log.entryAdded":
            self.errors.append(f"{parameters['entry']['level']}: {parameters['entry']['text']}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Page.loadEventFired":
            self._loaded = True


@contextmanager
def browser(executable: str) -> Iterator[Browser]:
    """Run a browser while a block runs."""
    read_there, to_browser = os.pipe()
    from_browser, write_there = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = f'exec "$0" "$@" 3<&{read_there} 4>&{write_there} 2>/dev/null'
        process = subprocess.Popen(
            ["bash", "-c", command, executable, *FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(read_there, write_there),
            stdout=subprocess.DEVNULL,
        )
        os.close(read_there)
        os.close(write_there)
        try:
            yield Browser(to_browser, from_browser)
        finally:
            os.close(to_browser)  # which ends it
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()

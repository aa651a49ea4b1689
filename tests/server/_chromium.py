"""A headless Chromium driven over the DevTools protocol, through the two pipes that it opens for that purpose.

Nothing but the standard library: the browser's own driver programs need not be installed.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["Browser", "Page", "find_chromium"]

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = [
    "--headless=new",
    "--no-sandbox",  # tests may run as root, which Chromium's sandbox refuses
    "--use-angle=swiftshader",  # WebGL in software: no machine needs a graphics card for this
    "--enable-unsafe-swiftshader",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--disable-features=Translate,MediaRouter,OptimizationHints",
    "--no-first-run",
    "--no-default-browser-check",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
]


def find_chromium() -> str | None:
    """The browser's path, from GSPARC_CHROMIUM or the usual names."""
    named = os.environ.get("GSPARC_CHROMIUM")
    return named or next((path for path in map(shutil.which, _NAMES) if path), None)


class Browser:
    """A browser with a profile of its own, gone without a trace at the end of the ``with`` block."""

    def __init__(self, program: str | None = None, timeout: float = 30.0) -> None:
        found = program or find_chromium()
        if found is None:
            raise FileNotFoundError("no Chromium on this machine; install it or name it in GSPARC_CHROMIUM")
        self._program, self._timeout = found, timeout
        self._next, self._buffer = 0, b""
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        self._profile = Path(tempfile.mkdtemp(prefix="gsparc-chromium-"))
        their_in, self._out = os.pipe()
        self._in, their_out = os.pipe()
        quiet = os.open(os.devnull, os.O_WRONLY)
        # Through high numbers, so that neither pipe sits on 3 or 4 while the other is moved there.
        spare = [os.dup(fd) for fd in (their_in, their_out)]
        high = [_above(fd, 64) for fd in spare]
        actions = [(os.POSIX_SPAWN_DUP2, high[0], 3), (os.POSIX_SPAWN_DUP2, high[1], 4)]
        actions += [(os.POSIX_SPAWN_DUP2, quiet, 1), (os.POSIX_SPAWN_DUP2, quiet, 2)]
        arguments = [self._program, *_FLAGS, f"--user-data-dir={self._profile}", "about:blank"]
        self._pid = os.posix_spawn(self._program, arguments, os.environ, file_actions=actions, setpgroup=0)
        for fd in {their_in, their_out, quiet, *spare, *high}:
            os.close(fd)
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            self.send("Browser.close", timeout=5)
        self._reap()
        for fd in (self._in, self._out):
            os.close(fd)
        shutil.rmtree(self._profile, ignore_errors=True)

    def _reap(self) -> None:
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            if os.waitpid(self._pid, os.WNOHANG)[0]:
                break
            time.sleep(0.02)
        else:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)  # helpers that outlived the browser; the group is ours alone

    def send(
        self, method: str, *, session: str | None = None, timeout: float | None = None, **params: Any
    ) -> dict[str, Any]:
        """Call a method of the protocol and wait for its answer; events that come meanwhile are kept."""
        self._next += 1
        message: dict[str, Any] = {"id": self._next, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]
        deadline = time.monotonic() + (timeout or self._timeout)
        while True:
            answer = self._read(deadline)
            if answer is None:
                raise TimeoutError(f"Chromium did not answer {method} in time")
            if answer.get("id") == self._next:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error'].get('message')}")
                return answer["result"]
            self.events.append(answer)

    def _read(self, deadline: float) -> dict[str, Any] | None:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return None
            chunk = os.read(self._in, 1 << 20)
            if not chunk:
                raise ConnectionError("Chromium ended unexpectedly")
            self._buffer += chunk
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    @contextlib.contextmanager
    def page(self, width: int = 1280, height: int = 800, *, scheme: str = "light", calm: bool = True) -> Iterator[Page]:
        """A fresh page in a profile that shares nothing with the other pages."""
        context = self.send("Target.createBrowserContext")["browserContextId"]
        target = self.send("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.send(f"{domain}.enable")
        page.resize(width, height)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        if calm:  # nothing moves by itself: a test never has to wait for an animation
            features.append({"name": "prefers-reduced-motion", "value": "reduce"})
        page.send("Emulation.setEmulatedMedia", features=features)
        try:
            yield page
        finally:
            self.send("Target.disposeBrowserContext", browserContextId=context)


class Page:
    """One page: evaluate, wait, click, type, look."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.send(method, session=self._session, **params)

    def resize(self, width: int, height: int, *, scale: float = 1) -> None:
        mobile = width < 600
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=mobile
        )

    def open(self, url: str) -> None:
        self.send("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """The value of an expression; promises are awaited."""
        answer = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description") or details["text"])
        return answer["result"].get("value")

    def wait(self, script: str, seconds: float = 15.0) -> Any:
        """Wait until an expression is true; returns its value."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(RuntimeError):  # the page may be between two documents
                value = self.run(script)
                if value:
                    return value
            time.sleep(0.03)
        raise TimeoutError(f"after {seconds:g} s the page still says no to {script}; it reads: {self.text()[:600]}")

    def text(self, selector: str = "body") -> str:
        return self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    def wait_text(self, text: str, selector: str = "body", seconds: float = 15.0) -> None:
        self.wait(f"document.querySelector({json.dumps(selector)})?.innerText.includes({json.dumps(text)})", seconds)

    def click(self, selector: str) -> None:
        """A real mouse click into the middle of an element."""
        found = json.dumps(selector)
        self.wait(f"document.querySelector({found}) !== null")
        self.run(f"document.querySelector({found}).scrollIntoView({{block: 'center', behavior: 'instant'}})")
        box = self.run(
            f"(b => [b.x + b.width / 2, b.y + b.height / 2])(document.querySelector({found}).getBoundingClientRect())"
        )
        self.click_at(*box)

    def click_at(self, x: float, y: float) -> None:
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, button="left", clickCount=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def type(self, text: str) -> None:
        self.send("Input.insertText", text=text)

    def press(self, key: str, *, shift: bool = False) -> None:
        codes = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        shared: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": codes.get(key, ord(key[0].upper()))}
        shared["modifiers"] = 8 if shift else 0
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        down = {"type": "keyDown", "text": text} if text else {"type": "rawKeyDown"}
        self.send("Input.dispatchKeyEvent", **down, **shared)
        self.send("Input.dispatchKeyEvent", type="keyUp", **shared)

    def focused(self) -> str:
        return self.run(
            "document.activeElement.id || document.activeElement.className || document.activeElement.tagName"
        )

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"]))

    def complaints(self) -> list[str]:
        """Errors that the page logged: exceptions, and whatever the content security policy refused."""
        self.run("1")  # lets the pipe deliver what is under way
        return [text for event in self._mine() if (text := _complaint(event))]

    def outside(self, origin: str) -> list[str]:
        """Addresses that the page asked for and that do not belong to ``origin``."""
        self.run("1")
        asked = [e["params"]["request"]["url"] for e in self._mine() if e.get("method") == "Network.requestWillBeSent"]
        return [url for url in asked if not url.startswith((origin, "about:"))]

    def _mine(self) -> list[dict[str, Any]]:
        return [event for event in self._browser.events if event.get("sessionId") == self._session]


def _above(fd: int, least: int) -> int:
    import fcntl

    return fcntl.fcntl(fd, fcntl.F_DUPFD, least)


def _complaint(event: dict[str, Any]) -> str:
    params = event.get("params", {})
    if event.get("method") == "Runtime.exceptionThrown":
        details = params["exceptionDetails"]
        return details.get("exception", {}).get("description") or details["text"]
    if event.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
        return params["entry"]["text"]
    if event.get("method") == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
        return " ".join(str(item.get("value", item.get("description", ""))) for item in params["args"])
    return ""

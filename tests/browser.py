"""A headless Chromium, driven by the DevTools protocol over its pipe: JSON messages that end with a zero byte."""

import json
import os
import select
import shutil
import subprocess
import time

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-extensions")
OFFLINE = ("--disable-background-networking", "--disable-component-update", "--disable-sync")
PATIENCE = 60  # seconds for an answer


class Browser:
    """One tab. What it complains of is gathered in ``complaints`` until the next page is opened."""

    def __init__(self, profile):
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        flags = " ".join((*FLAGS, *OFFLINE, "--remote-debugging-pipe", f"--user-data-dir='{profile}'"))
        # The protocol's pipe is descriptors 3 (to the browser) and 4 (from it).
        script = f"exec '{CHROMIUM}' {flags} 3<&{to_browser} 4>&{from_browser}"
        self._process = subprocess.Popen(
            ["bash", "-c", script], pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        self._count, self._rest, self._session, self._loaded, self.complaints = 0, b"", None, False, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method, **params):
        """Ask for something and wait for the answer."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._count:
            self._note(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def size(self, width, height=900, dark=False):
        """The window's size in CSS pixels; up to 600 wide it is a phone's."""
        phone = width <= 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, address):
        """Go to a page and wait until it has loaded."""
        self.complaints, self._loaded = [], False
        answer = self.call("Page.navigate", url=address)
        if "errorText" in answer:
            raise RuntimeError(f"{address}: {answer['errorText']}")
        while not self._loaded:
            self._note(self._next())

    def evaluate(self, expression):
        """The value of a JavaScript expression on the page, as JSON."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def until(self, expression):
        """Wait until a JavaScript expression is true."""
        end = time.monotonic() + PATIENCE
        while not self.evaluate(expression):
            if time.monotonic() > end:
                raise TimeoutError(f"{expression} has not become true for {PATIENCE} seconds")
            time.sleep(0.1)

    def close(self):
        """End the browser."""
        try:
            self._session = None
            self.call("Browser.close")
            self._process.wait(PATIENCE)
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
            os.close(self._write)
            os.close(self._read)

    def _note(self, event):
        params = event.get("params", {})
        match event.get("method"):
            case "Page.loadEventFired":
                self._loaded = True
            case "Runtime.exceptionThrown":
                self.complaints.append(params["exceptionDetails"]["exception"].get("description", "exception"))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.complaints.append(str([argument.get("value") for argument in params["args"]]))
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")

    def _next(self):
        """The browser's next message."""
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._rest:
            if not select.select([self._read], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError(f"Chromium has not answered for {PATIENCE} seconds")
            received = os.read(self._read, 1 << 20)
            if not received:
                raise RuntimeError("Chromium has ended")
            self._rest += received
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

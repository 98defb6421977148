"""Pictures of every sample page, as a browser shows it under the strict policy: light and dark, wide and narrow.

    .venv/bin/python -m tests.journeys.shots --out DIR [--only NAME ...]

It also says what the browser complained of: refused by the policy, script errors, sideways scrolling, and what axe
finds. `look()` is what tests call; nothing here knows a database or the running product.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from mimetypes import guess_type
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from app.web.render import STATIC, render
from app.web.views.booking import BookingLive
from tests.web import samples

AXE = Path(__file__).resolve().parents[1] / "vendor" / "axe" / "axe.min.js"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
WIDTHS = {"wide": 1440, "narrow": 390}
QUIET = (
    "--no-sandbox",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--no-first-run",
)


def chromium_path() -> str | None:
    """The system's Chromium, if there is one."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class _Handler(BaseHTTPRequestHandler):
    """Serves sample pages at /<name>, fragments where pages ask for them, and static files."""

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        if path.startswith("/static/"):
            file = STATIC / path.removeprefix("/static/")
            if file.is_file() and STATIC in file.resolve().parents:
                return self._send(200, file.read_bytes(), guess_type(file.name)[0] or "application/octet-stream")
            return self._send(404, b"no such file", "text/plain")
        if path.endswith("/live"):
            asking = samples.everything().get(urlsplit(self.headers.get("Referer", "")).path.strip("/"))
            if asking is None:
                return self._html(404, samples.errors()["404"], samples.BARE)
            asked = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
            cards = tuple(asked.get("cards", "").split(","))
            return self._html(200, BookingLive(asking[0], asked["seen"], cards, asked.get("by", "")), asking[1])
        if path.endswith("/effect"):
            return self._html(200, *samples.fragments()["verb"])
        pages = samples.everything()
        name = path.strip("/")
        if name in pages:
            return self._html(200, *pages[name])
        return self._html(404, samples.errors()["404"], samples.BARE)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == "/book/quote":
            return self._html(409, *samples.fragments()["refused"])
        return self._html(404, samples.errors()["404"], samples.BARE)

    def _html(self, status: int, view: Any, frame: Any) -> None:
        self._send(status, render(view, frame).encode(), "text/html; charset=utf-8")

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", POLICY)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Silent: what matters is asked of the browser."""


@contextmanager
def serving() -> Iterator[str]:
    """The sample pages on a free loopback port; yields the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def browser() -> Iterator[Any]:
    """A Chromium that talks to nobody but us."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=chromium_path(), args=list(QUIET))
        try:
            yield chromium
        finally:
            chromium.close()


@dataclass
class Seen:
    """What a browser said about one page in one theme and width."""

    name: str
    theme: str
    width: str
    complaints: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.name} {self.theme} {self.width}: " + "; ".join(self.complaints)


def look(chromium: Any, base: str, name: str, theme: str, width: str, picture: Path | None = None) -> Seen:
    """Open a sample page, run axe, and take its picture if asked."""
    seen = Seen(name, theme, width)
    context = chromium.new_context(
        viewport={"width": WIDTHS[width], "height": 900}, color_scheme=theme, reduced_motion="reduce"
    )
    page = context.new_page()
    page.on(
        "console", lambda m: seen.complaints.append(f"console: {m.text}") if m.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda e: seen.complaints.append(f"script: {e}"))
    page.goto(f"{base}/{name}", wait_until="load")
    page.evaluate("document.fonts.ready")
    if page.locator("html").get_attribute("data-bs-theme") != theme:
        seen.complaints.append("the theme does not follow the system")
    over = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    if over > 0:
        seen.complaints.append(f"scrolls sideways by {over} px")
    page.evaluate(AXE.read_text() + "; true")
    for violation in page.evaluate("axe.run(document, {resultTypes: ['violations']}).then(r => r.violations)"):
        targets = [" ".join(node["target"]) for node in violation["nodes"][:3]]
        why = (violation["nodes"][0]["any"] or violation["nodes"][0]["all"] or [{"message": ""}])[0]["message"]
        seen.complaints.append(f"axe {violation['id']} ({len(violation['nodes'])}): {targets} {why}")
    if picture:
        page.screenshot(path=picture, full_page=True)
    context.close()
    return seen


def main() -> int:
    """Take all pictures; 1 when the browser complained of anything."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--theme", choices=("light", "dark"))
    parser.add_argument("--width", choices=tuple(WIDTHS))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    complained = 0
    with serving() as base, browser() as chromium:
        for name in args.only or samples.everything():
            for theme in [args.theme] if args.theme else ["light", "dark"]:
                for width in [args.width] if args.width else list(WIDTHS):
                    seen = look(chromium, base, name, theme, width, args.out / f"{name}-{theme}-{width}.png")
                    if seen.complaints:
                        complained += 1
                        print(seen, file=sys.stderr)
    return 1 if complained else 0


if __name__ == "__main__":
    raise SystemExit(main())

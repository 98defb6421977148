"""A demo of one's own, as a stranger starts it, and a browser whose complaints are failures."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.kernel.clock import monotonic
from tests.journeys.shots import browser, chromium_path
from tests.requirements import need

BERTH = [sys.executable, "-m", "app.cli"]
READY_WITHIN = 1500
"""Seconds until demo.json must be there: about 60 on a quiet machine, many times that beside everything else."""


@dataclass(frozen=True)
class Person:
    """Somebody whom demo.json names."""

    name: str
    role: str
    tenant: str | None
    project: str | None
    email: str
    password: str
    token: str


@dataclass(frozen=True)
class Demo:
    """A demo that answers. `took` are the seconds from its start to its demo.json; None for one that ran before."""

    url: str
    people: tuple[Person, ...]
    data: Path
    took: float | None

    def person(self, role: str, place: str | None) -> Person:
        """The first with this role in a project, else in a tenant."""
        return next(p for p in self.people if p.role == role and place in (p.project, p.tenant))

    def api(self, who: Person) -> httpx2.Client:
        """The API with somebody's token."""
        return httpx2.Client(
            base_url=f"{self.url}/api/v1", headers={"Authorization": f"Bearer {who.token}"}, timeout=60, trust_env=False
        )


@pytest.fixture(scope="module")
def demo() -> Iterator[Demo]:
    """`berth demo` in a fresh folder, shared by all journeys: a month is lived only once.

    Who works on a page names a demo that runs already in BERTH_JOURNEY_DEMO (its --data), and waits for none.
    """
    need("browser", found=chromium_path() is not None, reason="no chromium on this machine (apt-get install chromium)")
    if running := os.environ.get("BERTH_JOURNEY_DEMO"):
        yield _read(Path(running), None)
        return
    folder = Path(tempfile.mkdtemp(prefix="berth-journey-"))
    began = monotonic()
    process = _start(folder)
    try:
        while not (folder / "data" / "demo.json").exists():
            assert process.poll() is None, (folder / "said").read_text()
            assert monotonic() - began < READY_WITHIN, (folder / "said").read_text()[-4000:]
            _wait(process, 0.5)
        yield _read(folder / "data", monotonic() - began)
        assert process.poll() is None, "the demo ended under the tests"
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        said = process.wait(90), (folder / "said").read_text()
        shutil.rmtree(folder, ignore_errors=True)
    assert said[0] == 0, said[1]
    assert "Traceback" not in said[1], said[1]


def _start(folder: Path) -> subprocess.Popen:
    foreign = ("DATABASE_URL", "DATABASE_OWNER_URL", "REDIS_URL", "PYTHONDONTWRITEBYTECODE")
    with (folder / "said").open("w") as out:
        return subprocess.Popen(
            [*BERTH, "demo", "--port", "0", "--data", str(folder / "data")],
            stdout=out,
            stderr=subprocess.STDOUT,
            env={name: value for name, value in os.environ.items() if name not in foreign},
        )


def _wait(process: subprocess.Popen, seconds: float) -> None:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return


def _read(data: Path, took: float | None) -> Demo:
    words = json.loads((data / "demo.json").read_text(encoding="utf-8"))
    return Demo(words["url"], tuple(Person(**person) for person in words["people"]), data, took)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    need("browser", found=chromium_path() is not None, reason="no chromium on this machine (apt-get install chromium)")
    with browser() as found:
        yield found


@dataclass
class Visit:
    """A person's browser window on the demo, and everything that it complained of."""

    page: Any
    url: str
    complaints: list[str] = field(default_factory=list)

    def sign_in(self, who: Person) -> None:
        """By the form, from wherever the first page leads."""
        self.page.goto(f"{self.url}/")
        self.page.fill("#email", who.email)
        self.page.fill("#password", who.password)
        self.page.click("main button[type=submit]")
        self.page.wait_for_selector(f".b-user >> text={who.name}", state="attached")


@pytest.fixture
def visit(demo: Demo, chromium: Any, request: pytest.FixtureRequest) -> Iterator[Callable[[], Visit]]:
    """Opens windows. Script errors, refusals of the policy and failed requests fail the test; when it failed, a picture
    of each window stays in a folder that is named."""
    opened: list[Visit] = []
    with ExitStack() as stack:

        def open_window() -> Visit:
            context = chromium.new_context(viewport={"width": 1440, "height": 1000}, reduced_motion="reduce")
            stack.callback(context.close)
            made = Visit(context.new_page(), demo.url)
            made.page.set_default_timeout(90_000)
            _listen(made)
            opened.append(made)
            return made

        yield open_window
        if _failed(request) or any(one.complaints for one in opened):
            kept = Path(tempfile.mkdtemp(prefix="berth-pictures-"))
            for number, one in enumerate(one for one in opened if not one.page.is_closed()):
                one.page.screenshot(path=kept / f"window-{number}.png", full_page=True)
            print(f"pictures are in {kept}")
    assert [complaint for one in opened for complaint in one.complaints] == []


def _listen(window: Visit) -> None:
    page, complaints = window.page, window.complaints
    page.on("pageerror", lambda e: complaints.append(f"script: {e}"))
    page.on("console", lambda m: complaints.append(f"{m.type}: {m.text}") if m.type in ("error", "warning") else None)
    page.on("response", lambda r: complaints.append(f"{r.status} {r.url}") if r.status >= 400 else None)


def _failed(request: pytest.FixtureRequest) -> bool:
    return bool(request.node.stash.get(_RESULT, False))


_RESULT = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Any:
    """Remember whether the test itself failed, for whoever tidies up after it."""
    report = yield
    if call.when == "call":
        item.stash[_RESULT] = report.failed
    return report

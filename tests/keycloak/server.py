"""A real Keycloak on loopback for one test run: fetched by Maven once, kept by version, started on a copy of its own.

Needs Java 17 or newer and Maven. Nothing is reachable from outside the machine, and every password is for tests only.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import zipfile
from pathlib import Path
from threading import Event

import httpx2

VERSION = "26.7.3"
SHA256 = "27a6535553c3cdcd083872ba40629efafb3475e3b758e0c6f691395561dd0f1f"
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
ADMIN_PASSWORD = "test-only-admin"
START_SECONDS = 300
_REALM = Path(__file__).with_name("realm.json")
_QUICK_START = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xms64m -Xmx512m -XX:MetaspaceSize=96M -XX:MaxMetaspaceSize=256m "
    "-XX:+ExitOnOutOfMemoryError -Dfile.encoding=UTF-8"
)


class Keycloak:
    """Starts it in a folder that goes away with it."""

    def __init__(self) -> None:
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.issuer = f"{self.url}/realms/berth"
        self._folder = Path(tempfile.mkdtemp(prefix="berth-keycloak-"))
        self._home = self._folder / "keycloak"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns once the realm answers; about a minute, more on a busy machine."""
        # links instead of copies: 190 MB in a moment; what Keycloak writes, it writes to files of its own
        shutil.copytree(distribution(), self._home, copy_function=_link)
        imports = self._home / "data" / "import"
        imports.mkdir(parents=True)
        shutil.copy(_REALM, imports / "berth-realm.json")  # the name must be REALM-realm.json
        # Keycloak honours proxies for calls of its own; JAVA_OPTS replaces all of kc.sh's options, so it is whole
        words = {k: v for k, v in os.environ.items() if k.lower() not in ("http_proxy", "https_proxy", "all_proxy")}
        words |= {
            "JAVA_OPTS": _QUICK_START,
            "KC_BOOTSTRAP_ADMIN_USERNAME": "admin",
            "KC_BOOTSTRAP_ADMIN_PASSWORD": ADMIN_PASSWORD,
        }
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["sh", str(self._home / "bin" / "kc.sh"), "start-dev", "--http-host=127.0.0.1",
                 f"--http-port={self.port}", "--import-realm"],
                env=words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        self._wait()

    def stop(self) -> None:
        """End it and what it started, and drop its folder."""
        if self._process is not None:
            self._signal(signal.SIGTERM)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._signal(signal.SIGKILL)
                self._process.wait(10)
            # kc.sh may have java as its child: the group is ours alone
            self._signal(signal.SIGKILL)
        shutil.rmtree(self._folder, ignore_errors=True)

    def admin(self) -> httpx2.Client:
        """The admin API of the realm, with a fresh token."""
        answer = httpx2.post(
            f"{self.url}/realms/master/protocol/openid-connect/token",
            data={"grant_type": "password", "client_id": "admin-cli", "username": "admin", "password": ADMIN_PASSWORD},
            timeout=60,
        )
        answer.raise_for_status()
        return httpx2.Client(
            base_url=f"{self.url}/admin/realms/berth",
            headers={"Authorization": f"Bearer {answer.json()['access_token']}"},
            timeout=60,
        )

    @property
    def _log(self) -> Path:
        return self._folder / "keycloak.log"

    def _signal(self, which: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, which)

    def _wait(self) -> None:
        pause = Event()
        for _ in range(START_SECONDS * 2):
            if self._process.poll() is not None:
                break
            try:
                found = httpx2.get(f"{self.issuer}/.well-known/openid-configuration", timeout=10)
                if found.status_code == 200:
                    return
            except httpx2.HTTPError:
                pass
            pause.wait(0.5)
        tail = self._log.read_text(errors="replace")[-3000:]
        self.stop()
        raise RuntimeError(f"Keycloak did not start:\n{tail}")


def missing() -> str | None:
    """What this machine lacks for it, in words; None when it can run."""
    java = shutil.which("java")
    if java is None:
        return "no java on this machine (apt-get install openjdk-17-jre-headless)"
    said = subprocess.run([java, "-version"], capture_output=True, text=True).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < 17:
        return "Keycloak needs Java 17 or newer"
    if not _kept().exists() and shutil.which("mvn") is None:
        return "no mvn on this machine to fetch Keycloak with (apt-get install maven)"
    return None


def distribution() -> Path:
    """The unpacked server, fetched once and kept by its version."""
    kept = _kept()
    kept.parent.mkdir(parents=True, exist_ok=True)
    with (kept.parent / "keycloak.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            _fetch(kept)
    return kept


def _fetch(kept: Path) -> None:
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        subprocess.run(
            ["mvn", "-B", "-q", f"{PLUGIN}:copy", f"-DoutputDirectory={folder}",
             f"-Dartifact=org.keycloak:keycloak-quarkus-dist:{VERSION}:zip"],
            check=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        archive = Path(folder) / f"keycloak-quarkus-dist-{VERSION}.zip"
        if hashlib.sha256(archive.read_bytes()).hexdigest() != SHA256:
            raise RuntimeError(f"{archive.name} is not the pinned file")
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(folder)
        (Path(folder) / f"keycloak-{VERSION}").rename(kept)


def _kept() -> Path:
    cache = Path(os.environ.get("BERTH_CACHE") or Path.home() / ".cache" / "berth")
    return cache / f"keycloak-{VERSION}"


def _link(source: str, target: str) -> None:
    """Libraries are only read; everything else is copied, as Keycloak's build writes over it."""
    if source.endswith(".jar") and "/lib/lib/" in source:
        try:
            os.link(source, target)
            return
        except OSError:
            pass
    shutil.copy(source, target)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]

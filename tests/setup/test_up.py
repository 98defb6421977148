"""`berth up` as a person meets it: real processes, a folder of its own, killed and refused in several ways."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import psycopg
import pytest

from app.plumbing.roles import OWNER, url_of
from app.plumbing.up import DATABASE

pytestmark = pytest.mark.xdist_group("up")  # they share a folder, and are many processes each
BERTH = [sys.executable, "-m", "app.cli"]


@contextmanager
def running(
    folder: Path, *words: str, environment: dict[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen, str]]:
    """`berth up` once it answers, and where; what it says goes to folder/said."""
    with (folder / "said").open("w") as out:
        process = subprocess.Popen(
            [*BERTH, "up", "--port", "0", "--data", str(folder / "data"), *words],
            stdout=out,
            stderr=subprocess.STDOUT,
            env=(environment or plain_environment()),
        )
    try:
        yield process, wait_for(process, folder / "said", "Berth answers at ").split()[0]
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def plain_environment(**more: str) -> dict[str, str]:
    """Ours without what would point at other servers."""
    ours = {k: v for k, v in os.environ.items() if k not in ("DATABASE_URL", "DATABASE_OWNER_URL", "REDIS_URL")}
    return ours | more


def wait_for(process: subprocess.Popen, said: Path, words: str) -> str:
    """What follows the words in the log, as soon as they are there; the log if it ends without them."""
    while True:
        ended = process.poll() is not None
        text = said.read_text()
        if words in text:
            return text.partition(words)[2]
        assert not ended, text
        try:
            process.wait(0.1)
        except subprocess.TimeoutExpired:
            continue


def ready(address: str) -> dict:
    with urllib.request.urlopen(f"{address}readyz", timeout=30) as answer:
        return json.load(answer)


def refused(*words: str, environment: dict[str, str] | None = None) -> str:
    """The one sentence of a start that is refused."""
    ended = subprocess.run(
        [*BERTH, "up", *words], capture_output=True, text=True, timeout=120, env=environment or plain_environment()
    )
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr + ended.stdout
    return ended.stderr


@pytest.mark.timeout(900)  # five whole starts on whatever machine this is
def test_up_keeps_its_data_through_every_way_of_ending(kept_folder):
    data = kept_folder / "data"
    with running(kept_folder) as (process, address):
        checks = ready(address)["checks"]
        assert checks["database"]["role"] == "berth_app"
        assert checks["broker"]["ok"]
        owner = url_of(f"postgresql://postgres@/postgres?host={data}/run", user=OWNER, database=DATABASE)
        with psycopg.connect(owner) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 1 AS one")

        # a second one on the same folder says so, and leaves the first alone
        said = refused("--port", "0", "--data", str(data))
        assert f"already runs on {data}" in said
        assert str(process.pid) in said
        # a port that is taken is told before anything is made
        port = address.rsplit(":", 1)[1].strip("/")
        assert f"Port {port} on 127.0.0.1 is in use" in refused("--port", port, "--data", str(kept_folder / "other"))
        assert not (kept_folder / "other" / "postgres").exists()

        # a child that dies is started again
        web = child(process, "web")
        web.kill()
        wait_for(process, kept_folder / "said", "ended by itself (SIGKILL)")
        assert ready(address)["status"] == "ok"

        # Ctrl-C
        family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert not psutil.wait_procs(family, timeout=10)[1]
        said = (kept_folder / "said").read_text()
        assert said.rstrip().endswith("stopped")
        assert "Traceback" not in said

    with running(kept_folder) as (process, address):
        family = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.wait()
        assert not psutil.wait_procs(family, timeout=30)[1], "children outlive a killed parent"

    with running(kept_folder) as (_, address), psycopg.connect(owner) as connection:
        assert connection.execute("SELECT one FROM kept").fetchone() == (1,)
        assert ready(address)["status"] == "ok"
        # from here on it is a demo's database
        connection.execute("UPDATE clock SET movable = true")
    assert "berth demo" in refused("--port", "0", "--data", str(data))


def test_servers_named_by_addresses_are_used_and_none_is_started(kept_folder, database, valkey_url):
    folder = kept_folder / "named"
    folder.mkdir()
    named = {"DATABASE_URL": database.app_url, "DATABASE_OWNER_URL": database.owner_url, "REDIS_URL": valkey_url}
    with running(folder, environment=plain_environment(**named)) as (process, address):
        assert ready(address)["status"] == "ok"
        assert not (folder / "data" / "postgres").exists()
        assert not (folder / "data" / "valkey").exists()
        # migrations alone need the owner: nobody else is told
        assert "DATABASE_OWNER_URL" not in child(process, "web").environ()


@pytest.mark.parametrize("missing", ["DATABASE_URL", "DATABASE_OWNER_URL"])
def test_one_database_address_without_the_other_is_refused(folder, database, missing):
    both = {"DATABASE_URL": database.app_url, "DATABASE_OWNER_URL": database.owner_url}
    del both[missing]
    assert "together" in refused("--port", "0", "--data", str(folder), environment=plain_environment(**both))


def test_the_owner_may_not_be_the_apps_role(folder, database, valkey_url):
    both = {"DATABASE_URL": database.owner_url, "DATABASE_OWNER_URL": database.owner_url, "REDIS_URL": valkey_url}
    assert "berth_owner owns the tables" in refused(
        "--port", "0", "--data", str(folder), environment=plain_environment(**both)
    )


@pytest.mark.parametrize("command", [["web", "--port", "0"], ["worker", "backend"], ["worker", "default"]])
@pytest.mark.parametrize("role", ["owner_url", "superuser_url"])
def test_web_and_workers_do_not_start_with_a_role_that_sees_everything(command, role, folder, database, valkey_url):
    ended = subprocess.run(
        [*BERTH, *command],
        capture_output=True,
        text=True,
        timeout=120,
        env=plain_environment(DATABASE_URL=getattr(database, role), REDIS_URL=valkey_url, BERTH_DATA=str(folder)),
    )
    assert ended.returncode == 1
    assert "passes row-level security" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_listening_to_others_needs_real_secrets(folder):
    said = refused("--host", "0.0.0.0", "--port", "0", "--data", str(folder))
    assert "BERTH_ENVIRONMENT=production" in said


def child(process: subprocess.Popen, name: str) -> psutil.Process:
    """One of the programs under `berth up`."""
    (found,) = [one for one in psutil.Process(process.pid).children() if name in one.cmdline()]
    return found


def test_a_port_that_is_taken_by_a_stranger(folder):
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        port = str(stranger.getsockname()[1])
        assert "is in use" in refused("--port", port, "--data", str(folder))
    assert sorted(path.name for path in folder.iterdir()) == ["lock", "secret-key"]

"""The embedded servers: survive being killed, starters included; nobody else can reach them."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import psycopg
import pytest
import redis

from app.plumbing.embedded import EmbeddedPostgres, EmbeddedValkey
from app.plumbing.roles import APP, OWNER, READER, ensure_roles, url_of

pytestmark = pytest.mark.xdist_group("embedded")  # they share a folder


@pytest.fixture
def postgres(kept_folder: Path):
    """Durable, as users have it."""
    server = EmbeddedPostgres(kept_folder)
    yield server
    server.stop()


def test_data_survive_a_kill_of_the_server(postgres):
    with psycopg.connect(postgres.start()) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1 AS one")
    before = postgres.pid
    os.kill(before, signal.SIGKILL)
    postgres._process.wait()
    assert postgres.pid is None
    with psycopg.connect(postgres.start()) as connection:
        assert connection.execute("SELECT one FROM kept").fetchone() == (1,)
    assert postgres.pid != before


def test_a_server_dies_with_a_killed_starter_and_the_next_start_works(kept_folder, postgres):
    program = (
        "import os, sys, time; from pathlib import Path; from app.plumbing.embedded import EmbeddedPostgres\n"
        "server = EmbeddedPostgres(Path(sys.argv[1])); server.start(); print(server.pid, flush=True); input()"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", program, str(kept_folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    orphan = psutil.Process(int(starter.stdout.readline()))
    starter.kill()
    starter.communicate()
    with psycopg.connect(postgres.start()) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE


def test_a_strangers_pid_in_the_pid_file_does_not_stop_a_start(kept_folder, postgres):
    postgres.start()
    postgres.stop()
    pid_file = kept_folder / "postgres" / "postmaster.pid"
    pid_file.write_text(f"{os.getpid()}\n{kept_folder / 'postgres'}\n0\n5432\n\n\n")
    postgres.start()
    assert psutil.pid_exists(os.getpid())


def test_only_this_user_reaches_it_and_it_has_room_for_everybody(kept_folder, postgres):
    with psycopg.connect(postgres.start()) as connection:
        answers = connection.execute(
            "SELECT current_setting('listen_addresses'), current_setting('fsync'),"
            " current_setting('max_connections')::int"
        ).fetchone()
    assert answers[:2] == ("", "on")
    assert answers[2] >= 300
    assert stat.S_IMODE((kept_folder / "run").stat().st_mode) == 0o700


def test_a_broken_off_first_start_is_made_anew_and_a_path_too_long_for_a_socket_is_no_matter(folder):
    deep = folder / ("long" * 30) / "with space, comma and 'quote'"
    (deep / "postgres.new" / "base").mkdir(parents=True)
    (deep / "postgres").mkdir()
    server = EmbeddedPostgres(deep, durable=False)
    try:
        with psycopg.connect(server.start()) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        assert not (deep / "postgres.new").exists()
    finally:
        server.stop()


def test_valkey_needs_its_password_and_starts_again_where_it_was(folder):
    server = EmbeddedValkey(folder)
    try:
        url = server.start()
        with redis.Redis.from_url(url) as client:
            assert client.ping()
        with redis.Redis.from_url("redis://" + url.rpartition("@")[2]) as stranger:
            with pytest.raises(redis.AuthenticationError):
                stranger.ping()
        os.kill(server.pid, signal.SIGKILL)
        server._process.wait()
        assert server.start() == url
    finally:
        server.stop()


def test_roles_can_be_made_again_and_are_set_right(postgres):
    superuser = postgres.start()
    owner, app = (url_of(superuser, user=one, database="berth") for one in (OWNER, APP))
    ensure_roles(superuser, owner_url=owner, app_url=app)
    with psycopg.connect(superuser, autocommit=True) as connection:
        connection.execute(f"ALTER ROLE {APP} BYPASSRLS")
        connection.execute(f"GRANT {READER} TO {APP} WITH INHERIT TRUE")
    ensure_roles(superuser, owner_url=owner, app_url=app)
    with psycopg.connect(superuser) as connection:
        assert connection.execute(
            "SELECT rolname, rolcanlogin, rolsuper, rolbypassrls FROM pg_roles WHERE rolname LIKE 'berth_%' ORDER BY 1"
        ).fetchall() == [(APP, True, False, False), (OWNER, True, False, False), (READER, False, False, False)]
        assert connection.execute(
            "SELECT inherit_option, set_option FROM pg_auth_members"
            " WHERE roleid = %s::regrole AND member = %s::regrole",
            [READER, APP],
        ).fetchall() == [(False, True)]


def test_roles_of_other_names_are_refused(postgres):
    superuser = postgres.start()
    app = url_of(superuser, user=APP, database="berth")
    with pytest.raises(ValueError, match="berth_owner"):
        ensure_roles(superuser, owner_url=app, app_url=app)


def test_the_commands_that_prepare_a_server_of_ones_own(postgres, folder):
    superuser = postgres.start()
    at = f"@/own?host={superuser.rpartition('=')[2]}"
    environment = os.environ | {
        "SUPERUSER_URL": superuser,
        "DATABASE_OWNER_URL": f"postgresql://{OWNER}:o%2Fne{at}",
        "DATABASE_URL": f"postgresql://{APP}:tw%2Fo{at}",
        "BERTH_DATA": str(folder),
    }
    for command in (["admin", "roles"], ["migrate"], ["migrate"]):
        done = subprocess.run(
            [sys.executable, "-m", "app.cli", *command], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
    with psycopg.connect(superuser) as connection:
        kept = dict(
            connection.execute("SELECT rolname, rolpassword FROM pg_authid WHERE rolname LIKE 'berth_%'").fetchall()
        )
    assert kept[READER] is None
    assert kept[OWNER].startswith("SCRAM-SHA-256$")
    assert kept[APP].startswith("SCRAM-SHA-256$")
    with psycopg.connect(environment["DATABASE_URL"]) as connection:
        assert connection.execute("SELECT movable FROM clock").fetchone() == (False,)

"""What the database itself holds: tenants apart, history unchanged, and no process with rights to get round it.

Asked of the catalogue, so that a table, a policy or a grant added later is found here without anybody thinking of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from threading import Event

import psycopg
import pytest

from app.plumbing.db import DangerousRole
from app.plumbing.queue import CeleryQueue
from app.plumbing.runtime import make_plumbing
from app.settings import Settings
from tests.accounts.world import World
from tests.servers import Addresses, TestDatabase

PLATFORM = {
    "accounts": "people, looked up by hash or login before a tenant is known",
    "alembic_version": "the revision",
    "allocations": "what may exist on a cluster: strays must know every name",
    "clock": "the product clock",
    "cluster_users": "who is which user on everybody's clusters, told to clusters by workers",
    "clusters": "everybody's clusters",
    "devices": "hardware",
    "due": "work to find before its tenant is known",
    "external_use": "hardware",
    "hold_moves": "opaque",
    "holds": "opaque: placement must see everyone's",
    "installation": "one row",
    "kinds": "the catalogue",
    "mail": "work to find before its tenant is known",
    "maintenance_nodes": "hardware",
    "maintenances": "hardware",
    "metering": "work to find before its tenant is known",
    "node_outages": "hardware",
    "nodes": "hardware",
    "platform_audit": "what platform people did",
    "platform_roles": "roles on the platform",
    "pools": "what is offered",
    "power_budgets": "hardware",
    "price_versions": "published prices",
    "prices": "published prices",
    "sessions": "looked up by hash before a tenant is known",
    "sign_in_tries": "hashes",
    "slots": "hardware",
    "tokens": "looked up by hash before a tenant is known",
    "unit_faults": "hardware",
    "waiting": "the queue of waiters: opaque, whoever frees units must see them",
}
"""Tables without row-level security, each with its reason. A new one is protected or stands here."""

TENANTLESS = {"due", "waiting", "metering", "mail", "sessions", "tokens", "platform_audit"}
"""Platform tables that carry a tenant's id all the same: to set it, or because its owner is looked up first."""

NEVER_CHANGED = {"audit", "platform_audit", "charges", "history", "refusals", "prices", "price_versions"}


@pytest.fixture(scope="module")
def catalogue(module_database: TestDatabase):
    """The catalogue as a superuser sees it."""
    with psycopg.connect(module_database.superuser_url) as connection:
        yield connection


@pytest.fixture(scope="module")
def world(module_database: TestDatabase, servers: Addresses):
    """Two tenants with people in the database that the catalogue is asked of."""
    made = World(module_database, servers.valkey_url)
    yield made
    made.close()


def tables(catalogue: psycopg.Connection) -> dict[str, bool]:
    """Every table, and whether row-level security is on."""
    return dict(catalogue.execute(
        """SELECT relname, relrowsecurity FROM pg_class
            WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace"""
    ).fetchall())  # fmt: skip


def columns(catalogue: psycopg.Connection, name: str) -> set[str]:
    rows = catalogue.execute(
        "SELECT table_name FROM information_schema.columns WHERE table_schema = 'public' AND column_name = %s", [name]
    )
    return {table for (table,) in rows}


def test_every_table_is_protected_or_said_to_be_the_platforms(catalogue) -> None:
    found = tables(catalogue)
    assert {t for t, on in found.items() if not on} == set(PLATFORM)
    assert len(found) > 40


def test_every_table_with_a_tenant_is_protected(catalogue) -> None:
    found = tables(catalogue)
    open_ones = {t for t in columns(catalogue, "tenant_id") if not found[t]}
    assert open_ones == TENANTLESS


def test_protected_tables_have_the_policies_and_no_others(catalogue) -> None:
    """One policy for the app (own rows, also for what it writes), one for the reader (SELECT only), and the two by
    which a person sees his or her own memberships. A second permissive policy would be OR-ed to the first."""
    policies: dict[str, set[tuple]] = {}
    for table, name, command, roles, using, check in catalogue.execute(
        """SELECT tablename, policyname, cmd, roles::text[], qual, with_check FROM pg_policies
            WHERE schemaname = 'public'"""
    ):
        policies.setdefault(table, set()).add((name, command, tuple(roles), using, check))
    own = ("own", "ALL", ("berth_app",), "(tenant_id = berth_tenant())", "(tenant_id = berth_tenant())")
    everyone = ("everyone", "SELECT", ("berth_reader",), "true", None)
    protected = {t for t, on in tables(catalogue).items() if on}
    assert set(policies) == protected
    for table, held in policies.items():
        extra = {p for p in held if p[0] == "mine"}
        assert held - extra == {own, everyone}, table
        if extra:
            assert table in ("memberships", "tenants")
            ((_, command, roles, using, check),) = extra
            assert (command, roles, check) == ("SELECT", ("berth_app",), None)
            assert "berth_account()" in using


def test_nothing_goes_round_the_policies(catalogue) -> None:
    definers = catalogue.execute(
        "SELECT proname FROM pg_proc WHERE prosecdef AND pronamespace = 'public'::regnamespace"
    ).fetchall()
    assert definers == []
    views = catalogue.execute(
        """SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND (relkind = 'm'
              OR relkind = 'v' AND NOT coalesce('security_invoker=true' = ANY(reloptions), false))"""
    ).fetchall()
    assert views == []


def test_the_roles_are_weak(catalogue) -> None:
    rows = catalogue.execute(
        """SELECT rolname, rolsuper, rolbypassrls, rolcreaterole, rolcreatedb, rolreplication FROM pg_roles
            WHERE rolname IN ('berth_app', 'berth_reader', 'berth_owner')"""
    )
    strong = {name: rights for name, *rights in rows}
    assert set(strong) == {"berth_app", "berth_reader", "berth_owner"}
    assert not any(strong["berth_app"]) and not any(strong["berth_reader"])  # noqa: PT018
    assert not strong["berth_owner"][0] and not strong["berth_owner"][1]  # noqa: PT018
    owned = catalogue.execute(
        "SELECT relname FROM pg_class WHERE pg_get_userbyid(relowner) IN ('berth_app', 'berth_reader')"
    ).fetchall()
    assert owned == []


def test_the_reader_is_entered_and_not_inherited(catalogue) -> None:
    rows = catalogue.execute(
        """SELECT r.rolname, m.inherit_option, m.set_option, m.admin_option FROM pg_auth_members m
             JOIN pg_roles r ON r.oid = m.roleid WHERE pg_get_userbyid(m.member) = 'berth_app'"""
    ).fetchall()
    assert rows == [("berth_reader", False, True, False)]
    writable = catalogue.execute(
        """SELECT table_name, privilege_type FROM information_schema.role_table_grants
            WHERE grantee = 'berth_reader' AND privilege_type <> 'SELECT'"""
    ).fetchall()
    assert writable == []


def test_secrets_are_not_for_the_reader(world: World) -> None:
    with world.work() as work, work.read_all():
        for table in ("sessions", "tokens", "sign_in_tries"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), work.pg.transaction():
                work.pg.execute(f"SELECT * FROM {table}")
        with pytest.raises(psycopg.errors.InsufficientPrivilege), work.pg.transaction():
            work.pg.execute("SELECT password_hash FROM accounts")


def test_what_was_written_down_stays(catalogue) -> None:
    rows = catalogue.execute(
        """SELECT t, p FROM unnest(%s::text[]) AS t, unnest(ARRAY['UPDATE', 'DELETE', 'TRUNCATE']) AS p
            WHERE has_table_privilege('berth_app', t, p)
               OR p = 'UPDATE' AND has_any_column_privilege('berth_app', t, p)""",
        [sorted(NEVER_CHANGED)],
    ).fetchall()
    assert rows == []
    truncated = catalogue.execute(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace "
        "AND (has_table_privilege('berth_app', oid, 'TRUNCATE') OR has_table_privilege('berth_app', oid, 'TRIGGER'))"
    ).fetchall()
    assert truncated == []


def test_the_app_cannot_move_the_clock_or_the_policies(world: World) -> None:
    for statement in ("UPDATE clock SET movable = true", "ALTER TABLE bookings DISABLE ROW LEVEL SECURITY",
                      "DROP POLICY own ON bookings", "SET ROLE berth_owner", "CREATE TABLE mine (one int)",
                      "ALTER ROLE berth_app BYPASSRLS", "SET session_replication_role = replica"):  # fmt: skip
        with pytest.raises(psycopg.errors.InsufficientPrivilege), world.work("acme") as work:
            work.pg.execute(statement)


def test_a_foreign_key_of_a_tenants_row_names_the_tenant(catalogue) -> None:
    """A one-column key would accept another tenant's project, since foreign keys pass row-level security."""
    protected = {t for t, on in tables(catalogue).items() if on}
    rows = catalogue.execute(
        """SELECT c.conrelid::regclass::text, c.confrelid::regclass::text,
                  ARRAY(SELECT attname::text FROM pg_attribute a
                         WHERE a.attrelid = c.conrelid AND a.attnum = ANY(c.conkey))
             FROM pg_constraint c WHERE c.contype = 'f' AND c.connamespace = 'public'::regnamespace"""
    )
    wrong = [(t, to, cols) for t, to, cols in rows if t in protected and to in protected and "tenant_id" not in cols]
    assert wrong == []


@pytest.mark.parametrize("how", ["SELECT count(*) FROM {t}", "SELECT count(*) FROM (TABLE {t}) AS all_of_it"])
def test_one_tenant_sees_nothing_of_another(world: World, how: str) -> None:
    with world.work("beta") as work:
        own = work.pg.execute("SELECT count(*) FROM audit").fetchone()[0]
    assert own > 0
    for tenant in ("acme", None):
        with world.work(tenant) as work:
            for table in ("tenants", "projects", "memberships", "audit"):
                counted = work.pg.execute(how.format(t=table)).fetchone()[0]
                mine = work.pg.execute(f"SELECT count(*) FROM {table} WHERE tenant_id = berth_tenant()").fetchone()[0]
                assert counted == mine
                assert (mine > 0) == (tenant is not None)


def test_one_tenant_writes_nothing_into_another(world: World) -> None:
    beta = world.tenants["beta"].seen.id
    with world.work("acme") as work:
        for statement in (
            "UPDATE projects SET name = 'taken' WHERE tenant_id = %s",
            "DELETE FROM memberships WHERE tenant_id = %s",
        ):
            assert work.pg.execute(statement, [beta]).rowcount == 0
    with pytest.raises(psycopg.errors.InsufficientPrivilege), world.work("acme") as work:
        work.pg.execute(
            "INSERT INTO memberships (tenant_id, account_id, role, source) VALUES (%s, %s, 'admin', 'local')",
            [beta, world.platform["operator"]],
        )
    project = world.tenants["beta"].projects["plasma"].id
    with pytest.raises(psycopg.errors.ForeignKeyViolation), world.work("acme") as work:
        work.pg.execute(
            """INSERT INTO memberships (tenant_id, account_id, project_id, role, source)
               VALUES (%s, %s, %s, 'lead', 'local')""",
            [world.tenants["acme"].seen.id, world.platform["operator"], project],
        )


def test_reading_all_ends_with_its_block_and_writes_nothing(world: World) -> None:
    with world.work("acme") as work:
        with work.read_all():
            assert work.pg.execute("SELECT count(DISTINCT tenant_id) FROM projects").fetchone()[0] == 2
            with pytest.raises(psycopg.errors.InsufficientPrivilege), work.pg.transaction():
                work.pg.execute("UPDATE projects SET name = 'taken'")
        assert work.pg.execute("SELECT count(DISTINCT tenant_id) FROM projects").fetchone()[0] == 1
        assert work.pg.execute("SELECT current_user").fetchone()[0] == "berth_app"


@pytest.mark.parametrize("role", ["owner_url", "superuser_url"])
def test_a_process_with_too_many_rights_does_not_start(
    module_database: TestDatabase, servers: Addresses, role: str
) -> None:
    settings = Settings(environment="test", database_url=getattr(module_database, role), redis_url=servers.valkey_url)
    with pytest.raises(DangerousRole, match="DATABASE_URL"):
        make_plumbing(settings)


def test_the_web_says_who_it_is(world: World) -> None:
    role = world.browser().get("/readyz").json()["checks"]["database"]["role"]
    assert role == "berth_app"


def test_a_worker_says_who_it_is(database: TestDatabase, valkey_url: str, tmp_path: Path) -> None:
    """The database names the role of every connection that a real worker opens for its tasks."""
    process = _worker(database.app_url, valkey_url, tmp_path)
    try:
        queue, pause = CeleryQueue(valkey_url), Event()
        roles: set[str] = set()
        with psycopg.connect(database.superuser_url, autocommit=True) as looking:
            for _ in range(240):
                queue.send("sweep")
                found = looking.execute(
                    "SELECT usename FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()",
                    [database.name],
                )
                roles = {name for (name,) in found}
                if roles or process.poll() is not None:
                    break
                pause.wait(0.25)
        assert roles == {"berth_app"}, (tmp_path / "log").read_text()[-2000:]
    finally:
        process.terminate()
        process.wait(30)


def test_a_worker_with_too_many_rights_does_not_start(database: TestDatabase, valkey_url: str, tmp_path: Path) -> None:
    process = _worker(database.owner_url, valkey_url, tmp_path)
    assert process.wait(60) != 0
    assert "DATABASE_URL" in (tmp_path / "log").read_text()


def _worker(database_url: str, redis_url: str, folder: Path) -> subprocess.Popen[bytes]:
    kept = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG", "TMPDIR")}
    words = {**kept, "DATABASE_URL": database_url, "REDIS_URL": redis_url, "BERTH_DATA": str(folder),
             "BERTH_ENVIRONMENT": "test"}  # fmt: skip
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "app.cli", "worker", "default"], env=words, stdout=log, stderr=log,
            stdin=subprocess.DEVNULL, cwd=Path(__file__).parents[1],
        )  # fmt: skip

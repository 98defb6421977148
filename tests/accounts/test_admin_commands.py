"""`berth admin`: what a beginner types, twice too, and what it says when it cannot be done."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from app.accounts import actions
from app.cli import app
from app.kernel.actor import SYSTEM
from app.plumbing.running import NotRunning, running_database
from app.settings import Settings
from tests.accounts.world import World

LONG = "a long enough password"


@pytest.fixture
def admin(world: World, monkeypatch: pytest.MonkeyPatch):
    """Types `berth admin` with these words; `typed` is what stands on standard input."""
    monkeypatch.setenv("DATABASE_URL", world.database.app_url)
    monkeypatch.setenv("SECRET_KEY", "k" * 40)

    def run(*words: str, typed: str | None = None) -> Result:
        return CliRunner().invoke(app, ["admin", *words], input=typed)

    return run


def rows(world: World, statement: str, *values) -> list[tuple]:
    with world.work() as work, work.read_all():
        return work.pg.execute(statement, list(values)).fetchall()


def sign_in(world: World, login: str, password: str) -> int:
    browser = world.browser()
    browser.see("/sign-in")
    return browser.submit("/sign-in", email=login, password=password).status_code


def test_the_first_operator(world: World, admin) -> None:
    made = admin("create-operator", "olga@cloud.example", "--name", "Olga", typed=f"{LONG}\n")
    assert made.exit_code == 0, made.output
    assert LONG not in made.output
    assert sign_in(world, "olga@cloud.example", LONG) == 303
    again = admin("create-operator", "olga@cloud.example", typed="another password\n")
    assert again.exit_code == 0
    assert "is there already; its password stays" in again.output
    assert sign_in(world, "olga@cloud.example", LONG) == 303
    told = rows(
        world,
        "SELECT actor, action FROM platform_audit WHERE subject IN ('account olga@cloud.example', 'account Olga')",
    )
    assert {action for actor, action in told if actor.startswith("berth admin, ")} == {
        "create account", "grant platform role",
    }  # fmt: skip


def test_a_password_is_asked_for_and_never_a_word_of_the_command(world: World, admin) -> None:
    short = admin("create-person", "x@acme.example", typed="short\n")
    assert short.exit_code == 1
    assert "at least 10" in short.stderr
    nothing = admin("create-person", "x@acme.example", typed="")
    assert nothing.exit_code == 1
    assert "--generate" in nothing.stderr
    assert admin("create-person", "x@acme.example", "--password", LONG).exit_code == 2
    assert rows(world, "SELECT 1 FROM accounts WHERE subject = 'x@acme.example'") == []
    made = admin("create-person", "x@acme.example", "--generate")
    password = made.output.partition("Password: ")[2].strip()
    assert sign_in(world, "x@acme.example", password) == 303
    assert admin("set-password", "x@acme.example", typed=f"{LONG}\n").exit_code == 0
    assert sign_in(world, "x@acme.example", password) == 401
    assert sign_in(world, "x@acme.example", LONG) == 303


def test_tenants_projects_and_roles_can_be_repeated(world: World, admin) -> None:
    tenant = ("create-tenant", "gamma", "--name", "Gamma", "--currency", "EUR")
    project = ("create-project", "gamma", "first", "--name", "First", "--cost-centre", "7")
    member = ("add-member", "acme-member@example.test", "lead", "--tenant", "gamma", "--project", "first")
    for words in (tenant, project, member):
        assert admin(*words).exit_code == 0, words
        assert admin(*words).exit_code == 0, words
    assert rows(world, "SELECT currency FROM tenants WHERE slug = 'gamma'") == [("EUR",)]
    assert rows(world, "SELECT count(*) FROM audit WHERE action = 'add member' AND actor LIKE 'berth admin%%'") == [
        (1,)
    ]
    other = admin("create-tenant", "gamma", "--name", "Another")
    assert other.exit_code == 1
    assert "There is a tenant gamma already: Gamma" in other.stderr
    other = admin("create-project", "gamma", "first", "--name", "First", "--cost-centre", "8")
    assert other.exit_code == 1
    assert "cost centre 7. Nothing was changed" in other.stderr
    assert admin("remove-member", *member[1:]).exit_code == 0
    assert admin("remove-member", *member[1:]).exit_code == 1
    assert admin("end-project", "gamma", "first", "--why", "over").exit_code == 0
    assert admin("end-project", "gamma", "first").exit_code == 0
    assert rows(world, "SELECT why FROM audit WHERE action = 'end project'") == [("over",)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add-member", "nobody@x.example", "member", "--tenant", "acme"), "Make it with `berth admin create-person"),
        (("add-member", "acme-member@example.test", "admin", "--tenant", "none"), "berth admin create-tenant none"),
        (("add-member", "acme-member@example.test", "king", "--tenant", "acme"), "one of admin, finance, auditor"),
        (("add-member", "acme-member@example.test", "lead", "--tenant", "acme", "--project", "x"), "create-project"),
        (("grant-role", "acme-member@example.test", "king"), "one of operator, finance, auditor"),
        (("revoke-role", "acme-member@example.test", "operator"), "does not hold this role"),
        (("create-tenant", "No Good", "--name", "x"), "small letters, digits and hyphens"),
        (("create-token", "acme-member@example.test", "--label", "x", "--tenant", "beta"), "has no role in beta"),
        (("create-token", "acme-member@example.test", "--label", "x", "--project", "plasma"), "say --tenant too"),
        (
            ("create-token", "acme-member@example.test", "--label", "x", "--scope", "all", "--tenant", "acme"),
            "Scopes are",
        ),
        (("set-cluster-user", "acme-member@example.test", "nowhere", "x"), "no cluster called nowhere"),
        (("list", "--tenant", "none"), "There is no tenant none"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(admin, words: tuple[str, ...], said: str) -> None:
    answer = admin(*words)
    assert answer.exit_code == 1
    assert said in answer.stderr
    assert answer.stderr.startswith("berth: ")
    assert "Traceback" not in answer.output + answer.stderr


def test_somebody_is_shut_out_and_let_in_again(world: World, admin) -> None:
    browser = world.browser(world.tenants["acme"].people["member"])
    assert browser.get("/me").status_code == 200
    assert admin("disable", "acme-member@example.test", "--why", "left").exit_code == 0
    assert browser.get("/me").status_code == 303
    assert rows(world, "SELECT why FROM platform_audit WHERE action = 'disable account'") == [("left",)]
    assert admin("disable", "acme-member@example.test", "--undo").exit_code == 0
    assert browser.get("/me").status_code == 200


def test_a_token_is_printed_alone_and_works(world: World, admin) -> None:
    words = ("create-token", "acme-member@example.test", "--label", "ci", "--scope", "read", "--tenant", "acme")
    made = admin(*words, "--project", "plasma")
    assert made.exit_code == 0, made.stderr
    me = world.api(made.output.strip()).get("/api/v1/me").json()
    assert (me["tenant"]["slug"], me["project"], me["scopes"]) == ("acme", "plasma", ["read"])
    again = admin(*words)
    assert again.exit_code == 1
    assert "Choose another label" in again.stderr
    assert admin("grant-role", "acme-member@example.test", "finance").exit_code == 0
    platform = admin("create-token", "acme-member@example.test", "--label", "p", "--scope", "read")
    assert world.api(platform.output.strip()).get("/api/v1/me").json()["roles"] == ["platform:finance"]
    assert admin("revoke-role", "acme-member@example.test", "finance").exit_code == 0


def test_a_role_by_a_group_is_taken_back_there(world: World, admin) -> None:
    with world.work() as work:
        actions.grant_platform_role(work, SYSTEM, world.tenants["acme"].people["member"], "auditor")
        work.pg.execute("DELETE FROM platform_roles WHERE role = 'auditor' AND source = 'local'")
        work.pg.execute(
            "INSERT INTO platform_roles VALUES (%s, 'auditor', 'oidc')", [world.tenants["acme"].people["member"]]
        )
    answer = admin("revoke-role", "acme-member@example.test", "auditor")
    assert answer.exit_code == 1
    assert "take it back there" in answer.stderr


def test_every_command_explains_itself(admin) -> None:
    help_text = admin("--help").output
    for command in ("create-operator", "create-tenant", "create-project", "end-project", "create-person", "add-member",
                    "remove-member", "grant-role", "revoke-role", "set-password", "disable", "create-token",
                    "set-cluster-user", "list", "roles"):  # fmt: skip
        assert command in help_text
        said = admin(command, "--help")
        assert said.exit_code == 0
        assert "Usage: " in said.output
    assert "short name of the tenant" in admin("create-project", "--help").output.lower()


def test_without_a_database_it_says_how_to_start_one(tmp_path: Path) -> None:
    settings = Settings(environment="test", data=tmp_path)
    with pytest.raises(NotRunning, match="Start it first with `berth up`"):
        running_database(settings)
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres" / "postmaster.pid").write_text("1\n/data\n0\n5432\n/run/some where\n\n")
    assert running_database(settings) == "postgresql://berth_app@/berth?host=/run/some%20where"
    (tmp_path / "postgres" / "postmaster.pid").write_text("1\n")
    with pytest.raises(NotRunning):
        running_database(settings)

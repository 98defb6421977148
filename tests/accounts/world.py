"""A small world for tests of people and of the web: two tenants, somebody of every role, and browsers signed in.

Sessions are opened by the use case itself, without a password, so that argon2 costs nothing where it is not tested.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.accounts import actions, sessions
from app.accounts.queries import ProjectSeen, TenantSeen
from app.kernel.actor import SYSTEM, Actor
from app.kernel.clock import wall_now
from app.main import create_app
from app.plumbing.db import Work
from app.plumbing.queue import NoQueue
from app.plumbing.runtime import Plumbing, make_plumbing
from app.settings import Settings
from tests.servers import TestDatabase

ADDRESS = "http://127.0.0.1:8000"
PROJECT_PEOPLE = ("viewer", "member", "lead")
TENANT_PEOPLE = ("admin", "finance", "auditor")
PLATFORM_PEOPLE = ("operator", "finance", "auditor")


@dataclass
class WallClock:
    """The wall clock of a test: moved by hand."""

    instant: datetime = field(default_factory=wall_now)

    def __call__(self) -> datetime:
        return self.instant

    def forward(self, **words: float) -> None:
        self.instant += timedelta(**words)


@dataclass
class Tenant:
    """One tenant of the world with its projects and people, by role."""

    seen: TenantSeen
    projects: dict[str, ProjectSeen] = field(default_factory=dict)
    people: dict[str, UUID] = field(default_factory=dict)


class World:
    """A process over a fresh database, with `acme` and `beta` in it, and people of every role."""

    def __init__(self, database: TestDatabase, valkey_url: str, *, people: bool = True, **settings: Any) -> None:
        self.database = database
        self.clock = WallClock()
        self.settings = Settings(environment="test", database_url=database.app_url, redis_url=valkey_url, **settings)
        self.plumbing: Plumbing = make_plumbing(self.settings, queue=NoQueue(), wall=self.clock)
        self.app: FastAPI = create_app(plumbing=self.plumbing)
        self.tenants: dict[str, Tenant] = {}
        self.platform: dict[str, UUID] = {}
        if people:
            self._fill()

    def close(self) -> None:
        self.plumbing.close()

    def work(self, tenant: str | None = None):
        """A transaction as the app's role, acting for a tenant of the world."""
        return self.plumbing.database.work(self.tenants[tenant].seen.id if tenant else None)

    def account(self, work: Work, name: str, **words: Any) -> UUID:
        """A local account; nobody can sign in unless a password is given."""
        return actions.create_account(work, SYSTEM, login=f"{name}@example.test", name=name, **words)

    def browser(self, account_id: UUID | None = None) -> Browser:
        """A browser, signed in if an account is given."""
        browser = Browser(self.app)
        if account_id is not None:
            with self.plumbing.database.work() as work:
                secret = sessions.open_session(work, account_id, sessions.Browser("Test/1", "127.0.0.1"))
            browser.cookies.set("berth_session", secret)
        return browser

    def token(
        self, account_id: UUID, tenant: str | None, *scopes: str, project: str | None = None, days: int = 90
    ) -> str:
        """An API token of an account, bound to a tenant."""
        with self.work(tenant) as work:
            project_id = self.tenants[tenant].projects[project].id if project else None
            roles = work.pg.execute(
                "SELECT project_id, role FROM memberships WHERE account_id = %s AND tenant_id = berth_tenant()",
                [account_id],
            ).fetchall()
            actor = Actor(
                account_id, "somebody", work.tenant_id,
                tenant_roles=frozenset(role for p, role in roles if p is None),
                project_roles={p: role for p, role in roles if p is not None},
            )  # fmt: skip
            made = actions.create_token(
                work, actor, label="test", scopes=scopes or ("read",), days=days, project_id=project_id
            )
        return made.secret

    def api(self, token: str | None = None) -> TestClient:
        """A program with a token."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return TestClient(self.app, base_url=ADDRESS, headers=headers, raise_server_exceptions=False)

    def _fill(self) -> None:
        for slug, name in (("acme", "Acme Research"), ("beta", "Beta Labs")):
            with self.plumbing.database.work() as work:
                tenant = Tenant(actions.create_tenant(work, SYSTEM, slug=slug, name=name))
                for project in ("plasma", "vision"):
                    tenant.projects[project] = actions.create_project(
                        work, SYSTEM, slug=project, name=project.capitalize(), cost_centre=f"{slug}-{project}"
                    )
                for role in PROJECT_PEOPLE:
                    person = tenant.people[role] = self.account(work, f"{slug}-{role}")
                    actions.add_member(work, SYSTEM, person, role, tenant.projects["plasma"].id)
                for role in TENANT_PEOPLE:
                    person = tenant.people[f"tenant-{role}"] = self.account(work, f"{slug}-tenant-{role}")
                    actions.add_member(work, SYSTEM, person, role)
            self.tenants[slug] = tenant
        with self.plumbing.database.work() as work:
            for role in PLATFORM_PEOPLE:
                person = self.platform[role] = self.account(work, f"platform-{role}")
                actions.grant_platform_role(work, SYSTEM, person, role)


class Browser(TestClient):
    """A browser: keeps cookies, sends forms with the token of the page it saw last, follows nothing by itself."""

    def __init__(self, app: FastAPI) -> None:
        super().__init__(app, base_url=ADDRESS, follow_redirects=False, raise_server_exceptions=False)
        self.form_token = ""

    def see(self, path: str, **words: Any):
        """GET a page and remember its form token."""
        answer = self.get(path, **words)
        if found := re.search(r'name="csrf_token" value="([^"]+)"', answer.text):
            self.form_token = found[1]
        return answer

    def submit(self, path: str, **fields: Any):
        """POST a form as a page of ours would."""
        return self.post(path, data={"csrf_token": self.form_token, **fields}, headers={"Origin": ADDRESS})

"""What the API takes and gives about people, projects and tokens."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field


class NewTokenBody(BaseModel):
    """A token to make."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [
        {"label": "nightly runs", "scopes": ["read", "book"], "days": 90, "project": "plasma"}]})  # fmt: skip

    label: str = Field(min_length=1, max_length=120, description="what it is for")
    scopes: list[str] = Field(description="some of read, book, manage, bill, admin")
    days: int = Field(default=90, description="how long it lives")
    project: str | None = Field(default=None, description="short name; bound to this project alone")


class TokenAnswer(BaseModel):
    """A token without its secret."""

    id: str
    label: str
    scopes: list[str]
    tenant: str | None
    project: str | None
    created_at: datetime
    expires_at: datetime
    used_at: datetime | None


class NewTokenAnswer(BaseModel):
    """A token as it is shown once."""

    id: str
    token: str
    expires_at: datetime


class TokensAnswer(BaseModel):
    """A list of tokens."""

    items: list[TokenAnswer]
    next: str | None = None


class ProjectAnswer(BaseModel):
    """A project, and the role held in it."""

    id: str
    slug: str
    name: str
    cost_center: str
    role: str | None
    created_at: datetime
    ended_at: datetime | None = None


class ProjectsAnswer(BaseModel):
    """A list of projects."""

    items: list[ProjectAnswer]
    next: str | None = None


class TenantAnswer(BaseModel):
    """A tenant's plain facts."""

    id: str
    slug: str
    name: str
    zone: str
    currency: str


class MeAnswer(BaseModel):
    """Who the token or session belongs to, and what it may."""

    id: str
    name: str
    zone: str
    tenant: TenantAnswer | None
    project: str | None = Field(description="short name, for a token bound to one project")
    roles: list[str] = Field(description="such as project:lead, tenant:admin, platform:operator")
    projects: dict[str, str] = Field(description="short name of a project -> role in it")
    scopes: list[str]


class TenantsAnswer(BaseModel):
    """A list of tenants."""

    items: list[TenantAnswer]
    next: str | None = None


class NewTenantBody(BaseModel):
    """An organisation to make."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [
        {"slug": "physics", "name": "Institute of Physics", "zone": "Europe/Zurich", "currency": "CHF"}]})  # fmt: skip

    slug: str = Field(max_length=63)
    name: str = Field(max_length=120)
    zone: str = Field(default="Europe/Zurich", max_length=64, description="in which its days are billed")
    currency: str = Field(default="CHF", max_length=3)
    price_group: str = Field(default="standard", max_length=120)


class NewProjectBody(BaseModel):
    """A project to make."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [
        {"slug": "plasma", "name": "Plasma surrogates", "cost_center": "4711"}]})  # fmt: skip

    slug: str = Field(max_length=63)
    name: str = Field(max_length=120)
    cost_center: str = Field(max_length=120)


class WhyBody(BaseModel):
    """A reason for the audit."""

    model_config = ConfigDict(extra="forbid")

    why: str | None = Field(default=None, max_length=200)


class NewPersonBody(BaseModel):
    """A role for somebody, known by login or by the id of the account."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [
        {"login": "robin@physics.example", "name": "Robin Keller", "role": "member", "project": "plasma"}]})  # fmt: skip

    login: str = Field(max_length=200)
    name: str = Field(default="", max_length=120, description="for a new account")
    role: str = Field(
        max_length=40, description="viewer, member, lead in a project; admin, finance, auditor without one"
    )
    project: str | None = Field(default=None, max_length=63)


class PersonAnswer(BaseModel):
    """Somebody with a new role."""

    id: str
    password: str | None = Field(description="of an account made by this; it stands nowhere else")


class MemberAnswer(BaseModel):
    """A role that somebody holds."""

    id: str
    name: str
    email: str
    role: str = Field(description="such as project:lead or tenant:admin")
    project: str | None
    source: str = Field(description="local, or oidc where a group of the sign-in provider gives it")


class MembersAnswer(BaseModel):
    """A list of roles."""

    items: list[MemberAnswer]
    next: str | None = None


class ClusterUserBody(BaseModel):
    """A user name on a cluster."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=100)


class ClusterUserAnswer(BaseModel):
    """What one is called on a cluster; null: nothing yet."""

    cluster: str
    name: str | None
    source: str | None
    wanted: str | None


class ClusterUsersAnswer(BaseModel):
    """A list of user names."""

    items: list[ClusterUserAnswer]
    next: str | None = None

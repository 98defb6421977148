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

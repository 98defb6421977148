"""What the operator's page of rules shows: what is said of a pool and for whom, and whom a change would touch."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from app.web.views.parts import Link, Option


@dataclass(frozen=True)
class RuleField:
    """One rule: what is typed, what counts without it, and what can be chosen (empty: it is typed)."""

    name: str
    label: str
    value: str
    otherwise: str
    choices: tuple[Option, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class RuleGroup:
    """Rules about one thing."""

    title: str
    fields: tuple[RuleField, ...]


@dataclass(frozen=True)
class RuleChange:
    """A rule before and after."""

    label: str
    before: str
    after: str


@dataclass(frozen=True)
class TouchedRow:
    """A booking that is kept, and what would be said to it today."""

    label: str
    whose: str
    booked_by: str
    start: datetime
    end: datetime
    why: str


@dataclass(frozen=True)
class RulePreview:
    """Whom a change would touch. `sentences` are facts; nothing was changed yet."""

    changes: tuple[RuleChange, ...]
    sentences: tuple[str, ...]
    refused: tuple[TouchedRow, ...]
    asked: tuple[TouchedRow, ...]


@dataclass(frozen=True)
class RulesForm:
    """Posts the fields, `etag`, `pool`, `tenant`, `project` and `step` (preview, save) to /operator/policies."""

    groups: tuple[RuleGroup, ...]
    hidden: tuple[tuple[str, str], ...]
    error: str = ""


@dataclass(frozen=True)
class SaidRow:
    """What is said somewhere, in short."""

    whom: str
    href: str
    rules: str
    current: bool = False


@dataclass(frozen=True)
class PoliciesPage:
    """GET /operator/policies?pool=&tenant=&project= : what may be booked by whom, and what becomes of it?

    `form` is None for those who may only look; then `groups` are shown.
    """

    template: ClassVar[str] = "operator/policies.html"
    title: str
    sentence: str
    pools: tuple[Link, ...]
    places: tuple[SaidRow, ...]
    form: RulesForm
    may_change: bool
    tenants: tuple[Option, ...] = ()
    pool: str = ""
    preview: RulePreview | None = None

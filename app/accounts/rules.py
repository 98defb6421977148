"""Pure: what names, zones and roles may be, when sign-in is locked, and what a provider's groups give. Kernel only."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any
from zoneinfo import available_timezones

from app.kernel.actor import PLATFORM_ROLES, PROJECT_ROLES, SCOPES, TENANT_ROLES
from app.kernel.errors import Invalid, Reason

TRIES_OF_LOGIN, TRIES_OF_ADDRESS = 8, 60
TRY_WINDOW = timedelta(minutes=15)
SHORTEST_PASSWORD, LONGEST_PASSWORD = 10, 1000
LONGEST_TOKEN_DAYS = 365
RESERVED_SLUGS = frozenset({"platform", "all"})
_SLUG = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
LONGEST_CLUSTER_USER = 32
SYSTEM_USERS = frozenset(
    """root daemon bin sys sync games man lp mail news uucp proxy www-data backup list irc nobody sshd ntp dbus polkitd
    systemd-network systemd-resolve messagebus adm admin administrator sudo wheel operator ftp postgres mysql redis
    docker kube kubelet etcd slurm slurmrestd munge berth nvidia-persistenced ubuntu debian ec2-user centos""".split()  # noqa: SIM905
)
"""Users that a machine may have by itself: nobody becomes one of them by the choice of an e-mail address."""
_CLUSTER_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_CURRENCY = re.compile(r"[A-Z]{3}")


@dataclass(frozen=True, slots=True)
class Grant:
    """A role that a group gives: on the platform, in a tenant, or in a project of it. Tenant and project are slugs."""

    role: str
    tenant: str | None = None
    project: str | None = None


def refuse_wrong(*reasons: Reason | None) -> None:
    """Raise `Invalid` with every reason at once, if there is one."""
    found = tuple(r for r in reasons if r is not None)
    if found:
        raise Invalid("invalid", " ".join(r.message for r in found), found)


def wrong_slug(slug: str, field: str = "slug") -> Reason | None:
    """A short name in addresses: small letters, digits and hyphens."""
    if not _SLUG.fullmatch(slug):
        return _reason("slug", "A short name has 1 to 63 small letters, digits and hyphens.", slug, field)
    if slug in RESERVED_SLUGS:
        return _reason("slug_reserved", f"“{slug}” means something else here; choose another short name.", slug, field)
    return None


def wrong_name(name: str, field: str = "name", longest: int = 120) -> Reason | None:
    """Something people read: not blank, not endless, printable."""
    if not name.strip() or len(name) > longest or not name.isprintable():
        return _reason("name", f"The {field} has 1 to {longest} printable characters.", name[:longest], field)
    return None


@cache
def zones() -> frozenset[str]:
    """The names of all time zones; looked up once, since that walks through files."""
    return frozenset(available_timezones())


def wrong_zone(zone: str) -> Reason | None:
    """A time zone's IANA name."""
    if zone not in zones():
        return _reason("zone", "A time zone is an IANA name such as Europe/Zurich.", zone, "zone")
    return None


def wrong_currency(currency: str) -> Reason | None:
    """An ISO 4217 code."""
    if not _CURRENCY.fullmatch(currency):
        return _reason("currency", "A currency is three capital letters, such as CHF.", currency, "currency")
    return None


def wrong_password(password: str) -> Reason | None:
    """Length is what counts."""
    if not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
        said = f"A password has at least {SHORTEST_PASSWORD} and at most {LONGEST_PASSWORD} characters."
        return Reason("password", said, str(SHORTEST_PASSWORD), str(len(password)), None, "password", True)
    return None


def wrong_role(role: str, *, in_project: bool) -> Reason | None:
    """A role of a project or of a tenant."""
    known = PROJECT_ROLES if in_project else TENANT_ROLES
    if role not in known:
        where = "a project" if in_project else "a tenant"
        return _reason("role", f"A role in {where} is one of {', '.join(known)}.", role, "role")
    return None


def wrong_platform_role(role: str) -> Reason | None:
    """A role on the platform."""
    if role not in PLATFORM_ROLES:
        return _reason("role", f"A role on the platform is one of {', '.join(PLATFORM_ROLES)}.", role, "role")
    return None


def wrong_scopes(scopes: Iterable[str]) -> Reason | None:
    """What a token may do: at least one, all known."""
    asked = list(scopes)
    unknown = [s for s in asked if s not in SCOPES]
    if unknown or not asked:
        return _reason("scopes", f"Scopes are some of {', '.join(SCOPES)}.", ", ".join(unknown) or "none", "scopes")
    return None


def wrong_days(days: int) -> Reason | None:
    """How long a token lives."""
    if not 1 <= days <= LONGEST_TOKEN_DAYS:
        return Reason("days", f"A token lives 1 to {LONGEST_TOKEN_DAYS} days.", f"{LONGEST_TOKEN_DAYS} days",
                      f"{days} days", None, "days", True)  # fmt: skip
    return None


def wrong_cluster_user(name: str) -> Reason | None:
    """A user name as clusters take it, and none of the machine's own."""
    if not _CLUSTER_USER.fullmatch(name):
        said = "A user name on a cluster has 1 to 32 small letters, digits, _ and -, and begins with a letter or _."
        return _reason("cluster_user", said, name[:80], "name")
    if name in SYSTEM_USERS:
        return _reason("cluster_user", f"“{name}” is a user of the machines themselves.", name, "name")
    return None


def cluster_user_of(email: str) -> str | None:
    """The default rule: the part before the @ made a user name, `Zoë.Müller+x@…` -> `zoe-muller-x`. None: no such."""
    plain = unicodedata.normalize("NFKD", email.strip().partition("@")[0]).encode("ascii", "ignore").decode().lower()
    name = re.sub(r"[^a-z0-9_]+", "-", plain).strip("-")
    if not name:
        return None
    if not _CLUSTER_USER.fullmatch(name[:1]) or name in SYSTEM_USERS:
        name = f"u-{name}"
    return name[:LONGEST_CLUSTER_USER].rstrip("-")


def numbered(name: str, number: int) -> str:
    """The same name for the second, third … who would have it: `lena`, `lena2`; never longer than allowed."""
    tail = "" if number == 1 else str(number)
    return name[: LONGEST_CLUSTER_USER - len(tail)] + tail


def locked_until(tries: Iterable[datetime], now: datetime, most: int) -> datetime | None:
    """When sign-in opens again after `most` failures within the window; None when it is open."""
    recent = sorted(t for t in tries if t > now - TRY_WINDOW)
    return recent[-most] + TRY_WINDOW if len(recent) >= most else None


def read_group_map(plain: Mapping[str, Any]) -> dict[str, tuple[Grant, ...]]:
    """The map of the settings: group -> "tenant/project:role", "tenant:role", "platform:role", or a list of these.

    Raises ValueError with a sentence.
    """
    return {group: tuple(_grant(group, text) for text in _list(given)) for group, given in plain.items()}


def grants_of(groups: Iterable[str], group_map: Mapping[str, tuple[Grant, ...]]) -> frozenset[Grant]:
    """What these groups give; groups that the map does not name give nothing."""
    return frozenset(grant for group in groups for grant in group_map.get(group, ()))


def groups_in(claims: Mapping[str, Any], path: str) -> tuple[str, ...]:
    """The groups in a provider's claims: a claim of that very name, else a path with dots. Missing: none.

    One name alone counts as a list of one; whatever is not text is nothing.
    """
    value: Any = claims.get(path)
    if value is None:
        value = claims
        for part in path.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
    if isinstance(value, str):
        return (value,)
    return tuple(v for v in value if isinstance(v, str)) if isinstance(value, list) else ()


def _list(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [given]


def _grant(group: str, text: Any) -> Grant:
    where, colon, role = text.partition(":") if isinstance(text, str) else ("", "", "")
    tenant, slash, project = where.partition("/")
    if not colon or not _SLUG.fullmatch(tenant) or (slash and not _SLUG.fullmatch(project)):
        raise ValueError(f"the group {group!r} gives {text!r}: write tenant/project:role, tenant:role or platform:role")
    if tenant == "platform" and not slash:
        known, grant = PLATFORM_ROLES, Grant(role)
    else:
        known, grant = (PROJECT_ROLES if slash else TENANT_ROLES), Grant(role, tenant, project or None)
    if role not in known:
        raise ValueError(f"the group {group!r} gives {text!r}: the role is one of {', '.join(known)}")
    return grant


def _reason(code: str, message: str, asked: str, field: str) -> Reason:
    return Reason(code, message, None, asked, None, field, True)

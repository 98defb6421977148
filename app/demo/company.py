"""Who and what the demo consists of, and how it is set up: clusters, kinds, prices, tenants, people, limits.

Everything goes through the rooms' verbs. Made once; a set-up that was broken off is finished by the next.
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from uuid import UUID

from app.accounts import actions as accounts
from app.accounts import queries as account_queries
from app.inventory import actions as inventory
from app.inventory.reconcile import define_on_backend, sync_cluster
from app.kernel.actor import SCOPES, SYSTEM, Actor
from app.plumbing.db import Work
from app.plumbing.runtime import Plumbing
from app.pricing import actions as pricing
from app.pricing import queries as price_queries
from app.quotas import actions as quotas

ALPS, DELTA = "alps", "delta"
H100, H200, MI300X = "h100-sxm-80gb", "h200-sxm-141gb", "mi300x-192gb"
PRICES = {H100: Decimal("2.40"), H200: Decimal("3.10"), MI300X: Decimal("2.20")}
ZONE = "Europe/Zurich"


@dataclass(frozen=True, slots=True)
class Team:
    """A project of a tenant. `units` and `hours` are its limits: at once, and a month."""

    slug: str
    name: str
    cost_centre: str
    units: int
    hours: int


@dataclass(frozen=True, slots=True)
class Company:
    """A tenant with its projects."""

    slug: str
    name: str
    teams: tuple[Team, ...]


COMPANIES = (
    Company(
        "physics",
        "Institute of Physics",
        (
            Team("plasma", "Plasma surrogates", "4711", 160, 24_000),
            Team("lattice", "Lattice QCD", "4720", 96, 12_000),
        ),
    ),
    Company(
        "bio",
        "Bio Lab",
        (
            Team("atlas", "Single-cell atlas", "7155", 96, 12_000),
            Team("fold", "Protein folding", "7160", 96, 12_000),
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who can sign in. `role` as the API writes it: `project:member`, `tenant:admin`, `platform:operator`."""

    name: str
    role: str
    tenant: str | None
    project: str | None
    email: str
    password: str = ""
    token: str = ""


PEOPLE = (
    Person("Robin Keller", "project:member", "physics", "plasma", "robin@physics.example"),
    Person("Mara Steiner", "project:lead", "physics", "plasma", "mara@physics.example"),
    Person("Jonas Frei", "project:member", "physics", "lattice", "jonas@physics.example"),
    Person("Lena Vogt", "project:lead", "physics", "lattice", "lena@physics.example"),
    Person("Vera Blum", "project:viewer", "physics", "plasma", "vera@physics.example"),
    Person("Anna Roth", "tenant:admin", "physics", None, "anna@physics.example"),
    Person("Felix Marti", "tenant:finance", "physics", None, "felix@physics.example"),
    Person("Aldo Conti", "tenant:auditor", "physics", None, "aldo@physics.example"),
    Person("Nora Weiss", "project:member", "bio", "atlas", "nora@bio.example"),
    Person("Sami Haddad", "project:lead", "bio", "atlas", "sami@bio.example"),
    Person("Ines Costa", "project:member", "bio", "fold", "ines@bio.example"),
    Person("Paul Egger", "project:lead", "bio", "fold", "paul@bio.example"),
    Person("Tina Graf", "tenant:admin", "bio", None, "tina@bio.example"),
    Person("Olga Brandt", "platform:operator", None, None, "olga@cloud.example"),
    Person("Nina Fischer", "platform:finance", None, None, "nina@cloud.example"),
    Person("Karl Auer", "platform:auditor", None, None, "karl@cloud.example"),
)

_TOKEN_SCOPES = {
    "project:viewer": ("read",),
    "project:member": ("read", "book"),
    "project:lead": ("read", "book", "manage"),
    "tenant:admin": SCOPES,
    "tenant:finance": ("read", "bill"),
    "tenant:auditor": ("read",),
    "platform:operator": ("read", "manage", "admin"),
    "platform:finance": ("read", "bill"),
    "platform:auditor": ("read",),
}
_OPERATOR = Actor(None, "Set-up", platform_roles=frozenset({"operator", "finance"}))


def nodes_csv(cluster: str) -> str:
    """The nodes of a cluster of the demo: 36 of 8 H100 in 6 racks; 16 of 8 H200 and 8 of 8 MI300X in 6."""
    rows = ["name,kind,gpus,rack,leaf,nvlink,power_watts,cpu_milli,memory_mib"]
    if cluster == ALPS:
        groups = [(H100, rack, 6, 700) for rack in range(1, 7)]
    else:
        groups = [(H200, rack, 4, 700) for rack in range(1, 5)] + [(MI300X, rack, 4, 750) for rack in range(5, 7)]
    for kind, rack, count, watts in groups:
        for place in range(1, count + 1):
            name = f"{cluster}-{rack:02}{place:02}"
            leaf = f"{rack}{'a' if place <= (count + 1) // 2 else 'b'}"
            rows.append(f"{name},{kind},8,{rack},{leaf},{name},{watts},192000,2097152")
    return "\n".join(rows) + "\n"


def set_up(plumbing: Plumbing, folder: Path, now: datetime) -> tuple[Person, ...]:
    """Make what is missing of the company. `now` is the product clock at which its history begins.

    Answers the people with passwords and tokens, which are also kept in `people.json`, readable by their owner alone.
    """
    people = _secrets(folder)
    with plumbing.database.work() as work:
        inventory.make_installation(work)
        inventory.load_catalogue(work)
    for cluster in (ALPS, DELTA):
        with plumbing.database.work() as work:
            known = {row[0] for row in work.pg.execute("SELECT name FROM clusters")}
            if cluster not in known:
                config = {"path": str(folder / f"{cluster}.sqlite"), "seed": 2417 if cluster == ALPS else 501}
                inventory.connect_cluster(work, _OPERATOR, cluster, "simulated", config)
                inventory.import_nodes(work, _OPERATOR, cluster, nodes_csv(cluster))
        define_on_backend(plumbing, _OPERATOR, cluster)
        with plumbing.database.work() as work:
            found = inventory.look_now(work, _OPERATOR, cluster)
        sync_cluster(plumbing, found.id)
    with plumbing.database.work() as work:
        if not price_queries.versions(work, "standard", "CHF"):
            pricing.publish_version(work, _OPERATOR, "standard", "CHF", now, PRICES, "Opening prices")
    for company in COMPANIES:
        with plumbing.database.work() as work:
            _company(work, company)
    made = []
    for person in people:
        with plumbing.database.work() as work:
            made.append(_person(work, person))
    _write_secret(folder / "people.json", json.dumps([asdict(p) for p in made], indent=1))
    return tuple(made)


def actor_of(work: Work, person: Person) -> Actor:
    """The person as signed in to his or her tenant; the work acts for that tenant from here on."""
    account_id = _account(work, person)
    assert account_id is not None
    tenant_id = None if person.tenant is None else _tenant(work, person.tenant)
    work.act_for(tenant_id)
    rows = work.pg.execute(
        "SELECT project_id, role FROM memberships WHERE account_id = %s AND tenant_id = %s", [account_id, tenant_id]
    ).fetchall()
    return Actor(
        account_id,
        person.name,
        tenant_id,
        frozenset(role for project, role in rows if project is None),
        frozenset({person.role.partition(":")[2]} if person.tenant is None else ()),
        {project: role for project, role in rows if project is not None},
        zone=ZONE,
    )


def _company(work: Work, company: Company) -> None:
    tenant_id = _tenant(work, company.slug)
    if tenant_id is None:
        tenant_id = accounts.create_tenant(work, SYSTEM, slug=company.slug, name=company.name).id
    work.act_for(tenant_id)
    admin = Actor(None, "Set-up", tenant_id, frozenset({"admin"}), frozenset({"operator"}))
    for team in company.teams:
        if account_queries.project_by_slug(work, team.slug) is None:
            made = accounts.create_project(work, SYSTEM, slug=team.slug, name=team.name, cost_centre=team.cost_centre)
            quotas.set_limit(work, admin, project_id=made.id, units=team.units, hours=team.hours)
            quotas.set_limit(work, admin, project_id=made.id, kind=H100, units=min(team.units, 96), hours=None)


def _person(work: Work, person: Person) -> Person:
    """The account with its role and an API token, made if they are missing."""
    account_id = _account(work, person)
    if account_id is None:
        account_id = accounts.create_account(
            work, SYSTEM, login=person.email, name=person.name, password=person.password, zone=ZONE
        )
    where, _, role = person.role.partition(":")
    if where == "platform":
        if not work.pg.execute(
            "SELECT FROM platform_roles WHERE account_id = %s AND role = %s", [account_id, role]
        ).rowcount:
            accounts.grant_platform_role(work, SYSTEM, account_id, role)
    else:
        assert person.tenant is not None
        work.act_for(_tenant(work, person.tenant))
        project = account_queries.project_by_slug(work, person.project) if person.project else None
        project_id = project.id if project else None
        if not work.pg.execute(
            "SELECT FROM memberships WHERE account_id = %s AND role = %s AND project_id IS NOT DISTINCT FROM %s",
            [account_id, role, project_id],
        ).rowcount:
            accounts.add_member(work, SYSTEM, account_id, role, project_id)
    if person.token:
        return person
    actor = actor_of(work, person)
    made = accounts.create_token(work, actor, label="Demo", scopes=_TOKEN_SCOPES[person.role], days=365)
    return Person(**{**asdict(person), "token": made.secret})


def _tenant(work: Work, slug: str) -> UUID | None:
    """The tenant's id, whoever asks: set-up knows no tenant yet."""
    with work.read_all():
        row = work.pg.execute("SELECT tenant_id FROM tenants WHERE slug = %s", [slug]).fetchone()
    return row[0] if row else None


def _account(work: Work, person: Person) -> UUID | None:
    row = work.pg.execute("SELECT id FROM accounts WHERE subject = %s", [person.email]).fetchone()
    return row[0] if row else None


def _secrets(folder: Path) -> tuple[Person, ...]:
    """The people with the passwords that they were given the first time."""
    file = folder / "people.json"
    if file.exists():
        return tuple(Person(**words) for words in json.loads(file.read_text(encoding="utf-8")))
    people = tuple(Person(**{**asdict(p), "password": _password()}) for p in PEOPLE)
    _write_secret(file, json.dumps([asdict(p) for p in people], indent=1))
    return people


def _password() -> str:
    """Twelve letters and digits in three groups: to be read from a terminal and typed."""
    letters = "abcdefghjkmnpqrstuvwxyz23456789"
    return "-".join("".join(secrets.choice(letters) for _ in range(4)) for _ in range(3))


def _write_secret(file: Path, text: str) -> None:
    """Whole or not at all, readable by its owner alone."""
    new = file.with_suffix(".new")
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        out.write(text)
    os.replace(new, file)

"""The operator's page of rules: what is said of a pool and for whom, whom a change would touch, and the change itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request, Response
from starlette.datastructures import FormData

from app.accounts import queries as accounts
from app.bookings import actions_policies as actions
from app.bookings import policy_form
from app.bookings import queries_policies as queries
from app.bookings.actions_policies import Said
from app.bookings.preview import Preview, Touched
from app.inventory import queries as inventory
from app.inventory.facts import Pool
from app.kernel.actor import Actor
from app.kernel.errors import Conflict, Invalid
from app.plumbing.db import Work
from app.web import words
from app.web.deps import InTransaction, Operator, require_platform
from app.web.page import OnPage
from app.web.views import policies as views
from app.web.views.parts import Link, Note, Option

router = APIRouter(include_in_schema=False)
Watcher = Annotated[Actor, Depends(require_platform("read", "operator", "auditor"), scope="function")]
Text = Annotated[str, Query(max_length=200)]


async def sent_form(request: Request) -> FormData:
    """The fields of the form: there are too many to name each."""
    return await request.form()


Sent = Annotated[FormData, Depends(sent_form)]
_SHOWN = 50
"""Bookings listed of those that a change would touch."""


@router.get("/operator/policies")
def policies_page(
    page: OnPage, work: InTransaction, actor: Watcher, pool: Text = "", tenant: Text = "", project: Text = "",
    whom: Text = "",
) -> Response:  # fmt: skip
    """What is said of a pool, or for a tenant or project over it."""
    if whom:
        tenant, _, project = whom.partition("/")
    return page.show(_view(work, actor, pool, tenant, project))


@router.post("/operator/policies")
def change_policy(page: OnPage, work: InTransaction, actor: Operator, form: Sent) -> Response:
    """Show whom the typed rules would touch, or say them."""
    typed = {name: str(value)[:200] for name, value in form.items()}
    pool, tenant, project = typed.get("pool", ""), typed.get("tenant", ""), typed.get("project", "")
    cluster, _, name = pool.partition("/")
    at = (tenant or None, project or None)
    written = policy_form.read_form(typed, of_pool=not tenant)
    if written.errors:
        return page.show(_view(work, actor, pool, tenant, project, typed, written.errors), 422)
    try:
        if typed.get("step") != "save":
            found = actions.preview(work, actor, cluster, name, written.words, written.gap_seconds, *at)
            return page.show(_view(work, actor, pool, tenant, project, typed, preview=found))
        said = actions.set_policy(
            work, actor, cluster, name, written.words, written.gap_seconds, *at, etag=typed.get("etag") or None
        )
    except (Invalid, Conflict) as problem:
        names = policy_form.field_names(of_pool=not tenant)
        faults = {n: r.message for r in getattr(problem, "reasons", ()) for n in names if r.message.startswith(f"{n} ")}
        faults = faults or {"": problem.detail}
        return page.show(_view(work, actor, pool, tenant, project, typed, faults), problem.status)
    text = "They count from now on, for whoever books and for what is booked. Nothing that is booked was taken back."
    return page.go(_href(pool, tenant, project), Note("ok", f"Rules of {said.name} are saved", text))


def _view(
    work: Work,
    actor: Actor,
    pool: str,
    tenant: str,
    project: str,
    typed: Mapping[str, str] | None = None,
    errors: Mapping[str, str] | None = None,
    preview: Preview | None = None,
) -> views.PoliciesPage:
    pools = inventory.pools_for(work)
    if not pools:
        return views.PoliciesPage("Rules", "Nothing can be booked yet.", (), (), views.RulesForm((), ()), False)
    chosen = next((p for p in pools if _name(p) == pool), pools[0])
    errors = errors or {}
    with work.read_all():
        places = [s for s in queries.said_everywhere(work) if s.pool_id == chosen.id]
        whom = [(t.slug, t.name) for t in accounts.tenants(work)]
        whom = [(slug, name, queries.projects_of(work, slug)) for slug, name in whom]
    said = actions.said(work, actor, chosen.cluster, chosen.name, tenant or None, project or None)
    return views.PoliciesPage(
        title=_title(said),
        sentence="What may be booked by whom, and what becomes of it. A tenant's rules lie over the pool's, and a project's "
        "over those.",
        pools=tuple(Link(_name(p), _href(_name(p)), p.id == chosen.id) for p in pools),
        places=(
            views.SaidRow(
                "Everyone", _href(_name(chosen)), _in_short(chosen.policy.words()) or "the defaults", not tenant
            ),
            *(
                views.SaidRow(
                    f"{s.tenant_name}, {s.project_name}" if s.project else s.tenant_name,
                    _href(_name(chosen), s.tenant, s.project or ""),
                    _in_short(s.words),
                    (s.tenant, s.project or "") == (tenant, project),
                )
                for s in places
            ),
        ),
        form=views.RulesForm(
            _groups(said, typed, errors),
            (
                ("pool", _name(chosen)),
                ("tenant", tenant),
                ("project", project),
                ("etag", (typed or {}).get("etag") or said.etag),
            ),
            errors.get("", ""),
        ),
        may_change="operator" in actor.platform_roles,
        tenants=tuple(
            option
            for slug, name, projects in whom
            for option in (
                Option(slug, name, (slug, "") == (tenant, project)),
                *(Option(f"{slug}/{p}", f"{name}, {n}", (slug, p) == (tenant, project)) for p, n in projects),
            )
        ),
        pool=_name(chosen),
        preview=None if preview is None else _preview(preview, chosen),
    )


def _groups(said: Said, typed: Mapping[str, str] | None, errors: Mapping[str, str]) -> tuple[views.RuleGroup, ...]:
    of_pool = said.tenant is None
    shown = set(policy_form.field_names(of_pool=of_pool))
    words_said = {**said.words, "gap": said.gap_seconds} if of_pool and said.gap_seconds else said.words
    groups = []
    for title, rows in policy_form.GROUPS:
        fields = []
        for name, label in rows:
            if name not in shown:
                continue
            value = policy_form.text_of(name, words_said[name]) if name in words_said else ""
            value = value if typed is None else typed.get(name, "")
            otherwise = policy_form.default_text(name) if of_pool else policy_form.default_text(name, said.under)
            fields.append(
                views.RuleField(name, label, value, otherwise, _choices(name, value, otherwise), errors.get(name, ""))
            )
        if fields:
            groups.append(views.RuleGroup(title, tuple(fields)))
    return tuple(groups)


def _choices(name: str, value: str, otherwise: str) -> tuple[Option, ...]:
    options = policy_form.options_of(name)
    if not options:
        return ()
    return (
        Option("", f"{words.first_upper(otherwise)} (as it is)", not value),
        *(Option(o, words.first_upper(policy_form.WORDS.get(o, o)), o == value) for o in options),
    )


def _preview(found: Preview, pool: Pool) -> views.RulePreview:
    sentences = []
    judged = words.count(found.looked_at, "booking")
    if not found.changes:
        sentences.append("These rules are as they are.")
    elif not found.refused and not found.asked:
        sentences.append(f"None of the {judged} that have not ended would be refused or asked for anew.")
    else:
        sentences.append(
            f"{len(found.refused)} of {judged} would be refused today, and {len(found.asked)} would have to be approved. "
            "They stay as they are."
        )
    if found.more:
        sentences.append(f"Only the first {judged} were judged; there are more.")
    if found.followed:
        sentences.append(
            f"{words.first_upper(words.count(found.followed, 'booking'))} would be followed by the new rules."
        )
    if found.closed:
        sentences.append(f"Could book no more: {'; '.join(found.closed)}.")
    sentences += [f"Does not go together: {said}" for said in found.contradicts]
    return views.RulePreview(
        tuple(
            views.RuleChange(_LABELS[n], policy_form.said_text(n, before), policy_form.said_text(n, after))
            for n, before, after in found.changes
        ),
        tuple(sentences),
        tuple(map(_row, found.refused[:_SHOWN])),
        tuple(map(_row, found.asked[:_SHOWN])),
    )


def _row(touched: Touched) -> views.TouchedRow:
    b = touched.booking
    why = " ".join(r.message for r in touched.reasons)
    return views.TouchedRow(b.label, f"{b.tenant_name}, {b.project_name}", b.booked_by, b.starts_at, b.ends_at, why)


_LABELS = {name: label for _, rows in policy_form.GROUPS for name, label in rows}


def _in_short(said: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{label.lower()}: {policy_form.said_text(n, said[n])}" for n, label in _LABELS.items() if n in said
    )


def _title(said: Said) -> str:
    whom = " for " + ", ".join(n for n in (said.tenant, said.project) if n) if said.tenant else ""
    return f"{said.pool.name} on {said.pool.cluster}{whom}"


def _name(pool: Pool) -> str:
    return f"{pool.cluster}/{pool.name}"


def _href(pool: str, tenant: str = "", project: str = "") -> str:
    asked = {"pool": pool, "tenant": tenant, "project": project}
    return f"/operator/policies?{urlencode({n: v for n, v in asked.items() if v})}"

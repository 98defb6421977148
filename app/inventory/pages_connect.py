"""The operator's form to connect a cluster: tried out by its own backend before anything is kept."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

from fastapi import APIRouter, Form, Response

from app.backends.contract import BackendError, Probe
from app.inventory import actions, queries, reconcile, reconcile_connect
from app.inventory.reconcile_connect import Tried
from app.kernel.errors import Conflict, Invalid, Reason, Unavailable
from app.plumbing.queue import send_after_commit
from app.web import words
from app.web.deps import InTransaction, Operator, Parts, rate_limit
from app.web.page import OnPage
from app.web.views.operator import BackendHelp, ConnectForm, ConnectPage
from app.web.views.parts import Note, Option, Step, Tone

router = APIRouter(include_in_schema=False)
_Line = Annotated[str, Form(max_length=200)]
_Lines = Annotated[str, Form(max_length=20_000)]


@router.get("/operator/clusters/connect")
def connect_page(page: OnPage, _actor: Operator) -> Response:
    """The empty form."""
    return page.show(_view(ConnectForm(())))


@router.post("/operator/clusters/connect", dependencies=[rate_limit("connect", 30, 60)])
def connect(
    page: OnPage, work: InTransaction, actor: Operator, parts: Parts, name: _Line = "", backend: _Line = "",
    settings: _Lines = "", secrets: _Lines = "", writes: _Line = "", billed: _Line = "", anyway: _Line = "",
    step: _Line = "test",
) -> Response:  # fmt: skip
    """Try the cluster out; if it is to be connected and answers, connect it. What is wrong is said at its field."""
    name = name.strip()
    form = ConnectForm(_options(backend), name, settings, bool(writes), bool(billed))
    try:
        config = reconcile_connect.with_defaults(parts, name, backend, read_lines(settings, "config"))
        sealed = {key: str(value) for key, value in read_lines(secrets, "secrets", plain=True).items()}
        # nothing was written and nothing is locked while the cluster is asked, which takes no longer than its limit
        tried = reconcile_connect.try_out(parts, backend, config, sealed)
        if step != "connect":
            return page.show(_view(form, tried))
        if not tried.usable and not anyway:
            return page.show(_view(form, tried, offer_anyway=True), 409)
        key = parts.settings.secret_key
        made = actions.connect_cluster(
            work, actor, name, backend, config, secrets=sealed, key=key.get_secret_value() if key else None,
            writes=bool(writes), billed=bool(billed),
        )  # fmt: skip
    except Invalid as error:
        said = {reason.field or "config": reason.message for reason in error.reasons}
        return page.show(_view(form, errors=said or {"config": error.detail}), 422)
    except Conflict as error:
        return page.show(_view(form, errors={"name": error.detail}), 409)
    send_after_commit(work, parts.queue, "reconcile.look", made.id)
    text = "Berth looks at it now. Its nodes are offered once they are in the inventory: import a list of them."
    return page.go(f"/operator/clusters?cluster={made.name}", Note("ok", f"{made.name} is connected", text))


@router.post("/operator/clusters/{name}/define")
def define_nodes(page: OnPage, name: str, work: InTransaction, actor: Operator, parts: Parts) -> Response:
    """Build the inventory's nodes in a simulated cluster."""
    cluster = queries.cluster_named(work, name)
    try:
        count = reconcile.define_on_backend(parts, actor, name)
    except BackendError as error:
        raise Unavailable(f"backend_{error.kind}", error.sentence) from error
    send_after_commit(work, parts.queue, "reconcile.look", cluster.id)
    text = "They are free as soon as Berth has seen them: within a minute."
    return page.go(
        f"/operator/inventory?cluster={name}", Note("ok", f"{words.count(count, 'node')} built in {name}", text)
    )


_LINE = re.compile(r"\s*([A-Za-z][A-Za-z0-9_.-]{0,62})\s*[=:]\s*(.*?)\s*")


def read_lines(text: str, field: str, *, plain: bool = False) -> dict[str, Any]:
    """Lines of `name = value`; values that are numbers, true, false or JSON are taken as such unless `plain`.

    Raises `Invalid` with the number of the line that cannot be read. The line itself is not repeated: it may be secret.
    """
    found: dict[str, Any] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        read = _LINE.fullmatch(line)
        if read is None or read[1] in found:
            why = "is there twice" if read else "is not written as name = value"
            said = f"Line {number} {why}."
            raise Invalid("lines", said, (Reason("lines", said, field=field, in_request=True),))
        found[read[1]] = read[2] if plain else _value(read[2])
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _view(
    form: ConnectForm, tried: Tried | None = None, *, offer_anyway: bool = False, errors: dict[str, str] | None = None
) -> ConnectPage:
    kinds = reconcile_connect.installed()
    form = ConnectForm(
        form.backends or _options(kinds[0].name if len(kinds) == 1 else ""), form.name, form.settings, form.writes,
        form.billed, offer_anyway, errors or {},
    )  # fmt: skip
    helps = tuple(BackendHelp(k.name, k.settings) for k in kinds if k.settings)
    if tried is None:
        return ConnectPage(form, helps)
    verdict, tone = _verdict(tried)
    return ConnectPage(form, helps, True, verdict, tone, _steps(tried.probe))


def _options(chosen: str) -> tuple[Option, ...]:
    return tuple(
        Option(k.name, words.first_upper(k.name), k.name == chosen, k.what) for k in reconcile_connect.installed()
    )


def _verdict(tried: Tried) -> tuple[str, Tone]:
    if tried.probe is None:
        return tried.error, "bad"
    if not tried.usable:
        return "Berth cannot work there yet: see what is missing.", "bad"
    if tried.probe.missing or not tried.probe.ok:
        return (
            "The cluster answers, and something is still missing. It can be connected now and completed later.",
            "warn",
        )
    return "The cluster answers, and Berth can work there.", "ok"


def _steps(probe: Probe | None) -> tuple[Step, ...]:
    if probe is None:
        return ()
    seen = tuple(Step("ok" if s.ok else "bad", words.first_upper(s.name), s.sentence) for s in probe.steps)
    return (*seen, *(Step("warn", "Missing", sentence) for sentence in probe.missing))

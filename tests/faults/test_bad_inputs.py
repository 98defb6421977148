"""What is wrong with a request is said in the answer, and nothing changes: no row, in any table, of anybody.

One real web process over one database for the module; the product clock stands still.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from app.bookings.facts import Booking
from app.plumbing.embedded import EmbeddedValkey
from tests.faults.conftest import open_site
from tests.faults.processes import Answer, Client, Site, Web
from tests.servers import TestDatabase
from tests.world import H100, START, nodes_csv

pytestmark = [pytest.mark.xdist_group("faults-inputs"), pytest.mark.timeout(600)]
MAY_CHANGE = {"refusals", "tokens"}
"""Refusals are counted for statistics; a token remembers when it was last used."""
GOOD = {"project": "plasma", "name": "Run", "kind": H100, "units": 1, "duration": "PT1H",
        "start": (START + timedelta(hours=1)).isoformat()}  # fmt: skip


@pytest.fixture(scope="module")
def site(module_database: TestDatabase, valkey: EmbeddedValkey, module_folder: Path) -> Iterator[Site]:
    with open_site(module_database, module_folder, valkey.url, csv=nodes_csv(4)) as made:
        made.wait_ready(made.web())
        yield made


@pytest.fixture(scope="module")
def web(site: Site) -> Web:
    (found,) = (p for p in site.processes if isinstance(p, Web))
    return found


@pytest.fixture(scope="module")
def tokens(site: Site) -> dict[str, str]:
    """One for each sort of person, the platform's operator included."""
    made = {p: site.token(p) for p in ("physics-member", "physics-lead", "bio-member", "bio-lead")}
    made["physics-viewer"] = site.token("physics-viewer", "read")
    made["operator"] = site.operator_token()
    return made


@pytest.fixture(scope="module")
def booking(site: Site) -> Booking:
    """One of the institute's, so that there is something to change."""
    return site.world.book(start=(START + timedelta(hours=30)).isoformat(), units=2)


@pytest.fixture
def ask(web: Web, tokens: dict[str, str]) -> Iterator[Client]:
    client = Client(web, tokens["physics-member"])
    yield client
    client.close()


@pytest.fixture(autouse=True)
def nothing_changes(site: Site, tokens: dict[str, str], booking: Booking) -> Iterator[None]:
    """Around each test: every table is afterwards what it was, but for those that may change."""
    before = sums(site)
    yield
    after = sums(site)
    assert {t for t in after if after[t] != before[t]} <= MAY_CHANGE


def sums(site: Site) -> dict[str, str]:
    """A checksum of every table."""
    with psycopg.connect(site.superuser_url) as connection:
        tables = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
        one = "SELECT {} AS name, md5(coalesce(string_agg(t::text, '|' ORDER BY t::text), '')) FROM {} t"
        parts = [sql.SQL(one).format(sql.Literal(name), sql.Identifier(name)) for (name,) in connection.execute(tables)]
        return dict(connection.execute(sql.SQL(" UNION ALL ").join(parts)).fetchall())


def problem(answer: Answer, status: int, code: str, field: str | None = None) -> None:
    """A problem document that says what is wrong, and where."""
    assert answer.status == status, (answer.status, answer.body)
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.body["detail"].strip().endswith((".", "?", "…"))
    codes = {answer.body["code"], *answer.codes}
    assert code in codes, codes
    if field is not None:
        assert field in {r.get("field") for r in answer.body["reasons"]}, answer.body


def at(hours: float) -> str:
    return (START + timedelta(hours=hours)).isoformat()


WRONG_BODIES = {
    "unknown kind": ({"kind": "h900"}, 422, "unknown_kind", "kind"),
    "unknown cluster": ({"cluster": "moon"}, 422, "unknown_cluster", "cluster"),
    "unknown project": ({"project": "nothing"}, 422, "unknown_project", "project"),
    "another tenant's project": ({"project": "atlas"}, 422, "unknown_project", "project"),
    "end before start": ({"duration": None, "end": at(0.5)}, 422, "ends_before_start", "duration"),
    "end at start": ({"duration": None, "end": at(1)}, 422, "ends_before_start", "duration"),
    "no length": ({"duration": "PT0S"}, 422, "ends_before_start", "duration"),
    "start without offset": ({"start": "2026-11-30T14:00:00"}, 422, "value_error", "start"),
    "start as a number": ({"start": 1_796_000_000}, 422, "value_error", "start"),
    "end without offset": ({"duration": None, "end": "2026-11-30T16:00:00"}, 422, "value_error", "end"),
    "fraction of a second": ({"start": "2026-11-30T14:00:00.500Z"}, 422, "value_error", "start"),
    "no such date": ({"start": "2026-02-30T14:00:00Z"}, 422, "value_error", "start"),
    "before the calendar": ({"start": "0001-01-01T00:00:00+14:00"}, 422, "value_error", "start"),
    "start in the past": ({"start": at(-5)}, 422, "start_in_past", "start"),
    "start off the grid": ({"start": "2026-11-30T14:07:00Z"}, 422, "start_off_grid", "start"),
    "beyond the horizon": ({"start": at(24 * 400)}, 422, "beyond_horizon", "start"),
    "too long": ({"duration": "P300D"}, 422, "too_long", "duration"),
    "endless": ({"duration": "P99999W"}, 422, "value_error", "duration"),
    "length in words": ({"duration": "six hours"}, 422, "value_error", "duration"),
    "no units": ({"units": 0}, 422, "greater_than_equal", "units"),
    "negative units": ({"units": -1}, 422, "greater_than_equal", "units"),
    "half a unit": ({"units": 1.5}, 422, "int_type", "units"),
    "units as text": ({"units": "8"}, 422, "int_type", "units"),
    "units as truth": ({"units": True}, 422, "int_type", "units"),
    "units without end": ({"units": 10**40}, 422, "less_than_equal", "units"),
    "more units than there are": ({"units": 999_999}, 422, "too_many_units", "units"),
    "units and nodes": ({"nodes": 1, "per_node": 8}, 422, "value_error", None),
    "nodes alone": ({"units": None, "nodes": 1}, 422, "value_error", None),
    "end and duration": ({"end": at(2)}, 422, "value_error", None),
    "asap until": ({"start": "asap", "duration": None, "end": at(2)}, 422, "value_error", None),
    "closeness nobody knows": ({"within": "universe"}, 422, "literal_error", "within"),
    "a field nobody knows": ({"priority": "high"}, 422, "extra_forbidden", "priority"),
    "a tenant in the body": ({"tenant": "bio"}, 422, "extra_forbidden", "tenant"),
    "no name": ({"name": ""}, 422, "too_short", "name"),
    "a name of two lines": ({"name": "a\nb"}, 422, "value_error", "name"),
    "a name without end": ({"name": "a" * 5000}, 422, "too_long", "name"),
    "a null byte in the name": ({"name": "a\0b"}, 422, "value_error", "name"),
    "a null byte in the project": ({"project": "pla\0sma"}, 422, "value_error", "project"),
    "a null byte in the kind": ({"kind": "h100\0"}, 422, "value_error", "kind"),
    "a null byte in the cluster": ({"cluster": "si\0m"}, 422, "value_error", "cluster"),
    "a null byte in the quote": ({"quote": "\0"}, 422, "value_error", "quote"),
    "half a character": ({"name": "\ud800"}, 422, "value_error", "name"),
    "another digest": ({"quote": "0123456789abcdef"}, 409, "quote_changed", None),
}


@pytest.mark.parametrize("verb", ["bookings", "quotes"])
@pytest.mark.parametrize("what", WRONG_BODIES)
def test_a_wrong_request_is_told_what_is_wrong(ask: Client, verb: str, what: str) -> None:
    change, status, code, field = WRONG_BODIES[what]
    if verb == "quotes" and code == "quote_changed":
        pytest.skip("a quote is not compared with another")
    body = {k: v for k, v in {**GOOD, **change}.items() if v is not None}
    problem(ask.post(f"/api/v1/{verb}", body), status, code, field)


RAW = {
    "not JSON": (b'{"project": "plasma",', 422, "not_json"),
    "nothing": (b"", 422, "missing"),
    "a list": (b"[]", 422, "model_attributes_type"),
    "a number": (b"7", 422, "model_attributes_type"),
    "null": (b"null", 422, "model_attributes_type"),
    "not a number": (b'{"units": NaN}', 422, "missing"),
    "not UTF-8": (b'{"name": "\xff\xfe"}', 400, "unreadable"),
    "a hundred thousand brackets": (b"[" * 100_000, 400, "unreadable"),
    "too large": (b" " * (1024 * 1024 + 1), 413, "too_large"),
}


@pytest.mark.parametrize("what", RAW)
def test_a_body_that_cannot_be_read_is_told(ask: Client, what: str) -> None:
    raw, status, code = RAW[what]
    problem(ask.post("/api/v1/bookings", raw, Content_Type="application/json"), status, code)


def test_a_body_that_grows_too_large_without_saying_so_is_cut_off(ask: Client) -> None:
    def pieces() -> Iterator[bytes]:
        yield b'{"name": "'
        for _ in range(17):
            yield b"a" * 65536
        yield b'"}'

    ask._connection.request(
        "POST", "/api/v1/bookings", pieces(), {**ask._headers, "Content-Type": "application/json"}, encode_chunked=True
    )
    answer = ask._connection.getresponse()
    assert answer.status == 413
    assert json.loads(answer.read())["code"] == "too_large"


VERBS = (("GET", ""), ("POST", "/cancel"), ("POST", "/release"), ("POST", "/extend"))


@pytest.mark.parametrize(("method", "verb"), VERBS)
@pytest.mark.parametrize("name", ["id", "number", "label"])
def test_another_tenants_booking_is_not_there(
    web: Web, tokens, booking: Booking, method: str, verb: str, name: str
) -> None:
    named = {"id": booking.public_id, "number": str(booking.number), "label": booking.label}[name]
    body = {"duration": "PT1H"} if verb == "/extend" else None
    nobody = "bk_00000000000000000000000000"
    for person in ("bio-member", "bio-lead"):
        client = Client(web, tokens[person])
        theirs = client.send(method, f"/api/v1/bookings/{named}{verb}", body)
        problem(theirs, 404, "booking_not_found")
        unknown = client.send(method, f"/api/v1/bookings/{nobody}{verb}", body)
        assert theirs.body == unknown.body, "the answer does not tell whether it exists"
        client.close()


@pytest.mark.parametrize("verb", ["/cancel", "/release", "/extend"])
def test_who_may_only_look_or_has_no_token_changes_nothing(web: Web, tokens, booking: Booking, verb: str) -> None:
    path, body = f"/api/v1/bookings/{booking.public_id}{verb}", {"duration": "PT1H"} if verb == "/extend" else None
    for token, status, code in (
        (tokens["physics-viewer"], 403, "scope"),
        (None, 401, "unauthenticated"),
        ("berth_pat_nobody", 401, "token_unknown"),
        ("~" * 300, 401, "token_unknown"),
    ):
        client = Client(web, token)
        problem(client.post(path, body), status, code)
        client.close()


def test_verbs_that_do_not_fit_the_state_or_the_version(ask: Client, booking: Booking) -> None:
    path = f"/api/v1/bookings/{booking.public_id}"
    problem(ask.post(f"{path}/release"), 409, "wrong_state")
    problem(ask.post(f"{path}/extend", {"duration": "PT0S"}), 422, "not_later", "end")
    problem(ask.post(f"{path}/extend", {"duration": "PT7M"}), 422, "length_off_grid")
    problem(ask.post(f"{path}/extend", {"duration": "P300D"}), 422, "too_long")
    problem(ask.post(f"{path}/extend", {"end": at(-1)}), 422, "not_later")
    problem(ask.post(f"{path}/extend", {"end": "2026-12-01T20:00"}), 422, "value_error", "end")
    problem(ask.post(f"{path}/extend", {}), 422, "value_error")
    problem(ask.post(f"{path}/cancel", If_Match='"99"'), 409, "edited_meanwhile")
    problem(ask.post(f"{path}/cancel", If_Match="what"), 409, "edited_meanwhile")
    problem(ask.post(f"{path}/cancel", Idempotency_Key=""), 422, "string_too_short")
    problem(ask.post(f"{path}/cancel", Idempotency_Key="k" * 300), 422, "string_too_long")


@pytest.mark.parametrize(
    "path",
    ["/bookings?limit=0", "/bookings?limit=many", "/bookings?cursor=abc", "/bookings?state=GONE", "/bookings?start=today",
     "/bookings?start=2026-12-01T00:00:00Z&end=2026-11-01T00:00:00Z", "/bookings?project=atlas", "/bookings?project=a%00b",
     "/bookings/a%00b", "/bookings/B-99999999999999999999", "/bookings/%E2%85%AB", "/bookings/bk_%C3%A9", "/nodes?limit=-1",
     "/nodes?cursor=garbage", "/nodes?kind=%00", "/nodes?cluster=%00", "/clusters/%00", "/nothing"],
)  # fmt: skip
def test_a_wrong_address_is_told(ask: Client, path: str) -> None:
    answer = ask.get(f"/api/v1{path}")
    assert answer.status in (404, 422), (answer.status, answer.body)
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.body["detail"]


@pytest.mark.parametrize("path", ["/bookings?text=%00", "/bookings?text=%25%27%22%3B--"])
def test_words_to_look_for_are_only_words(ask: Client, path: str) -> None:
    answer = ask.get(f"/api/v1{path}")
    assert answer.status in (200, 422)
    assert answer.status == 422 or answer.body["items"] == []


HEAD = "name,kind,gpus,rack,leaf,nvlink,power_watts,cpu_milli,memory_mib"
LISTS = {
    "nothing": b"",
    "only a header": HEAD.encode(),
    "no header": b"n9,h100-sxm-80gb,8",
    "another header": b"host,cards\nn9,8\n",
    "a column twice": f"{HEAD},gpus\n".encode() + b"n9,h100-sxm-80gb,8,r,l,v,700,1,1,8\n",
    "unknown kind": f"{HEAD}\nn9,h900,8,r,l,v,700,1,1\n".encode(),
    "negative GPUs": f"{HEAD}\nn9,{H100},-8,r,l,v,700,1,1\n".encode(),
    "GPUs in words": f"{HEAD}\nn9,{H100},eight,r,l,v,700,1,1\n".encode(),
    "GPUs without end": f"{HEAD}\nn9,{H100},999999999999,r,l,v,700,1,1\n".encode(),
    "a short row": f"{HEAD}\nn9,{H100}\n".encode(),
    "a long row": f"{HEAD}\nn9,{H100},8,r,l,v,700,1,1,2,3\n".encode(),
    "a name twice": f"{HEAD}\nn9,{H100},8,r,l,v,700,1,1\nn9,{H100},8,r,l,v,700,1,1\n".encode(),
    "no name": f"{HEAD}\n,{H100},8,r,l,v,700,1,1\n".encode(),
    "one good, one bad": f"{HEAD}\nn9,{H100},8,r,l,v,700,1,1\nn10,{H100},x,r,l,v,700,1,1\n".encode(),
    "a null byte": f"{HEAD}\nn\09,{H100},8,r,l,v,700,1,1\n".encode(),
    "not UTF-8": HEAD.encode() + b"\nn\xff,h100-sxm-80gb,8,r,l,v,700,1,1\n",
    "a quote left open": f'{HEAD}\n"n9,{H100},8,r,l,v,700,1,1\n'.encode(),
    "a picture": b"\x89PNG\r\n\x1a\n" + bytes(range(256)),
}


@pytest.mark.parametrize("what", LISTS)
def test_a_wrong_list_of_nodes_takes_none(web: Web, tokens, what: str) -> None:
    client = Client(web, tokens["operator"])
    answer = client.post("/api/v1/clusters/sim/nodes/import", LISTS[what], Content_Type="text/csv")
    assert answer.status == 422, (answer.status, answer.body)
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.body["reasons"], answer.body
    assert all(r["message"].strip() for r in answer.body["reasons"])
    client.close()


def test_a_list_of_nodes_that_is_too_large_or_sent_by_somebody_else(web: Web, tokens) -> None:
    path = "/api/v1/clusters/sim/nodes/import"
    client = Client(web, tokens["operator"])
    problem(client.post(path, b"a" * (8 * 1024 * 1024 + 1), Content_Type="text/csv"), 413, "too_large")
    client.close()
    client = Client(web, tokens["physics-lead"])
    answer = client.post(path, nodes_csv(1, prefix="x").encode(), Content_Type="text/csv")
    assert answer.status == 403
    client.close()


def test_methods_that_an_address_does_not_take(ask: Client, booking: Booking) -> None:
    for method, path in (("DELETE", "/bookings"), ("PUT", f"/bookings/{booking.public_id}"), ("PATCH", "/quotes")):
        problem(ask.send(method, f"/api/v1{path}", {}), 405, "method_not_allowed")

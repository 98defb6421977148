"""The list of bookings and the page of one, as a browser sees them, on a real database and the simulated cluster."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal

import pytest

from app.billing.actions import charge
from app.bookings import leaving
from app.bookings.facts import Booking
from app.inventory.connections import backend_of
from app.inventory.queries import cluster_with_id
from app.kernel.errors import Conflict
from app.usage import queries as usage
from app.usage.actions import meter
from app.usage.reconcile import collect_one
from tests.accounts.world import Browser
from tests.bookings.test_pages import People, text_of
from tests.world import H100, START, World, make_world

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def world(database, tmp_path, valkey_url) -> Iterator[World]:
    made = make_world(database, tmp_path, valkey_url)
    yield made
    made.close()


@pytest.fixture
def browse(world: World) -> People:
    return People(world)


def measure(world: World, booking: Booking) -> None:
    """What workers do: collect measurements, meter, charge."""
    collect_one(
        world.plumbing.database,
        lambda work, cluster_id: backend_of(world.plumbing, cluster_with_id(work, cluster_id)),
        booking.tenant_id,
        booking.id,
    )
    with world.plumbing.database.work(booking.tenant_id) as work:
        meter(work, booking.id, work.product_now())
        charge(work, booking.id)


def fragment(browser: Browser, path: str):
    return browser.get(path, headers={"HX-Request": "true"})


def key_of(answer, verb: str) -> str:
    form = re.search(rf'<form method="post" action="[^"]+/{verb}".*?</form>', answer.text, re.DOTALL)[0]
    return re.search(r'name="idempotency_key" value="([^"]+)"', form)[1]


def test_a_booked_one_says_when_for_how_much_and_what_can_be_done(world: World, browse: People) -> None:
    booking = world.book(
        units=8, within="node", start=(START + 5 * HOUR).isoformat(), duration="PT6H", reference="grant 12"
    )
    answer = browse().see(f"/bookings/{booking.label}")
    said = text_of(answer)
    assert answer.status_code == 200, said
    assert "Starts in 5 h" in said
    assert "CHF 115.20" in said
    assert "planned: n0" in said
    assert "grant 12" in said
    assert "Cancel, nothing is charged" in said
    assert "Extend for CHF 19.20" in said  # 8 units, 1 h
    assert "Release now" not in said
    assert "Nothing is charged before the units are handed over" in said
    assert "Booked by physics-member" in said
    assert "style=" not in answer.text


def test_an_active_one_shows_cost_use_units_workloads_and_the_way_in(world: World, browse: People) -> None:
    booking = world.book(units=8, within="node", duration="PT6H")
    world.settle()
    world.pass_time(90 * MINUTE)
    measure(world, booking)
    answer = browse().see(f"/bookings/{booking.label}")
    said = text_of(answer)
    assert answer.status_code == 200, said
    assert "Time left 4 h 30 min" in said
    assert "Cost so far CHF 28.80 CHF 115.20 at the end, as quoted" in said
    assert re.search(r"Used 9\d\.\d % 1\d\.\d of 12\.0 GPU-hours", said)
    assert re.search(r"Energy \d+\.\d kWh measured", said)
    assert "ssh member@n" in said
    assert "8 units, every 1 min" in said
    assert said.count("Unit 7") == 1
    assert "Training run" in said
    assert "Running" in said
    assert "Release all 8 units, get CHF 86.40 back" in said
    assert re.search(r"So far 12\.0 28\.80", said)
    assert re.search(r"Still to come 36\.0 86\.40", said)
    assert "At the end 48.0 CHF 115.20" in said


def test_the_rows_of_the_cost_table_add_up_to_its_total(world: World, browse: People) -> None:
    booking = world.book(units=7, within="node", duration="PT6H")
    world.settle()
    world.pass_time(100 * MINUTE + timedelta(seconds=7))
    measure(world, booking)
    answer = browse().see(f"/bookings/{booking.label}")
    table = re.search(r'<table class="b-parts" aria-label="Cost by use">.*?</table>', answer.text, re.DOTALL)[0]
    rows = re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
    cells = {
        re.sub(r"<[^>]+>", "", row.partition("</th>")[0]).strip(): re.sub(
            r"<[^>]+>|CHF|,", "", row.rpartition("<td")[2].partition(">")[2]
        ).strip()
        for row in rows
    }
    total = Decimal(cells.pop("At the end"))
    so_far = Decimal(cells.pop("So far"))
    coming = Decimal(cells.pop("Still to come"))
    assert sum(map(Decimal, cells.values())) == so_far
    assert so_far + coming == total == Decimal("100.80")


def test_released_on_its_page_it_says_what_went_back_and_the_page_of_then_adds_up(world: World, browse: People) -> None:
    booking = world.book(units=8, within="node", duration="PT6H")
    world.settle()
    world.pass_time(90 * MINUTE)
    browser = browse()
    page = browser.see(f"/bookings/{booking.label}")
    answer = browser.submit(f"/bookings/{booking.label}/release", idempotency_key=key_of(page, "release"))
    assert (answer.status_code, answer.headers["location"]) == (303, f"/bookings/{booking.label}")
    said = text_of(browser.see(f"/bookings/{booking.label}"))
    assert f"{booking.label} is released" in said
    assert "CHF 86.40 went back to Plasma. You pay CHF 28.80." in said
    world.settle()
    measure(world, booking)
    said = text_of(browser.see(f"/bookings/{booking.label}"))
    assert "Charged CHF 28.80 quoted CHF 115.20" in said
    assert "released early" in said
    assert "Released by physics-member" in said
    assert "Nothing can be changed" in said


def test_a_verb_that_is_refused_says_why_on_the_page_and_changes_nothing(world: World, browse: People) -> None:
    booking = world.book(nodes=4, per_node=8, start=START.isoformat(), duration="PT2H")
    world.settle()
    browser = browse()
    world.book("bio-member", project="atlas", start=(START + 2 * HOUR).isoformat(), units=1)
    answer = browser.submit(f"/bookings/{booking.label}/extend", by="PT1H", idempotency_key="e-1")
    assert answer.status_code == 303
    said = text_of(browser.see(answer.headers["location"]))
    assert f"{booking.label} was not extended" in said
    assert "You can have them until today, 15:00" in said
    assert "Nothing was changed or charged" in said
    answer = browser.submit(f"/bookings/{booking.label}/cancel", idempotency_key="c-1")
    assert "Release it instead" in text_of(browser.see(answer.headers["location"]))
    assert world.look(booking).state == "ACTIVE"
    with world.work("physics") as work:
        kept = work.pg.execute("SELECT count(*) FROM idempotency").fetchone()[0]
    assert kept == 0


def test_extended_and_cancelled_on_the_page(world: World, browse: People) -> None:
    booking = world.book(units=8, start=(START + 5 * HOUR).isoformat(), duration="PT2H")
    browser = browse()
    page = browser.see(f"/bookings/{booking.label}")
    answer = browser.submit(f"/bookings/{booking.label}/extend", by="PT2H", idempotency_key=key_of(page, "extend"))
    said = text_of(browser.see(answer.headers["location"]))
    assert f"{booking.label} is extended until today, 22:00" in said
    assert "CHF 38.40 more, CHF 76.80 in all." in said
    assert "Extended by physics-member Until today, 22:00, CHF 76.80 in all." in re.sub(r" today, 13:00 ", " ", said)
    answer = browser.submit(f"/bookings/{booking.label}/cancel", idempotency_key="c-1")
    said = text_of(browser.see(answer.headers["location"]))
    assert f"{booking.label} is cancelled" in said
    assert world.look(booking).state == "CANCELLED"


def test_a_booking_that_begins_while_its_page_is_made_is_shown_all_the_same(
    world: World, browse: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row was read as BOOKED, and a worker made it ACTIVE before what cancelling costs was asked."""
    booking = world.book(start=(START + timedelta(hours=3)).isoformat())

    def too_late(*_: object) -> None:
        raise Conflict("wrong_state", f"{booking.label} is active and cannot be cancelled.")

    monkeypatch.setattr(leaving, "quote_cancel", too_late)
    page = browse().see(f"/bookings/{booking.label}")
    assert page.status_code == 200
    assert "is active and cannot be cancelled" in text_of(page)


@pytest.mark.parametrize(("verb", "fields"), [("cancel", {}), ("release", {}), ("extend", {"by": "PT1H"})])
def test_a_forms_key_is_of_its_booking(world: World, browse: People, verb: str, fields: dict[str, str]) -> None:
    """The same key under the form of another booking is another request: it does nothing, and says so."""
    start = {} if verb == "release" else {"start": (START + 5 * HOUR).isoformat()}
    one, other = (world.book(units=2, duration="PT2H", name=name, **start) for name in ("One", "Other"))
    world.settle()
    before = world.look(other)
    browser = browse()
    for _ in range(2):  # sent twice, done once
        answer = browser.submit(f"/bookings/{one.label}/{verb}", idempotency_key="the-key", **fields)
        assert answer.headers["location"] == f"/bookings/{one.label}"
    said = text_of(browser.see(f"/bookings/{one.label}"))
    assert f"{one.label} was not" not in said
    answer = browser.submit(f"/bookings/{other.label}/{verb}", idempotency_key="the-key", **fields)
    assert answer.headers["location"] == f"/bookings/{other.label}"
    said = text_of(browser.see(f"/bookings/{other.label}"))
    assert f"{other.label} was not" in said
    assert "This form was sent before" in said
    after = world.look(other)
    assert (after.state, after.ends_at, after.version) == (before.state, before.ends_at, before.version)
    if verb == "extend":
        assert world.look(one).ends_at == one.ends_at + HOUR, "once"


def test_the_effect_of_a_verb_follows_what_is_chosen(world: World, browse: People) -> None:
    booking = world.book(units=8, start=(START + 5 * HOUR).isoformat(), duration="PT2H")
    world.book(
        "bio-member", project="atlas", start=(START + 11 * HOUR).isoformat(), nodes=4, per_node=8, duration="PT2H"
    )
    answer = fragment(browse(), f"/bookings/{booking.label}/effect?verb=extend&by=PT4H")
    said = text_of(answer)
    assert answer.status_code == 200, said
    assert "<html" not in answer.text
    assert "Adds CHF 76.80 At the end CHF 115.20 Possible until Tue 1 Dec, 00:00" in said.replace("today, 00:00", "")
    assert re.search(r'<option value="PT4H" selected>4 h, until Tue 1 Dec, 00:00', answer.text)
    assert "PT6H" not in answer.text


def address_of_live(text: str) -> str:
    return html.unescape(re.search(r'hx-get="(/bookings/[^"]+/live[^"]*)"', text)[1])


def test_the_live_part_sends_the_way_in_only_when_the_state_has_changed(world: World, browse: People) -> None:
    booking = world.book(units=8, within="node", duration="PT6H")
    browser = browse()
    page = browser.see(f"/bookings/{booking.label}")
    address = address_of_live(page.text)
    assert address.endswith("seen=BOOKED&cards=extend,cancel")
    same = fragment(browser, address)
    assert same.status_code == 200
    assert "<form" not in same.text
    world.settle()
    changed = fragment(browser, address)
    assert "Release all 8 units" in text_of(changed)
    assert re.search(r'id="verb-cancel" hx-swap-oob="outerHTML" hidden></div>', changed.text)
    assert 'id="v-extend"' not in changed.text, "what somebody chooses there is taken away"
    assert "ssh member@n" in text_of(changed)
    assert re.search(r'<p id="bk-lead" hx-swap-oob="outerHTML">', changed.text)
    assert "planned:" in page.text
    assert "planned:" not in changed.text
    assert address_of_live(changed.text).endswith("seen=ACTIVE&cards=extend,release")


def test_what_a_release_gives_back_moves_with_the_clock_and_the_form_stays(world: World, browse: People) -> None:
    booking = world.book(units=8, within="node", duration="PT6H")
    world.settle()
    browser = browse()
    page = browser.see(f"/bookings/{booking.label}")
    assert "get CHF 115.20 back" in text_of(page)
    world.pass_time(90 * MINUTE)
    later = fragment(browser, address_of_live(page.text) + "&by=PT2H")
    said = text_of(later)
    assert "Gives back CHF 86.40 You pay CHF 28.80" in said
    assert "Release all 8 units, get CHF 86.40 back" in said
    assert "Extend for CHF 38.40" in said, "of the length that is chosen"
    assert "<form" not in later.text
    assert "idempotency_key" not in later.text


def test_when_it_is_over_no_verb_is_left_on_an_open_page(world: World, browse: People) -> None:
    booking = world.book(units=8, within="node", duration="PT1H")
    world.settle()
    browser = browse()
    address = address_of_live(browser.see(f"/bookings/{booking.label}").text)
    world.pass_time(2 * HOUR)
    over = fragment(browser, address)
    for name in ("extend", "release"):
        assert re.search(rf'id="verb-{name}" hx-swap-oob="outerHTML" hidden></div>', over.text)
    assert "Nothing can be changed" in text_of(over)
    assert "hx-get" not in over.text


def test_others_look_and_do_nothing_other_tenants_see_nothing(world: World, browse: People) -> None:
    booking = world.book(units=8, within="node", duration="PT6H")
    world.settle()
    viewer = browse("physics-viewer")
    page = viewer.see(f"/bookings/{booking.label}")
    assert page.status_code == 200
    assert "physics-member booked it" in text_of(page)
    assert "Release all" not in text_of(page)
    assert viewer.submit(f"/bookings/{booking.label}/release", idempotency_key="k").status_code == 403
    assert fragment(viewer, f"/bookings/{booking.label}/effect?verb=release").status_code == 404
    stranger = browse("bio-lead")
    for path in ("", "/live?seen=ACTIVE", "/effect?verb=release"):
        assert stranger.get(f"/bookings/{booking.label}{path}").status_code == 404
    for verb in ("release", "cancel", "extend"):
        assert stranger.submit(f"/bookings/{booking.label}/{verb}", idempotency_key="k").status_code == 404
    assert world.look(booking).state == "ACTIVE"
    for number in ("B-999999", "nonsense", "bk_0", "B-", "99999999999999999999"):
        assert stranger.get(f"/bookings/{number}").status_code == 404
    assert browse().see(f"/bookings/{booking.public_id}").status_code == 200


def test_lost_units_are_said_with_their_number_and_taken_back(world: World, browse: People) -> None:
    booking = world.book(units=8, within="node", duration="PT6H")
    while world.quote(duration="PT6H").offer.starts_now:  # all else is taken: there is no spare node
        world.book("bio-member", project="atlas", units=8, within="node", duration="PT12H")
    world.settle()
    world.pass_time(HOUR)
    with world.work() as work:
        node = work.pg.execute(
            "SELECT n.name FROM holds h JOIN nodes n ON n.id = h.node_id WHERE h.booking_id = %s", [booking.id]
        ).fetchone()[0]
    world.backend.faults.node_dies(node)
    world.pass_time(HOUR)
    said = text_of(browse().see(f"/bookings/{booking.label}"))
    assert "Degraded 0 of 8" in said
    assert "Some of its units are lost" in said
    assert "To be taken back, so far, for units that were not there -19.20" in said.replace("−", "-")
    assert "Cost so far CHF 19.20" in said


def test_the_list_filters_searches_and_counts(world: World, browse: People) -> None:
    active = world.book(units=8, name="Tokamak", duration="PT6H")
    coming = world.book("physics-lead", units=2, name="Sweep 100%", start=(START + 5 * HOUR).isoformat())
    gone = world.book(units=1, name="Wrong", start=(START + 5 * HOUR).isoformat())
    world.do("cancel", gone)
    world.book("bio-member", project="atlas", name="Secret genome")
    world.settle()
    browser = browse()
    said = text_of(browser.see("/bookings"))
    assert "1 is active or being made ready, 1 is booked." in said
    assert "All 3" in said
    assert all(b.label in said for b in (active, coming, gone))
    assert "Secret" not in said

    def numbers(query: str) -> set[str]:
        return set(re.findall(r'href="/bookings/(B-\d+)"', browser.see(f"/bookings?{query}").text))

    assert numbers("state=active") == {active.label}
    assert numbers("state=coming") == {coming.label}
    assert numbers("state=over") == {gone.label}
    assert numbers("mine=1") == {active.label, gone.label}
    assert numbers("q=sweep+100%25") == {coming.label}
    assert numbers("q=physics-lead") == {coming.label}
    assert numbers(f"q={active.label.lower()}") == {active.label}
    assert "None matches" in text_of(browser.see("/bookings?q=nothing"))


def test_the_file_of_the_list_is_safe_for_spreadsheets(world: World, browse: People) -> None:
    world.book(units=8, name='=HYPERLINK("x"),"y"', reference="@cmd")
    answer = browse().get("/bookings.csv")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.text.endswith("\r\n")
    head, row = list(csv.reader(io.StringIO(answer.text)))
    cells = dict(zip(head, row, strict=True))
    assert cells["name"] == '\'=HYPERLINK("x"),"y"'
    assert cells["reference"] == "'@cmd"
    assert (cells["units"], cells["quoted"], cells["charged"]) == ("8", "19.20", "0")


def test_an_idle_booking_is_named_with_what_a_release_gives_back(world: World, browse: People) -> None:
    world.set_policy(H100, no_show=None)
    booking = world.book(units=8, within="node", duration="PT6H", workload="none")
    world.settle()
    world.pass_time(HOUR)
    measure(world, booking)
    said = text_of(browse().see(f"/bookings/{booking.label}"))
    assert "Idle 1 h" in said
    assert "has been idle since today, 13:00" in said
    assert "Release it now and CHF 96.00 goes back to Plasma." in said
    with world.work("physics") as work:
        assert usage.usage_of(work, booking.id)[0].split.used == 0

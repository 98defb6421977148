"""The pages around booking as a browser sees them, on a real database and the simulated cluster."""

from __future__ import annotations

import html
import json
import re
import shlex
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal

import pytest

from app.accounts import sessions
from app.bookings.schemas import BookingIn
from app.main import create_app
from tests.accounts.world import Browser
from tests.world import H100, START, World, make_world

HOUR = timedelta(hours=1)
FORM = {
    "project": "plasma", "name": "Run 7", "kind": H100, "shape": "units", "units": "8", "nodes": "1", "per_node": "8",
    "within": "node", "when": "asap", "start": "", "hours": "6", "cluster": "", "cost_center": "", "reference": "",
    "workload": "default",
}  # fmt: skip


class People:
    """Browsers of the people of a world, signed in, with the form's token in hand."""

    def __init__(self, world: World) -> None:
        self.world, self.app = world, create_app(plumbing=world.plumbing)

    def __call__(self, person: str = "physics-member") -> Browser:
        browser = Browser(self.app)
        with self.world.plumbing.database.work() as work:
            secret = sessions.open_session(work, self.world.people[person], sessions.Browser("Test/1", "127.0.0.1"))
        browser.cookies.set("berth_session", secret)
        browser.see("/me")
        assert browser.form_token
        return browser


@pytest.fixture
def world(database, tmp_path, valkey_url) -> Iterator[World]:
    made = make_world(database, tmp_path, valkey_url)
    yield made
    made.close()


@pytest.fixture
def browse(world: World) -> People:
    return People(world)


@pytest.fixture(scope="module")
def look(module_database, tmp_path_factory, servers) -> Iterator[People]:
    """People of a world that these tests share: they ask for quotes and change nothing."""
    made = make_world(module_database, tmp_path_factory.mktemp("world"), servers.valkey_url)
    yield People(made)
    made.close()


def text_of(answer) -> str:
    """What one reads: tags and runs of white space gone."""
    body = re.sub(r"<(script|style).*?</\1>|</?time[^>]*>", "", answer.text, flags=re.DOTALL)
    said = re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", body)))
    return re.sub(r" ([.,;])", r"\1", said)


def forms_of(answer) -> list[dict[str, str]]:
    """Every form of alternatives on the page as the fields that its button posts."""
    return [
        {html.unescape(n): html.unescape(v) for n, v in re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', form)}
        for form in re.findall(r'<form class="b-alt".*?</form>', answer.text, re.DOTALL)
    ]  # fmt: skip


def digest_of(answer) -> str:
    found = re.search(r'name="quote" value="([^"]+)"', answer.text)
    assert found, text_of(answer)
    return found[1]


def quote(browser: Browser, **fields: str):
    data = {"csrf_token": browser.form_token, **FORM, **fields}
    return browser.post("/book/quote", data=data, headers={"Origin": str(browser.base_url), "HX-Request": "true"})


# --- the form ---------------------------------------------------------------------------------------------------------


def test_the_form_shows_what_can_be_booked_with_its_price_what_is_free_and_a_quote(look: People) -> None:
    answer = look().see("/book")
    said = text_of(answer)
    assert answer.status_code == 200, said
    assert "H100-SXM-80GB" in said
    assert "CHF 2.40 per hour" in said
    assert "32 free now on sim" in said
    assert "In steps of 15 min, 15 min to 7 days." in said
    assert "Possible" in said
    assert "Confirm: book for CHF 115.20" in said  # 8 units, 6 h at 2.40
    assert "When else 8 H100-SXM-80GB fit" in said
    assert "style=" not in answer.text


def test_a_link_fills_the_form_and_its_quote(look: People) -> None:
    answer = look().see(f"/book?kind={H100}&shape=nodes&nodes=2&per_node=8&within=leaf&hours=2&name=Run+9")
    said = text_of(answer)
    assert "Confirm: book for CHF 76.80" in said
    assert 'value="Run 9"' in answer.text
    assert re.search(r'name="within" value="leaf" checked', answer.text)


def test_the_quote_follows_the_form_with_place_price_by_part_and_limits(world: World, browse: People) -> None:
    world.set_limit("physics", units=16, hours=1000, project_id=world.projects["plasma"], kind=H100)
    answer = quote(browse(), units="8", hours="1.5")
    said = text_of(answer)
    assert answer.status_code == 200, said
    assert "<html" not in answer.text
    assert "Today, 13:00–14:30" in said
    assert "planned:" in said
    assert "1 h 30 min × 8 × 2.40 28.80" in said
    assert "of H100-SXM-80GB at the same time 0 → 8 of 16" in said.replace("Units ", "")
    assert "1,000 → 988 available" in said
    assert "curl -sS" in said
    assert '"units": 8' in said


def test_the_curl_command_of_a_quote_books_exactly_what_it_shows(look: People) -> None:
    answer = quote(look(), name="It's $HOME", units="3", within="")
    command = html.unescape(re.search(r"(curl -sS .*?)</pre>", answer.text, re.DOTALL)[1])
    words = shlex.split(command.replace("\\\n", " "))
    body = BookingIn.model_validate(json.loads(words[words.index("-d") + 1]))
    assert (body.name, body.units, body.kind, body.start) == ("It's $HOME", 3, H100, "asap")


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("units", "many", "The number of units is a whole number from 1 to 1,000,000"),
        ("units", "0", "The number of units is a whole number from 1 to 1,000,000"),
        ("hours", "six", "Give the length in hours, such as 6 or 1.5"),
        ("reference", "x" * 201, "At most 200 characters"),
        ("kind", "", "Choose a kind"),
    ],
)
def test_what_cannot_be_read_is_said_in_words(look: People, field: str, value: str, says: str) -> None:
    lookr = look()
    answer = quote(lookr, **{field: value})
    assert answer.status_code == 422
    assert says in text_of(answer)
    booked = lookr.submit("/book", **{**FORM, field: value})
    assert booked.status_code == 422
    assert says in text_of(booked)
    assert "Nothing was reserved or charged" in text_of(booked)


def test_a_viewer_may_look_but_not_book(look: People) -> None:
    lookr = look("physics-viewer")
    assert lookr.see("/book").status_code == 403
    assert lookr.submit("/book", **FORM).status_code == 403
    assert quote(lookr).status_code == 403


# --- confirming -------------------------------------------------------------------------------------------------------


def test_confirmed_it_is_booked_at_the_price_shown_and_the_page_of_the_booking_says_so(
    world: World, browse: People
) -> None:
    browser = browse()
    digest = digest_of(quote(browser))
    answer = browser.submit("/book", **FORM, quote=digest, idempotency_key="k-1")
    assert answer.status_code == 303, text_of(answer)
    number = int(answer.headers["location"].removeprefix("/bookings/B-"))
    with world.work("physics") as work:
        state, quoted, name = work.pg.execute(
            "SELECT state, quoted, name FROM bookings WHERE number = %s", [number]
        ).fetchone()
    assert (state, quoted, name) == ("BOOKED", Decimal("115.20"), "Run 7")
    again = browser.submit("/book", **FORM, quote=digest, idempotency_key="k-1")
    assert again.headers["location"] == answer.headers["location"]
    with world.work("physics") as work:
        assert work.pg.execute("SELECT count(*) FROM bookings").fetchone()[0] == 1


def test_a_form_sent_again_with_other_words_asks_to_confirm_anew(world: World, browse: People) -> None:
    browser = browse()
    browser.submit("/book", **FORM, idempotency_key="k-1")
    answer = browser.submit("/book", **{**FORM, "units": "4"}, idempotency_key="k-1")
    assert answer.status_code == 303
    page = browser.see(answer.headers["location"])
    assert "This form was sent before" in text_of(page)
    assert "Confirm: book for CHF 57.60" in text_of(page)
    with world.work("physics") as work:
        assert work.pg.execute("SELECT count(*) FROM bookings").fetchone()[0] == 1


def test_a_quote_that_has_changed_is_shown_anew_and_what_was_typed_is_kept(world: World, browse: People) -> None:
    browser = browse()
    digest = digest_of(quote(browser))
    world.book("bio-member", project="atlas", start=START.isoformat(), nodes=4, per_node=8, duration="PT2H")
    answer = browser.submit("/book", **{**FORM, "reference": "grant 12"}, quote=digest, idempotency_key="k-1")
    said = text_of(answer)
    assert answer.status_code == 409, said
    assert "The answer has changed since you looked" in said
    assert "Today, 15:00–21:00" in said
    assert 'value="grant 12"' in answer.text
    assert 'value="Run 7"' in answer.text
    with world.work("physics") as work:
        assert work.pg.execute("SELECT count(*) FROM bookings").fetchone()[0] == 0
        assert work.pg.execute("SELECT count(*) FROM idempotency").fetchone()[0] == 0
    key = re.search(r'name="idempotency_key" value="([^"]+)"', answer.text)[1]
    confirmed = browser.submit("/book", **FORM, quote=digest_of(answer), idempotency_key=key)
    assert confirmed.status_code == 303, text_of(confirmed)


def test_refused_with_every_reason_and_alternatives_that_can_be_posted_unchanged(world: World, browse: People) -> None:
    world.book("bio-member", project="atlas", start=START.isoformat(), nodes=4, per_node=8, duration="PT2H")
    browser = browse()
    answer = browser.submit("/book", **{**FORM, "when": "exact", "start": "2026-11-30T13:00", "hours": "1"})
    said = text_of(answer)
    assert answer.status_code == 409, said
    assert "This booking is not possible" in said
    assert "Not enough H100-SXM-80GB on sim are free then" in said
    assert "no_units_free" in said
    assert H100 not in said.replace("no_units_free", "")
    forms, prices = (
        forms_of(answer),
        re.findall(r'class="go"><span><span class="b-money num">.*?</span>([\d.,]+)', answer.text),
    )
    assert len(forms) == len(prices) > 0
    for fields, price in zip(forms, prices, strict=True):
        booked = browser.post("/book", data=fields, headers={"Origin": str(browser.base_url)})
        assert booked.status_code == 303, text_of(booked)
        number = int(booked.headers["location"].removeprefix("/bookings/B-"))
        with world.work("physics") as work:
            made = work.pg.execute("SELECT id, quoted FROM bookings WHERE number = %s", [number]).fetchone()
        assert made[1] == Decimal(price)
        browser.submit(f"/bookings/B-{number}/cancel")  # the next one needs the units


def test_reasons_that_lie_in_the_request_stand_at_their_fields(look: People) -> None:
    answer = look().submit("/book", **{**FORM, "units": "800", "within": "", "hours": "200"})
    assert answer.status_code == 422
    assert re.search(r'id="err-hours">Asked 200 h, limit 7 days\.', answer.text), text_of(answer)
    assert re.search(r'id="err-units">Asked 800 units, limit 32 units\.', answer.text)
    assert 'value="800"' in answer.text


def test_case_6_a_local_start_that_does_not_exist_is_refused_with_the_nearest(look: People) -> None:
    answer = quote(look(), when="exact", start="2027-03-28T02:30")
    assert answer.status_code == 422
    assert "02:30 does not exist on Sun 28 Mar 2027" in text_of(answer)
    assert "The nearest times are 01:45 and 03:00" in text_of(answer)


def test_case_5_a_local_start_that_exists_twice_offers_both(world: World, browse: People) -> None:
    world.set_clock(START.replace(year=2027, month=10, day=20))
    browser = browse()
    answer = browser.submit("/book", **{**FORM, "when": "exact", "start": "2027-10-31T02:30", "hours": "1"})
    said = text_of(answer)
    assert answer.status_code == 422
    assert "02:30 CEST (UTC+02:00)" in said
    assert "02:30 CET (UTC+01:00)" in said
    first, second = forms_of(answer)
    for fields, start in ((first, "2027-10-31 00:30"), (second, "2027-10-31 01:30")):
        booked = browser.post("/book", data=fields, headers={"Origin": str(browser.base_url)})
        assert booked.status_code == 303, text_of(booked)
        number = int(booked.headers["location"].removeprefix("/bookings/B-"))
        with world.work("physics") as work:
            row = work.pg.execute("SELECT starts_at FROM bookings WHERE number = %s", [number]).fetchone()
        assert f"{row[0]:%Y-%m-%d %H:%M}" == start


def test_times_are_the_persons_own(world: World, browse: People) -> None:
    browser = browse()
    answer = browser.submit("/book", **{**FORM, "when": "exact", "start": "2026-12-01T09:00"})
    number = int(answer.headers["location"].removeprefix("/bookings/B-"))
    with world.work("physics") as work:
        row = work.pg.execute("SELECT starts_at FROM bookings WHERE number = %s", [number]).fetchone()
    assert row[0].isoformat() == "2026-12-01T08:00:00+00:00"


def test_other_starts_lead_to_the_form_with_that_start_and_its_quote(look: People) -> None:
    lookr = look()
    page = lookr.see("/book")
    link = html.unescape(re.search(r'<a class="btn btn-sm" href="(/book\?[^"]+)"', page.text)[1])
    answer = lookr.see(link)
    assert 'name="when" value="exact" checked' in answer.text
    assert 'value="2026-11-30T18:00"' in answer.text
    assert "Today, 18:00" in text_of(answer)

"""Every page and fragment renders from its view, is sound HTML, and keeps to the strict content security policy."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from app.web import views
from app.web.render import STATIC, TEMPLATES, asset, environment, render
from tests.web import samples
from tests.web.markup import Markup

PAGES = samples.everything()
FRAGMENTS = samples.fragments()


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_page_is_sound(name: str) -> None:
    view, frame = PAGES[name]
    html = render(view, frame)
    found = Markup(html)
    assert found.faults == []
    assert [i for i, times in Counter(found.ids).items() if times > 1] == []
    assert [(kind, ref) for kind, ref in found.refs if not set(ref.split()) <= set(found.ids)] == []
    assert html.count("<h1") == 1
    assert html.count('id="main"') == 1


@pytest.mark.parametrize("name", sorted(FRAGMENTS))
def test_a_fragment_is_sound(name: str) -> None:
    view, frame = FRAGMENTS[name]
    html = render(view, frame)
    found = Markup(html)
    assert found.faults == []
    assert [i for i, times in Counter(found.ids).items() if times > 1] == []
    assert "<html" not in html


@pytest.mark.parametrize("name", sorted({**PAGES, **FRAGMENTS}))
def test_every_posting_form_carries_the_csrf_token(name: str) -> None:
    view, frame = {**PAGES, **FRAGMENTS}[name]
    for form in Markup(render(view, frame)).forms:
        if form["method"] == "post":
            assert form["fields"].count("csrf_token") == 1
        else:
            assert "csrf_token" not in form["fields"], "a token in an address ends up in logs"


def test_every_view_has_a_template_and_every_template_a_sample() -> None:
    declared = {cls.template for cls in vars(views).values() if isinstance(cls, type) and hasattr(cls, "template")}
    shown = {view.template for view, _ in {**PAGES, **FRAGMENTS}.values()}
    assert declared == shown
    parts = {"base.html", "bare.html"}
    files = {
        t
        for t in environment().list_templates()
        if not t.split("/")[-1].startswith("macros") and not t.startswith("macros/")
    }
    assert files - parts == declared


def test_what_people_write_is_escaped() -> None:
    evil = '<script>alert(1)</script> & "CHF 12.00'
    page = replace(
        samples.booking(), name=evil, project=evil, reference=evil, history=(views.Step("ok", evil, evil, samples.NOW),)
    )
    html = render(page, samples.frame())
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert Markup(html).faults == []


def test_chart_data_cannot_leave_its_block() -> None:
    few = samples.samples(1)
    page = replace(samples.booking(), samples=replace(few, series=(replace(few.series[0], node="</script><b>"),)))
    assert "</script><b>" not in render(page, samples.frame())


def test_an_undefined_name_is_an_error() -> None:
    with pytest.raises(Exception, match="no attribute 'nothing'"):
        environment().from_string("{{ page.nothing }}").render(page=samples.home())


def test_times_are_in_the_persons_zone_with_utc_in_the_title() -> None:
    html = render(samples.booking(), samples.frame())
    assert '<time datetime="2026-12-01T07:00:00Z" title="2026-12-01 07:00 UTC">Tue 1 Dec, 08:00</time>' in html
    tokyo = render(samples.booking(), samples.frame(zone="Asia/Tokyo"))
    assert '<time datetime="2026-12-01T07:00:00Z" title="2026-12-01 07:00 UTC">Tue 1 Dec, 16:00</time>' in tokyo


def test_money_in_a_sentence_is_set_as_money() -> None:
    html = render(samples.home(), samples.frame())
    assert '<span class="b-money num"><span class="c">CHF </span>65.72</span> of' in html


def test_others_bookings_show_only_that_units_are_busy() -> None:
    text = render(samples.timeline(), samples.frame())
    for title in re.findall(r'class="b-bar k-busy">.*?<title>(.*?)</title>', text, re.S):
        assert title.startswith("busy, ")


@pytest.mark.parametrize(
    "state",
    ["WAITING", "REQUESTED", "BOOKED", "STARTING", "ACTIVE", "ENDING", "ENDED", "CANCELLED", "REJECTED", "LAPSED"],
)
def test_a_booking_looks_again_only_while_something_changes(state: str) -> None:
    html = render(replace(samples.booking(), state=state), samples.frame())
    every = {"STARTING": "2s", "ENDING": "2s", "ACTIVE": "15s", "BOOKED": "5s"}.get(state)
    assert (f'hx-trigger="every {every}"' in html) is (every is not None)


def live(page: views.BookingPage, seen: str = "ACTIVE-observed", cards: tuple[str, ...] = (), by: str = "") -> str:
    return render(views.BookingLive(page, seen, cards, by), samples.frame())


def test_live_replaces_only_what_has_an_id_of_its_own() -> None:
    for html in (live(samples.booking()), live(samples.booking(), "STARTING", ("extend", "cancel"))):
        assert html.count("hx-swap-oob") == len(re.findall(r'id="(?!bk-live)[^"]*"[^>]*hx-swap-oob', html))


def test_live_sends_of_a_form_that_stays_the_figures_alone() -> None:
    page = samples.booking()
    assert page.cards == ("extend", "release")
    html = live(page, cards=page.cards, by=page.verbs[0].chosen)
    for name in page.cards:
        assert re.search(rf'id="eff-{name}" hx-swap-oob="outerHTML"', html)
        assert re.search(rf'<span id="say-{name}" hx-swap-oob="outerHTML">', html)
    for taken in ("<form", "<select", "idempotency_key", 'id="verb-', 'id="bk-observed"'):
        assert taken not in html


def test_live_takes_away_what_the_state_no_longer_allows_and_leaves_the_rest() -> None:
    """It showed Extend, Cancel, and became active meanwhile: Cancel goes, Release comes, Extend is not touched."""
    page = samples.booking()
    html = live(page, "STARTING", ("extend", "cancel"), page.verbs[0].chosen)
    assert re.search(r'<div class="b-sec" id="verb-cancel" hx-swap-oob="outerHTML" hidden></div>', html)
    assert re.search(r'<div class="b-sec" id="verb-release" hx-swap-oob="outerHTML" >\s*<form', html)
    assert 'id="verb-extend"' not in html
    assert 'id="v-extend"' not in html
    assert 'id="eff-extend"' in html
    assert 'id="bk-observed"' in html
    over = live(samples.booking_ended(), "ACTIVE-observed", ("extend", "release"))
    for name in ("extend", "release"):
        assert re.search(rf'id="verb-{name}" hx-swap-oob="outerHTML" hidden></div>', over)
    assert re.search(r'id="bk-verbs-head".*Nothing can be changed', over)


def test_live_replaces_a_form_whose_choice_is_gone_or_that_became_another() -> None:
    page = samples.booking()
    assert 'id="v-extend"' in live(page, cards=page.cards, by="P6D")
    blocked = replace(page, verbs=tuple(replace(verb, blocked="Not now.") for verb in page.verbs))
    html = live(blocked, cards=page.cards)
    for name in ("extend", "release"):
        assert re.search(rf'id="verb-{name}" hx-swap-oob', html)
    assert "<button" not in re.search(r'id="verb-release".*?</form>', html, re.S)[0]
    assert 'id="verb-' not in live(blocked, cards=blocked.cards)


def test_what_the_live_part_asks_for_is_what_it_compares_with() -> None:
    for page in (samples.booking(), samples.booking_booked(), samples.booking_ended()):
        asked = re.search(
            r'live\?seen=([\w-]+)&amp;cards=([\w,-]*)" hx-include="#v-extend"', render(page, samples.frame())
        )
        if page.every is None:
            assert asked is None
        else:
            assert asked
            assert "<form" not in live(page, asked[1], tuple(asked[2].split(",")))


def test_an_alternative_posts_its_request_unchanged() -> None:
    fields = samples.refused().alternatives[0].fields
    html = render(samples.refused(), samples.frame())
    for name, value in fields:
        assert f'<input type="hidden" name="{name}" value="{value}">' in html


def test_a_meter_over_its_limit_says_by_how_much() -> None:
    meter = views.Meter("H100 at the same time", "units", 0, 64, 96, 96)
    page = replace(samples.quote(), meters=(meter,))
    assert "64 over" in Markup(render(page, samples.frame())).text


def test_asset_addresses_change_with_the_content() -> None:
    assert re.fullmatch(r"/static/css/tokens\.css\?v=[0-9a-f]{12}", asset("css/tokens.css"))


def test_templates_name_only_files_and_icons_that_exist() -> None:
    icons = (STATIC / "vendor/tabler-icons/tabler-icons.min.css").read_text()
    for file in sorted(TEMPLATES.rglob("*.html")):
        text = file.read_text()
        for path in re.findall(r"asset\('([^']+)'\)", text):
            assert (STATIC / path).is_file(), path
    for name, (view, frame) in {**PAGES, **FRAGMENTS}.items():
        for icon in set(re.findall(r'class="ti ti-([a-z0-9-]+)"', render(view, frame))):
            assert f".ti-{icon}:before" in icons, f"{icon} in {name}"


def test_every_class_of_ours_is_styled_and_every_style_used() -> None:
    sheets = "".join(f.read_text() for f in sorted((STATIC / "css").glob("*.css")))
    sheets = re.sub(r"/\*.*?\*/", "", sheets, flags=re.S)
    styled = set(re.findall(r"\.((?:b|k|sw|m|pt|cap|is|q)-[a-z0-9_-]+|[qkt]\d)", sheets))
    used: set[str] = set()
    for view, frame in {**PAGES, **FRAGMENTS}.values():
        for classes in re.findall(r'class="([^"]*)"', render(view, frame)):
            used |= set(classes.split())
    ours = {c for c in used if re.fullmatch(r"(b|k|sw|m|pt|cap)-.+", c)}
    plain = {"b-pick", "b-state--ended", "b-state--cancelled", "b-state--lapsed"}  # hooks, and the badge as it is
    assert ours - styled - plain == set()
    assert {c for c in styled if c.startswith("b-")} - used == set()


def test_a_form_of_the_book_page_keeps_what_was_typed() -> None:
    form = samples.form(nodes="12", hours="1.5", start="2026-12-03T08:00", when="exact", reference="grant <12>")
    html = render(views.BookPage(form), samples.frame())
    for piece in ('value="12"', 'value="1.5"', 'value="2026-12-03T08:00"', 'value="grant &lt;12&gt;"'):
        assert piece in html
    assert re.search(r'name="when" value="exact" checked', html)


def test_a_draft_that_does_not_add_up_says_so() -> None:
    view, frame = PAGES["statement-draft"]
    text = Markup(render(view, frame)).text
    assert "The difference is CHF 1.00." in text


def test_a_month_adds_up_to_all_that_was_installed() -> None:
    kind = samples.finance().capacity[0]
    assert kind.installed == int(Decimal("363366.4") * 3600)
    assert "363,366.4" in render(*PAGES["finance"])


def test_the_clock_is_the_product_clock() -> None:
    frame = samples.frame(now=datetime(2027, 3, 1, 23, 5, tzinfo=UTC), clock_note="demo clock")
    text = Markup(render(samples.home(), frame)).text
    assert "Tue 2 Mar 2027, 00:05 Europe/Zurich · demo clock" in text


def test_a_preparing_page_looks_again_by_itself() -> None:
    page = replace(samples.errors()["503"], retry=timedelta(seconds=5))
    html = render(page, samples.BARE)
    assert '<meta http-equiv="refresh" content="5">' in html
    assert 'width="42%"' in html

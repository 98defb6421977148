"""The sample pages in a real browser under the strict policy: nothing refused, nothing sideways, axe finds nothing,
and what pages do with htmx and without JavaScript."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.journeys.shots import browser, chromium_path, look, serving
from tests.requirements import need
from tests.web import samples

need("browser", found=chromium_path() is not None, reason="no chromium on this machine (apt-get install chromium)")
pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    with serving() as address:
        yield address


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as found:
        yield found


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    """A wide light page whose complaints fail the test."""
    context = chromium.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    opened = context.new_page()
    complaints: list[str] = []
    opened.on("pageerror", lambda e: complaints.append(str(e)))
    opened.on("console", lambda m: complaints.append(m.text) if "Content Security Policy" in m.text else None)
    yield opened
    context.close()
    assert complaints == []


FIRST_SEEN_WIDE = {"home", "book", "book-refused", "timeline", "booking", "project", "finance", "statement", "clusters"}
SHOWN = sorted(n for n in samples.everything() if "-" not in n or n.startswith(("error", "book-", "sign")))
LOOKS = [(n, "dark", "narrow") for n in SHOWN] + [(n, "light", "wide") for n in SHOWN if n in FIRST_SEEN_WIDE]


@pytest.mark.parametrize(("name", "theme", "width"), LOOKS)
def test_a_page_looks_right(chromium: Any, base: str, name: str, theme: str, width: str) -> None:
    assert look(chromium, base, name, theme, width).complaints == []


def test_the_quote_follows_the_form_and_a_refusal_is_shown_too(page: Any, base: str) -> None:
    page.goto(f"{base}/book")
    assert "Confirm: book for" in page.inner_text("#quote")
    with page.expect_response(lambda r: r.url.endswith("/book/quote")) as answered:
        page.fill("#f-nodes", "12")
    assert answered.value.status == 409
    page.locator("#quote", has_text="Not possible").wait_for()
    assert "12 nodes × 8" in page.inner_text("#quote")
    assert page.inner_text("#product") == "= 96 units"
    asked = answered.value.request.post_data
    assert "nodes=12" in asked
    assert "csrf_token=" in asked
    assert page.url == f"{base}/book", "a quote is not a place to be"


def test_confirming_posts_the_form_with_the_digest_of_what_was_shown(page: Any, base: str) -> None:
    page.goto(f"{base}/book")
    with page.expect_request(lambda r: r.method == "POST" and r.url == f"{base}/book") as posted:
        page.click("text=Confirm: book for")
    assert "quote=q1%3A7f3a" in posted.value.post_data
    assert "idempotency_key=key-1" in posted.value.post_data
    assert posted.value.is_navigation_request()


def test_a_choice_shows_its_own_fields(page: Any, base: str) -> None:
    page.goto(f"{base}/book")
    assert page.is_visible("#f-nodes")
    assert not page.is_visible("#f-units")
    assert not page.is_visible("#f-start")
    page.check("input[name=shape][value=units]", force=True)
    page.check("input[name=when][value=exact]", force=True)
    assert page.is_visible("#f-units")
    assert not page.is_visible("#f-nodes")
    assert page.is_visible("#f-start")


def test_the_live_part_is_replaced_and_the_form_stays(page: Any, base: str) -> None:
    page.clock.install()
    page.goto(f"{base}/booking")
    page.focus("#v-extend")
    page.evaluate("document.querySelector('#verb-extend form').dataset.mine = 'still here'")
    page.evaluate("document.querySelector('#eff-release').textContent = 'of long ago'")
    with page.expect_response(lambda r: "/live?seen=ACTIVE-observed" in r.url) as asked:
        page.clock.fast_forward(16_000)
    assert f"by={page.input_value('#v-extend')}" in asked.value.url
    page.wait_for_selector("#bk-live")
    page.clock.run_for(1000)
    assert page.locator("#bk-live").count() == 1
    assert page.locator("#bk-cost").count() == 1
    assert "of long ago" not in page.inner_text("#verb-release")
    assert page.get_attribute("#verb-extend form", "data-mine") == "still here"
    assert page.evaluate("document.activeElement.id") == "v-extend"
    assert page.locator("[id^=verb-]").count() == 3
    assert page.locator("[data-chart] canvas").count() == 4
    assert "now 95 % on average" in page.inner_text("#now-utilisation")


def test_another_choice_of_a_verb_asks_for_its_effect(page: Any, base: str) -> None:
    page.goto(f"{base}/booking")
    with page.expect_response(lambda r: "/effect?verb=extend" in r.url) as answered:
        page.select_option("#v-extend", "PT1H")
    assert "by=PT1H" in answered.value.url
    assert "csrf_token" not in answered.value.url
    page.wait_for_selector("#verb-extend form")


def test_the_theme_is_chosen_and_kept(page: Any, base: str) -> None:
    page.goto(f"{base}/home")
    assert page.get_attribute("html", "data-bs-theme") == "light"
    page.click("[data-theme-switch]")
    page.goto(f"{base}/finance")
    assert page.get_attribute("html", "data-bs-theme") == "dark"


def test_a_keyboard_reaches_the_content_first(page: Any, base: str) -> None:
    page.goto(f"{base}/home")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "q"


def test_pages_work_without_javascript(chromium: Any, base: str) -> None:
    context = chromium.new_context(viewport={"width": 390, "height": 844}, java_script_enabled=False)
    bare = context.new_page()
    bare.goto(f"{base}/book")
    assert not bare.is_visible("#side")
    bare.click("[aria-label=Menu]")
    assert bare.is_visible("#side >> text=Timeline")
    bare.keyboard.press("Escape")
    assert not bare.is_visible("#side")
    for field in ("#f-units", "#f-nodes", "#f-start", "text=Show the quote"):
        assert bare.is_visible(field)
    bare.fill("#f-nodes", "3")
    bare.click("text=Show the quote")
    assert "nodes=3" in bare.url
    bare.goto(f"{base}/timeline")
    assert not bare.is_visible("text=alps-0101")
    bare.click("summary >> text=Rack 1")
    assert bare.is_visible("text=alps-0101")
    context.close()

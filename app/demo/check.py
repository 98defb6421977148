"""`berth demo --check`: a newcomer's way through a running demo, by HTTP alone, with money worked out a second time.

It uses the pages as a browser would (forms with their hidden fields) and the API with a token, says each step, and
compares quote, page, API and statement with arithmetic of its own. It knows the demo's folder and addresses, and
nothing of the rooms: what it says holds for whatever answers there.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import httpx2

from app.kernel.clock import monotonic, wall_now

T = TypeVar("T")
KIND, UNITS, HOURS = "h100-sxm-80gb", 8, 2
ACTIVE_WITHIN, USE_WITHIN, ENDED_WITHIN, BILLED_WITHIN = 60, 240, 120, 120
"""Seconds of patience, for a machine that has other things to do as well."""
_EVERY = 1.0


class Wrong(Exception):
    """Something is not as it should be, in a sentence for whoever runs the check."""


def walk(data: Path, say: Callable[[str], None] = print) -> int:
    """Walk the way through the demo on the folder `data`; 0 when everything is as it should be, else 1.

    Every step is said in a line. It leaves one booking behind, which is released after a minute or two.
    """
    try:
        url, people = read_demo(data)
        _Journey(url, people, say).walk()
    except Wrong as wrong:
        say(f"WRONG  {wrong}")
        return 1
    except httpx2.HTTPError as error:
        say(f"WRONG  The demo stopped answering: {str(error) or type(error).__name__}.")
        return 1
    say("ok     Quote, page, API and statement agree with a second calculation, to the cent.")
    return 0


def read_demo(data: Path) -> tuple[str, list[dict[str, Any]]]:
    """Where the demo on a folder answers, and its people. Raises `Wrong` when it is not there or not running."""
    file = data / "demo.json"
    start = f"start it with: berth demo --data {data}"
    try:
        written = json.loads(file.read_text(encoding="utf-8"))
        url, people = written["url"], written["people"]
    except FileNotFoundError:
        raise Wrong(f"There is no {file}: no demo has got ready on this folder; {start}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Wrong(f"{file} cannot be read ({type(error).__name__}: {error}); {start}") from None
    try:
        ready = httpx2.get(f"{url}/readyz", timeout=15, trust_env=False)
    except httpx2.HTTPError:
        raise Wrong(f"{file} is of a demo that is not running: nothing answers at {url}; {start}") from None
    if ready.status_code != 200:
        raise Wrong(f"The demo at {url} is not ready: /readyz answers {ready.status_code}.")
    return url, people


def owed(units: int, seconds: int, price: Decimal) -> Fraction:
    """What units cost for a time at a price per unit-hour, exactly."""
    return units * seconds * Fraction(price) / 3600


def cents(exact: Fraction) -> Decimal:
    """Rounded to the cent, half away from zero."""
    whole = (2 * abs(exact) * 100 + 1) // 2
    return (Decimal(int(whole)) / 100).quantize(Decimal("0.01")) * (-1 if exact < 0 else 1)


@dataclass
class _Form:
    action: str
    fields: dict[str, str] = field(default_factory=dict)


class _Markup(HTMLParser):
    """A page's forms with what they would send, and its text with blanks made one."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.forms: list[_Form] = []
        self.by_id: dict[str, _Form] = {}
        self.loose: dict[str, dict[str, str]] = {}
        """Fields outside of their form, by the form's id."""
        self._inside: _Form | None = None
        self._select = ""
        self._silent = 0
        self._chunks: list[str] = []
        self.feed(html)
        self.text = " ".join(" ".join(self._chunks).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        have = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._inside = _Form(have.get("action", ""))
            self.forms.append(self._inside)
            self.by_id[have.get("id", "")] = self._inside
        elif tag == "select":
            self._select = have.get("name", "")
        elif tag == "option" and self._inside is not None and self._select:
            if "selected" in have or self._select not in self._inside.fields:
                self._inside.fields[self._select] = have.get("value", "")
        elif tag == "input" and have.get("name"):
            if have.get("type") in ("radio", "checkbox") and "checked" not in have:
                return
            if "form" in have:
                self.loose.setdefault(have["form"], {})[have["name"]] = have.get("value", "")
            elif self._inside is not None:
                self._inside.fields[have["name"]] = have.get("value", "")
        elif tag in ("script", "style"):
            self._silent += 1

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._inside = None
        elif tag == "select":
            self._select = ""
        elif tag in ("script", "style"):
            self._silent -= 1

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self._chunks.append(data)


class _Visitor:
    """Somebody with a browser's cookies and a token."""

    def __init__(self, url: str, person: dict[str, Any]) -> None:
        self.person = person
        self._pages = httpx2.Client(base_url=url, timeout=30, trust_env=False)
        self._api = httpx2.Client(
            base_url=url, timeout=30, trust_env=False, headers={"Authorization": f"Bearer {person['token']}"}
        )

    def close(self) -> None:
        self._pages.close()
        self._api.close()

    def sign_in(self) -> None:
        """With address and password, by the form."""
        form = _form(self.see("/sign-in"), "/sign-in")
        answer = self.send(
            "/sign-in", {**form.fields, "email": self.person["email"], "password": self.person["password"]}
        )
        if answer.status_code != 303:
            raise Wrong(f"{self.person['name']} cannot sign in: the form answers {answer.status_code}.")

    def see(self, path: str) -> _Markup:
        """A page, as it is answered with 200."""
        answer = self._pages.get(path)
        if answer.status_code != 200:
            raise Wrong(f"The page {path} answers {answer.status_code} to {self.person['name']}, not 200.")
        return _Markup(answer.text)

    def send(self, path: str, fields: dict[str, str]) -> httpx2.Response:
        """A form, as its button would."""
        return self._pages.post(path, data=fields)

    def ask(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """The API's answer: GET, or POST with a body."""
        answer = self._api.get(path) if body is None else self._api.post(path, json=body)
        if answer.status_code not in (200, 201):
            raise Wrong(f"The API answers {answer.status_code} to {path}: {answer.text[:300]}")
        return answer.json()


class _Journey:
    """The steps, in order, and what each leaves for the next."""

    def __init__(self, url: str, people: list[dict[str, Any]], say: Callable[[str], None]) -> None:
        self._url, self._say = url, say
        self._member = _Visitor(url, _somebody(people, "project:member", "plasma"))
        self._finance = _Visitor(url, _somebody(people, "tenant:finance", None, self._member.person["tenant"]))
        self._number = ""
        self._price = Decimal(0)

    def walk(self) -> None:
        try:
            self._sign_in()
            self._book()
            self._become_active()
            self._look_at_use_and_cost()
            booking = self._release()
            self._find_on_statement(booking)
        finally:
            self._member.close()
            self._finance.close()

    def _ok(self, sentence: str) -> None:
        self._say(f"ok     {sentence}")

    def _sign_in(self) -> None:
        self._member.sign_in()
        self._member.see("/")
        self._ok(f"{self._member.person['name']} signed in at {self._url}/ with a form.")

    def _book(self) -> None:
        """The form, its quote, the API's quote for the same, and the booking."""
        page = self._member.see("/book")
        form = page.by_id.get("book-form")
        if form is None:
            raise Wrong("The page /book has no form.")
        wanted = {
            **form.fields, "project": self._member.person["project"], "name": "A newcomer's check", "kind": KIND,
            "shape": "units", "units": str(UNITS), "within": "node", "when": "asap", "hours": str(HOURS),
        }  # fmt: skip
        answer = self._member.send("/book/quote", wanted)
        panel = _Markup(answer.text)
        if answer.status_code != 200:
            raise Wrong(f"{UNITS} H100 cannot be booked now, though the demo keeps them free: {panel.text[:400]}")
        asked = {
            "project": self._member.person["project"], "name": "A newcomer's check", "kind": KIND, "units": UNITS,
            "within": "node", "start": "asap", "duration": f"PT{HOURS}H",
        }  # fmt: skip
        quote = self._member.ask("/api/v1/quotes", asked)
        (part,) = quote["price"]["parts"]
        self._price = Decimal(part["unit_price"])
        own = cents(owed(UNITS, HOURS * 3600, self._price))
        _same(
            "the price of the quote", own, page=_money(panel.text, r"Confirm: book for"), api=quote["price"]["amount"]
        )
        self._ok(f"The quote for {UNITS} H100 and {HOURS} h is {own}: page, API and {UNITS} x {HOURS} x {self._price}.")
        answer = self._member.send("/book", {**wanted, **panel.loose.get("book-form", {})})
        found = re.search(r"/bookings/(B-\d+)", answer.headers.get("location", ""))
        if answer.status_code != 303 or found is None:
            raise Wrong(f"Confirming answers {answer.status_code}, not a booking: {_Markup(answer.text).text[:400]}")
        self._number = found[1]
        _same("what the booking says it costs", own, api=self._booking()["price"]["amount"])
        self._ok(f"Confirmed: it is {self._number}.")

    def _become_active(self) -> None:
        began = monotonic()
        self._until("ACTIVE", ACTIVE_WITHIN, lambda: self._booking()["state"] == "ACTIVE")
        if "Active" not in self._page().text:
            raise Wrong(f"The API says that {self._number} is active, its page does not.")
        self._ok(f"{self._number} was active {monotonic() - began:.0f} s later, on its page too.")

    def _look_at_use_and_cost(self) -> None:
        provided = _instant(self._booking()["provided_at"])
        page = self._until(
            "measured", USE_WITHIN, lambda: (seen := self._page()) and re.search(r"Used [\d.]+ %", seen.text) and seen
        )
        if "Units" not in page.text or "GB" not in page.text:
            raise Wrong(f"The page of {self._number} shows no figures of its units.")
        earliest = wall_now()
        page = self._page()
        latest = wall_now()
        shown = _money(page.text, r"Cost so far")
        least, most = (
            cents(owed(UNITS, max(0, int((at - provided).total_seconds())), self._price))
            for at in (earliest - timedelta(seconds=1), latest + timedelta(seconds=1))
        )
        if not least <= shown <= most:
            raise Wrong(f"The page says that it cost {shown} so far; it must lie between {least} and {most}.")
        used = re.search(r"Used ([\d.]+ %)", page.text)
        self._ok(f"Its page shows use ({used[1] if used else '?'}) and cost so far ({shown}, as calculated).")

    def _release(self) -> dict[str, Any]:
        """Release by the form; the booking once it has ended and is charged."""
        form = _form(self._page(), f"/bookings/{self._number}/release")
        answer = self._member.send(form.action, form.fields)
        if answer.status_code != 303:
            raise Wrong(f"Releasing answers {answer.status_code}.")
        booking = self._until(
            "ended",
            ENDED_WITHIN,
            lambda: (b := self._booking())["state"] == "ENDED" and b["outcome"] == "released" and b,
        )
        seconds = int((_instant(booking["released_at"]) - _instant(booking["provided_at"])).total_seconds())
        own = cents(owed(UNITS, seconds, self._price))
        self._until("charged", BILLED_WITHIN, lambda: Decimal(self._booking()["charged"]["amount"]) != 0 or own == 0)
        booking = self._booking()
        _same("what was charged", own, api=booking["charged"]["amount"], page=_money(self._page().text, r"Charged"))
        self._ok(f"Released after {seconds} s; charged {own}: page, API and {UNITS} x {seconds} s x {self._price}.")
        return booking

    def _find_on_statement(self, booking: dict[str, Any]) -> None:
        """The booking's line on the draft of its month (of both months, if it ran across midnight of the last day)."""
        self._finance.sign_in()
        slug = self._finance.person["tenant"]
        begin, end = _instant(booking["provided_at"]), _instant(booking["released_at"])
        seconds = int((end - begin).total_seconds())
        exact = owed(UNITS, seconds, self._price)
        zone = ZoneInfo("Europe/Zurich")
        months = sorted({f"{at.astimezone(zone):%Y-%m}" for at in (begin, end - timedelta(seconds=1))})
        amount, on_page = Decimal(0), Decimal(0)
        for month in months:
            draft = self._finance.ask(f"/api/v1/statements/{month}")
            lines = [line for line in draft["lines"] if line["number"] == self._number]
            if len(lines) != 1:
                raise Wrong(f"The statement of {month} has {len(lines)} lines for {self._number}, not one.")
            (line,) = lines
            amount += Decimal(line["amount"])
            total = sum((Decimal(one["amount"]) for one in draft["lines"]), Decimal(0))
            _same(f"the sum of the lines of {month}", total, total=draft["total"])
            text = self._finance.see(f"/statements/{slug}/{month}").text
            row = re.search(rf"{self._number}, .*?{UNITS} (?P<hours>[\d,]+\.\d\d) (?P<exact>[\d,]+\.\d{{4}})", text)
            if row is None:
                raise Wrong(f"The page of the statement of {month} has no line with {self._number}.")
            on_page += Decimal(row["exact"].replace(",", ""))
        _same("the line on the statement", cents(exact), api=amount)
        if abs(Fraction(on_page) - exact) > Fraction(len(months), 20_000):
            raise Wrong(f"The statement's page says {on_page} for {self._number}; calculated is {float(exact):.4f}.")
        self._ok(
            f"Draft statement {' and '.join(months)}: {self._number} with {amount}, exactly {on_page} on the page."
        )

    def _booking(self) -> dict[str, Any]:
        return self._member.ask(f"/api/v1/bookings/{self._number}")

    def _page(self) -> _Markup:
        return self._member.see(f"/bookings/{self._number}")

    def _until(self, what: str, seconds: float, probe: Callable[[], T]) -> T:
        """The first answer of `probe` that is something; `Wrong` when there is none in so many seconds."""
        late = monotonic() + seconds
        while not (found := probe()):
            if monotonic() > late:
                raise Wrong(f"{self._number} is not {what} after {seconds:.0f} s; it is {self._booking()['state']}.")
            time.sleep(_EVERY)
        return found


def _somebody(
    people: list[dict[str, Any]], role: str, project: str | None, tenant: str | None = None
) -> dict[str, Any]:
    for person in people:
        if person["role"] == role and person["project"] == project and tenant in (None, person["tenant"]):
            return person
    raise Wrong(f"demo.json names nobody who is {role} of {project or tenant}.")


def _form(page: _Markup, action: str) -> _Form:
    for form in page.forms:
        if form.action == action:
            return form
    raise Wrong(f"There is no form for {action} where one belongs.")


def _money(text: str, after: str) -> Decimal:
    found = re.search(rf"{after} [A-Z]{{3}} ([\d,]+\.\d\d)", text)
    if found is None:
        raise Wrong(f"No amount stands after “{after}”.")
    return Decimal(found[1].replace(",", ""))


def _same(what: str, own: Decimal, **said: Decimal | str) -> None:
    for who, amount in said.items():
        if Decimal(amount) != own:
            raise Wrong(f"{what[:1].upper()}{what[1:]}: {who} says {amount}, calculated is {own}.")


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)

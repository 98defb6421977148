"""The Book form's texts: what they mean in the person's zone, and that a request comes back from its fields unchanged."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from app.bookings.form import BookFields, fields_of, nearest_of, read
from app.bookings.schemas import Ask, BookingIn
from app.kernel.window import instants_of

BERLIN = ZoneInfo("Europe/Berlin")
FIELDS = {"project": "plasma", "kind": "any", "shape": "units", "units": "8", "when": "asap", "hours": "6"}


def fields(**changes: str) -> BookFields:
    return BookFields(**{**FIELDS, **changes})


@pytest.mark.parametrize(
    ("zone", "local", "before", "after"),
    [
        ("Europe/Berlin", "2027-03-28T02:30", "01:45", "03:00"),
        ("Europe/Berlin", "2027-03-28T02:00", "01:45", "03:00"),
        ("America/New_York", "2027-03-14T02:59", "01:45", "03:00"),
        ("Australia/Lord_Howe", "2027-10-03T02:15", "01:45", "02:30"),  # half an hour
        ("Pacific/Apia", "2011-12-30T12:00", "23:45", "00:00"),  # a whole day
    ],
)
def test_case_6_the_nearest_of_a_local_time_that_does_not_exist(zone: str, local: str, before: str, after: str) -> None:
    when, there = datetime.fromisoformat(local), ZoneInfo(zone)
    assert instants_of(when, there) == ()
    first, second = nearest_of(when, there)
    assert (f"{first:%H:%M}", f"{second:%H:%M}") == (before, after)
    assert len(instants_of(first, there)) == len(instants_of(second, there)) == 1
    found = read(fields(when="exact", start=local), there, named=False)
    assert found.body is None
    assert before in found.faults["start"]
    assert after in found.faults["start"]


def test_case_5_a_local_time_that_exists_twice_is_two_instants() -> None:
    found = read(fields(when="exact", start="2027-10-31T02:30"), BERLIN, named=False)
    assert found.body is None
    assert found.twice == (datetime(2027, 10, 31, 0, 30, tzinfo=UTC), datetime(2027, 10, 31, 1, 30, tzinfo=UTC))
    for instant in found.twice:  # with its offset said, it is one
        said = instant.astimezone(BERLIN).isoformat()
        one = read(fields(when="exact", start=said), BERLIN, named=False).body
        assert one is not None
        assert one.start == instant


def test_case_9_an_offset_of_half_an_hour() -> None:
    found = read(fields(when="exact", start="2026-12-01T09:00", hours="1"), ZoneInfo("Asia/Kolkata"), named=False)
    assert found.body is not None
    assert found.body.start == datetime(2026, 12, 1, 3, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("6", 21600), ("1.5", 5400), ("1,5", 5400), (" 48 h ", 172800), ("0.25h", 900), ("0.000278", 1), ("0", 0)],
)
def test_hours_as_people_write_them(text: str, seconds: int) -> None:
    body = read(fields(hours=text), BERLIN, named=False).body
    assert body is not None
    assert body.duration == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "six", "-1", "1.2.3", "1,500", "1e3", "٣", "6 hours"])
def test_hours_that_are_none(text: str) -> None:
    assert "hours" in read(fields(hours=text), BERLIN, named=False).faults


@pytest.mark.parametrize(
    "start", ["tomorrow", "2027-02-30T10:00", "2026-12-01T09:00:00.5+01:00", "2026-12-01", "0001-01-01T00:00"]
)
def test_starts_that_are_none(start: str) -> None:
    assert "start" in read(fields(when="exact", start=start), BERLIN, named=False).faults


def test_all_faults_at_once() -> None:
    found = read(BookFields(shape="nodes", when="exact"), BERLIN, named=True)
    assert set(found.faults) == {"name", "project", "kind", "nodes", "per_node", "hours", "start"}


@pytest.mark.parametrize("seconds", [1, 59, 900, 4001, 21600, 86399, 604800])
@pytest.mark.parametrize("shape", [{"units": 3}, {"nodes": 2, "per_node": 8, "within": "leaf"}])
@pytest.mark.parametrize("start", ["asap", "2027-10-31T00:30:00+00:00"])
def test_what_an_alternative_asks_comes_back_from_its_fields(seconds: int, shape: dict, start: str) -> None:
    body = BookingIn.model_validate(
        {"project": "plasma", "name": "Run 7", "kind": "any", "start": start, "duration": f"PT{seconds}S",
         "cost_center": "4711", "reference": "grant 12", "workload": "none", "cluster": "sim", **shape}
    )  # fmt: skip
    posted = dict(fields_of(Ask.of(body).to_post(), "k"))
    back = read(BookFields(**posted), BERLIN, named=True)
    assert back.body is not None
    assert Ask.of(back.body) == Ask.of(body)


def typed(**words: str) -> BookFields:
    base = {
        "project": "plasma",
        "name": "Run",
        "kind": "any",
        "shape": "units",
        "units": "8",
        "when": "asap",
        "hours": "2",
    }
    return BookFields(**(base | words))


def test_some_time_between_two_local_times_and_the_wider_edge_of_a_time_that_exists_twice() -> None:
    zone = ZoneInfo("Europe/Berlin")
    fields = typed(when="between", earliest="2027-10-31T02:30", latest="2027-10-31T02:30")
    body = read(fields, zone, named=True).body
    assert body is not None
    assert (f"{body.earliest:%H:%M}", f"{body.latest:%H:%M}") == ("00:30", "01:30")
    missing = read(typed(when="between", earliest="2027-03-28T02:30"), zone, named=True)
    assert "does not exist" in missing.faults["earliest"]
    assert read(typed(earliest="2027-03-28T02:30"), zone, named=True).body.earliest is None, "not chosen, not read"


def test_closeness_that_is_only_preferred_and_kinds_by_need() -> None:
    zone = ZoneInfo("Europe/Berlin")
    body = read(typed(within="leaf", prefer="yes", memory_gb="80", or_better="yes"), zone, named=True).body
    assert body is not None
    assert (body.within, body.near, body.memory_gb, body.or_better) == (None, "leaf", 80, False)
    named = read(typed(kind="h100", memory_gb="80", or_better="yes"), zone, named=True).body
    assert (named.memory_gb, named.or_better) == (None, True)
    assert "memory_gb" in read(typed(memory_gb="much"), zone, named=True).faults


def test_what_is_offered_is_the_same_in_the_form_with_needs_and_edges() -> None:
    from app.bookings.schemas import Ask, BookingIn

    request = {
        "project": "plasma", "name": "Run", "kind": "any", "kinds": ["a", "b"], "memory_gb": 40, "units": 8, "within": "rack",
        "near": "node", "start": "asap", "duration": "PT2H", "earliest": "2027-05-01T08:00:00+00:00",
    }  # fmt: skip
    fields = BookFields(**dict(fields_of(Ask.of(BookingIn.model_validate(request)).to_post(), "key")))
    body = read(fields, ZoneInfo("Europe/Berlin"), named=True).body
    assert Ask.of(body) == Ask.of(BookingIn.model_validate(request))

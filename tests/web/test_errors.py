"""Every error as an answer: one shape for programs, a page or a fragment for people, nothing of the inside."""

from __future__ import annotations

from typing import Annotated

import psycopg
import pytest
from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from sqlalchemy.exc import TimeoutError as PoolTimeout

from app.kernel import errors
from app.web.deps import InTransaction
from tests.accounts.world import World


class Body(BaseModel):
    units: int = Field(ge=1)
    name: str = Field(min_length=1)


REASONS = (
    errors.Reason("horizon", "Bookings reach 90 days ahead.", "90 days", "120 days", "Start earlier.", "start", True),
    errors.Reason("quota", "This is 32 units over the limit.", "96 units", "128 units"),
)
ALTERNATIVE = errors.Alternative("later", {"units": 8}, {"currency": "CHF", "amount": "12.00"}, "2 h later")


@pytest.fixture(scope="module")
def raising(world: World):
    """Routes that fail in every way."""
    router = APIRouter()
    found: dict[str, Exception] = {
        "conflict": errors.Conflict("stale", "Somebody changed it."),
        "refused": errors.Refused(errors.Refusal(REASONS, (ALTERNATIVE,))),
        "refused-by-state": errors.Refused(errors.Refusal(REASONS[1:])),
        "toomany": errors.TooMany("rate_limit", "Slowly.", 7),
        "unavailable": errors.Unavailable("preparing", "The history is being made."),
        "notfound": errors.NotFound("unknown_booking", "There is no such booking."),
        "lock": psycopg.errors.LockNotAvailable("secret detail"),
        "deadlock": psycopg.errors.DeadlockDetected("secret detail"),
        "gone": psycopg.OperationalError("secret detail"),
        "pool": PoolTimeout("secret detail"),
        "check": psycopg.errors.CheckViolation("secret detail"),
        "bug": RuntimeError("secret detail"),
    }
    for place in ("/api/v1/fail", "/fail"):

        @router.get(place + "/{how}")
        def fail(how: str, work: InTransaction) -> None:
            raise found[how]

        @router.post(place)
        def take(body: Body, at: Annotated[int, Query()]) -> Body:
            return body

    world.app.include_router(router)
    return world.browser()


@pytest.mark.parametrize(
    ("how", "status", "code"),
    [("conflict", 409, "stale"), ("refused", 422, "refused"), ("refused-by-state", 409, "refused"),
     ("toomany", 429, "rate_limit"), ("unavailable", 503, "preparing"), ("notfound", 404, "unknown_booking"),
     ("lock", 503, "busy"), ("deadlock", 503, "busy"), ("gone", 503, "database_away"), ("pool", 503, "busy"),
     ("check", 500, "internal"), ("bug", 500, "internal")],
)  # fmt: skip
def test_programs_get_a_problem(raising, how: str, status: int, code: str) -> None:
    answer = raising.get(f"/api/v1/fail/{how}")
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert set(problem) == {"type", "title", "status", "detail", "code", "reasons", "alternatives"}
    assert (problem["status"], problem["code"]) == (status, code)
    assert "secret" not in answer.text
    assert ("retry-after" in answer.headers) == (status in (429, 503))


def test_a_refusal_carries_every_reason_and_what_would_work(raising) -> None:
    problem = raising.get("/api/v1/fail/refused").json()
    assert [r["code"] for r in problem["reasons"]] == ["horizon", "quota"]
    assert problem["reasons"][0] == {
        "code": "horizon", "message": "Bookings reach 90 days ahead.", "limit": "90 days", "asked": "120 days",
        "fix": "Start earlier.", "field": "start",
    }  # fmt: skip
    assert problem["alternatives"][0]["request"] == {"units": 8}
    assert problem["alternatives"][0]["price"] == {"currency": "CHF", "amount": "12.00"}


@pytest.mark.parametrize("how", ["conflict", "refused", "gone", "bug"])
def test_people_get_a_page_and_htmx_a_fragment(raising, how: str) -> None:
    page = raising.get(f"/fail/{how}")
    assert "<html" in page.text
    assert "secret" not in page.text
    part = raising.get(f"/fail/{how}", headers={"HX-Request": "true"})
    assert part.status_code == page.status_code
    assert "<html" not in part.text
    assert part.headers["content-type"].startswith("text/html")


def test_an_unforeseen_error_has_a_number_to_ask_about(raising) -> None:
    answer = raising.get("/fail/bug")
    assert answer.headers["x-request-id"] in answer.text


def test_wrong_input_names_each_field(raising) -> None:
    answer = raising.post("/api/v1/fail?at=x", json={"units": 0, "name": ""})
    assert answer.status_code == 422
    assert answer.json()["code"] == "invalid"
    assert {r["field"] for r in answer.json()["reasons"]} == {"units", "name", "at"}
    assert all(r["message"] for r in answer.json()["reasons"])


@pytest.mark.parametrize("body", ["{", '{"units": 1', "nonsense", '{"units": NaN, "name": "x"}'])
def test_what_is_not_json_is_said(raising, body: str) -> None:
    answer = raising.post("/api/v1/fail?at=1", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"


def test_bytes_that_are_no_text_are_no_error_of_ours(raising) -> None:
    answer = raising.post("/api/v1/fail?at=1", content=b"\xff\xfe\x00", headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)


def test_unknown_addresses_and_methods(raising) -> None:
    assert raising.get("/api/v1/nowhere").json()["code"] == "not_found"
    assert raising.delete("/api/v1/me").json()["code"] == "method_not_allowed"
    assert "<html" in raising.get("/nowhere").text


def test_a_failure_rolls_back(world: World, raising) -> None:
    router = APIRouter()

    @router.post("/api/v1/half")
    def half(work: InTransaction) -> None:
        work.pg.execute("UPDATE accounts SET name = 'half done'")
        raise errors.Conflict("stale", "No.")

    world.app.include_router(router)
    assert raising.post("/api/v1/half").status_code == 409
    with world.work() as work:
        assert work.pg.execute("SELECT count(*) FROM accounts WHERE name = 'half done'").fetchone()[0] == 0


def test_a_person_not_signed_in_is_led_there_and_back(world: World) -> None:
    browser = world.browser()
    assert browser.get("/me?a=1").headers["location"] == "/sign-in?next=%2Fme%3Fa%3D1"
    part = browser.get("/me", headers={"HX-Request": "true", "HX-Current-URL": "http://127.0.0.1:8000/bookings/7?x=1"})
    assert part.status_code == 401
    assert part.headers["hx-redirect"] == "/sign-in?next=%2Fbookings%2F7%3Fx%3D1"
    program = browser.get("/api/v1/me")
    assert program.status_code == 401
    assert program.headers["www-authenticate"].startswith("Bearer")

"""Many ask at once for what is there once: the last GPU, the last hours of a quota, one idempotency key.

Two real web processes, fifty clients of two tenants, the product clock standing still.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.faults.processes import Answer, Client, Site
from tests.requirements import required
from tests.world import H100, H200, START, nodes_csv

CLIENTS = 50
ROUNDS = int(os.environ.get("BERTH_RACE_ROUNDS", "100" if required("faults") else "25"))
"""A hundred are the whole proof, minutes of both cores: made where every suite is asked for."""
HOUR = timedelta(hours=1)
pytestmark = pytest.mark.xdist_group("faults-race")


class Crowd:
    """Clients in threads of their own, each with its connection, that all ask at the same moment, round after round."""

    def __init__(
        self,
        clients: list[Client],
        bodies: Callable[[int, int], tuple[str, dict[str, Any], dict[str, str]]],
        before: Callable[[], None] = lambda: None,
    ) -> None:
        """`bodies` says what the client of that index sends in a round; `before` runs once before each round."""
        self.answers: dict[int, list[Answer]] = {}
        self._bodies = bodies
        self._clients = clients
        self._gate = threading.Barrier(len(clients), before)
        self._failures: list[BaseException] = []

    def ask(self, rounds: int) -> dict[int, list[Answer]]:
        """All answers by round."""
        self.answers = {number: [] for number in range(rounds)}
        threads = [threading.Thread(target=self._live, args=(i, rounds)) for i in range(len(self._clients))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for client in self._clients:
            client.close()
        if self._failures:
            raise self._failures[0]
        return self.answers

    def _live(self, place: int, rounds: int) -> None:
        """A thread is a place in the queue; the clients take turns, so that nobody is always the first."""
        try:
            for number in range(rounds):
                index = (place + number) % len(self._clients)
                path, body, headers = self._bodies(number, index)
                self._gate.wait(120)
                self.answers[number].append(self._clients[index].post(path, body, **headers))
        except BaseException as error:
            self._failures.append(error)
            self._gate.abort()


PEOPLE = ("physics-member", "physics-lead", "bio-member", "bio-lead")


def crowd_of(site: Site, many: int, people: tuple[str, ...] = PEOPLE) -> list[Client]:
    """People in turn, so half of them of one tenant and half of the other; half at each of two web processes."""
    webs = [site.web("web1"), site.web("web2")]
    tokens = {p: site.token(p) for p in people}
    site.wait_ready(*webs)
    return [Client(webs[i // len(people) % 2], tokens[people[i % len(people)]], timeout=120) for i in range(many)]


def project_of(index: int) -> str:
    """The project of the client with that number: people alternate as in `crowd_of`."""
    return "plasma" if index % 4 < 2 else "atlas"


@pytest.mark.timeout(1800)  # quiet: about a minute
def test_case_16_fifty_clients_of_two_tenants_ask_for_the_last_gpu_a_hundred_times(
    make_site: Callable[..., Site],
) -> None:
    other = nodes_csv(1, kind=H200, prefix="m").split("\n", 1)[1]
    site = make_site(csv=nodes_csv(1, gpus=1) + other)

    def ask(number: int, index: int) -> tuple[str, dict[str, Any], dict[str, str]]:
        start = START + (number + 1) * HOUR
        body = {"project": project_of(index), "name": f"Client {index}", "kind": H100, "units": 1,
                "start": start.isoformat(), "duration": "PT1H"}  # fmt: skip
        return "/api/v1/bookings", body, {}

    rounds = Crowd(crowd_of(site, CLIENTS), ask).ask(ROUNDS)
    for answers in rounds.values():
        assert Counter(a.status for a in answers) == {201: 1, 409: CLIENTS - 1}
        for refused in (a for a in answers if a.status == 409):
            assert refused.codes == ["no_units_free"]
            kinds = [a["kind_of_change"] for a in refused.body["alternatives"]]
            assert {"time", "kind"} <= set(kinds)
            assert len(kinds) == len(set(kinds)) <= 3
    # what the winners were told is what stands, once and to the second
    won = sorted(a.body["number"] for answers in rounds.values() for a in answers if a.status == 201)
    assert won == sorted(f"B-{n}" for (n,) in site.rows("SELECT number FROM bookings"))
    held = site.rows("SELECT lower(during), upper(during), units::text FROM holds WHERE live ORDER BY 1")
    assert [(s, e) for s, e, _ in held] == [(START + (n + 1) * HOUR, START + (n + 2) * HOUR) for n in range(ROUNDS)]
    assert {units for _, _, units in held} == {"{[0,64)}"}
    tenants = site.rows("SELECT tenant_id, count(*) FROM bookings GROUP BY 1")
    assert len(tenants) == 2, "both tenants won some rounds"
    assert site.one("SELECT count(*) FROM refusals") == ROUNDS * (CLIENTS - 1)
    # an alternative taken at its word works
    a_refusal = next(a for a in rounds[ROUNDS - 1] if a.status == 409)
    project = a_refusal.body["alternatives"][0]["request"]["project"]
    client = site.client(site.processes[0], "physics-member" if project == "plasma" else "bio-member")  # type: ignore[arg-type]
    for offered in a_refusal.body["alternatives"]:
        assert client.post("/api/v1/bookings", offered["request"]).status == 201
    client.close()


@pytest.mark.timeout(600)
def test_case_17_many_want_the_last_eight_gpu_hours_on_different_gpus(make_site: Callable[..., Site]) -> None:
    """Each round eight GPU-hours are left of the month, and sixteen people want them, each on free units, in two pools:
    the lock on a pool does not keep them apart."""
    site = make_site(csv=nodes_csv(1) + nodes_csv(1, kind=H200, prefix="m").split("\n", 1)[1])
    many, rounds = 16, 10
    given = [0]

    def eight_more() -> None:
        given[0] += 8
        site.world.set_limit("physics", hours=given[0])

    def ask(number: int, index: int) -> tuple[str, dict[str, Any], dict[str, str]]:
        start = START + (number * many + index + 24) * HOUR  # an hour of one's own: units are no matter
        return "/api/v1/bookings", {"project": "plasma", "name": f"Client {index}", "kind": (H100, H200)[index % 2], "units": 8,
                                    "start": start.isoformat(), "duration": "PT1H"}, {}  # fmt: skip

    clients = crowd_of(site, many, ("physics-member", "physics-lead"))
    for answers in Crowd(clients, ask, eight_more).ask(rounds).values():
        assert Counter(a.status for a in answers) == {201: 1, 409: many - 1}
        for refused in (a for a in answers if a.status == 409):
            assert refused.codes == ["quota_hours"]
            (reason,) = refused.body["reasons"]
            assert (reason["limit"], reason["asked"]) == ("0 GPU-hours available", "8 GPU-hours")
    assert site.one("SELECT count(*) FROM bookings") == rounds
    assert site.one("SELECT sum(quantity) / 840 / 3600 FROM commitments") == rounds * 8


@pytest.mark.timeout(600)
def test_case_20_one_key_sent_by_twenty_at_once_is_one_booking_and_one_answer(make_site: Callable[..., Site]) -> None:
    site = make_site(csv=nodes_csv(4))
    many, rounds = 20, 10

    def ask(number: int, index: int) -> tuple[str, dict[str, Any], dict[str, str]]:
        body = {"project": "plasma", "name": "Double click", "kind": H100, "units": 1,
                "start": (START + (number + 1) * HOUR).isoformat(), "duration": "PT1H"}  # fmt: skip
        return "/api/v1/bookings", body, {"Idempotency_Key": f"key {number}"}

    clients = crowd_of(site, many, ("physics-member",))
    for answers in Crowd(clients, ask).ask(rounds).values():
        assert [a.status for a in answers] == [201] * many
        assert len({str(a.body) for a in answers}) == 1, "the same response every time"
    assert site.one("SELECT count(*) FROM bookings") == rounds
    assert site.one("SELECT count(*) FROM holds") == rounds
    client = site.client(site.processes[0])  # type: ignore[arg-type]
    path, body, key = ask(0, 0)
    other = client.post(path, {**body, "units": 2}, **key)
    assert (other.status, other.body["code"]) == (409, "idempotency_key_reused")
    client.close()

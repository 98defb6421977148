"""The life of a booking: one table of moves, what time alone makes of it, and what to ask of its cluster next.

Pure. It decides and never does: `queries.advance()` writes the moves, `reconcile.py` makes the calls, `evidence.py`
reads what the cluster answers. It must not know a backend, a database, a price or whose booking it is; the reconciler
translates a backend's observation into `Seen`.

How a worker uses it, each line in its own step of claim -> ask -> apply:

    changes = tick(view, now, pace)              # what time alone brings; apply them, view = follow(view, changes)
    step = next_step(view, now, pace)            # the backend call to make now, if any
    changes = evidence.apply_observation(view, seen, now, pace)   # or apply_failure(...) when the call raised
    due.next_at = next_step(follow(view, changes), now, pace).next_at
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Literal

from app.kernel.window import Window


class State(StrEnum):
    """Where a booking is. The last four are final."""

    WAITING = "WAITING"
    REQUESTED = "REQUESTED"
    BOOKED = "BOOKED"
    STARTING = "STARTING"
    ACTIVE = "ACTIVE"
    ENDING = "ENDING"
    ENDED = "ENDED"
    CANCELLED = "CANCELLED"
    REJECTED = "REJECTED"
    LAPSED = "LAPSED"


class Event(StrEnum):
    """What can happen to a booking. `EVENTS` says each in words."""

    BOOK = "book"
    ASK = "ask"
    WAIT = "wait"
    APPROVE = "approve"
    REJECT = "reject"
    LAPSE = "lapse"
    BEGIN = "begin"
    PROVIDE = "provide"
    CANCEL = "cancel"
    WITHDRAW = "withdraw"
    RELEASE = "release"
    NO_SHOW = "no_show"
    FAIL = "fail"
    END = "end"
    GIVE_UP = "give_up"
    EMPTIED = "emptied"


class Outcome(StrEnum):
    """How an ENDED booking ended."""

    COMPLETED = "completed"
    RELEASED = "released"
    CANCELLED = "cancelled"
    NO_SHOW = "no_show"
    FAILED = "failed"
    NOT_PROVIDED = "not_provided"


class Condition(StrEnum):
    """What is the matter with a booking, beside its state; each stands since an instant and for a reason."""

    AT_RISK = "at_risk"
    LATE = "late"
    DEGRADED = "degraded"
    BLOCKED = "blocked"
    IDLE = "idle"


S, E = State, Event

MOVES: Mapping[tuple[State | None, Event], State] = MappingProxyType(
    {
        # Born. A booking that waits or needs approval is a booking row from the start (7-decisions on requests).
        (None, E.BOOK): S.BOOKED,
        (None, E.ASK): S.REQUESTED,
        (None, E.WAIT): S.WAITING,
        # An offer accepted from the waiting list meets the same rules as any request: it may need approval.
        (S.WAITING, E.BOOK): S.BOOKED,
        (S.WAITING, E.ASK): S.REQUESTED,
        (S.WAITING, E.CANCEL): S.CANCELLED,
        (S.WAITING, E.LAPSE): S.LAPSED,
        (S.REQUESTED, E.APPROVE): S.BOOKED,
        (S.REQUESTED, E.REJECT): S.REJECTED,
        (S.REQUESTED, E.LAPSE): S.LAPSED,
        (S.REQUESTED, E.CANCEL): S.CANCELLED,
        # Where pending requests hold nothing, the second approval can find the units taken: it waits instead.
        (S.REQUESTED, E.WAIT): S.WAITING,
        # Nothing was ever asked of the cluster, so nothing can be left there: no need to go through ENDING.
        (S.BOOKED, E.CANCEL): S.CANCELLED,
        # Made ahead on the cluster (a reservation at confirmation), so it must be taken down first.
        (S.BOOKED, E.WITHDRAW): S.ENDING,
        (S.BOOKED, E.BEGIN): S.STARTING,
        # From here on something may stand on the cluster: every road that may own something leaves through ENDING.
        (S.STARTING, E.PROVIDE): S.ACTIVE,
        (S.STARTING, E.WITHDRAW): S.ENDING,
        (S.STARTING, E.GIVE_UP): S.ENDING,
        (S.ACTIVE, E.RELEASE): S.ENDING,
        (S.ACTIVE, E.NO_SHOW): S.ENDING,
        (S.ACTIVE, E.FAIL): S.ENDING,
        (S.ACTIVE, E.END): S.ENDING,
        # An operator takes an active booking away; what was provided until then is charged.
        (S.ACTIVE, E.WITHDRAW): S.ENDING,
        # Only evidence that the units are empty ends it; a timeout does not.
        (S.ENDING, E.EMPTIED): S.ENDED,
    }
)
"""The one table. `None` is "does not exist yet". A pair that is not here cannot happen."""

FINAL: frozenset[State] = frozenset({S.ENDED, S.CANCELLED, S.REJECTED, S.LAPSED})
MAY_OWN: frozenset[State] = frozenset({S.STARTING, S.ACTIVE, S.ENDING})
"""States in which something may stand on the cluster (BOOKED too, once something was asked ahead)."""
HOLDS: frozenset[State] = frozenset({S.REQUESTED, S.BOOKED, S.STARTING, S.ACTIVE, S.ENDING})
"""States in which a booking occupies units (REQUESTED by the default policy; WAITING holds nothing of its own)."""

OUTCOMES: Mapping[Event, Outcome] = MappingProxyType(
    {
        E.END: Outcome.COMPLETED,
        E.RELEASE: Outcome.RELEASED,
        E.WITHDRAW: Outcome.CANCELLED,
        E.NO_SHOW: Outcome.NO_SHOW,
        E.FAIL: Outcome.FAILED,
        E.GIVE_UP: Outcome.NOT_PROVIDED,
    }
)
"""The event that led into ENDING decides the outcome with which the booking will be ENDED."""

EVENTS: Mapping[Event, str] = MappingProxyType(
    {
        E.BOOK: "the units are held and the price is promised",
        E.ASK: "it needs approval first; units and quota are held until that lapses",
        E.WAIT: "it stands on the waiting list and holds nothing",
        E.APPROVE: "whoever may approve did",
        E.REJECT: "whoever may approve refused",
        E.LAPSE: "nobody answered in time, or the wanted start went by",
        E.BEGIN: "the start is near: holds are pinned and the cluster is asked",
        E.PROVIDE: "access and all units are in place and the window has begun",
        E.CANCEL: "given up before anything was asked of the cluster",
        E.WITHDRAW: "given up when something may stand on the cluster already, or taken away by an operator",
        E.RELEASE: "given back before its end; charged to the second of this",
        E.NO_SHOW: "nobody used it in time, with measurements present",
        E.FAIL: "it cannot go on",
        E.END: "the window is over",
        E.GIVE_UP: "it was not provided and will not be",
        E.EMPTIED: "the cluster says that nothing of it is left and its units are empty",
    }
)


class IllegalMove(ValueError):
    """The table has no such move: a fault of the caller, or a verb that came too late."""

    def __init__(self, state: State | None, event: Event) -> None:
        super().__init__(f"a booking that is {state or 'not made yet'} cannot {event}")
        self.state = state
        self.event = event


def move(state: State | None, event: Event) -> State:
    """The state after an event. Raises IllegalMove."""
    try:
        return MOVES[state, event]
    except KeyError:
        raise IllegalMove(state, event) from None


def may(state: State | None, event: Event) -> bool:
    """True when the table has that move."""
    return (state, event) in MOVES


# --- what is known of a booking ---------------------------------------------------------------------------------------

SeenState = Literal["absent", "preparing", "ready", "degraded", "blocked", "ending", "gone"]


@dataclass(frozen=True, slots=True, order=True)
class Outage:
    """A unit that was provided and then was not there for `[since, until)`; `until` None while it lasts."""

    unit: int
    since: datetime
    until: datetime | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a cluster said about the booking's object, in the words of the backend contract.

    `lost` are all outages inside the window so far, ended ones too, with units as numbers of GPUs of the installation.
    `since` is when this state began, `in_place_since` since when it was in place without a break, `empty_since` since
    when all units were seen empty: the cluster's own clock, whole seconds, None when not known.
    """

    state: SeenState
    since: datetime | None = None
    in_place_since: datetime | None = None
    empty_since: datetime | None = None
    lost: tuple[Outage, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class Standing:
    """A condition that holds: since when and why, a sentence."""

    since: datetime
    why: str = ""


@dataclass(frozen=True, slots=True)
class BookingView:
    """All that the life of a booking depends on. Instants are product time, aware, UTC, whole seconds.

    `units`: the numbers of its GPUs. `left_by`, `left_at`: the event that led into ENDING, and the instant from which
    nothing is charged; both None before. `asked`: an `ensure` was, or may have been, sent: set it in the transaction
    before the first call, so that a crash between the two errs on the safe side. `wanted`: version of what should be on
    the cluster, raised by every edit of window, units or people; `ensured`: the version that the cluster last took (0:
    none). `seen`: the last observation. `failures`: calls that failed since the last that did not. `freed_at`: when the
    units were seen empty after the end. `kept_until`: what runs may go on after the end until then (None: it may not).
    """

    state: State
    window: Window
    units: tuple[int, ...] = ()
    provided_at: datetime | None = None
    left_by: Event | None = None
    left_at: datetime | None = None
    freed_at: datetime | None = None
    conditions: Mapping[Condition, Standing] = field(default_factory=lambda: MappingProxyType({}))
    outages: tuple[Outage, ...] = ()
    asked: bool = False
    wanted: int = 1
    ensured: int = 0
    seen: Seen | None = None
    failures: int = 0
    kept_until: datetime | None = None

    @property
    def outcome(self) -> Outcome | None:
        """Set once ENDED, and None before."""
        return OUTCOMES[self.left_by] if self.state is S.ENDED and self.left_by else None


@dataclass(frozen=True, slots=True)
class Pace:
    """How closely a booking is followed.

    `ahead`: how long before the start holds are pinned and the cluster is asked. `soon`: between looks while it starts
    or ends. `every`: between looks while it is active. `back_off`: the longest pause after failures. `late_after`: how
    long after the start silence of the cluster is called late. `give_up_after`: how long after the start a booking that
    was not provided is given up; None: at the end of its window.
    """

    ahead: timedelta = timedelta(minutes=10)
    soon: timedelta = timedelta(seconds=5)
    every: timedelta = timedelta(seconds=60)
    back_off: timedelta = timedelta(minutes=2)
    late_after: timedelta = timedelta(seconds=60)
    give_up_after: timedelta | None = None


DEFAULT_PACE = Pace()


# --- what becomes of it -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Move:
    """A move of the table. `at` is the instant that counts: PROVIDE's is `provided_at`, EMPTIED's is `freed_at`, that
    of an event that leads into ENDING is `left_at`. When it was noticed is the caller's now."""

    event: Event
    at: datetime
    why: str = ""


@dataclass(frozen=True, slots=True)
class Raise:
    """A condition begins, or its reason changes."""

    condition: Condition
    since: datetime
    why: str = ""


@dataclass(frozen=True, slots=True)
class Clear:
    """A condition is over."""

    condition: Condition
    at: datetime


@dataclass(frozen=True, slots=True)
class Lose:
    """A unit is lost from `outage.since` on; when the outage is over already, `until` says so. For metering."""

    outage: Outage


@dataclass(frozen=True, slots=True)
class Regain:
    """A unit that was lost since `since` is back from `at` on."""

    unit: int
    since: datetime
    at: datetime


Change = Move | Raise | Clear | Lose | Regain


@dataclass(frozen=True, slots=True)
class Step:
    """What to ask of the cluster now (None: nothing), and when to look again (None: never, or when somebody acts)."""

    call: Literal["ensure", "observe", "release"] | None
    next_at: datetime | None


def tick(view: BookingView, now: datetime, pace: Pace = DEFAULT_PACE) -> tuple[Change, ...]:
    """What time alone brings, with no word from the cluster: the beginning, lateness, and the end of an active booking.

    Call it before a verb too, so that a release one second after the end finds the booking ended.
    """
    changes: list[Change] = []
    state = view.state
    if state is S.BOOKED and now >= view.window.start - pace.ahead:
        changes.append(Move(E.BEGIN, now))
        state = S.STARTING
    if state is S.STARTING and now >= view.window.start + pace.late_after and Condition.LATE not in view.conditions:
        why = (view.seen.why if view.seen else "") or "The cluster has not said yet that the units are in place."
        changes.append(Raise(Condition.LATE, view.window.start, why))
    if state is S.STARTING and now >= view.window.end and view.failures and not view.ensured:
        # It never took anything and says nothing now that the window is over. Where it did take the order, only its own
        # word counts: a reservation made ahead may have begun by itself.
        changes += leaving(follow(view, changes), E.GIVE_UP, view.window.end, "The cluster did not answer in time.")
        return tuple(changes)
    if state is S.ACTIVE and now >= view.window.end:
        changes += leaving(view, E.END, view.window.end)
    return tuple(changes)


def next_step(view: BookingView, now: datetime, pace: Pace = DEFAULT_PACE) -> Step:
    """The call to make now and when to look again. Apply `tick` first: this takes the state as it stands."""
    window = view.window
    match view.state:
        case S.BOOKED:
            begins = max(window.start - pace.ahead, now)
            if not view.asked:
                return Step(None, begins)
            if view.ensured < view.wanted:  # made ahead (a reservation at confirmation), or edited since
                return Step("ensure", _again(view, now, pace, pace.soon, begins))
            read_back = view.seen is not None and view.seen.state not in ("absent", "preparing")
            return Step(None, begins) if read_back else Step("observe", _again(view, now, pace, pace.soon, begins))
        case S.STARTING:
            settled = view.ensured >= view.wanted and view.seen is not None and view.seen.state == "ready"
            # Asking again is how a lost answer is mended. Once the window is over only the evidence is wanted.
            call = "observe" if settled or now >= window.end else "ensure"
            if settled and now < window.start:  # all is in place: nothing to see before it begins
                return Step(call, window.start)
            return Step(call, _again(view, now, pace, pace.soon, window.start))
        case S.ACTIVE:
            sound = view.ensured >= view.wanted and view.seen is not None and view.seen.state == "ready"
            away = view.ensured < view.wanted or view.seen is None or view.seen.state in ("absent", "gone")
            again = _again(view, now, pace, pace.soon if away else pace.every, window.end)
            return Step("observe" if sound else "ensure", again)
        case S.ENDING:
            if view.kept_until is not None and now < view.kept_until and view.left_by is E.END:
                return Step("observe", _again(view, now, pace, pace.soon, view.kept_until))
            return Step("release", _again(view, now, pace, pace.soon))
        case _:  # final, or waiting for people: their requests have due rows of their own
            return Step(None, None)


def _again(view: BookingView, now: datetime, pace: Pace, pause: timedelta, edge: datetime | None = None) -> datetime:
    """`pause` from now, doubled for each failure up to the back-off, and never past an edge that lies ahead."""
    if view.failures:
        pause = max(pause, min(pause * 2 ** min(view.failures, 10), pace.back_off))
    return min(now + pause, edge) if edge is not None and edge > now else now + pause


def follow(view: BookingView, changes: Iterable[Change]) -> BookingView:
    """The view after changes. What the database will say when they are written; raises IllegalMove like `move`."""
    for change in changes:
        match change:
            case Move(event, at):
                view = replace(view, state=move(view.state, event))
                if event is E.BEGIN:
                    view = replace(view, asked=True)
                elif event is E.PROVIDE:
                    view = replace(view, provided_at=at)
                elif event is E.EMPTIED:
                    view = replace(view, freed_at=at)
                elif event in OUTCOMES:
                    view = replace(view, left_by=event, left_at=at)
            case Raise(condition, since, why):
                view = replace(view, conditions={**view.conditions, condition: Standing(since, why)})
            case Clear(condition, _):
                view = replace(view, conditions={k: v for k, v in view.conditions.items() if k is not condition})
            case Lose(outage):
                view = replace(view, outages=(*view.outages, outage))
            case Regain(unit, since, at):
                view = replace(
                    view,
                    outages=tuple(
                        replace(o, until=at) if (o.unit, o.since, o.until) == (unit, since, None) else o
                        for o in view.outages
                    ),
                )
    return view


def leave(view: BookingView, event: Event, now: datetime, why: str = "") -> tuple[Change, ...]:
    """What a verb changes that ends a booking: release, withdraw, no_show, fail, or cancel (then nothing is left over).

    Ask `cancel_event` which of cancel and withdraw it is. Raises IllegalMove when it comes too late.
    """
    move(view.state, event)
    return tuple(leaving(view, event, min(now, view.window.end), why))


def cancel_event(view: BookingView) -> Event:
    """CANCEL where nothing was ever asked of the cluster, else WITHDRAW."""
    return E.WITHDRAW if view.asked or view.state in MAY_OWN else E.CANCEL


def reserved(view: BookingView, now: datetime) -> Window | None:
    """The time for which units count as reserved so far, and are charged: from when they were provided to when they
    were given up, at the latest the end of the window. None when that is nothing."""
    if view.provided_at is None:
        return None
    until = min(view.left_at or now, view.window.end)
    return Window(view.provided_at, until) if view.provided_at < until else None


def leaving(view: BookingView, event: Event, at: datetime, why: str = "") -> list[Change]:
    """The move, and what cannot be the matter any more. Outages that last end with it."""
    changes: list[Change] = [Regain(o.unit, o.since, max(o.since, at)) for o in view.outages if o.until is None]
    changes += [Clear(condition, at) for condition in sorted(view.conditions)]
    return [*changes, Move(event, at, why)]


# --- the picture of it ------------------------------------------------------------------------------------------------


def diagram() -> str:
    """The text of docs/booking-states.md: the table as a Mermaid diagram, and what each event means."""
    lines = [f"    {state or '[*]'} --> {to}: {event}" for (state, event), to in MOVES.items()]
    lines += [f"    {state} --> [*]" for state in State if state in FINAL]
    outcomes = [f"| {event} | {outcome} |" for event, outcome in OUTCOMES.items()]
    return "\n".join(
        [
            "# The states of a booking",
            "",
            "Generated from `MOVES`: `python -m app.bookings.lifecycle > docs/booking-states.md`. Do not edit.",
            "",
            "```mermaid",
            "stateDiagram-v2",
            *lines,
            "```",
            "",
            "| event | means |",
            "|---|---|",
            *(f"| {event} | {means} |" for event, means in EVENTS.items()),
            "",
            "Every road on which something may stand on a cluster leads through ENDING.",
            "The event that leads there decides the outcome:",
            "",
            "| event | outcome of ENDED |",
            "|---|---|",
            *outcomes,
            "",
        ]
    )


if __name__ == "__main__":
    print(diagram(), end="")

"""PUBLIC. What Berth asks of a cluster, and the frozen values in which it asks and is answered. Kernel only.

A backend is one class behind the entry point group `berth.backends`, called as `Class(config, clock, secrets)`: a
frozen mapping, the product clock, and a function from the name of a secret to its value. It gets nothing of the portal:
no session, no settings, no queue. `app.backends.testing.BackendContract` tests everything that is promised here.

Rules of every verb
-------------------
- **Idempotent.** Asking twice is asking once. The object on the cluster is named from the allocation's id
  (`Ref.of`), so a call whose answer was lost is simply made again. Releasing what is gone is success.
- **Within its limit.** A verb answers or raises `timeout` within `limit_seconds` of the wall clock. It never waits for
  a cluster to finish something: "not yet" is an answer (`preparing`, `ending`).
- **Closed errors.** The only exception is `BackendError`, with a kind from `ERROR_KINDS`, a sentence for people and the
  raw words for operators. After any error nothing is known about whether the act was done; `observe` tells.
- **Unknown is said.** A value that could not be read is None or `unknown`, never zero, never "free".
- **Foreign objects are read-only.** Only objects whose name `Ref.parse` understands are ever changed.
- **Times** are aware, in UTC, whole seconds, and the cluster's own wherever it has them; `observed_at` is when Berth
  looked, by the product clock.
- Safe to call from several threads and processes at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable
from uuid import UUID

from app.kernel.clock import Clock
from app.kernel.ids import short, unshort
from app.kernel.window import Window

# --- errors -----------------------------------------------------------------------------------------------------------

ErrorKind = Literal[
    "authentication",  # Berth's own credential is missing, expired or refused
    "permission",  # the credential is known and may not do this
    "not_found",  # something the order names (a node, a partition, an account) is not there
    "conflict",  # units of the order are held by another object for part of the window
    "busy",  # the object cannot be changed right now; later it can
    "invalid",  # the cluster refuses the order as it is written
    "quota",  # a limit of the cluster, not of Berth
    "capacity",  # the cluster has no room for it now
    "timeout",  # no answer within the limit: done or not done, nobody knows
    "unreachable",  # no connection, or it broke: done or not done, nobody knows
    "unsupported",  # this cluster cannot do that at all
    "unknown",  # anything else: raw has the words
]
ERROR_KINDS: tuple[str, ...] = (
    "authentication",
    "permission",
    "not_found",
    "conflict",
    "busy",
    "invalid",
    "quota",
    "capacity",
    "timeout",
    "unreachable",
    "unsupported",
    "unknown",
)
TRANSIENT_KINDS = frozenset({"busy", "timeout", "unreachable", "unknown"})


class BackendError(Exception):
    """The only exception of a backend: a kind of the closed list, a sentence for people, raw detail for operators."""

    def __init__(self, kind: ErrorKind, sentence: str, raw: str = "") -> None:
        if kind not in ERROR_KINDS:
            raise ValueError(f"{kind!r} is not a kind of backend error")
        super().__init__(kind, sentence, raw)
        self.kind: ErrorKind = kind
        self.sentence = sentence
        self.raw = raw

    def __str__(self) -> str:
        return f"{self.kind}: {self.sentence}"

    @property
    def transient(self) -> bool:
        """Worth asking again without changing anything."""
        return self.kind in TRANSIENT_KINDS

    @property
    def counts_against_cluster(self) -> bool:
        """The cluster as a whole did not answer: what a circuit breaker counts."""
        return self.kind in ("timeout", "unreachable", "authentication")


# --- what is asked ----------------------------------------------------------------------------------------------------

_NAME = re.compile(r"berth-([a-z0-9]{1,12})-([0-9a-hjkmnp-tv-z]{26})-g([1-9][0-9]{0,5})")


@dataclass(frozen=True, slots=True, order=True)
class Ref:
    """The name of one object of Berth on a cluster: `berth-<installation>-<allocation, base32>-g<generation>`.

    At most 53 characters of `[a-z0-9-]`, so it serves as namespace, label, reservation and priority class.
    """

    name: str

    @classmethod
    def of(cls, installation: str, allocation: UUID, generation: int = 1) -> Ref:
        """The ref of an allocation. `installation` is 1 to 12 characters of `[a-z0-9]`."""
        ref = cls(f"berth-{installation}-{short(allocation)}-g{generation}")
        if cls.parse(ref.name) is None:
            raise ValueError(f"{ref.name!r} is not a name that every cluster takes")
        return ref

    @classmethod
    def parse(cls, name: str) -> Ref | None:
        """The ref behind a name found on a cluster, or None for a foreign object."""
        return cls(name) if _NAME.fullmatch(name) else None

    @property
    def installation(self) -> str | None:
        """Which installation of Berth made it; None when the name is not one of ours."""
        match = _NAME.fullmatch(self.name)
        return match[1] if match else None

    @property
    def allocation(self) -> UUID | None:
        """The allocation's id, or None when the name is not one of ours."""
        match = _NAME.fullmatch(self.name)
        return unshort(match[2]) if match else None

    @property
    def generation(self) -> int | None:
        """1 for the first object of the allocation, more after a change that the cluster cannot make in place."""
        match = _NAME.fullmatch(self.name)
        return int(match[3]) if match else None

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, order=True)
class Slice:
    """A part of one GPU: index of the GPU on its node, first memory slice and how many (MIG placement)."""

    gpu: int
    start: int
    size: int


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Units on one node: the indices of whole GPUs as the node numbers them, and slices of others."""

    node: str
    gpus: tuple[int, ...]
    slices: tuple[Slice, ...] = ()


WorkloadKind = Literal["training", "notebook", "inference", "shell", "job", "idle"]


@dataclass(frozen=True, slots=True)
class Workload:
    """Something to run in a booking. `id` is the caller's and names it for good: launching the same id twice is once.

    `gpus` is how many units it takes, None for all of the booking's. `seconds` is how long it is expected to run, None
    for "until it is stopped". `kind` `idle` holds the units and computes nothing.
    """

    id: str
    kind: WorkloadKind
    user: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    gpus: int | None = None
    seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """One booking to bring about, whole: `ensure` makes the cluster equal to this, whatever it was before.

    `project` is Berth's name of the project, `account` its name on the cluster (Slurm account, namespace). `people` are
    cluster user names. `workload` is started by the cluster when the window starts. `settings` are the pool's words for
    this backend; a backend ignores keys that it does not know.
    """

    ref: Ref
    project: str
    account: str
    places: tuple[Place, ...]
    window: Window
    people: tuple[str, ...] = ()
    workload: Workload | None = None
    settings: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def units(self) -> int:
        """Whole GPUs ordered (slices not counted)."""
        return sum(len(p.gpus) for p in self.places)


# --- what is answered -------------------------------------------------------------------------------------------------

State = Literal["absent", "preparing", "ready", "degraded", "blocked", "ending", "gone"]
STATES: tuple[str, ...] = ("absent", "preparing", "ready", "degraded", "blocked", "ending", "gone")


@dataclass(frozen=True, slots=True, order=True)
class LostUnits:
    """Units of the order that were not there for `[since, until)`; `until` None while it lasts. `why` is a sentence."""

    node: str
    gpus: tuple[int, ...]
    since: datetime
    until: datetime | None
    why: str


@dataclass(frozen=True, slots=True)
class Observation:
    """What the cluster has under a ref.

    `state`:
      absent     nothing under this name, and nothing was ever seen of it
      preparing  ordered, not in place yet; `why` says what it waits for
      ready      access and all units in place, held for the window (which may not have begun)
      degraded   in place, but some units are lost now: see `lost`
      blocked    ordered, and cannot be in place as things are (a node down, somebody still on it): see `why`
      ending     being taken down, or its window is over and it was not released yet; something may still run
      gone       no object any more and, if `empty_since` is set, every unit was seen empty

    `since`: when this state began, by the cluster's clock.
    `in_place_since`: from which instant access and all units were provided; before the window's start when it was made
        ahead and still so at the start. None while it never was. Once the window has begun with everything in place,
        losses do not move it: they are in `lost`.
    `empty_since`: since when all units are seen to have nothing of this booking on them. None when not seen: a node
        that does not answer is never empty. Set in `gone`, and in `ending` once nothing runs any more.
    `window`, `places`: as the cluster holds them now, None or () when it does not say.
    `leaving`: units that an earlier order had and this one has not, on which something of it may still run, or which
        cannot be seen (their node does not answer). What is in neither `places` nor `leaving` was seen empty.
    `lost`: every loss inside the window so far, ended ones too, in order of time; none overlap on a unit.
    `why`: a sentence for people, '' when there is nothing to say. `raw`: the cluster's own words, for operators.
    """

    ref: Ref
    state: State
    observed_at: datetime
    since: datetime | None = None
    in_place_since: datetime | None = None
    empty_since: datetime | None = None
    lost: tuple[LostUnits, ...] = ()
    window: Window | None = None
    places: tuple[Place, ...] = ()
    why: str = ""
    raw: str = ""
    leaving: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class UnhealthyUnit:
    """One GPU that must not be given out: its index on the node, why (a sentence with the XID or the like), since."""

    gpu: int
    why: str
    since: datetime | None


@dataclass(frozen=True, slots=True)
class ExternalUse:
    """Units taken by something Berth did not make. `until` is when its own limit ends it, None when it has none.

    `who` is the cluster user whose it is, '' when the cluster does not say. Use by one of an order's people does not
    stand in the way of that order: it goes on inside the booking. `cpu_milli` and `memory_mib` are what it has been given
    of the node, with its units or without any; 0 where the cluster does not say.
    """

    gpus: tuple[int, ...]
    until: datetime | None
    what: str
    who: str = ""
    cpu_milli: int = 0
    memory_mib: int = 0


NodeState = Literal["ready", "drained", "down", "unknown"]


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One node as the cluster tells it. Only `ready` nodes are capacity, less `unhealthy` and `external` units.

    `kind` is the model in the cluster's words ("NVIDIA-H100-80GB-HBM3"); `gpus` the number of whole GPUs installed.
    `power_watts` is one GPU's TDP, `gpu_memory_mib` one GPU's memory. Unknown facts are None.
    """

    name: str
    kind: str
    gpus: int
    observed_at: datetime
    state: NodeState = "ready"
    why: str = ""
    unhealthy: tuple[UnhealthyUnit, ...] = ()
    external: tuple[ExternalUse, ...] = ()
    rack: str | None = None
    leaf: str | None = None
    nvlink: str | None = None
    power_watts: int | None = None
    gpu_memory_mib: int | None = None
    cpu_milli: int | None = None
    memory_mib: int | None = None
    uuids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Inventory:
    """All nodes, sorted by name. `source` says from where ("slurmrestd 0.0.43", "simulated")."""

    nodes: tuple[NodeFacts, ...]
    observed_at: datetime
    source: str


class Sample(NamedTuple):
    """One GPU over `[at, at + seconds)`: means over that stretch. A tuple because there are many.

    `utilisation` is a share from 0 to 1, `memory_gb` in 10^9 bytes, `power_w` in watts, `temperature_c` in Celsius.
    `in_use`: a workload of the booking held the GPU during all of the stretch (True) or none of it (False). None
    anywhere means that it is not known; nothing is ever filled in.
    """

    node: str
    gpu: int
    at: datetime
    seconds: int
    utilisation: float | None
    memory_gb: float | None
    power_w: float | None
    temperature_c: float | None
    in_use: bool | None


@dataclass(frozen=True, slots=True)
class WorkloadSeen:
    """One workload as the cluster knows it. `ended` None while it runs; `why` is a sentence when it did not finish."""

    id: str
    kind: str
    state: Literal["waiting", "running", "finished", "failed", "stopped"]
    started: datetime | None
    ended: datetime | None
    why: str = ""
    user: str = ""
    gpus: int | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Samples in order of node, GPU and time, not overlapping, cut to the stretch asked for and to the booking's time
    in place. They are complete up to `until`: ask again with `since=until`. Missing measurements inside are samples
    with None. `workloads` are all that ran in `[since, until)`."""

    samples: tuple[Sample, ...]
    workloads: tuple[WorkloadSeen, ...]
    until: datetime


@dataclass(frozen=True, slots=True)
class AccessWay:
    """One way in: a title ("Shell"), the commands to type, an address to open, a note. Never a long-lived secret."""

    title: str
    commands: tuple[str, ...] = ()
    url: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Access:
    """How one person gets in. `credential` is short-lived and ends at `expires_at`; both None when none is needed."""

    user: str
    ways: tuple[AccessWay, ...]
    credential: str | None = field(default=None, repr=False)
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What this cluster can do. Shown to people as it is, never hidden.

    `enforcement`: hard = others are kept out; soft = the project is kept within its booking; none.
    `reservations`: by which means units are held. `in_place`: which changes of an ensured order need no new generation.
    """

    partial_nodes: bool
    mig: bool
    reservations: Literal["native", "rest", "cli", "none"]
    enforcement: Literal["hard", "soft", "none"]
    accounting: bool
    metrics: bool
    launch: bool = False
    topology: bool = False
    gang: bool = False
    queueing: str = ""
    in_place: frozenset[Literal["end", "start", "places", "people"]] = frozenset({"end"})


@dataclass(frozen=True, slots=True)
class ProbeStep:
    """One thing looked at: a name, whether it is well, and a sentence."""

    name: str
    ok: bool
    sentence: str


@dataclass(frozen=True, slots=True)
class Probe:
    """Whether Berth can work here. `missing` is every lacking right or setting, one sentence each; `ok` is False when
    any of them stops bookings. `identity` is who Berth is there."""

    ok: bool
    version: str
    steps: tuple[ProbeStep, ...]
    capabilities: Capabilities | None
    missing: tuple[str, ...] = ()
    identity: str = ""


@dataclass(frozen=True, slots=True)
class Stray:
    """One object of Berth's naming that the cluster still has. `ref.installation` tells whose it is."""

    ref: Ref
    since: datetime | None = None
    account: str = ""
    window: Window | None = None


# --- the verbs --------------------------------------------------------------------------------------------------------


@runtime_checkable
class Backend(Protocol):
    """One cluster. The rules above hold for every verb; here is what is particular to each."""

    limit_seconds: float
    """Wall seconds within which every verb answers or raises `timeout`."""

    def probe(self) -> Probe:
        """Is it reachable, who am I, what can you do. Changes nothing. What is wrong with the cluster is told in the
        answer (`ok=False`) rather than raised."""
        ...

    def inventory(self) -> Inventory:
        """Nodes, units, health, topology, foreign use. Changes nothing. Never an empty answer for "could not read"."""
        ...

    def ensure(self, order: Order) -> Observation:
        """Bring this booking about: access for the project, units held on these nodes for this window.

        Made ahead, it holds the units from `window.start`; made late, from now. The same order again does nothing. The
        same ref with another window, places or people changes the object, if `Capabilities.in_place` says so, else
        `unsupported`. `conflict` when something else holds one of the units in the window, `not_found` for a node or
        unit that is not there, `invalid` for an order without units or whose window is over: in all of these nothing
        has changed. A node that is down is no error but an observation: `blocked` as long as the booking has not
        begun. A ref that was released is not made again: `conflict`. What was lost behind Berth's back is brought back
        if the cluster can.
        """
        ...

    def observe(self, ref: Ref) -> Observation:
        """What is there now. Changes nothing; an unknown ref is `absent`, not an error."""
        ...

    def release(self, ref: Ref) -> Observation:
        """Warn what runs, stop it, remove access and hold. `ending` while something may still run, `gone` when no
        object is left. A ref that never was or is no more: `gone`."""
        ...

    def launch(self, ref: Ref, workload: Workload) -> WorkloadSeen:
        """Start a workload in the booking, at once or as soon as the window starts. The same id again answers with what
        became of it. `not_found` for a ref that is not held, `busy` when it is not in place, `capacity` when its units
        are taken by other workloads of the booking, `unsupported` where Berth cannot act as the user."""
        ...

    def stop(self, ref: Ref, workload_id: str) -> WorkloadSeen:
        """Stop a workload; one that has ended stays as it is. `not_found` for an id that was never launched."""
        ...

    def access(self, ref: Ref, user: str) -> Access:
        """How this person gets in: commands, addresses, at most a short-lived credential. `permission` for a user who
        is not among the order's people, `not_found` for a ref that is not held, `busy` when it is not in place."""
        ...

    def usage(self, ref: Ref, since: datetime, until: datetime, step: int) -> Usage:
        """Samples of the booking's units in `[since, until)`, one a `step` seconds (60 to 900, else `invalid`) on the
        grid of UTC and cut where a workload starts or ends. A ref that was never held has none. Works after the release
        too, for as long as the cluster keeps its records."""
        ...

    def strays(self) -> tuple[Stray, ...]:
        """Every object with a name of Berth's form that is not gone, of whichever installation, sorted by name. Which
        of them no live booking owns is the caller's to know. Changes nothing."""
        ...


Secrets = Callable[[str], str]
"""From the name of a secret to its value; raises KeyError when there is none of that name."""


class BackendFactory(Protocol):
    """What an entry point of `berth.backends` names: usually the class itself."""

    def __call__(self, config: Mapping[str, Any], clock: Clock, secrets: Secrets) -> Backend:
        """A backend over this configuration; `invalid` (BackendError) with a sentence when the configuration is wrong.
        Connects to nothing yet."""
        ...

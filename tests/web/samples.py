"""Every view filled with believable values from one world (Mon 30 Nov 2026, 13:42 in Zurich), and people's frames.

Used by the render tests and by the screenshot tool; nothing of the product imports it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal as D
from fractions import Fraction as F

from app.web import views as v

ZONE = "Europe/Zurich"
NOW = datetime(2026, 11, 30, 12, 42, tzinfo=UTC)
H = timedelta(hours=1)


def local(day: int, hour: int, minute: int = 0, month: int = 11) -> datetime:
    """A winter instant given in Zurich's time."""
    return datetime(2026, month, day, hour, minute, tzinfo=UTC) - H


def chf(text: str) -> v.Money:
    return v.Money(D(text), "CHF")


def frame(role: str = "member", current: str = "/", **changes: object) -> v.Frame:
    """The frame of Robin (member), Mara (lead), Nina (finance) or Timo (operator)."""
    people = {
        "member": v.Person("Robin K.", "Member"),
        "lead": v.Person("Mara S.", "Lead"),
        "finance": v.Person("Nina F.", "Finance"),
        "operator": v.Person("Timo H.", "Operator"),
    }
    main = (
        ("Home", "/", "home"),
        ("Book", "/book", "calendar-plus"),
        ("Timeline", "/timeline", "timeline-event"),
        ("Bookings", "/bookings", "layout-list"),
    )
    groups = {
        "member": ((None, main), ("Team", (("Project", "/projects/plasma", "users"), ("Audit", "/audit", "history")))),
        "lead": ((None, main), ("Team", (("Project", "/projects/plasma", "users"), ("Audit", "/audit", "history")))),
        "finance": (
            (
                "Money",
                (
                    ("Month", "/finance", "report-money"),
                    ("Statements", "/statements", "file-text"),
                    ("Price books", "/finance/prices", "book"),
                ),
            ),
            ("Check", (("Audit", "/audit", "history"),)),
        ),
        "operator": (
            (None, (main[0], *main[2:])),
            (
                "Operate",
                (("Clusters", "/operator/clusters", "server-2"), ("Inventory", "/operator/inventory", "list-details")),
            ),
            ("Check", (("Audit", "/audit", "history"),)),
        ),
    }
    scopes = (
        v.Scope("pj_plasma", "Plasma surrogates", "Institute of Physics", current=role in ("member", "lead")),
        v.Scope("pj_lattice", "Lattice QCD", "Institute of Physics"),
        v.Scope("platform", "All tenants", "Platform", current=role in ("finance", "operator")),
    )
    nav = tuple(
        v.NavGroup(
            label,
            tuple(
                v.Link(text, href, href == current, icon, 1 if text == "Clusters" else None)
                for text, href, icon in items
            ),
        )
        for label, items in groups[role]
    )
    values = {
        "now": NOW,
        "zone": ZONE,
        "csrf_token": "csrf-of-the-sample",
        "person": people[role],
        "scopes": scopes,
        "nav": nav,
        "notices": 3,
    }
    return v.Frame(**(values | changes))  # type: ignore[arg-type]


BARE = v.Frame(NOW, ZONE, "csrf-of-the-sample", book_href=None)


def shape(units: int, kind: str = "H100-SXM-80GB", nodes: int | None = None) -> v.Shape:
    return v.Shape(units, kind, nodes, units // nodes if nodes else None)


METERS = (
    v.Meter(
        "Budget, Oct–Dec",
        "money",
        D("21997.37"),
        D("7364.60"),
        limit=D("36000"),
        forecast=D("33779.18"),
        forecast_on=date(2026, 12, 31),
        sentence="CHF 374.86 a day this month. At this pace CHF 2,220.82 of CHF 36,000.00 is left on 31 Dec.",
    ),
    v.Meter("GPU-hours, December", "hours", 0, 3632 * 3600, limit=6000 * 3600),
    v.Meter("GPU-hours, November", "hours", 5178 * 3600, 252 * 3600, limit=6000 * 3600),
    v.Meter("H100 at the same time", "units", 24, limit=96),
    v.Meter("H200 at the same time", "units", 4, limit=16),
)
IDLE = v.Condition("idle", "Idle 1 h 48 min", "below 2 % on all units, samples present")


def release(number: str = "B-2425") -> v.Action:
    return v.Action(
        "Release, get CHF 65.72 back", f"/bookings/{number}/release", (("idempotency_key", "k1"),), "primary"
    )


def steps(counts: list[int], start: datetime = NOW, each: timedelta = H) -> tuple[v.FreeStep, ...]:
    return tuple(v.FreeStep(start + i * each, start + (i + 1) * each, n) for i, n in enumerate(counts))


def home() -> v.HomePage:
    now = (
        v.BookingCard(
            "B-2417",
            "Tokamak surrogate, run 7",
            "/bookings/B-2417",
            "ACTIVE",
            shape(16, nodes=2),
            "alps",
            local(30, 8),
            local(1, 8, month=12),
            chf("806.40"),
            chf("218.88"),
            ("alps-0501", "alps-0502"),
            used=F(93, 100),
            links=(
                v.Link("Connect", "/bookings/B-2417#acc-h", icon="terminal-2"),
                v.Link("Extend", "/bookings/B-2417#verb-extend"),
            ),
        ),
        v.BookingCard(
            "B-2425",
            "Diagnostics notebook",
            "/bookings/B-2425",
            "ACTIVE",
            shape(4, "H200-SXM-141GB"),
            "delta",
            local(30, 9),
            local(30, 19),
            chf("124.00"),
            chf("58.28"),
            ("delta-h07",),
            used=F(31, 100),
            conditions=(IDLE,),
            links=(v.Link("Open", "/bookings/B-2425"), v.Link("Release", "/bookings/B-2425#verb-release")),
        ),
    )
    coming = (
        v.BookingCard(
            "B-2431",
            "Ablation sweep",
            "/bookings/B-2431",
            "BOOKED",
            shape(8, "H200-SXM-141GB", 1),
            "delta",
            local(1, 9, month=12),
            local(1, 15, month=12),
            chf("148.80"),
            node_names=("delta-h11",),
            planned=True,
            links=(v.Link("Cancel", "/bookings/B-2431#verb-cancel"),),
        ),
        v.BookingCard(
            "B-2440",
            "Full-scale training, run 8",
            "/bookings/B-2440",
            "REQUESTED",
            shape(64, nodes=8),
            "alps",
            local(4, 18, month=12),
            local(6, 18, month=12),
            chf("5606.40"),
            sentence="A lead must approve it. The units are kept for you until Wed 2 Dec, 12:00.",
            links=(v.Link("Cancel", "/bookings/B-2440#verb-cancel"),),
        ),
    )
    free = (
        v.KindFree(
            "H100-SXM-80GB",
            "alps",
            512,
            24,
            104,
            chf("2.40"),
            "/book?kind=h100-sxm-80gb",
            "largest 1 × 8",
            "2 × 8 below one leaf from 17:30",
            steps([24] * 11 + [64, 80, 100, 140, 160, 90, 70, 120] + [200] * 17),
        ),
        v.KindFree(
            "H200-SXM-141GB",
            "delta",
            192,
            28,
            16,
            chf("3.10"),
            "/book?kind=h200-sxm-141gb",
            "largest 3 × 8",
            "3 × 8 now",
            steps([28] * 6 + [60, 80, 90, 40, 16] + [30] * 25),
        ),
        v.KindFree(
            "MI300X-192GB",
            "delta",
            64,
            32,
            32,
            chf("2.20"),
            "/book?kind=mi300x-192gb",
            "largest 4 × 8",
            "4 × 8 now",
            steps([32] * 10 + [0] * 3 + [64] * 23),
        ),
    )
    note = v.Note(
        "warn",
        "“Diagnostics notebook” has been idle since 11:54",
        "All 4 H200 units have been below 2 % for 1 h 48 min. It runs until 19:00. Release it now and CHF 65.72 "
        "of CHF 124.00 goes back to Plasma surrogates; anything unsaved in the notebook's memory is lost.",
        (release(), v.Action("Keep until 19:00", "/bookings/B-2425/keep")),
        icon="zzz",
    )
    return v.HomePage(
        "2 bookings are active, 1 is booked for tomorrow, 1 waits for approval.",
        (note,),
        now,
        coming,
        free,
        local(1, 9, month=12),
        (v.ProjectLimits("Plasma surrogates", "/projects/plasma", METERS),),
        (
            v.Notice(
                "Rack 3 of alps, Thu 3 Dec, 06:00–12:00", "Switch firmware. None of your bookings is affected.", "tool"
            ),
            v.Notice(
                "One unit of alps-0506 is faulty",
                "XID 79 since Sat 28 Nov. It is not offered. You were not on it.",
                "alert-triangle",
            ),
            v.Notice(
                "New prices from 1 Jan 2027", "H100 goes from CHF 2.40 to CHF 2.30 per unit-hour.", "coins", "/prices"
            ),
        ),
    )


def form(**changes: object) -> v.BookForm:
    whole = v.BookForm(
        (
            v.Option("plasma", "Plasma surrogates · Institute of Physics", True),
            v.Option("lattice", "Lattice QCD · Institute of Physics"),
        ),
        (
            v.KindChoice("h100-sxm-80gb", "H100-SXM-80GB", chf("2.40"), "24 free now on alps", True),
            v.KindChoice("h200-sxm-141gb", "H200-SXM-141GB", chf("3.10"), "28 free now on delta"),
            v.KindChoice("mi300x-192gb", "MI300X-192GB", chf("2.20"), "32 free now on delta, needs ROCm"),
            v.KindChoice("any", "Any kind", None, "the cheapest that fits"),
        ),
        (v.Option("", "Any that fits", True), v.Option("alps", "alps"), v.Option("delta", "delta")),
        "key-1",
        "Surrogate fine-tune, warm start",
        "nodes",
        "2",
        "8",
        "16",
        "leaf",
        "asap",
        "",
        "6",
        "4410-02",
        "grant 12",
        within_hint="All nodes below one leaf switch. On alps a leaf is 4 nodes; an NVLink domain is one node.",
        workloads=(
            v.Option("", "Nothing, I will connect with ssh and sbatch", True),
            v.Option("train", "A training run"),
        ),
    )
    return replace(whole, **changes)  # type: ignore[arg-type]


def quote() -> v.QuoteView:
    return v.QuoteView(
        local(30, 17, 30),
        local(30, 23, 30),
        shape(16, nodes=2),
        "alps",
        "rack 7, leaf 7a",
        ("alps-0701", "alps-0702"),
        True,
        "Hard: a reservation keeps others out",
        (v.PricePart("H100-SXM-80GB", 16, 6 * H, D("2.40"), D("230.40")),),
        chf("230.40"),
        "Plasma surrogates",
        (
            v.Meter("Budget", "money", D("21997.37"), D("7364.60"), D("230.40"), D("36000")),
            v.Meter("GPU-hours, November", "hours", 5178 * 3600, 252 * 3600, 96 * 3600, 6000 * 3600),
            v.Meter("H100 at the same time", "units", 24, 0, 16, 96),
        ),
        (
            "No approval needed.",
            "Free to cancel until 17:30.",
            "Unused for 30 min after the start: released, the time until then is charged.",
        ),
        "q1:7f3a",
        D("84"),
        curl=(
            "curl -X POST https://berth.example/api/v1/bookings \\\n  -H 'Authorization: Bearer "
            '$BERTH_TOKEN\' \\\n  -d \'{"project": "plasma", "kind": "h100-sxm-80gb", "nodes": 2}\''
        ),
        cli="berth book --project plasma --kind h100-sxm-80gb --nodes 2 --per-node 8 --within leaf --hours 6",
    )


def alternative(
    change: str, title: str, start: datetime, hours: int, price: str, approval: bool, *differs: str
) -> v.AlternativeView:
    return v.AlternativeView(
        title,
        change,
        start,
        start + hours * H,
        chf(price),
        (("project", "plasma"), ("kind", "h100-sxm-80gb"), ("units", "64"), ("idempotency_key", title)),
        differs,
        ("Project and name, as asked",),
        approval,
    )


def refused() -> v.RefusedView:
    return v.RefusedView(
        "12 nodes × 8 H100-SXM-80GB in one rack",
        local(3, 8, month=12),
        local(5, 8, month=12),
        NOW,
        (
            v.ReasonView(
                "CLOSENESS_TOO_TIGHT",
                "A rack is too small",
                "You asked for 12 nodes in one rack. A rack of alps has 8. Choose “Anywhere”, or at most 8 nodes.",
                "12 nodes",
                "8 nodes",
            ),
            v.ReasonView(
                "NO_CAPACITY",
                "No node is free for all 48 hours",
                "Rack 3 is in maintenance until 12:00 that day, and the others are booked for part of the time.",
                "12 nodes",
                "0 nodes",
            ),
            v.ReasonView(
                "QUOTA_CONCURRENT",
                "Too many H100 at the same time",
                "Together with B-2440 (64 units) it would be 160 from Fri 4 Dec, 18:00. A lead can ask for more.",
                "160 units",
                "96 units",
            ),
            v.ReasonView(
                "QUOTA_BUDGET",
                "Over the budget of Plasma surrogates",
                "CHF 4,419.97 more than is available until 31 December. Used CHF 21,997.37, held CHF 7,364.60.",
                "CHF 11,059.20",
                "CHF 6,638.03",
            ),
        ),
        (
            alternative(
                "Smaller, shorter and later, still one rack",
                "8 nodes × 8 H100 for 36 h",
                local(8, 8, month=12),
                36,
                "5529.60",
                True,
                "8 nodes instead of 12, 36 h instead of 48 h",
                "Starts 5 days later",
            ),
            alternative(
                "Same size, shorter, nodes in several racks",
                "12 nodes × 8 H100 for 24 h",
                local(6, 22, month=12),
                24,
                "5529.60",
                True,
                "Nodes in 4 racks instead of one",
                "24 h instead of 48 h",
            ),
            alternative(
                "Same time, other kind",
                "4 nodes × 8 MI300X for 12 h",
                local(3, 8, month=12),
                12,
                "844.80",
                False,
                "MI300X on delta: your code must run on ROCm",
                "32 units with 192 GB instead of 96 with 80 GB",
            ),
        ),
        (v.PricePart("H100-SXM-80GB", 96, 48 * H, D("2.40"), D("11059.20")),),
        chf("11059.20"),
    )


def book() -> v.BookPage:
    starts = tuple(
        v.StartOption(local(1, hour, month=12), local(1, hour + 6, month=12), chf("230.40"), f"/book?start={hour}", n)
        for hour, n in ((2, 4), (9, 3), (14, 1))
    )
    return v.BookPage(form(), quote(), starts, "When else 2 × 8 H100 below one leaf fit for 6 h")


def book_refused() -> v.BookPage:
    wrong = form(
        nodes="12",
        within="rack",
        when="exact",
        start="2026-12-03T08:00",
        hours="48",
        name="Edge scan, full rack",
        errors={"nodes": "A rack of alps has 8 nodes."},
    )
    return v.BookPage(wrong, refused(), refused=True)


def timeline() -> v.TimelinePage:
    start, days = local(30, 0), 7
    end = start + days * timedelta(days=1)

    def bars(seed: int) -> tuple[v.Bar, ...]:
        found, at = [], start - (seed % 7) * H
        for i in range(6):
            length = (11 + (seed * 7 + i * 13) % 29) * H
            found.append(v.Bar("busy", at, at + length, 0, 8 if (seed + i) % 4 else 4))
            at += length + (3 + (seed * 5 + i * 11) % 17) * H
        return tuple(found)

    def row(rack: int, n: int) -> v.TimelineRow:
        name = f"alps-{rack:02d}{n:02d}"
        if rack == 5 and n < 3:
            return v.TimelineRow(
                name,
                8,
                (
                    v.Bar(
                        "mine",
                        local(30, 8),
                        local(1, 8, month=12),
                        0,
                        8,
                        "Tokamak surrogate, run 7",
                        "/bookings/B-2417",
                    ),
                ),
            )
        if rack == 5 and n == 3:
            return v.TimelineRow(
                name,
                8,
                (
                    v.Bar(
                        "project",
                        local(2, 8, month=12),
                        local(3, 8, month=12),
                        0,
                        8,
                        "Hyper-parameter search",
                        "/bookings/B-2433",
                        True,
                    ),
                    v.Bar("project", local(30, 10), local(30, 22), 0, 2, "B-2425", "/bookings/B-2425"),
                ),
            )
        if rack == 5 and n == 6:
            return v.TimelineRow(
                name, 8, (*bars(3), v.Bar("faulty", start, end, 5, 1, "Faulty, XID 79")), "7 of 8", True
            )
        if rack == 6:
            return v.TimelineRow(
                name,
                8,
                (
                    *bars(n)[:2],
                    v.Bar(
                        "requested",
                        local(4, 18, month=12),
                        local(6, 18, month=12),
                        0,
                        8,
                        "Full-scale training, run 8",
                        "/bookings/B-2440",
                        True,
                    ),
                ),
            )
        if rack == 2 and n < 3:
            return v.TimelineRow(
                name, 8, (v.Bar("external", start - 2 * H, local(1, 12, month=12), 0, 8, "External: job 88213"),)
            )
        if rack == 3:
            return v.TimelineRow(
                name,
                8,
                (
                    *bars(n + 4)[:3],
                    v.Bar("maint", local(3, 6, month=12), local(3, 12, month=12), 0, 8, "Switch firmware"),
                ),
            )
        return v.TimelineRow(name, 8, bars(rack * 8 + n))

    def free(seed: int, of: int) -> tuple[v.FreeStep, ...]:
        return steps(
            [max(0, min(of, round(of * (math.sin(seed + i / 3.1) + 0.4 + i / 40)))) // 4 * 4 for i in range(28)],
            start,
            6 * H,
        )

    racks = [
        v.TimelineGroup(
            f"Rack {r}",
            64,
            free(r, 64),
            tuple(row(r, n) for n in range(1, 9)),
            "1 unit faulty" if r == 5 else f"{8 * (r % 2)} free",
            r == 5,
            open=r in (2, 3, 5, 6),
        )
        for r in range(1, 8)
    ]
    groups = (
        *racks,
        v.TimelineGroup("Rack 8", 64, free(8, 64), (), "8 free", href="/timeline?open=8"),
    )
    return v.TimelinePage(
        "24 of 512 units of alps are free now. The next time 8 whole nodes are free is 22:00 today.",
        (v.Link("alps", "/timeline?cluster=alps", True), v.Link("delta", "/timeline?cluster=delta")),
        (v.Option("h100-sxm-80gb", "H100-SXM-80GB", True),),
        (v.Option("rack", "By rack", True), v.Option("leaf", "By leaf switch")),
        (
            v.Link("Day", "/timeline?range=day"),
            v.Link("3 days", "/timeline?range=3d"),
            v.Link("Week", "/timeline?range=week", True),
            v.Link("2 weeks", "/timeline?range=2w"),
        ),
        "/timeline?from=-7",
        "/timeline",
        "/timeline?from=7",
        start,
        end,
        "alps",
        512,
        free(0, 512),
        groups,
        (("cluster", "alps"), ("range", "week")),
    )


def bookings() -> v.BookingsPage:
    def row(n: int, name: str, state: str, start: datetime, hours: int, money: str, **more: object) -> v.BookingRow:
        return v.BookingRow(
            f"B-{n}",
            name,
            f"/bookings/B-{n}",
            state,
            shape(16, nodes=2),
            "alps",
            "Plasma surrogates",
            "Robin K.",
            start,
            start + hours * H,
            chf(money),
            **more,
        )  # type: ignore[arg-type]

    rows = (
        row(2417, "Tokamak surrogate, run 7", "ACTIVE", local(30, 8), 24, "806.40"),
        row(2425, "Diagnostics notebook", "ACTIVE", local(30, 9), 10, "124.00", conditions=(IDLE,)),
        row(
            2444,
            "Edge turbulence",
            "STARTING",
            local(30, 14),
            8,
            "149.76",
            conditions=(v.Condition("late", "Late 12 min"),),
        ),
        row(
            2431,
            "Ablation sweep",
            "BOOKED",
            local(1, 9, month=12),
            6,
            "148.80",
            conditions=(v.Condition("at_risk", "At risk"),),
        ),
        row(2440, "Full-scale training, run 8", "REQUESTED", local(4, 18, month=12), 48, "5606.40"),
        row(2445, "Overnight", "WAITING", local(2, 20, month=12), 12, "300.00"),
        row(2402, "Nightly regression", "ENDING", local(30, 1), 12, "96.00"),
        row(2390, "Warm start", "ENDED", local(28, 8), 24, "806.40", outcome="released early, CHF 120.00 back"),
        row(2391, "Wrong size", "CANCELLED", local(27, 8), 4, "0.00"),
        row(2392, "Too much", "REJECTED", local(26, 8), 4, "0.00"),
        row(2393, "Nobody decided", "LAPSED", local(25, 8), 4, "0.00"),
    )
    return v.BookingsPage(
        "3 are active or being made ready, 2 are booked.",
        (
            v.Link("All", "/bookings", True, count=214),
            v.Link("Active", "/bookings?state=active", count=3),
            v.Link("Coming", "/bookings?state=coming", count=3),
            v.Link("Over", "/bookings?state=over", count=208),
        ),
        rows,
        "",
        (("state", "all"),),
        v.Pager(None, "/bookings?after=2393"),
        "/bookings.csv",
    )


def samples(units: int = 16) -> v.Samples:
    times = tuple(local(30, 8) + i * timedelta(minutes=10) for i in range(35))

    def curve(u: int, low: float, high: float, gap: bool = False) -> tuple[float | None, ...]:
        return tuple(
            None
            if gap and 12 <= i < 15
            else round(low if i < 3 or i in (16, 27) else high + ((u * 7 + i * 3) % 5 - 2) / 2, 1)
            for i in range(35)
        )

    return v.Samples(
        times,
        timedelta(minutes=10),
        tuple(
            v.UnitSeries(
                f"alps-050{1 + u // 8}",
                u % 8,
                curve(u, 4, 95, u == 2),
                curve(u, 7, 71),
                curve(u, 110, 640),
                curve(u, 38, 81 if u == 13 else 69),
            )
            for u in range(units)
        ),
        80,
        700,
        87,
    )


def booking() -> v.BookingPage:
    nodes = tuple(
        v.NodeUnits(
            f"alps-050{n}",
            tuple(
                v.UnitNow(
                    i,
                    F(90 + (i * 3 + n) % 9, 100),
                    71.0 + i / 10,
                    611 + i * 5,
                    67 + (i % 3) + (12 if n == 2 and i == 5 else 0),
                )
                if not (n == 1 and i == 7)
                else v.UnitNow(i)
                for i in range(8)
            ),
        )
        for n in (1, 2)
    )
    key = "key-2"
    return v.BookingPage(
        "B-2417",
        "Tokamak surrogate, run 7",
        "ACTIVE",
        shape(16, nodes=2),
        "alps",
        "rack 5, one leaf",
        ("alps-0501", "alps-0502"),
        False,
        "Plasma surrogates",
        "Robin K.",
        local(30, 8),
        local(1, 8, month=12),
        chf("921.60"),
        chf("218.88"),
        chf("921.60"),
        328320,
        304560,
        3600,
        chf("15.84"),
        D("79.4"),
        True,
        "",
        "4410-02",
        "grant 12",
        (),
        (),
        (
            v.AccessWay(
                "ssh and sbatch",
                "Sign in, then submit into your reservation. Jobs without --reservation wait in the ordinary queue.",
                (
                    "ssh robin@login.alps.example\nsbatch --account=plasma-ml --reservation=berth-b-2417 "
                    "--nodes=2 --gpus-per-node=8 train.sh"
                ),
            ),
        ),
        nodes,
        samples(),
        local(30, 13, 40),
        (
            v.WorkloadRow(
                "Training run", "train.sh, resumed from step 48,000", "Running", "ok", 16, local(30, 8, 24), 303480
            ),
            v.WorkloadRow("Stage data", "stage-data.sh", "Finished", None, 1, local(30, 8, 2), 1080),
        ),
        (
            v.VerbView(
                "extend",
                "Extend by",
                "/bookings/B-2417/extend",
                "Extend for CHF 230.40",
                key,
                (
                    v.Effect("Adds", chf("230.40")),
                    v.Effect("At the end", chf("1152.00")),
                    v.Effect("Possible until", local(2, 10, month=12)),
                ),
                "primary",
                "by",
                (
                    v.Option("PT1H", "1 h, until Tue 1 Dec, 09:00"),
                    v.Option("PT6H", "6 h, until Tue 1 Dec, 14:00", True),
                ),
                "/bookings/B-2417/effect?verb=extend",
            ),
            v.VerbView(
                "release",
                "Release now",
                "/bookings/B-2417/release",
                "Release all 16 units, get CHF 702.72 back",
                key,
                (
                    v.Effect("Gives back", chf("702.72")),
                    v.Effect("You pay", chf("218.88")),
                    v.Effect("Stops", "1 running workload"),
                ),
                "danger",
            ),
        ),
        v.CostView(
            (
                v.CostRow("Used", 304560, D("203.04"), "used"),
                v.CostRow("Reserved, unused", 20160, D("13.44"), "unused"),
                v.CostRow("Use not known", 3600, D("2.40"), "unknown"),
                v.CostRow("So far", 328320, D("218.88")),
                v.CostRow("Still to come", 1054080, D("702.72"), "coming"),
            ),
            chf("921.60"),
            1382400,
        ),
        (
            v.Step(
                "ok",
                "Active",
                "All 16 units were empty and handed over on time. Metering started.",
                local(30, 8),
                icon="player-play",
            ),
            v.Step("ok", "Starting", "Made on alps-0501 and alps-0502.", local(30, 7, 50), icon="loader-2"),
            v.Step(
                "none",
                "Moved by the portal",
                "Units 0–7 of alps-0505 became 0–7 of alps-0502, to keep one leaf whole. Time and price unchanged.",
                local(27, 16),
                icon="adjustments",
            ),
            v.Step("ok", "Booked by Robin K.", "Quote kept: CHF 921.60.", local(25, 10), icon="calendar-check"),
        ),
    )


def booking_booked() -> v.BookingPage:
    return replace(
        booking(),
        state="BOOKED",
        planned=True,
        start=local(1, 9, month=12),
        end=local(2, 9, month=12),
        charged=chf("0.00"),
        reserved=0,
        used=0,
        unknown=0,
        unused_cost=None,
        energy_kwh=None,
        access=(),
        units=(),
        samples=None,
        workloads=(),
        cost=None,
        conditions=(v.Condition("at_risk", "At risk", "alps-0501 is to be drained"),),
        notes=(
            v.Note(
                "warn",
                "alps-0501 is to be drained before your booking ends",
                "Berth looks for another node. Nothing for you to do yet.",
            ),
        ),
        verbs=(
            v.VerbView(
                "cancel",
                "Cancel",
                "/bookings/B-2417/cancel",
                "Cancel, nothing is charged",
                "key-3",
                (v.Effect("You pay", chf("0.00")), v.Effect("Frees", "16 units")),
                "danger",
            ),
        ),
    )


def booking_ended() -> v.BookingPage:
    return replace(
        booking(),
        state="ENDED",
        outcome="released early",
        charged=chf("219.11"),
        at_end=chf("219.11"),
        access=(),
        verbs=(),
        cost=v.CostView(
            (
                v.CostRow("Used", 304560, D("203.04"), "used"),
                v.CostRow("Reserved, unused", 24105, D("16.07"), "unused"),
            ),
            chf("219.11"),
            328665,
            True,
        ),
    )


def project() -> v.ProjectPage:
    days = tuple(date(2026, 11, d) for d in range(1, 31))
    names = ("Mara S.", "Robin K.", "Jonas W.", "Lea B.", "Noor A.", "nightly-regression")
    figures = (
        ((688.4, 59), "1649.06", F(91, 100)),
        ((1755.2, 182.8), "4065.56", F(88, 100)),
        ((1408, 136), "3231.20", F(94, 100)),
        ((428, 74.5), "1104.55", F(71, 100)),
        ((44, 170), "616.60", F(38, 100)),
        ((232, 0), "417.60", None),
    )
    rows = tuple(
        v.UsageRow(
            name, "service account" if "-" in name else "member", tuple(int(h * 3600) for h in hours), D(cost), used
        )
        for name, (hours, cost, used) in zip(names, figures, strict=True)
    )
    burn_days = tuple(date(2026, 10, 1) + timedelta(days=i) for i in range(92))
    used = tuple(D(360 * i + 40 * (i % 5)) if i < 61 else None for i in range(92))
    forecast = tuple(D("21640") + D(380) * (i - 60) if i >= 60 else None for i in range(92))
    return v.ProjectPage(
        "Plasma surrogates",
        "Institute of Physics",
        "Cost centre 4410-02 · price group academic · you are a lead",
        (
            v.Note(
                "warn",
                "1 request waits for you: Robin K. asks for 64 H100 for 48 h, CHF 5,606.40",
                (
                    "Full-scale training, run 8. The sum is already held: approving leaves CHF 6,638.03, "
                    "rejecting leaves CHF 12,244.43. It lapses on Wed 2 Dec, 12:00."
                ),
                (
                    v.Action("Approve", "/requests/1/approve", style="primary"),
                    v.Action("Reject with a reason", "/requests/1/reject"),
                ),
                icon="user-question",
            ),
        ),
        date(2026, 11, 1),
        (v.Link("Oct", "?month=2026-10"), v.Link("Nov", "?month=2026-11", True)),
        (v.Link("Member", "?by=member", True), v.Link("Kind", "?by=kind")),
        "Member",
        ("H100", "H200"),
        rows,
        (sum(r.hours[0] for r in rows), sum(r.hours[1] for r in rows)),
        chf("11084.57"),
        days,
        tuple(
            v.DailySeries(name, [((i * 7 + j * 11) % 23) * (6 - i) / 3 for j in range(30)])
            for i, name in enumerate(names)
        ),
        METERS[1:],
        (
            v.HeldBooking(
                "Full-scale training, run 8",
                "/bookings/B-2440",
                "Robin K.",
                64,
                local(4, 18, month=12),
                local(6, 18, month=12),
                D("5606.40"),
                False,
            ),
            v.HeldBooking(
                "Tokamak surrogate, run 7",
                "/bookings/B-2417",
                "Robin K.",
                16,
                local(30, 8),
                local(1, 8, month=12),
                D("587.52"),
                True,
            ),
        ),
        chf("6193.92"),
        (
            v.MemberRow("Mara S.", "mara@physics.example", "lead"),
            v.MemberRow("Robin K.", "robin@physics.example", "member"),
        ),
        (
            v.IdleBooking(
                "Diagnostics notebook",
                "/bookings/B-2425",
                IDLE,
                "Robin K. · 4 H200 on delta-h07 until 19:00",
                (release(),),
            ),
        ),
        "This month CHF 1,545.29 was reserved and not used: 14 % of the cost.",
        replace(METERS[0], sentence=""),
        v.Burn(burn_days, used, forecast, D("36000"), date(2026, 11, 30)),
        "At this month's pace of CHF 374.86 a day the budget lasts: CHF 2,220.82 is left on 31 December.",
        "/projects/plasma.csv",
    )


def projects() -> v.ProjectsPage:
    return v.ProjectsPage(
        "Institute of Physics",
        (
            v.ProjectSummary(
                "Plasma surrogates", "/projects/plasma", "lead", "4410-02", 2, 2, chf("11084.57"), 18640440
            ),
            v.ProjectSummary("Lattice QCD", "/projects/lattice", "member", "", 0, 0, chf("0.00"), 0),
        ),
    )


def clusters() -> v.ClustersPage:
    def buttons(name: str, writes: bool = True) -> tuple[v.Action, ...]:
        return (
            v.Action("Test", f"/operator/clusters/{name}/test", describe=f"Test {name}"),
            v.Action(
                "Stop writes" if writes else "Allow writes",
                f"/operator/clusters/{name}/writes",
                describe=f"{'Stop' if writes else 'Allow'} writes to {name}",
            ),
        )

    rows = (
        v.ClusterRow(
            "alps",
            "?cluster=alps",
            "Simulated, 64 nodes",
            "Connected",
            "ok",
            "hard",
            64,
            512,
            463,
            9,
            2,
            NOW - timedelta(seconds=12),
            True,
            buttons("alps"),
        ),
        v.ClusterRow(
            "delta",
            "?cluster=delta",
            "Kubernetes 1.35.2 · Kueue 0.19",
            "1 right missing",
            "warn",
            "soft",
            32,
            256,
            188,
            8,
            1,
            NOW - timedelta(seconds=8),
            True,
            buttons("delta"),
            True,
        ),
        v.ClusterRow(
            "replay",
            "?cluster=replay",
            "Simulated, from a public trace",
            "Not answering",
            "bad",
            "none",
            1213,
            6212,
            0,
            194,
            0,
            None,
            False,
            buttons("replay", False),
        ),
    )
    test = v.ConnectionTest(
        "delta",
        NOW - timedelta(minutes=2),
        "2 passed, 1 failed, 1 not run",
        (
            v.Step(
                "ok",
                "Reach the API server",
                "Answers on TLS 1.3; the certificate is valid until 14 Mar 2027.",
                took=timedelta(milliseconds=38),
            ),
            v.Step("ok", "Sign in", "Service account berth.", took=timedelta(milliseconds=21)),
            v.Step(
                "warn",
                "Rights: 1 of 22 is missing",
                (
                    "Berth may not create validatingadmissionpolicybindings. Without it anyone in a project "
                    "could add the toleration and reach a booked node. Run this as a cluster administrator, then "
                    "test again:"
                ),
                took=timedelta(seconds=2, milliseconds=900),
                commands=(
                    "kubectl create clusterrole berth-admission \\\n  --verb=create,patch,delete \\\n  "
                    "--resource=validatingadmissionpolicybindings"
                ),
            ),
            v.Step("none", "Keep others out, on trial", "Not run: needs the right above.", aside="–"),
        ),
        v.Action("Test again", "/operator/clusters/delta/test", icon="refresh"),
    )
    cell = v.CapabilityCell
    return v.ClustersPage(
        "1 thing needs you: delta lacks one right, so its bookings are not fully enforced.",
        rows,
        test,
        ("alps", "delta"),
        (
            v.Capability(
                "Keep others out",
                (cell("hard", "reservation per booking"), cell("soft", "taint without admission policy")),
            ),
            v.Capability("Start all or nothing", (cell("no", "no gang start"), cell("yes", "Kueue"))),
            v.Capability("Energy", (cell("yes", "measured"), cell("unknown", "not probed"))),
        ),
        (
            v.QueueRow("alps, start bookings", "next: B-2437 at 14:00, 4 units", 0, 0, 0, timedelta(seconds=4)),
            v.QueueRow("alps, end bookings", "B-2402, retry 5 at 13:45", 0, 1, 0, timedelta(minutes=27)),
            v.QueueRow("delta, observe", "every 30 s", 6, 0, 0, None),
        ),
        (
            v.DriftRow(
                "delta-m03",
                "B-2428, Single-cell atlas",
                "taint booking=b-2428",
                "no taint",
                local(30, 13, 36),
                "Put back at 13:37, gone again at 13:39. Something else manages this node.",
                (v.Action("Put back now", "/operator/drift/1"),),
            ),
            v.DriftRow(
                "alps-0201, -0202",
                "external use",
                "free",
                "job 88213",
                local(28, 9),
                "Not made by Berth. Shown as external, counted as taken until its time limit, Tue 1 Dec, 12:00.",
            ),
        ),
        (v.Action("Sync all now", "/operator/sync", icon="refresh"),),
    )


def inventory() -> v.InventoryPage:
    nodes = tuple(
        v.NodeRow(
            f"alps-05{n:02d}",
            "alps",
            "H100-SXM-80GB",
            8,
            0 if n < 4 else 8,
            0,
            1 if n == 6 else 0,
            "degraded" if n == 6 else "maintenance" if n == 7 else "ready",
            "warn" if n == 6 else "mute" if n == 7 else "ok",
            "rack 5",
            "5a" if n < 5 else "5b",
            f"alps-05{n:02d}",
            NOW - timedelta(seconds=n) if n < 8 else None,
            "unit 5: XID 79" if n == 6 else "",
        )
        for n in range(1, 9)
    )
    return v.InventoryPage(
        "96 nodes, 768 units: 512 H100-SXM-80GB, 192 H200-SXM-141GB, 64 MI300X-192GB. 1 node is degraded.",
        (v.Link("All", "?", False), v.Link("alps", "?cluster=alps", True), v.Link("delta", "?cluster=delta")),
        (v.Option("", "Every kind", True), v.Option("h100-sxm-80gb", "H100-SXM-80GB")),
        (v.Option("", "Every state", True), v.Option("degraded", "Degraded")),
        nodes,
        v.ImportForm(
            (v.Option("alps", "alps", True), v.Option("delta", "delta")),
            (
                ("Alibaba v2023 node list", "sn,cpu_milli,memory_mib,gpu,model"),
                ("Berth's own", "name,kind,units,cpu_milli,memory_mib,rack,leaf,nvlink,power_watt"),
            ),
        ),
        hidden=(("cluster", "alps"),),
        pager=v.Pager("?before=1", "?after=8"),
        csv="/operator/inventory.csv",
    )


def inventory_faults() -> v.InventoryPage:
    return replace(
        inventory(),
        result=v.ImportResult(
            "nodes.csv",
            64,
            0,
            0,
            0,
            0,
            (
                v.ImportFault(3, "gpu", "“eight” is not a whole number."),
                v.ImportFault(
                    17, "model", "“H900” is not in the catalogue. Add it, or write one of: H100, H200, MI300X."
                ),
            ),
        ),
    )


def several(*, mode: str = "series", preview: bool = False, faults: bool = False) -> v.SeveralPage:
    """More than one booking: a series with its occurrences, or a class."""
    day = timedelta(days=1)
    start = NOW.replace(hour=18, minute=0) + day
    rows = (
        v.OneOfSeveral("Tue 1 Dec 2026, 19:00", start, start + 2 * H, price=chf("38.40")),
        v.OneOfSeveral(
            "Tue 8 Dec 2026, 19:00", start + 7 * day, start + 7 * day + 2 * H,
            problems=("Not enough H100-SXM-80GB on alps are free then. 4 are free for all of that time.",),
        ),
        v.OneOfSeveral(
            "Sun 31 Oct 2027, 02:30", start + 334 * day, start + 334 * day + 2 * H, price=chf("38.40"),
            note="It exists twice: 02:30 CEST (UTC+02:00) and 02:30 CET (UTC+01:00). The first is taken.",
        ),
    )  # fmt: skip
    values = {
        "zone": ZONE, "name": "Seminar", "units": "8", "local_start": "2026-12-01T19:00", "local_end": "2026-12-01T21:00",
        "count": "3", "rule": "", "cost_center": "4410-02", "reference": "", "start": "", "hours": "2",
        "people": "robin@physics.example\nmara@physics.example",
    }  # fmt: skip
    form = v.SeveralForm(
        (v.Option("plasma", "Plasma surrogates", True),),
        (v.Option("h100", "H100-SXM-80GB", True), v.Option("any", "Any kind", False)),
        (v.Option("", "Anywhere", False), v.Option("node", "Same node", True)),
        (v.Option("WEEKLY", "Every week", True), v.Option("DAILY", "Every day", False)),
        (v.Option("none", "Book nothing then", True), v.Option("skip", "Book the others", False)),
        values,
        (("zone", ZONE),),
        {
            "": "Tue 8 Dec 2026, 19:00: not enough are free then.",
            "rule": "FREQ is one of DAILY, WEEKLY, MONTHLY, YEARLY.",
        }
        if faults
        else {},
    )
    said = "2 occurrences can be booked. 1 occurrence cannot: nothing is booked unless the others may be."
    shown = v.SeveralPreview(said, rows, chf("76.80"), False) if preview else None
    title = "A booking that repeats" if mode == "series" else "Bookings for a class"
    return v.SeveralPage(mode, title, "Nothing is booked until you confirm.", form, shown, "", True)  # type: ignore[arg-type]


def several_made() -> v.SeveralMade:
    """A series that was made."""
    day = timedelta(days=1)
    start = NOW.replace(hour=18, minute=0) - 6 * day
    rows = tuple(
        v.OneOfSeveral(
            f"{title}, 19:00", start + n * 7 * day, start + n * 7 * day + 2 * H, f"B-24{n}1", state, chf("38.40"),
            actions=(v.Action("Cancel from here on", "/series/S-3/cancel", (("since", "x"),), "danger"),) if n else (),
            links=(v.Link("Change from here on", "/book/series?series=S-3"),) if n else (),
        )
        for n, (title, state) in enumerate((("Tue 24 Nov 2026", "ENDED"), ("Tue 1 Dec 2026", "BOOKED"), ("Tue 8 Dec 2026", "CANCELLED")))
    )  # fmt: skip
    facts = (("Rule", "FREQ=WEEKLY;COUNT=3"), ("Zone", ZONE), ("Project", "plasma"), ("Made by", "Robin K."))
    return v.SeveralMade(
        "S-3 Seminar", "Each occurrence is a booking of its own.", facts, rows, chf("76.80"), "Day",
        (v.Action("Cancel all that has not begun", "/series/S-3/cancel", (), "danger"),),
    )  # fmt: skip


def maintenance(*, preview: bool = False, faults: bool = False) -> v.MaintenancePage:
    """The operator's maintenance: nothing typed, what it would do, or what is wrong with what was typed."""
    day = timedelta(days=1)
    shown = v.MaintenancePreview(
        "2 bookings concerned: 1 to other nodes at the same time, 1 shortened.",
        "4 nodes: alpha-n01, alpha-n02, alpha-n03, alpha-n04",
        (
            v.FateRow(
                "B-2417", "Run 7", "Institute of Physics, Plasma", "Paula Physik", NOW + day, NOW + 2 * day,
                "Goes to other nodes", "alpha-n01 to alpha-n17",
                (v.Option("move", "Goes to other nodes", True), v.Option("cancel", "Is cancelled", False)),
            ),
            v.FateRow(
                "B-2420", "Nightly", "Bio Lab, Atlas", "Bea Bio", NOW, NOW + 2 * day, "Ends when the work begins", "",
                (v.Option("shorten", "Ends when the work begins", True),), v.Money(D("115.20"), "CHF"),
            ),
        ),
        "m1:0123",
        1,
        (("alpha-n01", "0-7:3g.40gb*2"), ("alpha-n02", "0-7:3g.40gb*2")),
    )  # fmt: skip
    return v.MaintenancePage(
        "Nodes that are worked on are no capacity: bookings are placed around them.",
        (
            v.MaintenanceRow(
                "New fans", "They are loud.", "alpha", "alpha-n01, alpha-n02", NOW + day, NOW + day * 1.25, "Announced",
                "booked", "Olga Operator", "Its GPUs are cut anew at the end: 0-7:3g.40gb*2",
                v.Action("Call off", "/operator/maintenance/1/call-off", (("version", "1"),), "danger"),
            ),
            v.MaintenanceRow("Firmware", "", "beta", "beta-n07", NOW - 2 * day, NOW - day, "Over", "ended", "Olga Operator"),
        ),
        v.MaintenanceForm(
            (v.Option("alpha", "alpha", True), v.Option("beta", "beta", False)),
            (v.Option("node", "Nodes", True), v.Option("rack", "Racks", False)),
            "alpha-n01, alpha-n02" if preview or faults else "",
            "2026-12-10T08:00" if preview else "",
            "2026-12-10T12:00" if preview else "",
            "New fans" if preview else "",
            errors={"start": "Choose a time.", "nodes": "There is no node called alpha-n99.", "": "Nothing was sent."}
            if faults
            else {},
        ),
        True,
        shown if preview else None,
        ()
        if faults
        else (
            v.PowerRow("alpha", "Rack r07", 40_000, v.Action("Take away", "/operator/power-budgets", (), "danger")),
            v.PowerRow("alpha", "All of it", 1_200_000, v.Action("Take away", "/operator/power-budgets", (), "danger")),
        ),
    )  # fmt: skip


def policies(preview: bool = False, faults: bool = False) -> v.PoliciesPage:
    """What is said of a pool for a tenant, with whom a change would touch."""
    fields = (
        ("min_length", "Shortest booking", "", "15 min"),
        ("max_length", "Longest booking", "2 days", "7 days"),
        ("min_gap", "Least time left between bookings", "soon" if faults else "", "0 min"),
    )
    fault = "A length is written like 7 days, 8 h, 1 h 30 min or 90 s."
    rows = tuple(
        v.RuleField(n, label, value, other, error=fault if faults and n == "min_gap" else "")
        for n, label, value, other in fields
    )
    open_to = v.RuleField(
        "open", "May book", "no", "as the pool says",
        (v.Option("", "As the pool says (as it is)"), v.Option("yes", "Yes"), v.Option("no", "No", True)),
    )  # fmt: skip
    money = v.RuleField("approval_money", "Above an amount of money", "20000", "none")
    seen = v.TouchedRow(
        "B-2417", "Institute of Physics, Plasma", "Robin K.", local(25, 8), local(29, 8),
        "A booking lasts at most 2 days. You asked for 4 days.",
    )  # fmt: skip
    asked = replace(seen, label="B-2431", why="More than 20000 CHF has to be approved. This costs 24576.00 CHF.")
    found = v.RulePreview(
        (v.RuleChange("Longest booking", "7 days", "2 days"), v.RuleChange("Above an amount of money", "none", "20000")),
        ("1 of 58 bookings would be refused today, and 1 would have to be approved. They stay as they are.",
         "Could book no more: Institute of Physics, Plasma."),
        (seen,), (asked,),
    )  # fmt: skip
    return v.PoliciesPage(
        "h100 on alpha for physics",
        "What may be booked by whom, and what becomes of it. A tenant's rules lie over the pool's, and a project's over those.",
        (
            v.Link("alpha/h100", "/operator/policies?pool=alpha%2Fh100", True),
            v.Link("beta/h200", "/operator/policies?pool=b"),
        ),
        (
            v.SaidRow("Everyone", "/operator/policies", "longest booking: 7 days"),
            v.SaidRow("Institute of Physics", "/operator/policies?tenant=physics", "longest booking: 2 days", True),
        ),
        v.RulesForm(
            (v.RuleGroup("When", rows), v.RuleGroup("Who", (open_to,)), v.RuleGroup("Approval", (money,))),
            (("pool", "alpha/h100"), ("tenant", "physics"), ("etag", "0" * 16)),
            "The rules have changed since you looked. Look again." if faults else "",
        ),
        True,
        (v.Option("physics", "Institute of Physics", True), v.Option("physics/plasma", "Institute of Physics, Plasma")),
        "alpha/h100",
        found if preview else None,
    )


def inventory_done() -> v.InventoryPage:
    return replace(inventory(), result=v.ImportResult("nodes.csv", 64, 60, 2, 2, 512))


def statement_rows() -> tuple[v.StatementRow, ...]:
    return (
        v.StatementRow(
            "Institute of Physics",
            "/statements/1",
            date(2026, 11, 1),
            None,
            "draft",
            16,
            D("439467.57"),
            D("-187.20"),
            D("0"),
            D("439280.37"),
        ),
        v.StatementRow(
            "Bio Lab",
            "/statements/2",
            date(2026, 10, 1),
            "2026-0022",
            "issued",
            12,
            D("313525.00"),
            D("0"),
            D("0"),
            D("313525.00"),
        ),
    )


def finance() -> v.FinanceMonthPage:
    def kind(name: str, *hours: float) -> v.CapacityKind:
        return v.CapacityKind(name, *(int(h * 3600) for h in hours))

    return v.FinanceMonthPage(
        date(2026, 11, 1),
        "open",
        "Ends tonight at 00:00. Two things keep CHF 24,060.80 off the statements until you settle them.",
        (v.Link("Sep", "/finance/2026-09"), v.Link("Oct", "/finance/2026-10"), v.Link("Nov", "/finance/2026-11", True)),
        (
            v.Figure("Charged so far", chf("769986.57"), "October at this point: CHF 696,176.15 (+10.6 %)"),
            v.Figure("Reserved but unused", chf("104115.09"), "13.5 % of what was charged"),
            v.Figure("Free capacity", "178,570.1 GPU-hours", "not reserved by anybody"),
            v.Figure("Credits", chf("318.60"), "2 failed nodes"),
            v.Figure("Not yet billable", chf("24060.80"), "2 reasons, below"),
        ),
        local(1, 0),
        NOW,
        (
            kind("H100-SXM-80GB", 210669.7, 27455.9, 1000, 115244.3, 1000, 5120, 2876.5),
            kind("H200-SXM-141GB", 76886.4, 13995.9, 0, 41363.1, 0, 3412.8, 604.2),
            kind("MI300X-192GB", 19348.6, 5081.4, 0, 20262.8, 0, 640, 88),
        ),
        statement_rows(),
        (
            v.ReportRow(
                "Institute of Physics",
                "Plasma surrogates",
                "Robin K.",
                "H100-SXM-80GB",
                6318720,
                F(88, 100),
                D("4212.48"),
            ),
            v.ReportRow(
                "Institute of Physics", "Plasma surrogates", "Mara S.", "H200-SXM-141GB", 212400, None, D("182.90")
            ),
        ),
        "/finance/2026-11/report.csv",
        "CHF",
        (
            v.UnbilledRow("The month is still open", "Ready to bill: 2 tenants, 7 projects", D("745607.17")),
            v.UnbilledRow(
                "Usage of B-2391 is contradictory",
                "Two records for Wed 18 Nov, 02:00–04:00: 16 units and 8 units. Neither is charged until you choose.",
                D("412.80"),
            ),
        ),
        (
            v.Step("now", "The month ends", "Tonight at 00:00, Europe/Zurich.", aside="in 10 h 18 min"),
            v.Step("none", "Close and issue", "Cannot be undone; corrections become credit notes.", aside="from 1 Dec"),
        ),
        (("Ledger", D("6689610.60")), ("= on statements", D("5918737.83")), ("+ unbilled", D("770872.77"))),
    )


def statement(issued: bool = True) -> v.StatementPage:
    drill = (
        v.DrillRow(
            "B-2217, Surrogate pre-training", "/bookings/B-2217", local(8, 8, 18), local(8, 20), 16, 673920, F("449.28")
        ),
        v.DrillRow("B-2263, Ablation sweep", None, local(21, 10), local(21, 16, 30), 8, 186876, F("124.584")),
    )
    lines = (
        v.StatementLine(
            "H100-SXM-80GB",
            860796,
            F(887, 1000),
            D("2.40"),
            D("573.86"),
            "",
            drill,
            "Metered from start and end events, all present.",
        ),
        v.StatementLine("H200-SXM-141GB", 1706400, None, D("3.10"), D("1469.40")),
    )
    return v.StatementPage(
        "2026-0021" if issued else None,
        "issued" if issued else "draft",
        "Institute of Physics",
        ("Research Computing", "Private AI Cloud", "VAT CHE-000.000.000"),
        date(2026, 11, 1),
        local(1, 0),
        local(1, 0, month=12),
        "CHF",
        (
            v.StatementGroup("Plasma surrogates", "cost centre 4410-02", D("2043.26"), lines),
            v.StatementGroup(
                "Fees and credits",
                "",
                D("-79.20"),
                (
                    v.StatementLine(
                        "Credit: node alps-0704 failed in B-2203",
                        -158400,
                        None,
                        D("1.80"),
                        D("-79.20"),
                        "Wed 11 Nov, 04:17–09:47: 8 units not provided",
                    ),
                ),
            ),
        ),
        D("2043.26"),
        D("-79.20"),
        D("0.00"),
        D("1964.06"),
        (("Cost centre", "4400, split by project below"), ("Price book", "Academic, version 14")),
        "Tax",
        datetime(2026, 12, 6, 8, tzinfo=UTC) if issued else None,
        (("Sum of lines", D("1964.06")), ("Statement, total", D("1964.06"))),
        (v.Link("CSV", "/statements/1.csv", icon="download"),),
    )


def statements() -> v.StatementsPage:
    return v.StatementsPage(statement_rows())


def prices(with_preview: bool = True) -> v.PriceBookPage:
    rows = (
        v.PriceRow("H100-SXM-80GB", "h100-sxm-80gb", D("2.30"), D("2.40")),
        v.PriceRow("H200-SXM-141GB", "h200-sxm-141gb", D("3.10"), D("3.10")),
        v.PriceRow("MI300X-192GB", "mi300x-192gb", D("2.20"), None),
    )
    versions = (
        v.PriceVersion(
            15, datetime(2026, 12, 31, 23, tzinfo=UTC), local(20, 10), "Nina F.", rows, "coming", "New power contract."
        ),
        v.PriceVersion(
            14, datetime(2026, 6, 30, 22, tzinfo=UTC), datetime(2026, 6, 1, 8, tzinfo=UTC), "Nina F.", rows, "current"
        ),
        v.PriceVersion(
            13,
            datetime(2025, 12, 31, 23, tzinfo=UTC),
            datetime(2025, 12, 1, 8, tzinfo=UTC),
            "Nina F.",
            rows[:1],
            "past",
        ),
    )
    return v.PriceBookPage(
        "Academic",
        "Price group academic",
        "CHF",
        (v.Option("academic", "Academic", True), v.Option("industry", "Industry")),
        versions,
        v.PriceForm(
            (("h100-sxm-80gb", "H100-SXM-80GB", "2.25"), ("mi300x-192gb", "MI300X-192GB", "two")),
            "2027-02-01T00:00",
            "key-9",
            "",
            {"price.mi300x-192gb": "“two” is not a price. Write it like 2.20."},
        ),
        v.PricePreview(
            datetime(2027, 1, 31, 23, tzinfo=UTC),
            rows,
            "3 bookings already confirmed keep their price. A booking quoted after publishing pays the new one.",
        )
        if with_preview
        else None,
        "academic",
    )


def sign_in() -> v.SignInPage:
    return v.SignInPage(
        "/",
        "robin@physics.example",
        "This address and password do not belong together.",
        "University login",
        hint="The demo printed addresses and passwords when it started.",
    )


def me() -> v.MePage:
    token = v.TokenRow(
        "nightly",
        "berth_pat_7f3a",
        ("read", "book"),
        "Plasma surrogates",
        local(1, 9),
        datetime(2027, 2, 1, tzinfo=UTC),
        NOW - 2 * H,
        v.Action("Revoke", "/me/tokens/1/revoke", style="danger", describe="Revoke nightly"),
    )
    return v.MePage(
        "Robin K.",
        "robin@physics.example",
        ("member of Plasma surrogates", "lead of Lattice QCD"),
        (v.Option("Europe/Zurich", "Europe/Zurich", True), v.Option("UTC", "UTC")),
        v.TokenForm(
            (
                v.Option("read", "Read", True, "see bookings, usage and prices"),
                v.Option("book", "Book", False, "book, extend, release"),
            ),
            (v.Option("", "All my projects", True), v.Option("plasma", "Plasma surrogates")),
            (v.Option("30", "in 30 days", True), v.Option("365", "in a year")),
            errors={"name": "Give it a name."},
        ),
        (
            token,
            replace(
                token,
                name="old laptop",
                expired=True,
                last_used=None,
                revoke=v.Action("Revoke", "/me/tokens/2/revoke", style="danger", describe="Revoke old laptop"),
            ),
        ),
        (
            v.SessionRow("Firefox on Linux", "192.0.2.17", NOW - 5 * H, NOW, True, None),
            v.SessionRow(
                "Safari on iOS",
                "192.0.2.44",
                local(28, 9),
                local(29, 22),
                False,
                v.Action("Sign out there", "/me/sessions/2/end"),
            ),
        ),
        None,
        "berth_pat_3f9c0b1a7d5e4f2896ac0d1e2f3a4b5c",
        "nightly run",
        "ac_06fj3v1k8q2m4z7x9c5b0n3h6g",
        (
            v.ClusterUserRow("alps", "robin", "Made of your e-mail address.", "rkeller"),
            v.ClusterUserRow("delta", "", "Nothing makes one.", error="Somebody else is robin on delta."),
        ),
    )


def people() -> v.PeoplePage:
    def held(name: str, login: str, place: str, place_name: str, role: str, **more: object) -> v.MemberHeld:
        known = ("viewer", "member", "lead") if place else ("admin", "finance", "auditor")
        return v.MemberHeld(
            name,
            f"{login}@physics.example",
            f"ac_{login}",
            place,
            place_name,
            role,
            tuple(v.Option(r, r.capitalize(), r == role) for r in known),
            v.Action("Remove", "/people/remove", style="danger", describe=f"Remove {name} as {role} of {place_name}"),
            **more,  # type: ignore[arg-type]
        )

    waits = v.NameWaiting(
        "Robin K.",
        "alps",
        "robin",
        "rkeller",
        NOW - 3 * H,
        v.Action("Confirm", "/people/cluster-users", describe="Confirm Robin K. as rkeller on alps"),
        v.Action("Refuse", "/people/cluster-users", style="danger", describe="Refuse Robin K. as rkeller on alps"),
    )
    return v.PeoplePage(
        "Institute of Physics",
        "4 people, 2 projects.",
        (
            held("Anna Roth", "anna", "", "Whole tenant", "admin"),
            held("Mara S.", "mara", "plasma", "Plasma surrogates", "lead"),
            held("Robin K.", "robin", "plasma", "Plasma surrogates", "member", given_by_group=True),
            held("Vera Blum", "vera", "plasma", "Plasma surrogates", "viewer", disabled=True),
        ),
        12,
        (
            v.ProjectKept("lattice", "Lattice QCD", "4720", 2, local(1, 9), None, "/people/projects/lattice/end"),
            v.ProjectKept("plasma", "Plasma surrogates", "4711", 3, local(1, 9), None, "/people/projects/plasma/end"),
            v.ProjectKept("old", "Old runs", "4700", 1, local(1, 9), local(20, 9), "/people/projects/old/reopen"),
        ),
        v.PersonForm(
            (v.Option("plasma", "Plasma surrogates", True), v.Option("", "Whole tenant")),
            (v.Option("member", "Member: books (project)", True), v.Option("admin", "Admin (whole tenant)")),
        ),
        v.ProjectForm(
            "Plasma 2", "Plasma 2", "", {"slug": "A short name has 1 to 63 small letters, digits and hyphens."}
        ),
        v.TenantForm((v.Option("Europe/Zurich", "Europe/Zurich", True), v.Option("UTC", "UTC"))),
        (v.Option("physics", "Institute of Physics", True), v.Option("bio", "Bio Lab")),
        (("tenant", "physics"),),
        waiting=(waits,),
        password="kq7fx-m3pdw-9hzta-u4c2b",
        password_of="nora@physics.example",
    )


def connect() -> v.ConnectPage:
    return v.ConnectPage(
        v.ConnectForm(
            (
                v.Option("kubernetes", "Kubernetes", False, "A Kubernetes cluster with GPU nodes"),
                v.Option("simulated", "Simulated", True, "Exists in Berth alone: to try things out"),
                v.Option("slurm", "Slurm", False, "A Slurm cluster, by its REST interface or its commands"),
            ),
            "alps",
            "seed = 7",
            offer_anyway=True,
        ),
        (v.BackendHelp("simulated", "path of the log, seed (1), provisioning_seconds (0)."),),
        True,
        "The cluster answers, and something is still missing. It can be connected now and completed later.",
        "warn",
        (
            v.Step("ok", "Log", "The log is open and has 0 lines."),
            v.Step("bad", "Nodes", "0 nodes are defined."),
            v.Step("warn", "Missing", "No nodes are defined yet."),
        ),
    )


def connect_faults() -> v.ConnectPage:
    form = v.ConnectForm(
        connect().form.backends,
        "Alps!",
        "paht = x",
        errors={
            "name": "“Alps!” is no name of a cluster: lower-case letters, digits, dots and dashes, at most 63.",
            "backend": "There is no kind of cluster called “slrm” here. Installed: simulated.",
            "config": "The simulated cluster knows no setting paht.",
            "secrets": "The secret “token” is missing.",
        },
    )
    return v.ConnectPage(form, connect().helps)


def audit() -> v.AuditPage:
    return v.AuditPage(
        (
            v.AuditRow(
                NOW - H,
                "Robin K.",
                "Released a booking",
                "B-2390",
                "/bookings/B-2390",
                "finished early",
                "Plasma surrogates",
                (("end", "Sun 29 Nov, 08:00", "Sat 28 Nov, 20:12"), ("charged", "", "CHF 686.40")),
            ),
            v.AuditRow(NOW - 5 * H, "Nina F.", "Published prices", "Academic, version 15"),
        ),
        (v.Option("", "Everybody", True), v.Option("1", "Robin K.")),
        (v.Option("", "Every action", True),),
        pager=v.Pager(None, "/audit?after=2"),
        csv="/audit.csv",
    )


def errors() -> dict[str, v.ErrorPage]:
    home_link = v.Link("Home", "/")
    return {
        "403": v.ErrorPage(
            403,
            "This page is for operators",
            "You are signed in as Robin K., member of Plasma surrogates.",
            (),
            (home_link,),
        ),
        "404": v.ErrorPage(
            404,
            "There is nothing here",
            "The address may be mistyped, or it belongs to another tenant.",
            (),
            (home_link, v.Link("Bookings", "/bookings")),
        ),
        "409": v.ErrorPage(
            409,
            "B-2417 was changed meanwhile",
            "Somebody released it at 13:40. Nothing of what you asked was done.",
            ("Open it to see how it stands.",),
            (v.Link("Open B-2417", "/bookings/B-2417"),),
        ),
        "422": v.ErrorPage(
            422,
            "The end is before the start",
            "The booking would end on Mon 30 Nov, 08:00 and start at 09:00.",
            ("Give a length instead.",),
            (v.Link("Back to the form", "/book"),),
        ),
        "500": v.ErrorPage(
            500,
            "Something broke on our side",
            "Nothing was reserved or charged. It was recorded with its cause.",
            (),
            (home_link,),
            "req_01jabc",
        ),
        "503": v.ErrorPage(
            503,
            "The demo is being prepared",
            "A month of bookings is played through the same code that books yours.",
            (),
            (),
            "",
            42,
            "Day 13 of 31, 168 bookings so far.",
            timedelta(seconds=30),
        ),
    }


def notices() -> v.NoticesPage:
    return v.NoticesPage(
        notices=(
            v.Notice(
                "Nobody uses “Ablation sweep”",
                "Nothing has used it since 13:00. It is released at 13:30 unless that changes. "
                "Release it now and CHF 65.72 is not charged.",
                "zzz",
                "/bookings/B-2417",
                NOW - H / 4,
                True,
            ),
            v.Notice("“Night training” has other units", "alps-0102 became alps-0107.", "arrows-exchange",
                     "/bookings/B-2401", NOW - 3 * H, True),
            v.Notice("“Diagnostics” has ended", "", "check", "/bookings/B-2399", NOW - 20 * H),
        ),
        ways=(v.Link("All", "/notices", True), v.Link("New", "/notices?show=new")),
        unread=2,
        mailed=True,
        pager=v.Pager(next="/notices?show=all&before=1"),
    )  # fmt: skip


def requests() -> v.RequestsPage:
    first = v.RequestCard(
        id="rq_01jabc",
        number="B-2431",
        name="Ablation, long run",
        what="To be booked",
        whose="Plasma surrogates",
        person="Robin K.",
        asked=NOW - H,
        until=NOW + 71 * H,
        shape=shape(64, nodes=8),
        cluster="alps",
        start=NOW + 96 * H,
        end=NOW + 144 * H,
        hours="3072.00",
        price=chf("7372.80"),
        total=None,
        why="More than 1000 GPU-hours have to be approved. You asked for 3072.",
        meters=(METERS[3],),
        approve="/approvals/rq_01jabc/approve",
        reject="/approvals/rq_01jabc/reject",
        href="/bookings/B-2431",
    )
    other = replace(first, id="rq_01jabd", number="B-2417", what="To be extended", whose="Atlas, Bio Lab", href=None,
                    total=chf("9000.00"), meters=(), answers=False)  # fmt: skip
    return v.RequestsPage("2 requests to answer.", (first, other))


def change() -> v.ChangePage:
    """Everything that can be changed of a booking, a move tried."""
    units = v.VerbView(
        "units", "Keep", "/bookings/B-2417/units", "Give CHF 28.80 back", "k-units",
        (v.Effect("Gives back", chf("28.80")), v.Effect("At the end", chf("86.40")), v.Effect("Leaves", "n0: 4")),
        "primary", "by", (v.Option("4", "4 units, gives 4 back", True), v.Option("2", "2 units, gives 6 back")),
        "/bookings/B-2417/change/units",
    )  # fmt: skip
    share = v.VerbView("share", "Share with the project", "/bookings/B-2417/share", "Share", "k-share",
                       (v.Effect("May enter then", "every member of Plasma surrogates"),))  # fmt: skip
    stuck = v.VerbView(
        "hand_over", "Hand over to", "/bookings/B-2417/hand_over", "", "k-hand", blocked="Too many GPU-hours."
    )
    move = v.MoveForm(
        "/bookings/B-2417/move", "k-move", "2026-12-01T09:00", "6", (v.Option("alps", "alps", True), v.Option("any", "Any of them")),
        (v.Effect("Starts", NOW + 20 * H), v.Effect("In all", chf("115.20"))), "Move for CHF 115.20 in all", asked=True,
    )  # fmt: skip
    return v.ChangePage("B-2417", "Ablation", "BOOKED", NOW + 2 * H, NOW + 8 * H, (units, stuck, share), move)


def uses() -> v.UsesPage:
    """Use without a booking, one that can be claimed and one that cannot."""
    row = v.UseRow(
        "/uses/7/claim", "k-use", "n3", "H100-SXM-80GB", 2, "job 4711", NOW - H, NOW + 5 * H,
        (v.Option("plasma", "Plasma surrogates", True),), (v.Option("PT4H", "4 h", True), v.Option("P1D", "24 h")),
        (v.Effect("Costs", chf("19.20")), v.Effect("Until", NOW + 4 * H)), "Claim for CHF 19.20",
    )  # fmt: skip
    other = replace(
        row, href="/uses/8/claim", until=None, effects=(), button="", blocked="Somebody else has booked these units."
    )
    return v.UsesPage((row, other))


def everything() -> dict[str, tuple[object, v.Frame]]:
    """Name -> (view, frame) of every page and fragment, empty states included."""
    nothing_home = replace(
        home(),
        now=(),
        next=(),
        notes=(),
        notices=(),
        projects=(v.ProjectLimits("Plasma surrogates", "/projects/plasma", ()),),
        sentence="Nothing is booked.",
        empty=v.Empty(
            "Nothing booked",
            "28 H200 and 32 MI300X are free now. H100 are free from 17:30.",
            v.Link("Book GPUs", "/book"),
        ),
    )
    over = replace(METERS[3], used=0, held=64, this=96)
    pages: dict[str, tuple[object, v.Frame]] = {
        "home": (home(), frame()),
        "home-empty": (
            nothing_home,
            frame(
                flashes=(v.Note("ok", "B-2390 is released", "CHF 120.00 went back to Plasma surrogates."),), notices=0
            ),
        ),
        "notices": (notices(), frame(current="/notices")),
        "notices-empty": (replace(notices(), notices=(), unread=0), frame(current="/notices", notices=0)),
        "requests": (requests(), frame("lead", current="/approvals")),
        "change": (change(), frame(current="/bookings")),
        "change-nothing": (
            replace(change(), verbs=(), move=None, nothing="B-2417 is ended: nothing can be changed here."),
            frame("member", current="/bookings"),
        ),
        "uses": (uses(), frame(current="/bookings")),
        "uses-empty": (v.UsesPage(()), frame(current="/bookings")),
        "requests-empty": (replace(requests(), requests=()), frame("operator", current="/approvals")),
        "book": (book(), frame(current="/book")),
        "book-empty": (v.BookPage(form(kinds=(), workloads=())), frame(current="/book")),
        "book-refused": (book_refused(), frame(current="/book")),
        "timeline": (timeline(), frame(current="/timeline")),
        "timeline-empty": (replace(timeline(), groups=()), frame(current="/timeline")),
        "bookings": (bookings(), frame(current="/bookings")),
        "bookings-empty": (replace(bookings(), rows=()), frame(current="/bookings")),
        "booking": (booking(), frame(current="/bookings")),
        "booking-booked": (booking_booked(), frame(current="/bookings")),
        "booking-starting": (
            replace(booking_booked(), state="STARTING", verbs=(), notes=()),
            frame(current="/bookings"),
        ),
        "booking-ending": (replace(booking_ended(), state="ENDING"), frame(current="/bookings")),
        "booking-ended": (booking_ended(), frame(current="/bookings")),
        "booking-few": (
            replace(booking(), shape=shape(2), samples=samples(2), units=booking().units[:1]),
            frame(current="/bookings"),
        ),
        "project": (project(), frame("lead", "/projects/plasma")),
        "project-empty": (
            replace(
                project(),
                rows=(),
                notes=(),
                idle=(),
                held=(),
                limits=(over,),
                budget=None,
                daily=(),
                total_hours=(0, 0),
            ),
            frame("lead", "/projects/plasma"),
        ),
        "projects": (projects(), frame("lead")),
        "projects-empty": (v.ProjectsPage("Bio Lab", ()), frame("lead")),
        "people": (people(), frame("operator", "/people")),
        "people-empty": (
            v.PeoplePage(
                "",
                "There is no tenant yet.",
                tenant_form=v.TenantForm((v.Option("UTC", "UTC", True),), errors={"slug": "x"}),
            ),
            frame("operator", "/people"),
        ),
        "people-bare": (
            replace(
                people(),
                people=(),
                projects=(),
                more=0,
                query="zz",
                tenants=(),
                tenant_form=None,
                waiting=(),
                password=None,
            ),
            frame("lead", "/people"),
        ),
        "connect": (connect(), frame("operator", "/operator/clusters")),
        "connect-faults": (connect_faults(), frame("operator", "/operator/clusters")),
        "clusters": (
            replace(clusters(), connect_href="/operator/clusters/connect"),
            frame("operator", "/operator/clusters"),
        ),
        "clusters-empty": (
            v.ClustersPage("No cluster is connected.", (), None, (), (), (), ()),
            frame("operator", "/operator/clusters"),
        ),
        "several": (several(), frame("lead", "/book")),
        "several-preview": (several(preview=True), frame("lead", "/book")),
        "several-faults": (several(faults=True), frame("lead", "/book")),
        "several-class": (several(mode="class"), frame("lead", "/book")),
        "several-made": (several_made(), frame("lead", "/bookings")),
        "maintenance": (maintenance(), frame("operator", "/operator/maintenance")),
        "maintenance-preview": (maintenance(preview=True), frame("operator", "/operator/maintenance")),
        "maintenance-faults": (maintenance(faults=True), frame("operator", "/operator/maintenance")),
        "policies": (policies(), frame("operator", "/operator/policies")),
        "policies-preview": (policies(preview=True), frame("operator", "/operator/policies")),
        "policies-faults": (policies(faults=True), frame("operator", "/operator/policies")),
        "policies-empty": (
            v.PoliciesPage("Rules", "Nothing can be booked yet.", (), (), v.RulesForm((), ()), False),
            frame("operator", "/operator/policies"),
        ),
        "inventory": (inventory(), frame("operator", "/operator/inventory")),
        "inventory-faults": (inventory_faults(), frame("operator", "/operator/inventory")),
        "inventory-done": (inventory_done(), frame("operator", "/operator/inventory")),
        "inventory-empty": (replace(inventory(), nodes=()), frame("operator", "/operator/inventory")),
        "finance": (finance(), frame("finance", "/finance")),
        "finance-empty": (
            replace(finance(), state="closed", capacity=(), statements=(), report=(), unbilled=(), steps=(), proof=()),
            frame("finance", "/finance"),
        ),
        "statement": (statement(), frame("finance", "/statements")),
        "statement-draft": (
            replace(statement(False), groups=(), proof=(("Lines", D("1")), ("Statement", D("2")))),
            frame("finance", "/statements"),
        ),
        "statements": (statements(), frame("finance", "/statements")),
        "statements-empty": (v.StatementsPage(()), frame("finance", "/statements")),
        "prices": (prices(), frame("finance", "/finance/prices")),
        "prices-empty": (replace(prices(False), versions=(), form=None, books=()), frame("finance", "/finance/prices")),
        "sign-in": (sign_in(), BARE),
        "sign-in-provider": (v.SignInPage(provider="University login", local=False), BARE),
        "scope": (v.ChooseScopePage(frame().scopes), BARE),
        "scope-empty": (v.ChooseScopePage(()), BARE),
        "me": (me(), frame()),
        "me-empty": (replace(me(), tokens=(), new_token=None, provider="University login"), frame()),
        "audit": (audit(), frame("lead", "/audit")),
        "audit-empty": (replace(audit(), rows=()), frame("lead", "/audit")),
    }
    pages |= {f"error-{status}": (page, BARE) for status, page in errors().items()}
    return pages


def fragments() -> dict[str, tuple[object, v.Frame]]:
    """Name -> (view, frame) of what htmx asks for."""
    test = clusters().test
    assert test is not None
    return {
        "quote": (quote(), frame()),
        "quote-approval": (
            replace(
                quote(),
                needs_approval="Above CHF 1,000.00: a lead must approve it.",
                changed=True,
                energy_kwh=None,
                curl="",
                cli="",
            ),
            frame(),
        ),
        "refused": (refused(), frame()),
        "refused-plain": (replace(refused(), alternatives=(), parts=(), total=None, start=None, end=None), frame()),
        "live-same": (v.BookingLive(booking(), "ACTIVE-observed"), frame()),
        "live-changed": (v.BookingLive(booking(), "STARTING"), frame()),
        "verb": (booking().verbs[0], frame()),
        "verb-blocked": (
            replace(booking().verbs[0], blocked="Another booking starts on these nodes at 08:00."),
            frame(),
        ),
        "test": (v.ConnectionTestView(replace(test, running=True, href="/operator/clusters/delta/test")), frame()),
        "error": (
            v.ErrorFragment(
                409,
                "B-2417 was changed meanwhile",
                "Nothing was done.",
                ("Open it again.",),
                (v.Link("Open", "/bookings/B-2417"),),
                "req_1",
            ),
            frame(),
        ),
    }

"""Small random clusters with holds, the product's view of them, and the checks on what it answers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from app.bookings.capacity import LEVELS, Busy, NodeUnits, PoolSnapshot, Shape, epoch
from app.bookings.held import Held, Hold
from app.bookings.recolour import MOST_MOVED, Rearranged
from app.kernel.window import Window
from tests.oracle import rearranged as reference

ORIGIN = datetime(2026, 12, 1, tzinfo=UTC)


def at(second: int) -> datetime:
    return ORIGIN + timedelta(seconds=second)


def window(start: int, end: int) -> Window:
    return Window(at(start), at(end))


def cluster_of(chance, nodes: int, units: int, span: int, tries: int, fixed: float) -> dict:
    """A cluster whose holds keep all promises. `chance` is a random.Random (hypothesis can hand in its own)."""
    names = ["a", "b", None]
    cluster = {
        "nodes": [
            {"units": units, "rack": chance.choice(names), "leaf": chance.choice(names), "nvlink": chance.choice(names)}
            for _ in range(nodes)
        ],
        "others": [],
        "holds": [],
    }
    taken: set[tuple[int, int, int]] = set()

    def free_units(node, start, end):
        return [u for u in range(units) if not any((node, u, t) in taken for t in range(start, end))]

    for _ in range(chance.randrange(3)):
        node, unit, start = chance.randrange(nodes), chance.randrange(units), chance.randrange(span)
        end = start + chance.randint(1, 3)
        cluster["others"].append((node, unit, start, end))
        taken |= {(node, unit, t) for t in range(start, end)}
    for number in range(tries):
        start = chance.randrange(span)
        end = start + chance.randint(1, max(span // 2, 1))
        family = cluster["holds"] and chance.random() < 0.25
        elder = cluster["holds"][-1] if family else None
        if elder:
            start, end = elder["start"], elder["end"]
        node = chance.randrange(nodes)
        free = free_units(node, start, end)
        if not free or (elder and node in {h["node"] for h in cluster["holds"] if h["owner"] == elder["owner"]}):
            continue
        count = (
            len(elder["units"]) if elder and elder["apart"] else chance.randint(1, min(len(free), max(units - 1, 1)))
        )
        if count > len(free):
            continue
        hold = {
            "id": number,
            "owner": elder["owner"] if elder else number,
            "node": node,
            "units": set(chance.sample(free, count)),
            "start": start,
            "end": end,
            "fixed": elder["fixed"] if elder else chance.random() < fixed,
            "within": elder["within"] if elder else chance.choice([None, "leaf", "rack"]),
            "apart": elder["apart"] if elder else chance.random() < 0.5,
        }
        mine = [h["node"] for h in cluster["holds"] if h["owner"] == hold["owner"]]
        if not reference.same_domain(cluster, hold["within"], [*mine, node]):
            continue
        cluster["holds"].append(hold)
        taken |= {(node, u, t) for u in hold["units"] for t in range(start, end)}
    return cluster


def shape_by(chance, nodes: int, units: int) -> tuple:
    level = chance.choice([None, None, *LEVELS])
    if chance.random() < 0.6:
        return ("units", chance.randint(1, units + 1), level)
    return ("nodes", chance.randint(1, nodes), chance.randint(1, units), level)


def shape_of(shape) -> Shape:
    if shape[0] == "units":
        return Shape(units=shape[1], within=shape[2])
    return Shape(nodes=shape[1], per_node=shape[2], within=shape[3])


def first_gpu(node: int) -> int:
    return 10 * (node + 1)


def positions(node: int, units) -> tuple[tuple[int, int], ...]:
    return tuple((64 * (first_gpu(node) + u), 64 * (first_gpu(node) + u) + 64) for u in sorted(units))


def pool_of(cluster) -> PoolSnapshot:
    nodes = [
        NodeUnits.whole(100 + i, first_gpu(i), n["units"], rack=n["rack"], leaf=n["leaf"], nvlink=n["nvlink"])
        for i, n in enumerate(cluster["nodes"])
    ]
    rows = [(*positions(n, [u])[0], epoch(at(s)), epoch(at(e))) for n, u, s, e in cluster["others"]]
    return PoolSnapshot.of(1, 1, "h100", nodes, Busy.of_rows(rows))


def held_of(cluster, pinned=lambda hold: hold["fixed"], started=lambda hold: False) -> Held:
    return Held.of(
        Hold(
            h["id"],
            h["owner"],
            100 + h["node"],
            positions(h["node"], h["units"]),
            epoch(at(h["start"])),
            epoch(at(h["end"])),
            pinned(h),
            started(h),
            h["within"],
            h["apart"],
        )
        for h in cluster["holds"]
    )


def local(node_id: int, ranges) -> set[int]:
    """The units of a node that these positions are."""
    first = 64 * first_gpu(node_id - 100)
    return {(p - first) // 64 for lower, upper in ranges for p in range(lower, upper, 64)}


def after(cluster, answer: Rearranged) -> dict:
    """The cluster with the moves made."""
    moves = {m.hold: m for m in answer.moves}
    holds = []
    for hold in cluster["holds"]:
        if hold["id"] in moves:
            move = moves[hold["id"]]
            assert (move.node_id, local(move.node_id, move.positions)) == (100 + hold["node"], hold["units"])
            units = local(move.to_node_id, move.to_positions)
            assert (move.to_node_id - 100, units) != (hold["node"], hold["units"]), "a move that moves nothing"
            assert len(units) == len(hold["units"])
            hold = {**hold, "node": move.to_node_id - 100, "units": units}
        holds.append(hold)
    return {**cluster, "holds": holds}


def check_rearranged(cluster, answer: Rearranged, asked: list[tuple[int, set[int]]], start: int, end: int) -> None:
    """Nobody overlaps, nothing fixed moved, every promise stands, few enough left their node, ids are in order."""
    new = after(cluster, answer)
    ids = [m.hold for m in answer.moves]
    assert ids == sorted(set(ids))
    fixed = {h["id"] for h in cluster["holds"] if h["fixed"]}
    assert not fixed & set(ids)
    assert sum(m.node_id != m.to_node_id for m in answer.moves) <= MOST_MOVED
    seen: set[tuple[int, int, int]] = set()
    others = {(n, u, t) for n, u, s, e in cluster["others"] for t in range(s, e)}
    stays = [(h["node"], h["units"], h["start"], h["end"]) for h in new["holds"]]
    for node, units, since, until in [*stays, *((n, u, start, end) for n, u in asked)]:
        assert units <= set(range(cluster["nodes"][node]["units"]))
        mine = {(node, u, t) for u in units for t in range(since, until)}
        assert not mine & seen
        assert not mine & others
        seen |= mine
    assert reference.promise_kept(cluster, new["holds"], {h["id"]: h["node"] for h in new["holds"]})


def units_asked(answer: Rearranged) -> list[tuple[int, set[int]]]:
    return [(p.node_id - 100, local(p.node_id, p.units)) for p in answer.placement.parts]


def check_shape(cluster, shape, asked: list[tuple[int, set[int]]]) -> None:
    takes = tuple(sum(len(u) for n, u in asked if n == node) for node in range(len(cluster["nodes"])))
    assert takes in set(reference.layouts(cluster, shape))

"""Which requests fit if holds may move, by trying everything: slow, obvious, without a line shared with the product.

A cluster is `{"nodes": [{"units": n, "rack": name, "leaf": name, "nvlink": name}], "others": [(node, unit, start, end)],
"holds": [hold]}`; a hold is `{"id", "owner", "node", "units": {unit}, "start", "end", "fixed", "within", "apart"}`. Times
are small whole numbers. A shape is `("units", n, level)` or `("nodes", N, k, level)`.
"""

from __future__ import annotations

from itertools import combinations, product


def cells(node, start, end):
    return {(unit, t) for unit in node for t in range(start, end)}


def colourable(size, taken, wanted):
    """Is there a fixed set of units for each of `wanted` = [(units, start, end)] on a node with these taken cells?"""
    if not wanted:
        return True
    (units, start, end), rest = wanted[0], wanted[1:]
    free = [u for u in range(size) if not cells([u], start, end) & taken]
    return any(colourable(size, taken | cells(c, start, end), rest) for c in combinations(free, units))


def same_domain(cluster, level, nodes):
    """Do these nodes share a domain? One that is not known is shared by nobody."""
    nodes = set(nodes)
    if level is None or len(nodes) <= 1:
        return True
    if level == "node":
        return False
    names = {cluster["nodes"][n][level] for n in nodes}
    return len(names) == 1 and None not in names


def promise_kept(cluster, holds, where):
    """With every hold on the node that `where` says: are those of one owner as close, and as far apart, as promised?"""
    for owner in {h["owner"] for h in holds}:
        mine = [h for h in holds if h["owner"] == owner]
        nodes = [where[h["id"]] for h in mine]
        if any(h["apart"] for h in mine) and len(set(nodes)) < len(nodes):
            return False
        if not all(same_domain(cluster, h["within"], nodes) for h in mine):
            return False
    return True


def layouts(cluster, shape):
    """Every way to spread the request: units a node."""
    sizes = [range(n["units"] + 1) for n in cluster["nodes"]]
    for takes in product(*sizes):
        used = [n for n, take in enumerate(takes) if take]
        if not same_domain(cluster, shape[-1], used):
            continue
        if shape[0] == "units" and sum(takes) == shape[1]:
            yield takes
        if shape[0] == "nodes" and len(used) == shape[1] and all(takes[n] == shape[2] for n in used):
            yield takes


class Trial:
    """One request on one cluster. `loose`: which holds may move (by default those that are not fixed)."""

    def __init__(self, cluster, shape, start, end, loose=None):
        self.cluster, self.shape, self.start, self.end = cluster, shape, start, end
        self.loose = [h for h in cluster["holds"] if (not h["fixed"] if loose is None else loose(h))]
        self.stuck = [h for h in cluster["holds"] if h not in self.loose]
        self.known = {}
        self.ways = list(layouts(cluster, shape))

    def node_works(self, node, ids, take):
        """Can a node serve these loose holds, what is fixed on it, and so many units of the request?"""
        if (node, ids, take) not in self.known:
            taken = set()
            for n, unit, start, end in self.cluster["others"]:
                if n == node:
                    taken |= cells([unit], start, end)
            for hold in self.stuck:
                if hold["node"] == node:
                    taken |= cells(hold["units"], hold["start"], hold["end"])
            wanted = [(len(h["units"]), h["start"], h["end"]) for h in self.loose if h["id"] in ids]
            if take:
                wanted.append((take, self.start, self.end))
            self.known[node, ids, take] = colourable(self.cluster["nodes"][node]["units"], taken, wanted)
        return self.known[node, ids, take]

    def works(self, where):
        """Does some layout work with every loose hold on this node?"""
        on = [frozenset(i for i, n in where.items() if n == node) for node in range(len(self.cluster["nodes"]))]
        if not all(self.node_works(n, ids, 0) for n, ids in enumerate(on)):
            return False
        return any(all(self.node_works(n, on[n], take) for n, take in enumerate(takes)) for takes in self.ways)

    def within_nodes(self):
        """Is there a place if holds change units, but not nodes?"""
        return self.works({h["id"]: h["node"] for h in self.loose})

    def across_nodes(self, most):
        """Is there one if up to `most` holds also change nodes?"""
        stuck = {h["id"]: h["node"] for h in self.stuck}
        choices = [
            sorted(range(len(self.cluster["nodes"])), key=lambda n, home=h["node"]: n != home) for h in self.loose
        ]
        for nodes in product(*choices):
            where = {h["id"]: n for h, n in zip(self.loose, nodes, strict=True)}
            if sum(where[h["id"]] != h["node"] for h in self.loose) > most:
                continue
            if promise_kept(self.cluster, self.cluster["holds"], {**stuck, **where}) and self.works(where):
                return True
        return False

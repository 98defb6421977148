"""Placement by trying everything: slow, obvious, and without a line or an import shared with app/bookings.

A cluster is a list of nodes `{"rack", "leaf", "nvlink", "units": [...]}`; a unit is None (not offered) or a list of
taken `(start, end)` in small whole numbers. A shape is `("units", n, level)` or `("nodes", N, k, level)`.
"""

from __future__ import annotations

from itertools import combinations


def free_of(cluster, start, end):
    """[(node, unit)] that are free at every instant of [start, end)."""
    return [
        (i, j)
        for i, node in enumerate(cluster)
        for j, taken in enumerate(node["units"])
        if taken is not None and all(t not in range(s, e) for s, e in taken for t in range(start, end))
    ]


def installed_of(cluster):
    """[(node, unit)] that exist, offered or not."""
    return [(i, j) for i, node in enumerate(cluster) for j in range(len(node["units"]))]


def is_shape(cluster, shape, chosen):
    """Do these units have the shape, and do they share the domain?"""
    nodes = sorted({i for i, _ in chosen})
    if shape[0] == "units":
        if len(chosen) != shape[1]:
            return False
    elif len(nodes) != shape[1] or any(sum(1 for i, _ in chosen if i == n) != shape[2] for n in nodes):
        return False
    level = shape[-1]
    if level is None or len(nodes) == 1:
        return True
    if level == "node":
        return False
    names = {cluster[n][level] for n in nodes}
    return len(names) == 1 and None not in names


def ways(cluster, shape, units):
    """Every set of these units that has the shape."""
    size = shape[1] if shape[0] == "units" else shape[1] * shape[2]
    return (frozenset(c) for c in combinations(units, size) if is_shape(cluster, shape, c))


def fits(cluster, shape, start, end):
    return any(True for _ in ways(cluster, shape, free_of(cluster, start, end)))


def ever_fits(cluster, shape):
    return any(True for _ in ways(cluster, shape, installed_of(cluster)))


def earliest(cluster, shape, length, not_before, ends_by, gap, on_grid):
    """The first start of all; `on_grid` says which instants after not_before may be one."""
    for start in range(not_before, ends_by - length + 1):
        if (start == not_before or on_grid(start)) and fits(cluster, shape, start, start + length + gap):
            return start
    return None


def longest(cluster, shape, start, gap, limit):
    """The most seconds from this start, up to a limit."""
    return max((n for n in range(1, limit + 1) if fits(cluster, shape, start, start + n + gap)), default=0)


def places(cluster, shape, start, end):
    """How many such places fit side by side."""
    every = list(ways(cluster, shape, free_of(cluster, start, end)))

    def most(taken, candidates):
        best = 0
        for i, way in enumerate(candidates):
            if not way & taken:
                best = max(best, 1 + most(taken | way, candidates[i + 1 :]))
        return best

    return most(frozenset(), every)


def fits_by_counting(cluster, shape, start, end):
    """Would it fit if holds could change units within their node at any time: enough free on fixed nodes at each
    instant?"""
    least = [
        min(
            sum(1 for t in node["units"] if t is not None and all(at not in range(s, e) for s, e in t))
            for at in range(start, end)
        )
        for node in cluster
    ]
    return any(True for _ in ways(cluster, shape, [(i, j) for i, n in enumerate(least) for j in range(n)]))

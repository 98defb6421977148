"""A small trace of our own in the columns of the public one, made anew from a seed: the public files stay where they are.

Crowded on purpose: all demands at once are more than the nodes have, so that some are refused.
"""

from __future__ import annotations

import random

SIZES = (("G2", 8), ("G3", 8), ("T4", 2), ("P100", 2), ("V100M32", 8), ("V100M16", 4), ("A10", 1))


LENGTHS = {3: 90_061, 5: 0, 8: 2_160_037}
"""Of some pods, in seconds: over midnight, none at all, and past the end of a month and a change of prices."""


def nodes(count: int = 10, seed: int = 11) -> str:
    """A node list: every model once, then more of the large ones, and one node without GPU."""
    chance = random.Random(seed)
    chosen = [SIZES[i] if i < len(SIZES) else chance.choice(SIZES[:5]) for i in range(count)]
    rows = ["sn,cpu_milli,memory_mib,gpu,model", "sample-node-none,64000,262144,0,"]
    rows += [f"sample-node-{i:04},96000,393216,{gpus},{model}" for i, (model, gpus) in enumerate(chosen)]
    return "\n".join(rows) + "\n"


def pods(count: int = 60, seed: int = 12) -> str:
    """A pod list over five months: mostly one GPU or a part of one, some with 2, 4 or 8, some with none, some without
    a scheduled time, one that stayed for no time at all, one that stayed for weeks."""
    chance = random.Random(seed)
    rows = [
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
    ]
    created = 0
    for i in range(count):
        gpus = chance.choices((0, 1, 2, 4, 8), (6, 60, 8, 6, 8))[0]
        share = 1000 if gpus != 1 or chance.random() < 0.5 else chance.choice((80, 250, 500))
        length = chance.choice((17, 90, 611, 3_600, 3_600, 7_201))
        waited = chance.choice((0, 0, 4, 33))
        scheduled = "" if chance.random() < 0.1 else str(created + waited)
        length = LENGTHS.get(i, length)
        deleted = created + length + (waited if scheduled else 0)
        rows.append(f"sample-pod-{i:04},4000,16384,{gpus},{share},,LS,Running,{created},{deleted},{scheduled}")
        created += chance.choice((0, 0, 900, 40_000, 90_000, 250_000))
    return "\n".join(rows) + "\n"

"""What both random histories speak of: verbs with the share of tries that must be accepted, states, outcomes, faults.

`Tally` counts a run and says what it has not shown. It knows neither the product nor a database.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tests.requirements import required

FULL = required("faults")
"""The full numbers are run where every suite is asked for; elsewhere a part of them, to be quick."""


class Broken(AssertionError):
    """A promise does not hold. The driver adds the last steps and how to run them again."""


@dataclass
class Tally:
    """Tries and accepted tries by verb, refusals by code, and what was reached: states, outcomes, faults."""

    tried: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)

    def count(self, verb: str, codes: Iterable[str] | None) -> None:
        """One try; `codes` None: it was accepted."""
        self.tried[verb] += 1
        if codes is None:
            self.accepted[verb] += 1
        for code in codes or ():
            self.refused[verb, code] += 1

    def lacks(self, shares: Mapping[str, float], reached: Iterable[str]) -> list[str]:
        """What a run has not shown: verbs that were accepted too seldom, and what was never reached."""
        said = []
        for verb, share in shares.items():
            tried, accepted = self.tried[verb], self.accepted[verb]
            if not accepted or accepted < share * tried:
                said.append(f"{verb}: accepted {accepted} of {tried}, wanted {share:.0%}")
        return said + [f"never reached: {what}" for what in reached if not self.reached[what]]

    def report(self) -> str:
        """The run as a table."""
        lines = [f"{'verb':<22}{'tried':>8}{'accepted':>10}{'share':>8}"]
        for verb, tried in sorted(self.tried.items()):
            accepted = self.accepted[verb]
            lines.append(f"{verb:<22}{tried:>8}{accepted:>10}{accepted / tried:>8.0%}")
        lines.append("reached: " + ", ".join(f"{what} {n}" for what, n in sorted(self.reached.items())))
        by_code = Counter[str]()
        for (_, code), n in self.refused.items():
            by_code[code] += n
        lines.append("refused: " + ", ".join(f"{code} {n}" for code, n in by_code.most_common()))
        return "\n".join(lines)


def steps(full: int, some: int) -> int:
    """How many steps a run makes: BERTH_MODEL_STEPS, else the full number where every suite is required."""
    said = os.environ.get("BERTH_MODEL_STEPS")
    return int(said) if said else full if FULL else some

"""How the fitted power of regret depends on the rate: eta = eta_0 / sqrt(T), T = 80 ... 5120.

Run from the repository's root: python -m benchmarks.regret_rates [SEEDS]
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from benchmarks import report

from omkl_lab.paper import regret

RATES = (3.0, 5.0, 10.0, 20.0, 30.0)

Study: TypeAlias = Callable[[], regret.Study]


def rows(rates: Sequence[float], studies: Mapping[str, Study]) -> Iterator[report.Row]:
    """Yield the powers of all cases, for each rate and study."""
    before = regret.ETA_0
    try:
        for rate in rates:
            regret.ETA_0 = rate
            for name, study in studies.items():
                powers = {case: f"{power.mean:.3f}" for case, power in study().exponents.items()}
                yield {"eta_0": rate, "samples": name} | powers
    finally:
        regret.ETA_0 = before


def main(seeds: int) -> None:
    studies: dict[str, Study] = {"own": partial(regret.theorem, seeds), "all nodes'": partial(regret.pooled, seeds)}
    report.finish("regret_rates", list(rows(RATES, studies)), f"Fitted power of T in the regret, {seeds} seeds.")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)

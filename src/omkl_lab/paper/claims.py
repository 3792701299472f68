"""The letter's claims (a) to (g), each with its figures and a verdict."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from omkl_lab.paper.letter import LEVELS, TITLES, Runs, Spread, spread

CLOSE = 0.005  # of the loss: what we take "close" to mean in claim (a)
SAME = 0.001  # of the loss: what we take "no difference" to mean in claim (c)
ORDER = 1e-5  # below this a difference is of the order of 1e-6, claim (e)
POINT = 0.01  # a percentage point of accuracy: what we take "minimal" to mean in claim (f)
OF_FIGURE2 = "credit_card"  # the data set of figure 2
MANY = 5.0  # times: what we take "many more" to mean in claim (g)


class Finding(NamedTuple):
    """One figure behind a verdict."""

    where: str
    what: str
    value: float
    half: float
    """Half the width of its 95 % interval; zero where the figure is a count."""
    holds: bool | None
    """None where the interval leaves it open."""


class Claim(NamedTuple):
    """A claim of the letter, put to the test."""

    letter: str
    text: str
    rule: str
    """What we take it to mean."""
    findings: list[Finding]
    remark: str = ""

    @property
    def verdict(self) -> str:
        """Whether it holds: on all, on none, or on how many of the data sets."""
        places: dict[str, list[bool | None]] = {}
        for finding in self.findings:
            places.setdefault(finding.where, []).append(finding.holds)
        good = sum(all(found) for found in places.values())
        bad = sum(False in found for found in places.values())
        left = len(places) - good - bad
        if len(places) in (good, bad, left):
            return "not tested" if not places else "holds" if good else "does not hold" if bad else "undecided"
        return f"holds on {good} of {len(places)}" + (f", undecided on {left}" if left else "")


def judge(figure1: Mapping[str, Mapping[str, Runs]], figure2: Mapping[str, Mapping[str, Runs]]) -> list[Claim]:
    """Return every claim with its findings, from the runs of each data set."""
    return [
        Claim(
            "a",
            "gossip on the path is close to OMKL on the complete graph",
            f"final losses differ by less than {CLOSE:.1%}",
            [_relative(data, "gossip - OMKL", r["gossip"], r["complete"], CLOSE) for data, r in figure1.items()],
            _remark_alone(figure1),
        ),
        Claim(
            "b",
            "three kernels clearly beat one",
            "the final loss of the single kernel (sigma = 1) is higher, beyond the 95 % interval",
            [_larger(data, "single - three", runs["single"], runs["gossip"]) for data, runs in figure1.items()],
            _remark_b(figure1),
        ),
        Claim(
            "c",
            "at eta = 0.01 the topology makes no difference",
            f"final losses on path, ring and complete graph differ by less than {SAME:.1%}",
            [
                _relative(data, f"{graph} - path", runs[case], runs["gossip"], SAME)
                for data, runs in figure1.items()
                for graph, case in (("ring", "ring"), ("complete", "full"))
            ],
            _remark_alone(figure1),
        ),
        Claim(
            "d",
            "at eta = 0.1 the loss on the complete graph is below that on the ring, and that below the path's",
            "both paired differences are positive beyond their 95 % intervals",
            [
                _larger(data, f"{high} - {low}", runs[high], runs[low])
                for data, runs in figure2.items()
                for low, high in (("complete", "ring"), ("ring", "path"))
            ],
            _remark_d(figure2),
        ),
        Claim(
            "e",
            "every M >= 7 matches the unquantized run to the order of 1e-6",
            f"the mean paired difference in final loss is below {ORDER:.0e}",
            [
                _small(data, f"M={m} - exact", runs["gossip" if m == 7 else f"M={m}"], runs["exact"])
                for data, runs in figure1.items()
                for m in LEVELS
            ],
        ),
        Claim(
            "f",
            "differences in accuracy are minimal: gossip and OMKL",
            "accuracies over the stream differ by less than one percentage point",
            [_accuracy(data, "gossip - OMKL", r["gossip"], r["complete"]) for data, r in figure1.items()],
        ),
        Claim(
            "f'",
            "differences in accuracy are minimal: three kernels and one",
            "the same for the single kernel; the letter does not say between whom",
            [_accuracy(data, "three - single", r["gossip"], r["single"]) for data, r in figure1.items()],
            "Where one kernel loses, it is too narrow for the data and has learned next to nothing; where it wins, it "
            "is the best of the three.",
        ),
        Claim(
            "g",
            "OMKL needs many more communications",
            f"bits over all links of the graph are more than {MANY:g} times those of gossip on the path",
            [
                Finding(data, "OMKL / gossip", runs["complete"].link_bits / runs["gossip"].link_bits, 0.0,
                        runs["complete"].link_bits > MANY * runs["gossip"].link_bits)
                for data, runs in figure1.items()
            ],
            _remark_g(figure1),
        ),
    ]  # fmt: skip


def paired(one: Runs, other: Runs) -> Spread:
    """Return the difference in final loss, run by run."""
    return spread(one.final - other.final, one.shuffle)


def _within(data: str, what: str, difference: Spread, bound: float) -> Finding:
    """Return whether the whole interval lies within the bound, or the whole of it beyond."""
    inside, beyond = abs(difference.mean) + difference.half < bound, abs(difference.mean) - difference.half > bound
    return Finding(data, what, difference.mean, difference.half, True if inside else False if beyond else None)


def _relative(data: str, what: str, one: Runs, other: Runs, bound: float) -> Finding:
    return _within(data, what, paired(one, other), bound * float(other.final.mean()))


def _small(data: str, what: str, one: Runs, other: Runs) -> Finding:
    return _within(data, what, paired(one, other), ORDER)


def _accuracy(data: str, what: str, one: Runs, other: Runs) -> Finding:
    return _within(data, what, spread(one.accuracy - other.accuracy, one.shuffle), POINT)


def _larger(data: str, what: str, one: Runs, other: Runs) -> Finding:
    difference = paired(one, other)
    above, below = difference.mean > difference.half, difference.mean < -difference.half
    return Finding(data, what, difference.mean, difference.half, True if above else False if below else None)


def _remark_alone(figure1: Mapping[str, Mapping[str, Runs]]) -> str:
    apart = [abs(paired(runs["local"], runs["gossip"]).mean) / runs["gossip"].final.mean() for runs in figure1.values()]
    if not apart or max(apart) > SAME:
        return ""
    return (
        f"So do nodes that do not communicate at all: they differ from gossip by at most {max(apart):.2%}. At these "
        "steps communication has no time to matter."
    )


def _remark_b(figure1: Mapping[str, Mapping[str, Runs]]) -> str:
    reversed_on = [
        TITLES[data] for data, runs in figure1.items() if np.mean(runs["single"].final - runs["gossip"].final) < 0
    ]
    if not reversed_on:
        return ""
    return (
        f"Reversed on {', '.join(reversed_on)}: there sigma = 1 is the best of the three kernels, and at eta = 0.01 "
        "the weights have no time to find that out."
    )


def _remark_d(figure2: Mapping[str, Mapping[str, Runs]]) -> str:
    others = [
        f"{TITLES[data]} ({runs['path'].loss.shape[1]} rounds)" for data, runs in figure2.items() if data != OF_FIGURE2
    ]
    return f"The letter says so of Credit-Card over 1500 rounds; this is {', '.join(others)}." if others else ""


def _remark_g(figure1: Mapping[str, Mapping[str, Runs]]) -> str:
    if not figure1:
        return ""
    runs = next(iter(figure1.values()))
    ratio = runs["complete"].bits / runs["gossip"].bits
    return (
        f"Counted per link. Where one broadcast reaches every node, OMKL's message is only {ratio:.2f} times as long: "
        "the losses that go with it."
    )

"""What happens in seeded networks under faults: the course of events on any processor, and every bit of it on some."""

import json
from pathlib import Path

from omkl_lab.torture import FAULTS, Report, runs
from tests.oracles import arithmetic

FILE = Path(__file__).with_name("digests.json")
SEEDS, EVENTS = 200, 15


def reports(seeds: int = SEEDS) -> list[Report]:
    """Return what comes of the seeds, or of the first of them."""
    return list(runs(range(seeds), EVENTS, jobs=1, faults=FAULTS))


def key() -> str:
    """Return the arithmetic of this process, its BLAS by name, and what compiles a node's round in it."""
    return f"{arithmetic.key()}, {arithmetic.blas()}, {arithmetic.compiler()}"


def told() -> str:
    """Return course and digest of every seed, under the arithmetic of this process."""
    return json.dumps([[report.course, report.digest] for report in reports()])


def frozen() -> tuple[list[str], dict[str, list[str]]]:
    """Return the course of every seed, and its digests by arithmetic."""
    read = json.loads(FILE.read_text())
    return read["course"], read["digest"]


def freeze() -> None:
    """Write those of today, under every arithmetic that this machine has."""
    found = {key: json.loads(text) for key, text in arithmetic.under_each("digests").items()}
    courses = {tuple(course for course, _ in one) for one in found.values()}
    if len(courses) > 1:
        raise SystemExit("the course of events depends on the arithmetic; it must not")
    digests = {key: [digest for _, digest in one] for key, one in found.items()}
    FILE.write_text(json.dumps({"course": courses.pop(), "digest": digests}, indent=0) + "\n")

"""The report's words and tables on the frontier, and its points as a table for others."""

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from omkl_lab.paper.frontier.figure import LINES, STYLES, pick
from omkl_lab.paper.frontier.study import DATA, PRESET, Frontier, Point, at_home, front
from omkl_lab.paper.letter import TITLES
from omkl_lab.paper.report import image, paragraph, table

CAPTION = """Mean loss over the whole stream, scored before each sample is learned, against what a node sends with a
sample on average, as the codec packs it, header and all. Twenty nodes on a path."""

COMPETITORS = """Every competitor has its best chance: rate and bandwidths are the best in hindsight of those tried on
the first shuffle, data set by data set and size by size, with one quantizer. The consensus step goes with the quantizer
alone: twice what gamma="auto" takes, or more, for larger steps did better where they were tried, on Banana.
The letter's method keeps the letter's bandwidths; the learners SGD, AdaGrad and Newton had the choice between those
and the recommended ones, with 20 and 80 features a kernel, and CHOCO the choice of its kernel. The recommended setting
is the same everywhere; its points differ in what and how often it sends: the quantizer's step, the rank of the basis
and the pace of gossip. That of the titles was picked among them in hindsight."""

SENT = """Send the data: nodes flood their samples along the path, and each learns alone, with the recommended learner,
from its own and from all that it has heard, a round later for every link. It gives up that raw data stay where they
are. All other methods keep to that, but for landmarks, which have no labels; so it is left out of what no other point
beats. Inputs have the nearest of evenly spaced levels in the range of the landmarks, which all nodes hold, and labels
one bit, at fixed width. A node makes one broadcast a sample, in the frame of gossip: its own sample and those that it
passes on, twenty in all once the farthest have come, and one at the ends of the path, which pass on nothing."""

REFERENCES = """No communication and the complete graph have the recommended learner. One place means that a single
learner sees all samples one after another, twenty times as many as a node: with the recommended learner, and as
gradient descent on 120 random features, at the best bandwidth and rate in hindsight. The batch optimum is kernel
logistic regression on 1024 random features that has seen four fifths of all samples before it is scored on the rest."""


def frontier_body(png: Path, results: Mapping[str, Frontier], seeds: int) -> str:
    """Return the section: figure, what is compared, and the points that no other one beats."""
    places = list(results.values())
    families = [name for name in STYLES if name not in ("recommended", DATA)]
    rows = [[STYLES[name].label, *(_best(found, name) for found in places)] for name in families]
    sent = [point.what for point in places[0].points if point.family == DATA]
    rows += [[f"{STYLES[DATA].label}, {what}", *(_point(pick(f, DATA, what)) for f in places)] for what in sent]
    rows += [["recommended, as it is", *(_point(pick(found, "recommended", PRESET)) for found in places)]]
    rows += [[label, *(_value(found.lines[name]) for found in places)] for name, (label, _) in LINES.items()]
    parts = [
        image(png, CAPTION),
        paragraph(f"{seeds} seeds. {COMPETITORS}"),
        paragraph(REFERENCES),
        paragraph(SENT),
        paragraph(
            "The least loss that each family reaches, at what size, and all of those that send the data; "
            "intervals are 95 %."
        ),
        table(["", *(TITLES[data] for data in results)], rows),
    ]
    for data, found in results.items():
        kept = front(at_home(found.points))
        parts += [
            paragraph(f"{TITLES[data]}: what no other point beats that leaves raw data where they are"),
            table(["", "setting", "bytes", "loss"],
                  [[STYLES[p.family].label, p.what, f"{p.bytes:.1f}", _value(p)] for p in kept]),
        ]  # fmt: skip
    return "".join(parts)


def frontier_csv(results: Mapping[str, Frontier]) -> str:
    """Return all points and lines as comma-separated values; lines have no bytes."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["data", *Point._fields])
    for data, found in results.items():
        writer.writerows([data, *point] for point in found.points)
        writer.writerows([data, name, line.what, "", line.loss, line.half] for name, line in found.lines.items())
    return text.getvalue()


def _best(found: Frontier, family: str) -> str:
    return _point(min((p for p in found.points if p.family == family), key=lambda p: p.loss))


def _point(point: Point) -> str:
    return f"{_value(point)} at {point.bytes:.0f} bytes"


def _value(point: Point) -> str:
    return f"{point.loss:.4f} ± {point.half:.4f}"

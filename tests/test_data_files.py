"""Ten files as they come: each is learned from, or refused in one line that says how to go on."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from typer.testing import CliRunner

from omkl.cli.app import app
from omkl.cli.exits import Exit

ROWS = 600


class Numbers(NamedTuple):
    """Two inputs in very unlike units, a class that both tell, and a number."""

    degrees: Any
    pascals: Any
    wet: Any
    price: Any


def numbers() -> Numbers:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, ROWS))
    price = 250_000 + 60_000 * np.sin(1.5 * a) + 40_000 * b + rng.normal(scale=5_000, size=ROWS)
    return Numbers(15 + 8 * a, 101_325 + 900 * b, a * b > 0, price)


GIVEN = numbers()


def lines(head: str, *columns: Any, between: str = ",") -> str:
    rows = "".join(between.join(str(cell) for cell in row) + "\n" for row in zip(*columns, strict=True))
    return f"{head}\n{rows}" if head else rows


def zeros_and_ones() -> str:
    return lines("degrees,pascals,wet", GIVEN.degrees, GIVEN.pascals, GIVEN.wet.astype(int))


def texts() -> str:
    which = np.select([GIVEN.degrees < 11, GIVEN.degrees < 19], ["cold", "mild"], "warm")
    return lines("degrees,pascals,felt", GIVEN.degrees, GIVEN.pascals, which)


def missing() -> str:
    degrees, wet = GIVEN.degrees.astype(object), np.where(GIVEN.wet, "yes", "no").astype(object)
    degrees[::9], degrees[4::9], wet[::50] = "", "NA", "?"
    return lines("degrees,pascals,wet", degrees, GIVEN.pascals, wet)


def categories() -> str:
    rng = np.random.default_rng(1)
    district = rng.integers(0, 30, size=ROWS) ** 2 // 30
    price = GIVEN.price + 30_000 * np.where(district == 0, 4, district % 3)
    cells = [f"d{k}" for k in district], [f"owner {k}" for k in range(ROWS)], ["sold"] * ROWS
    return lines("degrees,pascals,district,owner,state,price", GIVEN.degrees, GIVEN.pascals, *cells, price)


def dates() -> str:
    start = np.datetime64("2024-01-01T00:00")
    when = start + np.arange(ROWS) * np.timedelta64(60, "m")
    load = 40 + 12 * np.sin(2 * np.pi * np.arange(ROWS) / 24) + GIVEN.degrees
    order = np.random.default_rng(2).permutation(ROWS)
    return lines("when,degrees,load", when[order], GIVEN.degrees[order], load[order])


def decimal_commas() -> str:
    def written(values: Any) -> list[str]:
        return [f"{value:,.2f}".replace(",", " ").replace(".", ",").replace(" ", ".") for value in values]

    return lines("degrees;pascals;price", *map(written, (GIVEN.degrees, GIVEN.pascals, GIVEN.price)), between=";")


def without_header() -> str:
    return lines("", GIVEN.degrees, GIVEN.pascals, GIVEN.wet.astype(int))


def one_class() -> str:
    return lines("degrees,pascals,wet", GIVEN.degrees, GIVEN.pascals, ["yes"] * ROWS)


def wide() -> str:
    noise = np.random.default_rng(3).normal(size=(198, ROWS))
    head = ",".join(["degrees", *(f"c{k}" for k in range(198)), "wet"])
    return lines(head, GIVEN.degrees, *noise, (GIVEN.degrees > 15).astype(int))


class Learned(NamedTuple):
    """What is to come of a file: a share of what is there to be learned, the loss, and words of the line that tells."""

    loss: str
    least: float
    told: tuple[str, ...] = ()


class Refused(NamedTuple):
    """Words of the one line that refuses a file."""

    words: tuple[str, ...]


File = tuple[Callable[[], str], str, list[str], Learned | Refused]
FILES: dict[str, File] = {
    "zeros and ones": (zeros_and_ones, "utf-8", ["--target", "wet"], Learned("logistic", 0.5)),
    "texts": (texts, "utf-8", ["--target", "felt"], Learned("softmax", 0.5)),
    "missing": (
        missing, "utf-8", ["--target", "wet"],
        Learned("logistic", 0.3, ("12 of 600 rows are left out for lack of wet", "degrees has 131 missing values")),
    ),
    "categories": (
        categories, "utf-8", ["--target", "price"],
        Learned("squared", 0.5, ("owner is left out", "state is left out", "district has 22 texts")),
    ),
    "dates": (
        dates, "utf-8", ["--target", "load", "--time", "when", "--use", "when,degrees"], Learned("squared", 0.5),
    ),
    "decimal commas": (decimal_commas, "utf-8", ["--target", "price"], Learned("squared", 0.7)),
    "byte-order mark": (
        zeros_and_ones, "utf-8-sig", ["--target", "wet", "--use", "degrees,pascals"],
        Learned("logistic", 0.5),
    ),
    "no header": (without_header, "utf-8", ["--target", "3"], Learned("logistic", 0.5, ("called 1 to 3",))),
    "no header, and a name": (
        without_header, "utf-8", ["--target", "wet"], Refused(("unknown column 'wet'", "known: 1, 2, 3")),
    ),
    "one class": (one_class, "utf-8", ["--target", "wet"], Refused(("'yes' in all 600 rows", "name another target"))),
    "200 columns": (wide, "utf-8", ["--target", "wet"], Learned("logistic", 0.1)),
}  # fmt: skip


def guess(name: str, config: Any, y: Any) -> float:
    """Return the loss of who knows how often each class is, or the mean."""
    if name == "squared":
        return float(config["target_variance"])
    shares = np.unique(y, return_counts=True)[1] / len(y)
    return float(-(shares * np.log(shares)).sum())


@pytest.mark.parametrize("name", FILES)
def test_a_file_as_it_comes(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made, written, flags, wanted = FILES[name]
    Path("rows.csv").write_text(made(), encoding=written)
    ran = CliRunner().invoke(app, ["simulate", "--data", "rows.csv", *flags, "--nodes", "4", "--format", "json"])
    if isinstance(wanted, Refused):
        assert ran.exit_code == Exit.INPUT
        assert ran.stderr.startswith("omkl: error: ")
        assert ran.stderr.count("\n") == 1
        assert all(word in ran.stderr for word in wanted.words), ran.stderr
        return
    assert ran.exit_code == Exit.OK, ran.stderr
    assert all(word in ran.stderr for word in wanted.told), ran.stderr
    found = json.loads(ran.stdout)
    assert found["config"]["method"]["loss"]["name"] == wanted.loss
    target = flags[1]
    rows = [line.split(",") for line in made().splitlines()]
    place = rows[0].index(target) if target in rows[0] else -1
    labels = [row[place] for row in rows[1:] if row[place] != "?"] if wanted.loss != "squared" else None
    chance = guess(wanted.loss, found["config"], labels)
    assert found["summary"]["final_loss"] < (1 - wanted.least) * chance

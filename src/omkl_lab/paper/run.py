"""Runs the parts of the reproduction in order; each writes its files when it is finished."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from omkl.data import load
from omkl.simulator.description import versions
from omkl.storage import write_whole
from omkl_lab.paper import claims, figures, lemmas, quantizers, regret, report
from omkl_lab.paper.experiments import FIGURE1, FIGURE2, TITLES, Progress, Runs, Store, dealt, run_cases, spread
from omkl_lab.paper.frontier.figure import frontier_body, frontier_csv, frontier_figure
from omkl_lab.paper.frontier.study import Study
from omkl_lab.paper.regret import Study as Regret
from omkl_lab.paper.regret_section import regret_body

PARTS = ("claims", "figure1", "figure2", "regret", "quantizers")
"""What reproduces the paper; ``frontier`` goes beyond it, and is for asking."""
FULL = ("banana", "credit_card", "mnist")
BUNDLED = ("banana", "digits")


def _silent(title: str, done: int, total: int) -> None:
    pass


@dataclass(frozen=True)
class Paper:
    """The reproduction: its folder, data and number of seeds.

    Attributes
    ----------
    out
        Folder for figures, ``claims.json`` and ``report.html``; finished runs are in its ``runs/``.
    seeds
        Runs of figures and claims, dealt over at most five shuffles of the data.
    data
        Data sets of figure 1; figure 2 is on Credit-Card, as in the paper, or the last of them.
    quick
        Shorter regret streams, and fewer seeds there, for the quantizers and for the frontier.
    """

    out: Path
    seeds: int = 100
    data: Sequence[str] = FULL
    quick: bool = False
    progress: Progress = _silent

    @property
    def store(self) -> Store:
        """Finished runs."""
        return Store(self.out / "runs")

    @property
    def few(self) -> int:
        """Seeds of the studies of regret, quantizers and the frontier."""
        return 5 if self.quick else 20

    @cached_property
    def figure1_runs(self) -> dict[str, dict[str, Runs]]:
        """Runs at the paper's steps, by data set and case."""
        for data in self.data:
            load(data)  # one that cannot be had is noticed before hours of work, not after
        return {data: run_cases(self.store, data, "figure1", FIGURE1, self.seeds, self.progress) for data in self.data}

    @cached_property
    def figure2_runs(self) -> dict[str, dict[str, Runs]]:
        """Runs at ten times the paper's steps, without quantizer."""
        data = "credit_card" if "credit_card" in self.data else self.data[-1]
        return {data: run_cases(self.store, data, "figure2", FIGURE2, self.seeds, self.progress)}

    def figure1(self) -> str:
        """Draw figure 1, over rounds and over bits."""
        for name, against in (("figure1", "rounds"), ("figure1-bits", "bits")):
            figures.save(figures.figure1(self.figure1_runs, against), self.out, name)
        return "".join([
            report.image(self.out / "figure1.png", "Mean loss over all rounds so far, with 95 % intervals."),
            report.image(self.out / "figure1-bits.png", "The same over what a node has sent, header and all."),
            report.paragraph("Final loss (last tenth of the stream): mean ± standard error; in brackets the standard "
                             "deviation over feature draws and over shuffles."),
            _finals(self.figure1_runs, figures.METHODS | {"exact": ("gossiped OMKL, path, exact", "", "")}),
        ])  # fmt: skip

    def figure2(self) -> str:
        """Draw figure 2."""
        figures.save(figures.figure2(self.figure2_runs), self.out, "figure2")
        return "".join([
            report.image(self.out / "figure2.png", "Left: mean loss so far. Right: its paired difference from the "
                         "complete graph, where the runs' common ups and downs cancel."),
            _finals(self.figure2_runs, figures.GRAPHS),
        ])  # fmt: skip

    def claims(self) -> str:
        """Judge the claims and write claims.json."""
        judged = claims.judge(self.figure1_runs, self.figure2_runs)
        record = [
            one._asdict() | {"verdict": one.verdict, "findings": [f._asdict() for f in one.findings]} for one in judged
        ]
        self._write_json("claims", {"claims": record})
        marks = {True: "yes", False: "no", None: "undecided"}
        details = [[claim.letter, TITLES[f.where], f.what, f"{f.value:.3g}" + (f" ± {f.half:.2g}" if f.half else ""),
                    marks[f.holds]] for claim in judged for f in claim.findings]  # fmt: skip
        return "".join([
            report.table(["", "claim", "what we take it to mean", "verdict"],
                         [[claim.letter, claim.text, claim.rule, claim.verdict] for claim in judged]),
            *(report.paragraph(f"({claim.letter}) {claim.remark}") for claim in judged if claim.remark),
            "<details><summary>The figures behind the verdicts</summary>",
            report.table(["", "data", "figure", "value and 95 % interval", "as claimed"], details), "</details>",
        ])  # fmt: skip

    def quantizers(self) -> str:
        """Study the quantizers and write quantizers.json."""
        body, record, short = list[str](), dict[str, Any](), [data for data in self.data if data != "mnist"]
        left_out = "" if len(short) == len(self.data) else " MNIST is left out for the length of its stream."
        for data in short:
            for setting, (eta, gamma) in quantizers.SETTINGS.items():
                rows = quantizers.study(self.store, data, setting, self.few, self.progress)
                record[f"{data}, {setting}"] = [row._asdict() for row in rows]
                title = f"{TITLES[data]}, path, eta={eta:g}, gamma={gamma:g}, {self.few} seeds, one shuffle:"
                body += [report.paragraph(title), quantizers.table(rows)]
        self._write_json("quantizers", record)
        return report.paragraph(quantizers.WORDS + left_out) + "".join(body)

    def regret(self) -> str:
        """Measure the regret, check the lemmas, and write regret.json."""
        settings = {"seeds": self.few, "quick": self.quick, "setting": regret.SETTING}

        def stored(name: str, study: Callable[..., Regret]) -> Regret:
            tell = partial(self.progress, name)
            found = self.store.get(name, settings, lambda: study(self.few, self.quick, tell).arrays())
            return Regret(**{field: found[field] for field in Regret._fields if field in found})

        own, pooled = stored("regret", regret.theorem), stored("pooled-regret", regret.pooled)
        checks = lemmas.lemmas(own)
        studies = {"own samples, i.i.d.": own, "all nodes' samples, one class a node": pooled}
        figures.save(figures.regret_figure(studies), self.out, "regret")
        record = {title: {case: power._asdict() for case, power in study.exponents.items()}
                  for title, study in studies.items()}  # fmt: skip
        whole: dict[str, Any] = {
            what: {name: array.tolist() for name, array in study.arrays().items()}
            for what, study in (("own", own), ("pooled", pooled))
        }
        whole["lemmas"] = dict(zip(lemmas.Check._fields, zip(*checks, strict=True), strict=True))
        self._write_json("regret", {"exponents": record, **whole})
        return regret_body(self.out / "regret.png", own, pooled, checks)

    def frontier(self) -> str:
        """Draw loss against bytes for all methods, and write frontier.json and frontier.csv."""
        for data in self.data:
            load(data)
        found = {data: Study(self.store, data, self.few, self.progress).frontier() for data in self.data}
        figures.save(frontier_figure(found), self.out, "frontier")
        self._write_json("frontier", {data: one.record() for data, one in found.items()})
        write_whole(self.out / "frontier.csv", frontier_csv(found))
        return frontier_body(self.out / "frontier.png", found, self.few)

    def run(self, parts: Sequence[str] = PARTS) -> None:
        """Run the parts, and write the report of all that is finished with these settings, also after an error."""
        try:
            for part in parts:
                section = {"settings": self.settings(), "body": getattr(self, part)()}
                write_whole(self._section(part), json.dumps(section))
        finally:
            finished = self.finished()
            missing = [part for part in PARTS if part not in finished]
            write_whole(self.out / "report.html", report.page(finished, self.settings(), versions(), missing))

    def finished(self) -> dict[str, str]:
        """Return the bodies of the parts that were finished with these settings, in the report's order."""
        bodies = {}
        for part in (*PARTS, "frontier"):
            if self._section(part).exists():
                section = json.loads(self._section(part).read_text())
                if section["settings"] == self.settings():
                    bodies[part] = section["body"]
        return bodies

    def settings(self) -> dict[str, Any]:
        """Return the settings that the results depend on."""
        data, shuffles = list(self.data), len(dealt(self.seeds))
        return {"seeds": self.seeds, "shuffles": shuffles, "data": data, "quick": self.quick}

    def _section(self, part: str) -> Path:
        return self.out / "runs" / f"section-{part}.json"

    def _write_json(self, name: str, record: dict[str, Any]) -> None:
        whole = record | {"settings": self.settings(), "versions": versions()}
        write_whole(self.out / f"{name}.json", json.dumps(whole, indent=2) + "\n")


def _finals(results: Mapping[str, Mapping[str, Runs]], styles: Mapping[str, tuple[str, str, str]]) -> str:
    rows = []
    for case, (label, *_) in styles.items():
        found = [spread(runs[case].final, runs[case].shuffle) for runs in results.values()]
        rows.append([label, *(f"{f.mean:.5f} ± {f.error:.5f} ({f.features:.4f}, {f.shuffles:.4f})" for f in found)])
    return report.table(["", *(TITLES[data] for data in results)], rows)

"""The parts of the reproduction in order, each leaving finished files behind."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from omkl.paper import claims, figures, lemmas, quantizers, regret, report
from omkl.paper.letter import FIGURE1, FIGURE2, SHUFFLES, TITLES, Progress, Runs, run_cases, spread
from omkl.paper.regret_section import regret_body
from omkl.paper.report import Section
from omkl.paper.store import Arrays, Store
from omkl.paper.studies import PooledStudy, TheoremStudy
from omkl.simulator.simulation import versions

PARTS = ("figure1", "figure2", "claims", "quantizers", "regret")
FULL = ("banana", "credit_card", "mnist")
BUNDLED = ("banana", "digits")


def _silent(title: str, done: int, total: int) -> None:
    pass


@dataclass(frozen=True)
class Paper:
    """The reproduction: where it goes, on which data, under how many seeds.

    Attributes
    ----------
    out
        Folder for figures, ``claims.json``, ``report.html``, and the finished runs under ``runs/``.
    seeds
        Runs of figures and claims, dealt over five shuffles of the data.
    data
        Data sets of figure 1; figure 2 is on the second of them, Credit-Card in the letter.
    quick
        Shorter regret streams and fewer seeds there.
    """

    out: Path
    seeds: int = 100
    data: Sequence[str] = FULL
    quick: bool = False
    progress: Progress = _silent
    sections: dict[str, Section] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        """Finished runs."""
        return Store(self.out / "runs")

    @cached_property
    def figure1_runs(self) -> dict[str, dict[str, Runs]]:
        """Runs at the letter's steps, by data set and case."""
        return {data: run_cases(self.store, data, "figure1", FIGURE1, self.seeds, self.progress) for data in self.data}

    @cached_property
    def figure2_runs(self) -> dict[str, dict[str, Runs]]:
        """Runs at ten times the letter's steps, without quantizer."""
        data = self.data[min(1, len(self.data) - 1)]
        return {data: run_cases(self.store, data, "figure2", FIGURE2, self.seeds, self.progress)}

    def figure1(self) -> None:
        """Draw figure 1, over rounds and over bits."""
        for name, against in (("figure1", "rounds"), ("figure1-bits", "bits")):
            figures.save(figures.figure1(self.figure1_runs, against), self.out, name)
        self.sections["figure1"] = Section("Figure 1: three methods on each data set", "".join([
            report.image(self.out / "figure1.png", "Mean loss over all rounds so far, with 95 % intervals over runs."),
            report.image(self.out / "figure1-bits.png", "The same over what a node has sent, header and all."),
            report.paragraph("Final loss (last tenth of the stream): mean ± standard error; in brackets the standard "
                             "deviation over feature draws and over shuffles."),
            _finals(self.figure1_runs, {**_labels(figures.METHODS), "exact": "gossiped OMKL, path, exact"}),
        ]))  # fmt: skip

    def figure2(self) -> None:
        """Draw figure 2."""
        figures.save(figures.figure2(self.figure2_runs), self.out, "figure2")
        self.sections["figure2"] = Section("Figure 2: the topology at larger steps", "".join([
            report.image(self.out / "figure2.png", "Left: mean loss so far. Right: its paired difference from the "
                         "complete graph, where the runs' common ups and downs cancel."),
            _finals(self.figure2_runs, _labels(figures.GRAPHS)),
        ]))  # fmt: skip

    def claims(self) -> None:
        """Judge the claims and write claims.json."""
        judged = claims.judge(self.figure1_runs, self.figure2_runs)
        record = {"claims": [_record(claim) for claim in judged], "settings": self.settings()}
        (self.out / "claims.json").write_text(json.dumps(record, indent=2) + "\n")
        rows = [[claim.letter, claim.text, claim.rule, claim.verdict] for claim in judged]
        details = [[claim.letter, TITLES[f.where], f.what, _value(f), "yes" if f.holds else "no"]
                   for claim in judged for f in claim.findings]  # fmt: skip
        remarks = [f"({claim.letter}) {claim.remark}" for claim in judged if claim.remark]
        self.sections["claims"] = Section("The claims", "".join([
            report.table(["", "claim", "what we take it to mean", "verdict"], rows),
            *map(report.paragraph, remarks),
            "<details><summary>The figures behind the verdicts</summary>",
            report.table(["", "data", "figure", "value and 95 % interval", "as claimed"], details), "</details>",
        ]))  # fmt: skip

    def quantizers(self) -> None:
        """Study the quantizers and write quantizers.json."""
        seeds = 5 if self.quick else 20
        body, record = [], {}
        for data in self.data[:2]:
            for setting, (eta, gamma) in quantizers.SETTINGS.items():
                rows = quantizers.study(self.store, data, setting, seeds, self.progress)
                record[f"{data}, {setting}"] = [row._asdict() for row in rows]
                body.append(report.paragraph(f"{TITLES[data]}, eta={eta:g}, gamma={gamma:g}, path, {seeds} seeds:"))
                body.append(report.table(
                    ["quantizer", "bits", "delta, guaranteed", "delta, measured", "final loss", "against exact"],
                    [[r.quantizer, f"{r.bits:.0f}", f"{r.bound:.3f}", f"{r.measured:.3f}", f"{r.loss:.5f}",
                      f"{r.difference:+.1e} ± {r.error:.0e}"] for r in rows]))  # fmt: skip
        (self.out / "quantizers.json").write_text(json.dumps(record, indent=2) + "\n")
        self.sections["quantizers"] = Section("Quantizers", "".join(body))

    def regret(self) -> None:
        """Measure the regret, check the lemmas, and write regret.json."""
        seeds = 5 if self.quick else 20
        settings = {"seeds": seeds, "quick": self.quick, "eta_0": regret.ETA_0, "gamma": regret.GAMMA}

        def stored(name: str, study: Callable[..., PooledStudy]) -> Arrays:
            report_to = partial(self.progress, name)
            return self.store.get(name, settings, lambda: study(seeds, self.quick, report_to).to_arrays())

        own = TheoremStudy.from_arrays(stored("regret", regret.theorem))
        pooled = PooledStudy.from_arrays(stored("pooled-regret", regret.pooled))
        checks = lemmas.lemmas(own)
        studies = {"own samples, i.i.d.": own, "all nodes' samples, one class a node": pooled}
        figures.save(figures.regret_figure(studies), self.out, "regret")
        record: dict[str, Any] = {
            title: {case: power._asdict() for case, power in study.exponents.items()}
            for title, study in studies.items()
        }
        (self.out / "regret.json").write_text(json.dumps(record | {"settings": settings}, indent=2) + "\n")
        self.sections["regret"] = Section("Regret", regret_body(self.out / "regret.png", own, pooled, checks))

    def run(self, parts: Sequence[str] = PARTS) -> list[str]:
        """Run the parts and write the report, also when interrupted; return the parts that are missing then."""
        started = time.perf_counter()
        work: dict[str, Callable[[], None]] = {part: getattr(self, part) for part in parts}
        try:
            for part in work:
                work[part]()
        finally:
            missing = [part for part in parts if part not in self.sections]
            order = sorted(self.sections, key=("claims", "figure1", "figure2", "regret", "quantizers").index)
            took = f"Took {time.perf_counter() - started:.0f} s with what was already there."
            settings = f"{json.dumps(self.settings())} {took}"
            report.write(self.out / "report.html", [self.sections[part] for part in order], settings, missing)
        return missing

    def settings(self) -> dict[str, Any]:
        """Return what made the results."""
        chosen = {"seeds": self.seeds, "shuffles": SHUFFLES, "data": list(self.data), "quick": self.quick}
        return chosen | {"versions": versions()}


def _labels(styles: Mapping[str, tuple[str, str, str]]) -> dict[str, str]:
    return {case: label for case, (label, _, _) in styles.items()}


def _finals(results: Mapping[str, Mapping[str, Runs]], labels: Mapping[str, str]) -> str:
    rows = [[label, *(_final(runs[case]) for runs in results.values())] for case, label in labels.items()]
    return report.table(["", *(TITLES[data] for data in results)], rows)


def _final(runs: Runs) -> str:
    found = spread(runs.final, runs.shuffle)
    return f"{found.mean:.5f} ± {found.error:.5f} ({found.features:.4f}, {found.shuffles:.4f})"


def _value(finding: claims.Finding) -> str:
    return f"{finding.value:.3g} ± {finding.half:.2g}" if finding.half else f"{finding.value:.3g}"


def _record(claim: claims.Claim) -> dict[str, Any]:
    record = claim._asdict() | {"verdict": claim.verdict, "findings": [f._asdict() for f in claim.findings]}
    return json.loads(json.dumps(record, default=bool))  # type: ignore[no-any-return]

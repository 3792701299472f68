"""The points of ``omkl paper frontier``, computed without what draws them: JAX, NumPy and SciPy are enough.

python -m benchmarks.frontier SEEDS FOLDER DATA [PART ...]

PART is paper, a family (larger, choco, sgd, adagrad, newton), data, recommended or lines; all where none is named.
Finished runs are kept in FOLDER/runs: with FOLDER as --out and as many seeds, ``omkl paper frontier`` takes them from
there. data is of nodes that send each other their samples: it gives up that raw data stay where they are.
"""

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks import report

from omkl_lab.paper.experiments import Store
from omkl_lab.paper.frontier.study import DATA, FAMILIES, Point, Study


def points(study: Study, parts: list[str]) -> Iterator[Point]:
    work: dict[str, Callable[[], list[Point] | dict[str, Point]]] = {
        "paper": study.paper,
        **{name: partial(study.family, name) for name in FAMILIES},
        DATA: study.data_sent,
        "recommended": study.recommended,
        "lines": study.lines,
    }
    for part in parts or work:
        start = time.perf_counter()
        found = work[part]()
        yield from found.values() if isinstance(found, dict) else found
        print(f"{study.data}: {part}: {time.perf_counter() - start:.0f} s", flush=True)


def main(seeds: int, folder: Path, data: str, parts: list[str]) -> None:
    study = Study(Store(folder / "runs"), data, seeds, lambda title, done, rounds: None)
    rows = [
        point._asdict() | {"bytes": f"{point.bytes:.1f}", "loss": f"{point.loss:.4f}", "half": f"{point.half:.4f}"}
        for point in points(study, parts)
    ]
    report.finish("frontier", rows, f"{data}, {seeds} seeds; half is that of the 95 % interval of the loss.")


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4:])

"""The points of ``omkl paper frontier``, computed without what draws them: JAX, NumPy and SciPy are enough.

python -m benchmarks.frontier SEEDS FOLDER DATA [PART ...]

PART is letter, a family (larger, choco, sgd, adagrad, newton), recommended or lines; all where none is named. Finished
runs are kept in FOLDER/runs: with FOLDER as --out and as many seeds, ``omkl paper frontier`` takes them from there.
"""

import sys
import time
from pathlib import Path

from omkl_lab.paper.frontier.study import FAMILIES, Study
from omkl_lab.paper.store import Store


def main(seeds: int, folder: Path, data: str, parts: list[str]) -> None:
    study = Study(Store(folder / "runs"), data, seeds, lambda title, done, rounds: None)
    for part in parts or ["letter", *FAMILIES, "recommended", "lines"]:
        start = time.perf_counter()
        found = study.family(part) if part in FAMILIES else getattr(study, part)()
        for point in found.values() if isinstance(found, dict) else found:
            print(
                f"{data}: {point.family}: {point.what}: {point.bytes:.1f} bytes, {point.loss:.4f} +- {point.half:.4f}"
            )
        print(f"{data}: {part}: {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4:])

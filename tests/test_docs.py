"""Every block of code in the documentation is run, or says why not, and prints what is shown."""

from pathlib import Path
from unittest.mock import patch

import pytest

from omkl.compressors import QUANTIZERS
from omkl.features import SPECTRA
from omkl.learners import LEARNERS
from omkl.methods import METHODS
from tests.doc_pages import PAGES, ROOT, SHOWN, Page, agree, blocks

WALKED = (ROOT / "docs" / "ten-minutes.md", ROOT / "docs" / "extend" / "package.md")
"""Pages at work in tests of their own: test_docs_walk.py, test_docs_package.py."""

NOT_RUN = {
    "bits.md": ["six minutes", "an hour, with data sets that are no part of omkl"],
    "dashboard.md": ["another machine"],
    "deploy.md": [
        "as root, with systemd",
        "with podman",
        "here, but by test_node_access.py, with a node at work",
        "here, but by the benchmark of these very lines",
        "here, but by the benchmark of these very lines",
        "as the node's user, where its checkpoints are",
    ],
    "operating.md": ["as root, on the machine that watches (Debian, Ubuntu)", "as root, on each device in turn"],
    "paper.md": ["three minutes, with data sets that are no part of omkl"],
}
WITH_CODE = [
    page for page in PAGES if page not in WALKED and any(block.language not in SHOWN for block in blocks(page))
]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_shows_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    at_work = Page(tmp_path)
    with patch.dict(QUANTIZERS), patch.dict(SPECTRA), patch.dict(LEARNERS), patch.dict(METHODS):  # pages add to them
        for block in blocks(page):
            try:
                at_work.run(block)
            except BaseException as error:
                error.add_note(f"{page.relative_to(ROOT)}, line {block.line}")
                raise


def test_what_is_not_run_is_listed() -> None:
    found = {page.name: [block.reason for block in blocks(page) if block.reason] for page in PAGES}
    assert {name: reasons for name, reasons in found.items() if reasons} == NOT_RUN


@pytest.mark.parametrize(
    ("shown", "printed", "is_so"),
    [
        ("loss 0.2694 in 1,500 rounds", "loss   0.2701\n in 1500 rounds\n", True),
        ("loss 0.2694", "loss 0.2801", False),
        ("(2, 265)", "(2, 265)", True),
        ("(2, 265)", "(2, 265, 3)", False),
        ("a 1 ... c 3", "a 1\nb 2\nc 3", True),
        ("a ... c", "a b", False),
        ("a", "a b", False),
        ("-1.12", "1.12", False),
    ],
)
def test_what_is_printed_agrees_with_what_is_shown(shown: str, printed: str, is_so: bool) -> None:
    assert agree(shown, printed) is is_so

"""What says which version this is says the same; ``make release-check`` tries what is built of it."""

import re
import tomllib

import omkl
from tests.doc_pages import ROOT

FIELD = re.compile(r'^ *(?:- )?([\w-]+): "?(.*?)"?$', flags=re.MULTILINE)
SOFTWARE, PAPER = (ROOT / "CITATION.cff").read_text().split("preferred-citation:")


def test_one_version_and_one_date_are_stated() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    told = dict(FIELD.findall(SOFTWARE))
    assert told["version"] == version
    assert f"## {version} ({told['date-released']})" in (ROOT / "CHANGELOG.md").read_text().splitlines()
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+)?", omkl.__version__)


def test_the_paper_that_is_cited_is_that_of_the_readme() -> None:
    shown = dict(re.findall(r"^  (\w+) += {(.*)},?$", (ROOT / "README.md").read_text(), flags=re.MULTILINE))
    told = dict(FIELD.findall(PAPER))
    authors = re.findall(r"family-names: (.*)\n *given-names: (.*)", PAPER)
    assert shown["author"] == " and ".join(", ".join(names) for names in authors)
    assert shown["pages"] == f"{told['start']}--{told['end']}"
    assert {key: shown[key] for key in ("title", "journal", "volume", "year", "doi")}.items() <= told.items()

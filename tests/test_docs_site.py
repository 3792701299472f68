"""Links of the documentation lead somewhere, and the API reference has every public name."""

import importlib
import inspect
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote

import pytest
from markdown_it import MarkdownIt

import omkl
from tests.doc_pages import PAGES, ROOT

FORMAT = ROOT / "src" / "omkl" / "wire" / "FORMAT.md"
LINKED = [*PAGES, FORMAT]
API = sorted((ROOT / "docs" / "api").glob("*.md"))
PUBLIC = (
    "algorithm", "calibration", "compressors", "dashboard", "data", "errors", "features", "learners", "losses",
    "methods", "metrics", "model", "node.config", "node.events", "node.links", "node.protocol", "node.role",
    "node.runtime", "node.transports", "node.transports.memory", "plots", "quantizers", "river", "sending",
    "registry", "simulator", "sklearn", "testing", "theory", "topology", "wire",
)  # fmt: skip
LABORATORY = ("omkl_lab.methods", "omkl_lab.sweeps", "omkl_lab.tuning")


def links(page: Path) -> Iterator[str]:
    """Yield where the links and images of a page lead, but for those on the web."""
    for token in MarkdownIt().enable("table").parse(page.read_text(encoding="utf-8")):
        for child in token.children or ():
            link = child.attrs.get("href") or child.attrs.get("src")
            if link and not str(link).startswith("https://"):
                yield unquote(str(link))


def anchors(page: Path) -> set[str]:
    """Return the names of a page's headings, as forges and the site make them."""
    parsed = MarkdownIt().parse(page.read_text(encoding="utf-8"))
    heads = [after for token, after in pairwise(parsed) if token.type == "heading_open"]
    texts = ["".join(child.content for child in head.children or ()) for head in heads]
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in texts}


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_links_are_found() -> None:
    found = list(links(ROOT / "docs" / "bits.md"))
    assert {"steps.md", "../src/omkl/landmarks.py", "images/frontier.png"} <= set(found)
    assert "nodes-that-differ" in anchors(ROOT / "docs" / "bits.md")
    assert "the-consensus-step-gammaauto" in anchors(ROOT / "docs" / "steps.md")


def test_every_page_is_in_the_contents() -> None:
    listed = set()
    for index in (ROOT / "docs" / "index.md", ROOT / "docs" / "api" / "index.md"):
        for block in re.findall(r"```{toctree}\n(.*?)```", index.read_text(), flags=re.DOTALL):
            listed |= {index.parent / f"{name}.md" for name in block.split("\n") if re.fullmatch(r"[\w./-]+", name)}
    pages = {page for page in PAGES if page.is_relative_to(ROOT / "docs")}
    assert listed == pages - {ROOT / "docs" / "index.md"}


def documented() -> dict[str, Any]:
    """Return what the API reference documents, by the name it has there."""
    names = [
        name for page in API for name in re.findall(r"^\.\. (?:auto|py:)\w+:: (\S+)$", page.read_text(), flags=re.M)
    ]
    assert len(names) == len(set(names))
    return {name: attribute(name) for name in names}


def attribute(name: str) -> Any:
    module, _, rest = name.rpartition(".")
    return getattr(importlib.import_module(module), rest)


def public(module: ModuleType) -> list[str]:
    """Return the public names of a module: those it lists, or the functions and classes that are its own."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    own = [name for name, thing in vars(module).items() if getattr(thing, "__module__", None) == module.__name__]
    return [name for name in own if name[0] != "_" and isinstance(vars(module)[name], type | type(attribute))]


@pytest.mark.parametrize("name", ["omkl", *(f"omkl.{name}" for name in PUBLIC), *LABORATORY])
def test_the_reference_has_every_public_name(name: str) -> None:
    module, told = importlib.import_module(name), {id(thing) for thing in documented().values()}
    things = {one: getattr(module, one) for one in public(module)}
    assert things
    assert [one for one, thing in things.items() if not inspect.ismodule(thing) and id(thing) not in told] == []


def test_the_modules_that_omkl_offers_are_public() -> None:
    offered = [name for name in omkl.__all__ if inspect.ismodule(getattr(omkl, name))]
    assert set(offered) <= set(PUBLIC)

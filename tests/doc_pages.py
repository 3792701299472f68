"""The pages of the documentation, the blocks of code in them, and what running those takes."""

import contextlib
import io
import math
import os
import re
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator
from importlib.metadata import metadata
from pathlib import Path
from typing import Any, NamedTuple

from markdown_it import MarkdownIt

from omkl.cli.app import ADDED
from omkl.compressors import QUANTIZERS
from omkl.config import experiment
from omkl.features import SPECTRA
from omkl.learners import LEARNERS
from omkl.losses import LOSSES
from omkl.methods import METHODS
from omkl.methods.mixing import MIXING
from omkl.node import config
from omkl.node.setup.template import write
from omkl.sending import SENDING
from omkl_lab.cli import grid

ROOT = Path(__file__).parent.parent
PAGES = sorted(page for place in ("*.md", "deploy/*.md", "docs/**/*.md", "examples/*.md") for page in ROOT.glob(place))
SHOWN = ("text", "ini", "bibtex")  # to be read, not to be run
LIMIT = 120  # seconds, of a command

MARK = "# not run by the tests: "
SETUP = ("pip install ", "make ", "python3 -m venv ", ". .venv/")
"""What makes an environment, or a checkout's: not run, but what it names exists."""

SERVES = "omkl dashboard"
"""What does not end by itself."""

NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?")
TOKEN = re.compile(rf"\.\.\.|{NUMBER.pattern}|[^\W\d]+|[^\w\s]")


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    text: str
    line: int
    is_output: bool
    """Whether it shows what the block before it prints."""

    @property
    def reason(self) -> str | None:
        """Why the tests do not run it, if they do not."""
        first = self.text.partition("\n")[0]
        return first.removeprefix(MARK) if first.startswith(MARK) else None


def blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page in order; refuse those without a fence, which say no language."""
    output = False
    for token in MarkdownIt().parse(page.read_text(encoding="utf-8")):
        assert token.type != "code_block", f"{page}:{token.map}: an indented block; fence it and name its language"
        if token.type == "fence" and not token.info.startswith("{"):
            assert token.map
            yield Block(token.info, token.content, token.map[0] + 1, output)
        output = token.type == "html_block" and token.content.strip() == "<!-- output -->"


def agree(shown: str, printed: str, end: str = r"\s*\Z") -> bool:
    """Return whether a text is what is shown: ``...`` is anything, spaces do not count, numbers agree to 2 %."""
    tokens = TOKEN.findall(shown)
    numbers = [token for token in tokens if NUMBER.fullmatch(token)]
    parts = [".*?" if one == "..." else f"({NUMBER.pattern})" if one in numbers else re.escape(one) for one in tokens]
    found = re.match(r"\s*" + r"\s*".join(parts) + end, printed, flags=re.DOTALL)
    return found is not None and all(_close(*pair) for pair in zip(numbers, found.groups(), strict=True))


def _close(one: str, other: str) -> bool:
    return math.isclose(float(one.replace(",", "")), float(other.replace(",", "")), rel_tol=0.02)


class Page:
    """A page at work: a folder and a namespace, in which its blocks run one after another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: dict[str, Any] = {"__name__": "page"}
        self.printed = ""
        self._tables: dict[str, Any] = {}
        (folder / "deploy").symlink_to(ROOT / "deploy")

    def run(self, block: Block) -> None:
        """Run a block, and hold what it prints to what the page shows."""
        if block.is_output:
            assert agree(block.text, self.printed), self.printed
        elif block.language not in SHOWN and block.reason is None:
            run = {"python": self.python, "sh": self.sh, "console": self.console, "toml": self.toml}
            run[block.language](block.text)

    def python(self, code: str) -> None:
        """Run Python; a line that prints and has a comment is held to it."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, self.names)
        self.printed = printed.getvalue()
        comments = re.findall(r"^print\(.*\)  # (.*)$", code, flags=re.MULTILINE)
        for comment, line in zip(comments, self.printed.splitlines() if comments else [], strict=True):
            assert agree(line, comment, end=""), f"{line!r} for {comment!r}"

    def sh(self, code: str) -> None:
        """Run commands; of those that install something, check that it is there."""
        lines = code.splitlines()
        for line in lines:
            if line.startswith(SETUP):
                _check_setup(line)
        self.shell("\n".join(line for line in lines if not line.startswith((*SETUP, SERVES))))
        for line in lines:
            if line.startswith(SERVES):
                self.serve(line)

    def console(self, text: str) -> None:
        """Run each command after a dollar, and hold what it prints to what follows."""
        for command, shown in commands(text):
            printed = self.shell(command)
            assert agree(shown, printed), printed

    def shell(self, code: str) -> str:
        """Return what commands print."""
        ran = subprocess.run(
            ["bash", "-euc", code], cwd=self.folder, env=environment(), capture_output=True, text=True, timeout=LIMIT,
            check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def serve(self, command: str) -> None:
        """Start a server, open the page where it says that it is, and end it."""
        started = ["bash", "-c", f"exec {command} --no-browser --port 0"]
        with subprocess.Popen(started, cwd=self.folder, env=environment(), stderr=subprocess.PIPE, text=True) as server:
            assert server.stderr
            address = server.stderr.readline().split()[-1]
            opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
            with opener.open(address, timeout=LIMIT) as answer:
                assert b"<title>" in answer.read()
            server.terminate()
            assert server.wait(LIMIT) == 0

    def toml(self, text: str) -> None:
        """Read a spec, a grid, entry points, or tables of a network's file, by what reads them in earnest."""
        table = tomllib.loads(text)
        if "project" in table:  # of a package that adds to omkl
            known = (METHODS, QUANTIZERS, LEARNERS, LOSSES, SPECTRA, MIXING, SENDING)
            assert set(table["project"]["entry-points"]) <= {ADDED, *(one.group for one in known)}
            return
        if "data" not in table:
            self._tables |= table
            _check_network(self.folder / "network.toml", self._tables)
            return
        path = self.folder / ("grid.toml" if "grid" in table else "spec.toml")
        path.write_text(text)
        if "grid" in table:
            assert list(grid.expand(path))
        else:
            table.pop("tune", None)
            assert experiment(table)


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield the commands of a console, and what is shown after each."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


def environment() -> dict[str, str]:
    """Return what commands run in: the programs of this environment come first."""
    return os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "120"}


def _check_setup(line: str) -> None:
    extras = {one for found in re.findall(r"\[([\w,]+)\]", line) for one in found.split(",")}
    assert extras <= set(metadata("omkl").get_all("Provides-Extra") or ()), line
    if target := re.match(r"make ([\w-]+)", line):
        assert re.search(rf"^{target[1]}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE), line


def _check_network(path: Path, tables: dict[str, Any]) -> None:
    """Read tables of a network's file over those of a fresh one, with TLS if they have it."""
    if not path.exists():
        write(path, nodes=3, topology="path")
    text = path.read_text().replace('"tcp/', '"tls/' if "tls" in tables else '"tcp/')
    assert config.parse(tomllib.loads(text) | tables, path.parent)

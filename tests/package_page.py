"""The package of ``docs/extend/package.md``: written as the page says, and used as it says."""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.doc_pages import ROOT, agree, blocks, commands

PAGE = ROOT / "docs" / "extend" / "package.md"
CLASSES = {"methods": "method.md", "quantizers": "quantizer.md", "learners": "learner.md"}
LIMIT = 300  # seconds, of a command


def write(folder: Path) -> None:
    """Write the files: those that the page shows, and the classes that it takes from other pages."""
    (folder / "my_package").mkdir()
    (folder / "my_package" / "__init__.py").touch()
    for module, page in CLASSES.items():
        first = next(block for block in blocks(PAGE.with_name(page)) if block.language == "python")
        (folder / "my_package" / f"{module}.py").write_text(first.text)
    for block in blocks(PAGE):
        if named := re.match(r"# (\S+)\n", block.text):
            (folder / named[1]).write_text(block.text)


def use(folder: Path, environment: Mapping[str, str], install: bool) -> list[str]:
    """Run the page's commands and its Python, hold what they print to what it shows, and return what was run."""

    def run(*command: str) -> str:
        ran = subprocess.run(
            command, cwd=folder, env=dict(environment), capture_output=True, text=True, timeout=LIMIT, check=False
        )
        assert ran.returncode == 0, f"{' '.join(command)}: {ran.stdout}{ran.stderr}"
        done.append(" ".join(command[2:]))
        return ran.stdout

    done = list[str]()
    for block in blocks(PAGE):
        if block.language == "sh" and (install or not block.text.startswith("pip ")):
            run("bash", "-euc", block.text.strip())
        for command, shown in commands(block.text) if block.language == "console" else ():
            assert agree(shown, printed := run("bash", "-euc", command)), printed
        if block.text.startswith("# use.py"):
            printed = run("bash", "-euc", "python use.py")
            shown = "\n".join(re.findall(r"^print\(.*\)  # (.*)$", block.text, flags=re.MULTILINE))
            assert agree(shown, printed), printed
    return done

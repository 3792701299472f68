"""The package of the page about packages is found by its entry points, and its classes keep the rules."""

import os
import tomllib
from pathlib import Path

from tests import package_page
from tests.doc_pages import environment


def test_the_package_of_the_page_works(tmp_path: Path) -> None:
    """It is put on the path with the entry points of its pyproject.toml; ``make release-check`` installs it."""
    package_page.write(tmp_path)
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]
    told = tmp_path / f"{project['name']}-{project['version']}.dist-info"
    told.mkdir()
    (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = [
        f"[{group}]\n" + "\n".join(f"{name} = {where}" for name, where in points.items())
        for group, points in project["entry-points"].items()
    ]
    (told / "entry_points.txt").write_text("\n".join(groups))
    path = os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))
    done = package_page.use(tmp_path, environment() | {"PYTHONPATH": path}, install=False)
    assert len(done) >= 6

"""Ten minutes to a network, walked: three terminals, questions from a fourth, one node stopped and started again."""

import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from omkl.node.cluster import free_ports
from tests.doc_pages import LIMIT, Page, agree, blocks, commands, environment
from tests.test_docs import WALKED

PAGE = WALKED[0]
SHOWN = {language: [block.text for block in blocks(PAGE) if block.language == language]
         for language in ("sh", "console", "python")}  # fmt: skip
(SETUP, TERMINAL, DEVICES), (CHECK, ASK), (SENSOR, PYTHON) = SHOWN["sh"], SHOWN["console"], SHOWN["python"]
NUMBER = re.compile(r"-?\d+(\.\d+)?")


class Terminal:
    """A command of the page at work, and what it writes to stderr."""

    def __init__(self, folder: Path, command: str) -> None:
        self._process = subprocess.Popen(
            ["bash", "-c", command], cwd=folder, env=environment(), stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        self._guard = threading.Timer(LIMIT, self.signal, [signal.SIGKILL])
        self._guard.start()

    def signal(self, number: int) -> None:
        """Send a signal to all of its processes, as Ctrl-C does."""
        os.killpg(self._process.pid, number)

    def until(self, pattern: str) -> None:
        """Read on to a line in which the pattern is found."""
        assert self._process.stderr
        lines = []
        for line in self._process.stderr:
            lines.append(line)
            if re.search(pattern, line):
                return
        raise AssertionError(f"no {pattern!r} in {lines}")

    def close(self) -> None:
        """End what is left of it."""
        self._guard.cancel()
        if self._process.poll() is None:
            self.signal(signal.SIGKILL)
        with self._process:
            pass


@contextmanager
def terminal(folder: Path, id: str) -> Iterator[Terminal]:
    opened = Terminal(folder, TERMINAL.replace("sensor.py a", f"sensor.py {id}").replace("--id a", f"--id {id}"))
    try:
        yield opened
    finally:
        opened.close()


def move(folder: Path) -> dict[str, str]:
    """Give the network ports that are free; return what became of the page's ports."""
    path = folder / "network.toml"
    old = [str(port) for first in (7447, 17447) for port in range(first, first + 3)]
    moved = dict(zip(old, map(str, free_ports(len(old))), strict=True))
    path.write_text(re.sub(rf":({'|'.join(old)})\b", lambda found: f":{moved[found[1]]}", path.read_text()))
    return moved


def test_ten_minutes_to_a_network(tmp_path: Path) -> None:
    page = Page(tmp_path)
    page.sh(SETUP)
    page.console(CHECK)
    ports = move(tmp_path)
    (tmp_path / "sensor.py").write_text(SENSOR.replace("time.sleep(0.05)", "time.sleep(0.01)"))
    with ExitStack() as stack:
        a, b, c = (stack.enter_context(terminal(tmp_path, id)) for id in "abc")
        a.until("b is synced: ")
        a.until(r"round ([3-9]\d\d|\d{4,}): loss ")
        for command, shown in commands(ASK):
            if command.startswith("curl ") and not shutil.which("curl"):
                continue
            for old, new in ports.items():
                command = command.replace(f":{old}/", f":{new}/")
            printed = page.shell(command)
            assert agree(*(NUMBER.sub("0", text) for text in (shown, printed))), printed
        assert page.shell(list(commands(ASK))[2][0]).split() == ["[", "1", "-1]"]
        c.signal(signal.SIGINT)
        c.until("c: left after round ")
        b.until("c is left out: nothing new within the deadline of 5 s")
        again = stack.enter_context(terminal(tmp_path, "c"))
        again.until("goes on from round ")
        again.until("b is synced")
        b.until("c is synced")
        a.signal(signal.SIGINT)
        a.until("a: left after round ")
        (tmp_path / "program.py").write_text(PYTHON)
        assert page.shell("python program.py").strip() in ("-1", "1")


def test_a_file_for_devices(tmp_path: Path) -> None:
    page = Page(tmp_path)
    page.sh(DEVICES)
    assert "192.168.1.15" in page.shell("omkl node check")

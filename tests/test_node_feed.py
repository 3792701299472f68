"""Predictions are written whole, in their order, whatever becomes of the disk."""

import errno
import logging
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from omkl.node import feed
from omkl.node.feed import Output


class Room:
    """What takes the place of ``os.write``: so many bytes at each call, or the error that is in their place."""

    def __init__(self, *taken: int) -> None:
        self.written, self._taken = b"", list(taken)

    def write(self, _: int, data: bytes) -> int:
        take = self._taken.pop(0) if self._taken else len(data)
        if take < 0:
            raise OSError(-take, os.strerror(-take))
        self.written += data[:take]
        return min(take, len(data))


def output(path: Path, monkeypatch: pytest.MonkeyPatch, *taken: int) -> tuple[Output, Room]:
    room = Room(*taken)
    monkeypatch.setattr(feed, "os", SimpleNamespace(write=room.write))
    monkeypatch.setattr(feed, "PAUSE", 0.0)
    with path.open("w") as file:
        return Output(file, "a"), room


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EAGAIN)


@pytest.mark.parametrize("number", FULL, ids=errno.errorcode.get)
def test_a_line_goes_on_where_room_was_lacking(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lines, room = output(tmp_path / "out", monkeypatch, 9, 3, -number, -number, 1, -number)
    with caplog.at_level(logging.INFO):
        for line in ("line one\n", "line two\n", "line three\n"):
            lines.write(line)
    assert room.written == b"line one\nline two\nline three\n"
    told = [(record.levelname, record.omkl["event"]) for record in caplog.records]  # type: ignore[attr-defined]
    assert told == [("WARNING", "unwritten"), ("INFO", "written")]
    assert os.strerror(number) in caplog.messages[0]


@pytest.mark.parametrize("number", feed.GONE, ids=errno.errorcode.get)
def test_nothing_is_written_to_nobody(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lines, room = output(tmp_path / "out", monkeypatch, 3, -number)
    for line in ("line one\n", "line two\n"):
        lines.write(line)
    assert room.written == b"lin"
    assert not caplog.records


@pytest.mark.skipif(sys.platform != "linux", reason="descriptors are those of Linux")
@pytest.mark.parametrize(("before", "after"), [(b"half a", b"half a\n"), (b"whole\n", b"whole\n"), (b"", b"")])
def test_a_line_begins_behind_half_a_line(before: bytes, after: bytes, tmp_path: Path) -> None:
    (path := tmp_path / "out").write_bytes(before)
    with path.open("a") as file:
        lines = Output(file, "a")
        lines.write("line one\n")
        lines.write("line two\n")
    assert path.read_bytes() == after + b"line one\nline two\n"

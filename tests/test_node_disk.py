import subprocess
import sys
import threading
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from omkl.errors import DiskError, InputError
from omkl.node.events import Damaged, Event, Unsaved
from omkl.node.persistence import checkpoint, count, saved
from omkl.node.persistence.count import Count
from omkl.node.persistence.disk import Disk, OpenFile, RealDisk, held
from omkl.node.protocol import Protocol
from omkl.node.settings import Checkpoint
from tests.node_cluster import config
from tests.node_disk import MemoryDisk

FILE = Path("a.npz")
LAST = Path("a.npz.last")
COUNT = Path("a.count")


def aged(rounds: int, boot: int = 1) -> Protocol:
    """Return a node alone, after some rounds."""
    node = Protocol(config(1).role("a"), boot, 0.0)
    for k in range(rounds):
        node.observe([1.0, -k], 1, 0.0)
    return node


def restored(disk: Disk, boot: int = 7) -> Protocol:
    return checkpoint.restore(FILE, config(1).role("a"), boot, 0.0, disk)


def two(clean: bool = True) -> MemoryDisk:
    """Return a disk with the checkpoints of rounds 1 and 2."""
    disk = MemoryDisk()
    for rounds in (1, 2):
        checkpoint.save(FILE, aged(rounds), clean, disk)
    return disk


def test_a_real_disk(tmp_path: Path) -> None:
    disk = RealDisk()
    one, other = tmp_path / "one", tmp_path / "other"
    with pytest.raises(FileNotFoundError):
        disk.read(one)
    for content in (b"longer", b"short"):
        disk.write(one, content)
        assert disk.read(one) == content
    disk.write(other, b"gone")
    disk.move(one, other)
    assert disk.read(other) == b"short"
    assert not one.exists()
    with pytest.raises(FileNotFoundError):
        disk.move(one, other)


@pytest.mark.parametrize("before", [None, 5])
def test_a_number_outlives_the_process_that_is_killed(tmp_path: Path, before: int | None) -> None:
    path = tmp_path / "a.count"
    if before is not None:
        path.write_bytes(before.to_bytes(8, "little"))  # as 0.1 wrote it
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from omkl.node.persistence.count import Count; from omkl.node.persistence.disk import RealDisk\n"
        "count = Count(RealDisk(), Path(sys.argv[1])); count.reach(count.value + 1); count.reach(2**40)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == -9
    assert count.read(path.read_bytes()) == [(before or 0) + 1, 2**40]
    with closing(Count(RealDisk(), path)) as again:
        assert (again.value, again.fault) == (2**40, None)
        again.reach(3)
    with closing(Count(RealDisk(), path)) as again:
        assert again.value == 2**40
    assert [file.name for file in tmp_path.iterdir()] == ["a.count"]


def test_a_number_is_whole_or_recognized_after_a_kill_at_any_byte() -> None:
    disk = MemoryDisk()
    number = Count(disk, COUNT)
    for value in range(1, 4):
        before = bytes(disk.numbers[COUNT])
        number.reach(value)
        after = bytes(disk.numbers[COUNT])
        for cut in range(count.SIZE + 1):
            torn = after[:cut] + before[cut:]
            assert max(count.read(torn)) in (value - 1, value)


def test_every_bit_of_a_number_counts() -> None:
    disk = MemoryDisk()
    for value in (6, 7):
        Count(disk, COUNT).reach(value)
    whole = bytes(disk.numbers[COUNT])
    for bit in range(8 * len(whole)):
        content = bytearray(whole)
        content[bit // 8] ^= 1 << bit % 8
        disk.numbers = {COUNT: content}
        found = Count(disk, COUNT)
        assert found.value in (6, 7)
        assert found.fault == "is damaged, by its digests; more may be lost than it says"
        assert Count(disk, COUNT).fault is None  # it was put right


@pytest.mark.parametrize("content", [b"", b"\5\0\0", b"\xff" * 8, b"\xff" * count.SIZE, bytes(count.SIZE), bytes(4096)])
def test_what_is_no_number_is_none(content: bytes) -> None:
    disk = MemoryDisk()
    disk.numbers = {COUNT: bytearray(content)}
    found = Count(disk, COUNT)
    assert (found.value, found.fault) == (0, "is damaged, by its digests; what a crash has lost is not known")
    found.reach(8)
    assert Count(disk, COUNT).value == 8


def test_every_byte_counts() -> None:
    whole = two().files[FILE]
    disk = MemoryDisk()
    for place in range(len(whole)):
        disk.files = {FILE: whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :]}
        with pytest.raises(InputError, match="is not a whole checkpoint"):
            restored(disk)
    for length in range(len(whole)):
        disk.files = {FILE: whole[:length]}
        with pytest.raises(InputError, match="is not a whole checkpoint"):
            restored(disk)
    for more in (b"\0", whole):
        disk.files = {FILE: whole + more}
        with pytest.raises(InputError, match="is not a whole checkpoint"):
            restored(disk)


@pytest.mark.parametrize("clean", [True, False])
def test_where_a_file_is_damaged_the_last_one_is_taken_under_another_boot(clean: bool) -> None:
    disk = two(clean)
    disk.files[FILE] = disk.files[FILE][:-1]
    node = restored(disk)
    assert (node.round, node.neighbors.boot, node.restored) == (1, 7, True)
    (told,) = node.wake(0.0)
    assert isinstance(told, Damaged)
    assert (told.file, "digest is wrong" in told.why) == ("a.npz", True)
    disk.fails_at = disk.calls + 2  # between the two moves of a save
    with pytest.raises(OSError, match="No space"):
        checkpoint.save(FILE, aged(9), False, disk)
    assert restored(disk).round == 1  # the damaged file has not taken its place


def test_where_both_are_damaged_nothing_is_made_up() -> None:
    disk = two()
    disk.files = {path: content[:-1] for path, content in disk.files.items()}
    before = dict(disk.files)
    with pytest.raises(InputError, match=r"a.npz is not a whole .*; a.npz.last is not a .*; bring back a good"):
        restored(disk)
    assert disk.files == before


@pytest.mark.parametrize("step", range(3))
def test_a_full_disk_leaves_a_good_one(step: int) -> None:
    disk = two()
    disk.fails_at = disk.calls + step
    with pytest.raises(OSError, match="No space"):
        checkpoint.save(FILE, aged(3), True, disk)
    node = restored(disk)
    assert (node.round, node.neighbors.boot) == (2, 1 if step < 2 else 7)
    disk.fails_at = None
    checkpoint.save(FILE, aged(3), True, disk)
    assert restored(disk).round == 3
    assert checkpoint.restore(LAST, config(1).role("a"), 7, 0.0, disk).round == 2


def test_a_torn_new_one_is_ignored() -> None:
    disk = two()
    disk.files[Path("a.npz.new")] = disk.files[FILE][:100]
    assert restored(disk).round == 2
    del disk.files[FILE]
    assert (restored(disk).round, restored(disk).neighbors.boot) == (1, 7)


def test_what_was_taken_is_counted() -> None:
    node = aged(3)
    node.lost = 2
    node.waiting.append((node.learning.inputs([0, 1]), None))
    disk = MemoryDisk()
    checkpoint.save(FILE, node, False, disk)
    back = restored(disk)
    assert (back.taken, back.lost, len(back.waiting)) == (3, 2, 1)


def test_a_file_that_cannot_be_read_is_not_taken_for_a_damaged_one(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = two()
    files = dict(disk.files)

    def fail(path: Path) -> bytes:
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr(disk, "read", fail)
    with pytest.raises(DiskError, match="cannot be read"):
        restored(disk)
    assert disk.files == files


def test_a_lock_that_was_removed_is_held_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a.lock"
    with held(path) as first:
        first.renew()
        assert not caplog.text
        path.unlink()
        first.renew()
        assert "a.lock was removed while its node runs; it is held again" in caplog.text
        with pytest.raises(InputError, match="held by another process"), held(path):
            pass
        path.unlink()
        with held(path):  # who came in between
            for _ in range(2):
                first.renew()
            assert caplog.text.count("was removed and cannot be held again") == 1
        first.renew()
        assert caplog.text.count("it is held again") == 2
    with held(path):
        pass


def test_a_count_that_cannot_be_written_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    told: list[Event] = []
    with saved(config(1).role("a"), Checkpoint(folder=tmp_path, every=5), 1, told.append) as saver:
        saver.begin(0.0)
        for taken in (1, 2):
            with monkeypatch.context() as patch:
                patch.setattr(OpenFile, "__setitem__", fail)
                saver.protocol.taken = taken
                assert saver.settle()
        (event,) = told
        assert isinstance(event, Unsaved)
        assert "a.count cannot be written ([Errno 28]" in event.why
        saver.protocol.taken = 3
        assert saver.settle()
    assert count.read((tmp_path / "a.count").read_bytes())[0] == 3


def test_where_a_damaged_checkpoint_is_kept_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    role, settings = config(1).role("a"), Checkpoint(folder=tmp_path)
    with saved(role, settings, 1, lambda _: None) as saver:
        saver.begin(0.0)
        saver.end()
    (tmp_path / "a.npz").write_bytes(b"torn")
    with saved(role, settings, 2, lambda _: None) as saver:
        for event in saver.protocol.wake(0.0):
            saver.watch(event)
    told = f"; it is {tmp_path / 'a.npz'}.bad now; goes on from the one before it"
    assert [message.endswith(told) for message in caplog.messages] == [True]
    assert (tmp_path / "a.npz.bad").read_bytes() == b"torn"


def test_a_file_is_held_once_and_let_go_by_any_thread(tmp_path: Path) -> None:
    path, first = tmp_path / "a.lock", ExitStack()
    first.enter_context(held(path))
    with pytest.raises(InputError, match=r"a\.lock is held by another process; a node runs once"), held(path):
        pass
    other = threading.Thread(target=first.close)  # as a node is that is closed when its program ends
    other.start()
    other.join()
    with held(path):
        pass


def test_a_lock_that_cannot_be_had_is_no_reason_not_to_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    reached, lock = False, tmp_path / "a.lock"
    lock.mkdir()  # what cannot be opened as a file
    with held(lock):
        reached = True
    assert reached
    assert "a second process of this node would not be noticed" in caplog.text


def test_nodes_are_had_where_little_of_a_system_is() -> None:
    """Without what only POSIX has: modules, signals, and folders that can be opened."""
    program = """
import os, pathlib, signal, sys, tempfile
for name in ("fcntl", "resource", "termios", "tty", "pty", "pwd", "grp", "syslog"):
    sys.modules[name] = None
for name in ("SIGUSR1", "SIGUSR2", "SIGHUP", "SIGKILL", "SIGSTOP", "SIGCONT", "SIGPIPE", "SIGALRM", "pthread_sigmask"):
    delattr(signal, name)
del os.O_DIRECTORY
sys.platform = "elsewhere"
import omkl
from omkl.node import daemon
from omkl.node.persistence.disk import RealDisk, held
with daemon.listening() as signals, tempfile.TemporaryDirectory() as folder, held(pathlib.Path(folder) / "a.lock"):
    disk, one, other = RealDisk(), pathlib.Path(folder) / "one", pathlib.Path(folder) / "other"
    disk.write(one, b"moved")
    disk.move(one, other)
    signal.raise_signal(signal.SIGTERM)
    print(omkl.Node.__name__, disk.read(other), signals.end)
"""
    soft = "ignore:only soft file lock is available"  # says filelock; where Windows is, it has another
    done = subprocess.run([sys.executable, "-W", soft, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("Node b'moved' it was told to\n", "")


@pytest.mark.skipif(sys.platform != "linux", reason="descriptors are those of Linux")
def test_a_node_that_has_left_holds_no_file(tmp_path: Path) -> None:
    settings, role = Checkpoint(folder=tmp_path), config(1).role("a")
    with saved(role, settings, 1, lambda _: None) as saver:
        saver.begin(0.0)
        assert f"{tmp_path}/a.count" in open_files()
    assert [file for file in open_files() if file.startswith(f"{tmp_path}/")] == []


def open_files() -> list[str]:
    """Return what the descriptors of this process are of."""
    return [str(one.readlink()) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]

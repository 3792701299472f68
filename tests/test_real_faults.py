"""Real processes, really killed, frozen, cut off and out of disk.

The daemons are those of ``omkl node``; see ``benchmarks.fleet`` for how they are fed. After each fault all links must
be synced, rounds go on, and every copy must be its owner's to the bit. Those marked slow are the same on a larger
scale, with compiled rounds: ``make faults``. Others go without Numba, which has no part in what becomes of a process.
"""

import random
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from benchmarks.fleet import Daemon, Fleet, Sample, write_network
from benchmarks.namespaces import Denied, Wires

SCALES = [3, pytest.param(8, marks=pytest.mark.slow)]
IDS = "abcdefgh"

each_scale = pytest.mark.parametrize("nodes", SCALES)


def samples(nodes: int, count: int, seed: int = 0) -> list[list[Sample]]:
    X = np.random.default_rng(seed).normal(size=(nodes, count, 2)).round(3)
    return [[(x.tolist(), 1 if x[0] * x[1] > 0 else -1) for x in part] for part in X]


def network(
    folder: Path, nodes: int, *, topology: str = "path", deadline: float = 1.5, hosts: Sequence[str] = (),
    kept: Path = Path("kept"), every: int | str = "observation",
) -> Path:  # fmt: skip
    return write_network(
        folder, IDS[:nodes], topology=topology, deadline=deadline, patience=0.1, hosts=hosts, kept=kept, every=every
    )


def fleet_of(path: Path, prefixes: dict[str, Sequence[str]] | None = None) -> Fleet:
    """Return daemons; many of them compile their rounds."""
    return Fleet(path, prefixes, compiled=path.read_text().count("[[nodes]]") > 3)


def go_on(fleet: Fleet, count: int = 20) -> None:
    """Give each daemon more samples, and wait until half as many are acknowledged: there is always work at hand."""
    nodes = len(fleet.daemons)
    fleet.feed(samples(nodes, count))
    least = fleet.acknowledged + nodes * count // 2
    fleet.wait(lambda: fleet.acknowledged >= least)


def check(fleet: Fleet) -> None:
    """All is well: links synced, rounds going on, copies equal, and nothing held that a kill leaves behind."""
    fleet.settle()
    assert not [file for daemon in fleet.daemons.values() for file in held(daemon) if file.startswith("/dev/shm")]
    fleet.leave()
    copies, equal = fleet.copies()
    assert equal == copies == 2 * len(fleet.config.topology.graph.edges)


def held(daemon: Daemon) -> list[str]:
    """Return the files that a daemon has open."""
    assert daemon.process
    return [str(file.readlink()) for file in Path(f"/proc/{daemon.process.pid}/fd").glob("*") if file.is_symlink()]


@each_scale
def test_killed_at_random(tmp_path: Path, nodes: int) -> None:
    kills, choose = nodes * nodes // 3, random.Random(nodes)
    with fleet_of(network(tmp_path, nodes, topology="ring")) as fleet:
        for _ in range(kills):
            go_on(fleet)
            daemon = choose.choice(list(fleet.daemons.values()))
            daemon.kill()
            daemon.start()
        check(fleet)
        assert sum(len(daemon.events("started")) for daemon in fleet.daemons.values()) == nodes + kills
        assert fleet.lost() == 0
        assert not any(daemon.events("lost") for daemon in fleet.daemons.values())


def test_what_a_crash_loses_is_told(tmp_path: Path) -> None:
    kills = 3
    with fleet_of(network(tmp_path, 2, every=1000)) as fleet:
        killed = fleet["a"]
        for k in range(kills):
            fleet.feed(samples(2, 20))
            fleet.wait(lambda k=k: len(killed.acks) >= 10 * (k + 1))  # type: ignore[misc]
            killed.kill()
            killed.start()
        check(fleet)
        told = sum(event["observations"] for event in killed.events("lost"))
        assert 10 * kills <= fleet.lost() <= told <= fleet.lost() + kills  # it may be killed before it acknowledges


@each_scale
def test_all_killed_at_once(tmp_path: Path, nodes: int) -> None:
    with fleet_of(network(tmp_path, nodes)) as fleet:
        go_on(fleet)
        fleet.kill()
        fleet.start()
        check(fleet)
        again = [daemon.events("joined")[1] for daemon in fleet.daemons.values()]
        assert all(joined["restored"] and joined["round"] >= 5 for joined in again)


@each_scale
def test_told_to_leave_one_after_the_other(tmp_path: Path, nodes: int) -> None:
    with fleet_of(network(tmp_path, nodes, deadline=20.0)) as fleet:
        for daemon in fleet.daemons.values():
            go_on(fleet)
            assert daemon.leave() == 0
            daemon.start()
        check(fleet)
        assert fleet.lost() == 0


@each_scale
def test_frozen_for_longer_than_the_lease(tmp_path: Path, nodes: int) -> None:
    with fleet_of(network(tmp_path, nodes, topology="ring")) as fleet:
        go_on(fleet)
        frozen = fleet["b"]
        frozen.tell(signal.SIGSTOP)
        fleet.wait(lambda: all(fleet[peer].links()["b"] == "left out" for peer in frozen.links()))
        seen = len(frozen.acks)
        frozen.tell(signal.SIGCONT)
        check(fleet)
        assert len(frozen.acks) > seen


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def fill(disk: Path) -> Path:
    """Return a file that takes all the room there is."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return filler


def test_a_full_disk(tmp_path: Path, small_disk: Path) -> None:
    with fleet_of(network(tmp_path, 3, kept=small_disk, every=1)) as fleet:
        go_on(fleet)
        fleet.drain()  # nobody is at a checkpoint, whose end would give room back
        filler, one = fill(small_disk), fleet["b"]
        go_on(fleet)
        assert "No space left" in one.events("unsaved")[0]["why"]
        last = one.acks[-1].round
        one.kill()
        one.start()  # on a disk that is full still
        go_on(fleet)
        fleet.wait(lambda: len(one.events("joined")) == 2)  # the others may be that much ahead
        joined = one.events("joined")[-1]
        assert joined["restored"]
        assert 0 < joined["round"] < last
        filler.unlink()
        check(fleet)


def test_a_full_disk_holds_acknowledgements_back(tmp_path: Path, small_disk: Path) -> None:
    with fleet_of(network(tmp_path, 2, kept=small_disk)) as fleet:
        go_on(fleet)
        fleet.drain()  # nobody is at a checkpoint, whose end would give room back
        filler = fill(small_disk)
        fleet.feed(samples(2, 60))  # more than what the last page of a journal has room for
        fleet.wait(lambda: all(daemon.events("unsaved") for daemon in fleet.daemons.values()))
        held = fleet.acknowledged
        for daemon in fleet.daemons.values():
            daemon.kill()
        assert fleet.acknowledged == held
        filler.unlink()
        fleet.start()
        check(fleet)
        assert fleet.lost() == 0


def test_a_disk_that_is_lost(tmp_path: Path) -> None:
    with fleet_of(network(tmp_path, 3)) as fleet:
        go_on(fleet)
        one = fleet["b"]
        one.kill()
        for file in (tmp_path / "kept").glob("b.*"):
            file.unlink()
        one.start()
        check(fleet)
        assert one.events("recovered")


@pytest.fixture
def wires() -> Iterator[Wires]:
    """Three namespaces in a row."""
    try:
        with Wires(IDS[:3]) as wires:
            yield wires
    except Denied as error:
        pytest.skip(f"no network namespaces here: {error}")


def spread(folder: Path, wires: Wires, deadline: float = 1.5) -> Fleet:
    """Return daemons in namespaces of their own."""
    path = network(folder, len(wires.ids), hosts=wires.hosts, deadline=deadline)
    return fleet_of(path, {id: wires.prefix(id) for id in wires.ids})


def test_a_wire_that_is_cut(tmp_path: Path, wires: Wires) -> None:
    with spread(tmp_path, wires) as fleet:
        go_on(fleet)
        wires.cut("b")
        fleet.feed(samples(3, 20))
        fleet.wait(lambda: fleet["b"].links()["c"] == fleet["c"].links()["b"] == "left out")
        fleet.drain()  # both parts go on
        wires.mend("b")
        check(fleet)


def test_a_wire_that_loses_packets(tmp_path: Path, wires: Wires) -> None:
    with spread(tmp_path, wires, deadline=5.0) as fleet:
        go_on(fleet)
        try:
            wires.lose("a")
            wires.lose("b")
        except Denied as error:
            pytest.skip(f"packets cannot be lost here: {error}")
        # A wire loses one packet in ten, and rounds that are close together share packets: go on until both have lost
        # some. Twenty times without is a chance of 1e-10 even where sixty samples travel in ten packets.
        for _ in range(20):
            go_on(fleet, 60)
            if wires.lost("a") and wires.lost("b"):
                break
        assert wires.lost("a") > 0
        assert wires.lost("b") > 0
        check(fleet)

"""What must not change: frames, files of 0.1, the course of seeded faults, loss curves; commands have their own file.

Where one of these fails because a change is meant, ``python -m tests.oracles NAME`` freezes it anew.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import omkl
from omkl.errors import InputError
from omkl.node.persistence import checkpoint
from omkl.wire import read_gossip, write_gossip
from omkl_lab.torture.faults import FAULTS
from tests.oracles import api, digests, files, losses, wire
from tests.wire_cases import CODECS, NAMES, equal

FEW = 50  # of the seeded networks; make slow takes all of them
RELATIVE, ABSOLUTE = 1e-4, 1e-5  # outputs of other BLAS, other libm


def answered(found: Any, frozen: Any) -> bool:
    """Return whether a file says what it said: whole numbers and names alike, others to a few bits."""
    if isinstance(frozen, dict):
        return set(found) == set(frozen) and all(answered(found[key], frozen[key]) for key in frozen)
    if np.asarray(frozen).dtype.kind in "iu":
        return np.array_equal(found, frozen)
    return np.shape(found) == np.shape(frozen) and np.allclose(found, frozen, RELATIVE, ABSOLUTE)


# The wire


def test_the_wire_says_what_it_said() -> None:
    assert wire.told() == wire.frozen()


@pytest.mark.parametrize("codec", CODECS, ids=NAMES)
def test_frozen_frames_are_read(codec: Any) -> None:
    frames = wire.frozen()["gossip"][NAMES[CODECS.index(codec)]]
    for frame, message in zip(frames, wire.messages(codec), strict=True):
        assert equal(read_gossip(codec, bytes.fromhex(frame), (wire.BOOT, wire.ROUND), wire.SEED), message)


def test_another_byte_on_the_wire_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omkl.wire.write_gossip", lambda *given: b"\xff" + write_gossip(*given)[1:])
    assert wire.told() != wire.frozen()


# Files


@pytest.mark.parametrize(
    ("version", "name"),
    [(version, name) for version in files.versions() for name in files.answers(version)],
    ids=lambda one: getattr(one, "name", one),
)
def test_files_of_every_version_are_read(version: Path, name: str) -> None:
    assert answered(files.CASES[name].read(version / name), files.answers(version)[name])


@pytest.mark.parametrize("name", files.CASES)
def test_files_are_written_as_they_were(name: str, tmp_path: Path) -> None:
    files.CASES[name].write(tmp_path)
    assert files.layout(tmp_path) == files.layout(files.versions()[-1] / name)


def test_another_key_in_a_checkpoint_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case, name = files.CASES["node-paper"], "node-paper"
    written = checkpoint._arrays
    monkeypatch.setattr(checkpoint, "_arrays", lambda node: {f"{key}_": value for key, value in written(node).items()})
    case.write(tmp_path)
    assert files.layout(tmp_path) != files.layout(files.versions()[-1] / name)
    with pytest.raises(InputError, match="does not fit"):
        case.read(tmp_path)


def test_another_number_of_a_format_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "FORMAT", 3)
    files.CASES["node-paper"].write(tmp_path)
    assert files.layout(tmp_path) != files.layout(files.versions()[-1] / "node-paper")


def test_other_answers_of_a_file_are_found() -> None:
    told = files.answers(files.versions()[0])["run-paper"]
    for key, change in (("bits", 1), ("loss", 1e-3)):
        assert not answered(told | {key: (np.asarray(told[key]) + change).tolist()}, told)
    assert not answered({key: told[key] for key in told if key != "model"}, told)


def test_a_version_that_is_frozen_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "version", lambda package: "0.1.0")
    monkeypatch.setattr(files, "CASES", {})
    with pytest.raises(SystemExit, match=r"0\.1\.0 is frozen"):
        files.freeze()


def test_versions_are_in_the_order_of_their_release() -> None:
    names = ["0.2.0", "0.10.0.dev0", "0.2.0.dev10", "0.1.0", "0.2.0.dev2"]
    assert sorted(names, key=files.order) == ["0.1.0", "0.2.0.dev2", "0.2.0.dev10", "0.2.0", "0.10.0.dev0"]


# Public names


def test_public_names_are_what_they_were() -> None:
    found = api.difference(api.frozen(), api.told())
    assert not found, f"public names differ; {api.HINT}\n{found}"


def test_another_public_name_is_told() -> None:
    lines = ["omkl.Mine(eta=1.0)", "    learn(x, y)", "    name", "omkl.given(data)"]
    assert api.difference(lines, lines) == ""
    assert api.difference(lines, [*lines[:2], "omkl.given(data)", "omkl.new"]) == "- omkl.Mine.name\n+ omkl.new"
    changed = [lines[0], "    learn(x, y, weight=None)", *lines[2:]]
    assert api.difference(lines, changed) == "- omkl.Mine.learn(x, y)\n+ omkl.Mine.learn(x, y, weight=None)"


def test_another_parameter_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(omkl.Nearest, "most", lambda self, length, often=2: often)
    monkeypatch.delattr(omkl.QSGD, "tau")
    found = api.difference(api.told(), [])
    assert "- omkl.Nearest.most(length, often=2)" in found
    assert "omkl.QSGD.tau" not in found
    assert "omkl.QSGD.delta(n)" in found


# Seeded faults


# Each seed is frozen by itself. A change of what happens often shows in few of them; what is rare needs them all.
@pytest.mark.parametrize("seeds", [FEW, pytest.param(digests.SEEDS, marks=pytest.mark.slow)])
def test_seeded_faults_take_their_course(seeds: int) -> None:
    reports = digests.reports(seeds)
    courses, by_arithmetic = digests.frozen()
    assert len(courses) == digests.SEEDS
    assert [report.violation for report in reports] == [None] * seeds
    assert [report.course for report in reports] == courses[:seeds]
    if (exact := by_arithmetic.get(digests.key())) is not None:
        assert [report.digest for report in reports] == exact[:seeds]
    kinds = {kind for report in reports for kind in report.faults}
    assert kinds <= set(FAULTS)
    assert len(kinds) >= len(FAULTS) - (seeds < digests.SEEDS)  # a rotten checkpoint is rare
    assert all(report.faults.total() == digests.EVENTS for report in reports)
    assert sum(report.recovered for report in reports) > 0
    assert sum(report.lost for report in reports) > 0
    assert sum(report.balanced for report in reports) > seeds / 2
    assert max(report.settled_rounds for report in reports) > 1
    assert 0.99 < max(report.closer for report in reports) < 1.01


# Losses


@pytest.mark.parametrize("name", losses.CASES)
def test_losses_in_numpy_are_what_they_were(name: str) -> None:
    found, frozen = losses.in_numpy(name), losses.frozen()
    if (exact := frozen.get(losses.key())) is not None:
        np.testing.assert_array_equal(found, exact[name])
    for other in frozen.values():
        np.testing.assert_allclose(found, other[name], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in losses.CASES if name.startswith("paper")])
def test_losses_in_jax_are_what_they_were(name: str) -> None:
    for frozen in losses.frozen().values():
        np.testing.assert_allclose(losses.in_jax(name), frozen[name].mean(axis=1), rtol=0, atol=1e-5)


def test_a_change_in_the_fifth_digit_of_a_loss_is_found() -> None:
    found, frozen = losses.in_numpy("paper"), losses.frozen().values()
    assert all(np.abs(found * (1 + 5e-5) - one["paper"]).max() > 1e-5 for one in frozen)


def test_several_kinds_of_arithmetic_are_frozen() -> None:
    assert min(len(losses.frozen()), len(digests.frozen()[1])) >= 2

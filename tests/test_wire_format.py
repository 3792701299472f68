"""FORMAT.md is the specification: its tables and examples hold, and a peer written from it alone agrees."""

import re
import shutil
import struct
import subprocess
import tomllib
from binascii import crc_hqx
from hashlib import blake2b
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import omkl
from omkl import wire
from omkl.calibration import Basis
from omkl.compressors import QUANTIZERS, Sign
from omkl.features import Kernel
from omkl.losses import LOSSES
from omkl.methods import Gossip
from omkl.node.leaps import MOST_SKIPPED
from omkl.node.links import LAST_ROUND, MOST_AHEAD, RECENT
from omkl.node.role import Role, describe
from omkl.node.settings import Timing
from omkl.quantizers import QSGD, Exact, Message, Nearest, Quantizer
from omkl.wire import Codec, Kind, WireError, steps, tables
from tests.oracles import wire as oracle
from tests.wire_cases import CODECS, NAMES

TEXT = resources.files("omkl.wire").joinpath("FORMAT.md").read_text(encoding="utf-8")
BLOCKS = [tomllib.loads(block) for block in re.findall(r"^```toml\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)]
SEED = 0xBEEF
BOOT, COPY = SENDER = 0x1234, 0x0001FF00  # rounds around it differ in three bytes


def entries(name: str) -> list[dict[str, Any]]:
    return [entry for block in BLOCKS for entry in block.get(name, [])]


SPOKEN_BY_THE_PEER = [entry for entry in entries("gossip") if entry["quantizer"]["name"] in ("qsgd", "nearest")]


def quantizer_of(entry: dict[str, Any]) -> Quantizer:
    settings = dict(entry["quantizer"])
    return QUANTIZERS[settings.pop("name")](**settings)


def message_of(entry: dict[str, Any]) -> Message:
    dtype = np.float32 if entry["quantizer"]["name"] == "exact" else np.int16
    step = np.array(entry["steps"], dtype=np.float32).reshape(*entry["shape"][:2], -1)
    return Message(np.array(entry["levels"], dtype=dtype).reshape(entry["shape"]), step)


def test_there_is_an_example_of_every_kind() -> None:
    assert {entry["kind"] for entry in entries("gossip") + entries("other")} == {kind.name for kind in Kind}
    assert len(entries("table")) == 3


@pytest.mark.parametrize("entry", entries("table"), ids=str)
def test_printed_tables(entry: dict[str, Any]) -> None:
    quantizer = quantizer_of(entry)
    assert isinstance(quantizer, QSGD | Nearest)
    assert list(tables.frequencies(quantizer, entry["length"])) == entry["frequencies"]


@pytest.mark.parametrize("entry", entries("gossip"), ids=lambda entry: entry["frame"])
def test_golden_gossip(entry: dict[str, Any]) -> None:
    codec, message = Codec(tuple(entry["shape"]), quantizer_of(entry)), message_of(entry)
    frame = bytes.fromhex(entry["frame"])
    assert wire.peek(frame) == (Kind[entry["kind"]], -1, entry["round"] % 256)
    assert wire.write_gossip(codec, entry["boot"], entry["round"], message, entry["seed"]) == frame
    there = wire.read_gossip(codec, frame, (entry["boot"], entry["round"]), entry["seed"])
    np.testing.assert_array_equal(there.levels, message.levels)
    np.testing.assert_array_equal(there.step, message.step)


@pytest.mark.parametrize("entry", entries("other"), ids=lambda entry: entry["frame"])
def test_golden_frames_of_other_kinds(entry: dict[str, Any]) -> None:
    frame, sender = bytes.fromhex(entry["frame"]), (entry["boot"], entry["round"])
    assert wire.peek(frame) == (Kind[entry["kind"]], *sender)
    if entry["kind"] == "HELLO":
        known = tuple(entry["known"]) if "known" in entry else None
        settings = bytes.fromhex(entry.get("settings", "0" * 16))
        assert wire.write_hello(*sender, entry["contract"], known, settings) == frame
        assert wire.read_hello(frame) == (entry["contract"], known, settings)
    elif entry["kind"] == "ASK":
        have = tuple(entry["have"]) if "have" in entry else None
        assert wire.write_ask(*sender, have) == frame
        assert wire.read_ask(frame) == have
    else:
        hidden = np.array(entry["hidden"], dtype=np.float32)
        snapshot = entry["kind"] == "SNAPSHOT"
        write, read = (wire.write_snapshot, wire.read_snapshot) if snapshot else (wire.write_kept, wire.read_kept)
        assert write(*sender, hidden) == frame
        np.testing.assert_array_equal(read(hidden.shape, frame), hidden)
        assert wire.digest(hidden) == 0x02F4


def default(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of the default that a contract has."""
    if "landmarks" not in entry:
        return {}
    return {
        "basis": omkl.Landmarks(**entry["landmarks"]),
        "learner": omkl.Pooled(tuple(entry["priors"])),
        "reach": omkl.Reach(entry["reach"]),
        "pace": omkl.Pace(**entry["pace"]),
        "common_weights": True,
        "regularization": 0.0,
    }


@pytest.mark.parametrize("entry", entries("contract"), ids=lambda entry: entry["network"])
def test_golden_contracts(entry: dict[str, Any]) -> None:
    loss = dict(entry["loss"])
    given: dict[str, Any] = {"basis": Basis(**entry["basis"]) if "basis" in entry else None} | default(entry)
    method = Gossip(
        kernels=tuple(Kernel(name, sigma) for name, sigma in entry["kernels"]),
        features=entry["features"],
        orthogonal=entry.get("orthogonal", False),
        sigma=entry.get("sigma", "given"),
        **given,
        quantizer=quantizer_of(entry),
        loss=LOSSES[loss.pop("name")](**loss),
    )
    names = {"network": entry["network"], "id": "a", "index": 0, "neighbors": {}}
    timing = Timing(mode=entry["mode"])
    rows = np.array(entry["sample"], dtype=np.float32) if "sample" in entry else None
    place: dict[str, Any] = {"inputs": entry["inputs"], "seed": entry["seed"], "calibration": rows}
    place["standardize"] = entry.get("standardize", False)
    role = Role(**names, method=method, timing=timing, **place)
    assert role.contract() == entry["text"]


def test_the_contract_in_the_golden_hello_is_a_real_one() -> None:
    contracts = [entry["text"] for entry in entries("contract")]
    assert [entry["contract"] for entry in entries("other") if entry.get("contract")] == contracts[:1]
    digest, _, specification = contracts[0].splitlines()[2].removeprefix("features ").partition(" ")
    assert blake2b(specification.encode("ascii"), digest_size=8).hexdigest() == digest


@pytest.mark.parametrize(
    ("quantizer", "line"),
    [(QSGD(bits=3), "qsgd bits=3 rescale=False block=None"), (Exact(), "exact"), (Sign(), "sign")],
    ids=str,
)
def test_settings_in_the_text(quantizer: Quantizer, line: str) -> None:
    assert describe(quantizer) == line
    assert f"| `{line}` |" in TEXT


def test_the_longest_gossip_frame(rng: np.random.Generator) -> None:
    codec = Codec((2, 1, 8), Nearest(step=1.0, block=4))
    longest = wire.HEADER_BYTES + 2 * 4 + (2 * 8 * 3 + 7) // 8  # four steps, and levels of three bits
    noise = rng.standard_normal((200, 2, 1, 8)).astype(np.float32) * np.exp2(rng.integers(-30, 30, (200, 2, 1, 8)))
    frames = [wire.write_gossip(codec, 7, 3, codec.quantizer.quantize(v.astype(np.float32), None), 0) for v in noise]
    assert max(map(len, frames)) == longest


def test_numbers_in_the_text() -> None:
    assert (LAST_ROUND, MOST_AHEAD, RECENT, MOST_SKIPPED) == (2**32 - 1, 16, 2, 2**31)
    assert (steps.FIRST, steps.LAST, steps.COUNT) == (17152, 47872, 30721)
    assert steps.code(1.40234375) == 32615
    assert wire.MOST_CONTRACT == 4096
    for line in re.findall(r"\((\d+) div (\d+)\) 4096 \+ (\d+) \+ (\d+) +x = +(\d+)", TEXT):
        x, frequency, start, rest, after = map(int, line)
        assert (x % frequency, x // frequency * 4096 + start + rest) == (rest, after)


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    program = tmp_path_factory.mktemp("peer") / "wire_peer"
    source = Path(__file__).with_name("wire_peer.c")
    subprocess.run([compiler, "-O1", "-o", program, source, "-lm"], check=True, timeout=60)
    return program


def ask(peer: Path, codec: Codec, frames: list[bytes], seed: int = SEED, sender: wire.Copy = SENDER) -> list[str]:
    quantizer = codec.quantizer
    assert isinstance(quantizer, QSGD | Nearest)
    length = tables.layout(quantizer, codec.shape[2])[0]
    blocks = codec.shape[0] * codec.shape[1] * codec.shape[2] // length
    family = ("q", quantizer.levels) if isinstance(quantizer, QSGD) else ("n", quantizer.step)
    given = "".join(frame.hex() + "\n" for frame in frames)
    command = [str(peer), *map(str, (*family, blocks, length, seed, *sender))]
    answer = subprocess.run(command, input=given, capture_output=True, text=True, check=True, timeout=60)
    return answer.stdout.splitlines()


def answer(codec: Codec, frame: bytes, seed: int = SEED, sender: wire.Copy = SENDER) -> str:
    """Return what the peer should say to a frame."""
    said = sender[0], wire.nearest(frame[1], sender[1])
    try:
        message = wire.read_gossip(codec, frame, said, seed)
    except WireError:
        return "refused"
    again = wire.write_gossip(codec, *said, message, seed)
    return " ".join([*map(str, steps.codes(message.step)), *map(str, message.levels.reshape(-1)), again.hex()])


@pytest.mark.parametrize("entry", SPOKEN_BY_THE_PEER, ids=lambda entry: entry["frame"])
def test_a_peer_in_c_reads_and_writes_the_golden_frames(peer: Path, entry: dict[str, Any]) -> None:
    codec, frame = Codec(tuple(entry["shape"]), quantizer_of(entry)), bytes.fromhex(entry["frame"])
    sender = entry["boot"], entry["round"] - 1
    said = ask(peer, codec, [frame], entry["seed"], sender)
    assert said == [answer(codec, frame, entry["seed"], sender)]
    assert said[0].endswith(frame.hex())


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith(("QSGD", "Nearest"))])
def test_a_peer_in_c_reads_and_writes_the_frozen_frames(peer: Path, name: str) -> None:
    codec, frames = CODECS[NAMES.index(name)], [bytes.fromhex(frame) for frame in oracle.frozen()["gossip"][name]]
    given = oracle.SEED, (oracle.BOOT, oracle.ROUND)
    assert ask(peer, codec, frames, *given) == [answer(codec, frame, *given) for frame in frames]
    assert "refused" not in ask(peer, codec, frames, *given)


@pytest.mark.parametrize(
    ("shape", "quantizer"),
    [
        ((3, 1, 40), QSGD(bits=3)),
        ((3, 1, 40), Nearest(step=2.5)),
        ((2, 2, 8), QSGD(bits=8, rescale=True, block=4)),
        ((3, 2, 200), Nearest(step=1.5)),
        ((2, 1, 1100), Nearest(step=3)),
    ],
    ids=str,
)
def test_a_peer_in_c_agrees_on_every_frame(
    peer: Path, shape: tuple[int, int, int], quantizer: Quantizer, rng: np.random.Generator
) -> None:
    codec, frames = Codec(shape, quantizer), []
    for _ in range(60):
        scale = np.exp2(2 * rng.standard_normal((*shape[:2], 1))) * (rng.random((*shape[:2], 1)) < 0.8)
        vector = (rng.standard_normal(shape) * scale).astype(np.float32)
        message = quantizer.quantize(vector, rng.random(shape, dtype=np.float32))
        frame = wire.write_gossip(codec, BOOT, int(rng.integers(COPY - 128, COPY + 128)), message, SEED)
        frames += [frame, *(changed(rng, frame) for _ in range(10))]
    expected = [answer(codec, frame) for frame in frames]
    assert ask(peer, codec, frames) == expected
    assert 60 < expected.count("refused") < len(frames) - 60


def changed(rng: np.random.Generator, frame: bytes) -> bytes:
    """Return a frame with some bytes changed, cut off or put in, and a check that fits."""
    body, at = bytearray(frame[:-2]), int(rng.integers(2, len(frame)))
    body[at : at + int(rng.integers(0, 3))] = rng.bytes(int(rng.integers(0, 3)))
    if rng.random() < 0.2:
        body[0] ^= 1
    head = struct.pack("<BHI", body[0], BOOT, wire.nearest(body[1], COPY))
    return bytes(body) + crc_hqx(bytes(body[2:]), crc_hqx(head, SEED)).to_bytes(2, "big")

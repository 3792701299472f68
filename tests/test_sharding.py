import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import jax
import numpy as np
import pytest
from hypothesis import given
from typer.testing import CliRunner

import omkl
from omkl.cli.app import app
from omkl.cli.exits import Exit
from omkl.errors import InputError
from omkl.simulator import halo, sharding
from omkl.topology import Graph
from tests import sharded_runs
from tests.sharded_runs import AS_USERS_COMPILE, DISCONNECTED, PASSES

ROOT = Path(__file__).parents[1]


def environment(devices: int, flags: str | None = None, **more: str) -> dict[str, str]:
    flags = os.environ.get("XLA_FLAGS", "") if flags is None else flags
    return os.environ | {"XLA_FLAGS": f"{flags} --xla_force_host_platform_device_count={devices}"} | more


@pytest.fixture(scope="module")
def found() -> Any:
    """What sharded_runs found on four virtual devices, of which JAX must be told before it starts."""
    found = runs_of(environment(4))
    found["passes"] |= runs_of(environment(4, ""), "as users compile")
    return found


def runs_of(environment: dict[str, str], *args: str) -> Any:
    command = [sys.executable, "-m", "tests.sharded_runs", *args]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", PASSES | AS_USERS_COMPILE)
def test_four_devices_equal_one(found: Any, name: str) -> None:
    for case, apart in found["passes"][name].items():
        quantized = case.startswith("quantized")
        assert apart["loss"] <= (1e-4 if quantized else 1e-6), case
        assert max(apart["bits"], apart["link_bits"]) <= (1e-2 if quantized else 0), case
        if not quantized:
            assert apart["theta"] <= (1e-5 if name == "coarse" else 1e-6), case
            assert max(apart[part] for part in sharded_runs.PARTS) <= 1e-5, case


@pytest.mark.parametrize("name", DISCONNECTED)
def test_mixing_does_not_rely_on_connectedness(found: Any, name: str) -> None:
    assert found["disconnected"][name] <= 1e-6


def test_a_device_holds_its_block_alone(found: Any) -> None:
    assert found["blocks"] == [[7, 3, 2], [3, 1, 5]]


def test_the_cut_is_reported(found: Any) -> None:
    passes = found["passes"]
    graphs = {case: run["devices"] for case, run in passes["do not divide"].items()}
    assert graphs["path"] == {"count": 4, "shard": "nodes", "cut": 3}
    assert (graphs["ring"]["cut"], graphs["star"]["cut"]) == (4, 61)  # 20 of 81 leaves live with the hub
    assert passes["near"]["shuffled path"]["devices"]["cut"] == 3
    assert passes["idle device"]["path"]["devices"]["shard"] == "nodes"  # a seed is too few for four
    assert passes["methods by seeds"]["gossip"]["devices"] == {"count": 4, "shard": "seeds", "cut": 0}
    assert "omkl: 10 nodes on 4 devices, 3 links between them\n" in found["told"]
    assert omkl.simulate("banana", nodes=10, method=omkl.paper()).config["devices"] == {
        "count": 1,
        "shard": None,
        "cut": 0,
    }


@given(st.integers(1, 30), st.integers(0, 60), st.integers(2, 9), st.integers(0, 99))
def test_partition_is_an_order_no_worse_than_the_given(nodes: int, links: int, devices: int, seed: int) -> None:
    ends = np.random.default_rng(seed).integers(nodes, size=(links, 2))
    graph = Graph(nodes, ends[ends[:, 0] != ends[:, 1]])
    order = halo.partition(graph, devices)
    assert sorted(order.tolist()) == list(range(nodes))
    home = {int(node): place // halo.block(nodes, devices) for place, node in enumerate(order)}
    counted = sum(home[i] != home[j] for i, j in graph.edges.tolist())
    assert counted == halo.cut(graph, order, devices) <= halo.cut(graph, np.arange(nodes), devices)


def test_devices_that_do_not_exist_are_refused() -> None:
    with pytest.raises(InputError, match=r"devices is 64; JAX has \d+ .*device_count=64"):
        omkl.simulate("banana", nodes=10, devices=64)
    with pytest.raises(InputError, match="devices is 0"):
        omkl.simulate("banana", nodes=10, devices=0)
    with pytest.raises(InputError, match="unknown shard 'rows'"):
        omkl.simulate("banana", nodes=10, shard="rows")
    result = CliRunner().invoke(app, ["simulate", "--data", "banana", "--nodes", "10", "--devices", "64"])
    assert result.exit_code == Exit.INPUT
    assert "devices is 64" in result.stderr


@pytest.mark.parametrize(("count", "rule"), [(3, "devices=2"), (4, "devices=2"), (5, "at most 4")])
def test_every_process_gives_as_many_devices(count: int, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owners = [SimpleNamespace(process_index=process, platform="cpu") for process in (0, 0, 0, 1)]
    monkeypatch.setattr(jax, "devices", lambda: owners)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    assert sharding._devices(2) == [owners[0], owners[3]]
    with pytest.raises(InputError, match=rule):
        sharding._devices(count)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("localhost:1234", None, 0), "need all three"),
        ((None, 2, 0), "need all three"),
        (("localhost", 2, 0), "HOST:PORT"),
        ((":1234", 2, 0), "HOST:PORT"),
        (("localhost:http", 2, 0), "HOST:PORT"),
        (("localhost:1234", 2, 2), r"process is 2 of 2; .* 0 \.\.\. 1"),
        (("localhost:1234", 2, -1), "process is -1"),
        (("localhost:1234", 0, 0), "processes is 0"),
    ],
)
def test_processes_need_an_address_and_a_number(args: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        sharding.join(*args)


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def start_two(flags: str, tmp_path: Path, devices: int, by_flag: bool) -> list[tuple[int, str, str]]:
    """Return exit code, stdout and stderr of two processes that run one command together."""
    started = []
    command = [sys.executable, "-c", "from omkl.cli import main; main()", "simulate", *flags.split()]
    join = {"coordinator": f"127.0.0.1:{free_port()}", "processes": "2"}
    try:
        for process in range(2):
            own = join | {"process": str(process)}
            given = [part for name, value in own.items() for part in (f"--{name}", value)] if by_flag else []
            more = {} if by_flag else {f"OMKL_{name.upper()}": value for name, value in own.items()}
            started.append(
                subprocess.Popen(
                    [*command, *given, "--out", str(tmp_path / str(process))],
                    env=environment(devices, **more),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        ended = [one.communicate(timeout=180) for one in started]
        return [(one.returncode, *texts) for one, texts in zip(started, ended, strict=True)]
    finally:
        for one in started:
            one.kill()
            one.communicate()


@pytest.mark.parametrize(
    ("shard", "seeds", "devices", "by_flag"), [("nodes", 1, 2, True), ("seeds", 5, 1, False)], ids=["nodes", "seeds"]
)
def test_two_processes_equal_one(shard: str, seeds: int, devices: int, by_flag: bool, tmp_path: Path) -> None:
    method = "--method gossip --eta 0.5 --gamma 0.3 --quantizer exact"
    flags = f"--data banana --topology ring --nodes 70 {method} --seeds {seeds}"
    first, second = start_two(f"{flags} --format json", tmp_path, devices, by_flag)
    assert (first[0], second[0]) == (0, 0), first[2] + second[2]
    assert json.loads(first[1])["config"]["devices"]["shard"] == shard
    assert f"on {2 * devices} devices" in first[2]
    assert second[1] == ""
    assert not (tmp_path / "1").exists()
    many = omkl.load(tmp_path / "0")
    one = omkl.simulate("banana", "ring", 70, omkl.Gossip(eta=0.5, gamma=0.3, quantizer=None), seeds=seeds)
    assert sharded_runs.apart(one.loss, many.loss) <= 1e-6
    assert sharded_runs.apart(one.theta, many.theta) <= 1e-6

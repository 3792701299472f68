"""What is shipped to watch a network speaks of metrics that there are: alerts, their tests, the dashboard, the page."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from omkl.methods import Gossip
from omkl.node.metrics import Metrics
from omkl.node.persistence import saved
from omkl.node.role import Role
from omkl.node.settings import Checkpoint
from tests.certificates import DEPLOY

PROMETHEUS = DEPLOY / "prometheus"
RULES, TESTS = (PROMETHEUS / f"omkl.{kind}.yml" for kind in ("rules", "test"))
PAGE = (DEPLOY.parent / "docs" / "operating.md").read_text()
ALERT = re.compile(r"- alert: (\w+)")
NAME = re.compile(r"\b(?:omkl|process)_[a-z_]*[a-z]\b")
ROLE = Role(network="n", id="a", index=0, method=Gossip(features=2), inputs=2, seed=0, neighbors={"b": 0.3})


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The labels of every metric that a node with a neighbor and a checkpoint serves."""
    folder = tmp_path_factory.mktemp("kept")
    with saved(replace(ROLE), Checkpoint(folder=folder), 1, lambda _: None) as saver:
        families = list(Metrics(saver.protocol, saver).registry.collect())
    samples = [sample for family in families for sample in family.samples]
    return {sample.name: {*sample.labels} for sample in samples}


def queries(found: Any) -> list[str]:
    """Return all that the dashboard asks Prometheus."""
    if isinstance(found, list):
        return [text for one in found for text in queries(one)]
    if not isinstance(found, dict):
        return []
    own = [value for key, value in found.items() if key in ("expr", "query") and isinstance(value, str)]
    return own + queries([*found.values()])


def check(text: str, known: dict[str, set[str]]) -> None:
    """Refuse a query for a metric, or for a label of one, that no node has."""
    for name in NAME.findall(text):
        assert name in known, f"no node serves {name}"
    for name, inside in re.findall(r"\b((?:omkl|process)_\w+)\{([^}]*)\}", text):
        for label in re.findall(r"(\w+)\s*(?:=~|!=|=|!~)", inside):
            assert label in known[name] | {"job", "instance"}, f"{name} has no label {label}"


def test_alerts_ask_for_what_nodes_serve(known: dict[str, set[str]]) -> None:
    expressions = re.findall(r"expr: (?:>-\n)?(.*(?:\n {10}.*)*)", RULES.read_text())
    assert len(expressions) == len(ALERT.findall(RULES.read_text()))
    for text in expressions:
        assert NAME.search(text) or "up{" in text
        check(text, known)
    with pytest.raises(AssertionError, match="no node serves omkl_lost"):
        check("omkl_lost > 1", known)
    with pytest.raises(AssertionError, match="omkl_peer_up has no label state"):
        check('omkl_peer_up{state="refused"}', known)


def test_every_alert_is_tried_and_told() -> None:
    alerts = ALERT.findall(RULES.read_text())
    assert len(set(alerts)) == len(alerts)
    tried = TESTS.read_text()
    for name in alerts:
        assert len(re.findall(rf"alertname: {name}\n", tried)) >= 2  # once it fires, once it does not
        assert f"| `{name}` |" in PAGE
    assert set(re.findall(r"\bOmkl[A-Z]\w+", PAGE + tried)) == set(alerts)


def test_the_dashboard_asks_for_what_nodes_serve(known: dict[str, set[str]]) -> None:
    board = json.loads((DEPLOY / "grafana" / "omkl.json").read_text())
    asked = queries(board)
    assert len(asked) > 25
    for text in asked:
        check(text, known)
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [(x, y) for panel in panels for at in [panel["gridPos"]]
             for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])]  # fmt: skip
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_the_page_tells_of_every_metric(known: dict[str, set[str]]) -> None:
    served = {name.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum") for name in known}
    table = re.search(r"\| metric \|.*?\n\n", PAGE, re.S)
    assert table
    told = dict(re.findall(r"`(omkl_\w+)(?:\{([\w,]+)\})?`", table[0]))
    assert set(told) == {name for name in served if name.startswith("omkl_")}
    for name, labels in told.items():
        if name in known and name != "omkl_build_info":
            assert set(filter(None, labels.split(","))) == known[name]


def test_nodes_are_scraped_under_their_names() -> None:
    text = (PROMETHEUS / "prometheus.yml").read_text()
    assert "job_name: omkl " in text
    assert f"- {RULES.name}\n" in text
    assert len(re.findall(r"targets: \[.*:17447", text)) == len(re.findall(r"labels: \{instance: \w+\}", text)) == 3
    assert Path(PROMETHEUS / RULES.name).is_file()

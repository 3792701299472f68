"""A node more or less in a network's file."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from omkl.cli.app import app
from omkl.errors import InputError
from omkl.node.config import load
from omkl.node.setup.membership import Change, add, remove
from omkl.node.setup.template import write

PLAIN = """name = "n"
inputs = 2
links = [
    ["a", "b"],  # [of old]
    ["b", "c"],
]
[[nodes]]
id = "a"
listen = "tcp/h:1"
[[nodes]]
id = 'b'  # in the cellar
listen = "tcp/h:2"
position = [1, 2]
[[nodes]]
id = "c"
listen = "tcp/h:3"
[learning]
method = "paper"
"""


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    """Return a ring of five: a, b, c, d, e."""
    path = tmp_path / "network.toml"
    write(path, nodes=5)
    return path


def links(change: Change) -> list[str]:
    config = change.after
    return sorted("".join(sorted(config.ids[k] for k in edge)) for edge in config.topology.graph.edges.tolist())


def test_a_node_is_added_at_the_end_and_no_other_link_changes(ring: Path) -> None:
    text = ring.read_text()
    change = add(ring, "m", ["c", "d"])
    assert change.after.role("m") == load(ring).role("m")
    assert change.after.ids == ["a", "b", "c", "d", "e", "m"]
    assert links(change) == ["ab", "ae", "bc", "cd", "cm", "de", "dm"]
    assert change.after.members[-1].listen == "tcp/127.0.0.1:7452"
    assert change.after.members[-1].metrics == "127.0.0.1:17452"
    assert change.after.endpoints("m") == ["tcp/127.0.0.1:7449", "tcp/127.0.0.1:7450"]  # which know of it and wait
    assert (change.restart, change.weighed) == (["c", "d"], ["b", "e"])
    lost = set(text.splitlines()) - set(ring.read_text().splitlines())
    assert lost == {'# links = [["a", "b"], ["b", "c"]]', 'topology = "ring"'}


def test_a_node_is_removed_and_the_others_keep_their_links(ring: Path) -> None:
    add(ring, "m", ["c", "d"])
    change = remove(ring, "m")
    assert (change.after.ids, links(change)) == (["a", "b", "c", "d", "e"], ["ab", "ae", "bc", "cd", "de"])
    assert (change.restart, change.weighed) == (["c", "d"], ["b", "e"])
    change = remove(ring, "b", [("c", "a")])
    assert links(change) == ["ac", "ae", "cd", "de"]
    assert (change.restart, change.weighed) == (["a", "c"], [])
    assert load(ring).role("a") == change.after.role("a")


def test_a_dry_run_leaves_the_file_as_it_is(ring: Path) -> None:
    before = ring.read_text()
    for args, says in (
        (["add", "--id", "m", "--neighbors", "c,d"], "a neighbor of c, d\ncopy the file to c, d, m; restart c, then d"),
        (["remove", "--id", "b"], "without b, 4 nodes\nstop b; copy the file to a, c"),
    ):
        told = CliRunner().invoke(app, ["node", *args, "--network", str(ring), "--dry-run"])
        assert told.stdout.startswith(f"{ring} is left as it is; without --dry-run:\n")
        assert says in told.stdout
        assert ring.read_text() == before
    assert "a and c lose a neighbor and are not linked; --link a,c links them\n" in told.stdout


def test_a_removal_that_opens_a_ring_is_told(ring: Path) -> None:
    def told(*args: str) -> str:
        return CliRunner().invoke(app, ["node", "remove", "--network", str(ring), *args]).stdout

    assert "lose a neighbor" not in told("--id", "b", "--link", "a,c")
    before = ring.read_text()
    says = f'a and d lose a neighbor and are not linked; ["a", "d"] among links of {ring} links them\n'
    assert says in told("--id", "e")
    assert ring.read_text() != before
    assert "lose a neighbor" not in told("--id", "d")  # the end of a path


def test_a_file_that_somebody_wrote_is_changed_where_it_must_be(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(PLAIN)
    change = add(path, "m", ["a"], host="other", port=9, metrics="none")
    assert links(change) == ["ab", "am", "bc"]
    assert change.after.members[-1].listen == "tcp/other:9"
    assert change.after.members[-1].metrics is None
    assert "id = 'b'  # in the cellar\nlisten = \"tcp/h:2\"\nposition = [1, 2]\n" in path.read_text()
    remove(path, "b", [("a", "c")])
    path.write_text(path.read_text().replace("links = [", "links = [").replace("\n    [", "["))  # in one line
    assert links(add(path, "n", ["c", "m", "c"], host="{id}-{n}.local", metrics="{id}:1")) == ["ac", "am", "cn", "mn"]
    assert load(path).members[-1].listen == "tcp/n-4.local:9"
    assert load(path).members[-1].metrics == "n:1"


def test_a_file_keeps_its_mode_and_the_ends_of_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_bytes(PLAIN.replace("\n", "\r\n").encode())
    path.chmod(0o640)
    add(path, "m", ["a"], host="other")
    remove(path, "c", [("a", "m")])
    text = path.read_bytes()
    assert text.count(b"\n") == text.count(b"\r\n") > PLAIN.count("\n") // 2
    assert path.stat().st_mode & 0o777 == 0o640
    assert load(path).ids == ["a", "b", "m"]


def test_without_links_they_are_written_before_the_nodes(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    text = PLAIN.replace(PLAIN[PLAIN.index("links") : PLAIN.index("[[nodes]]")], "# They are:\n")
    path.write_text(text.replace('"paper"', '"paper"\ntopology = "path"'))
    assert links(add(path, "m", ["c"])) == ["ab", "bc", "cm"]
    assert "]\n\n# They are:\n[[nodes]]\n" in path.read_text()


@pytest.mark.parametrize(
    ("id", "neighbors", "says"),
    [
        ("a", ["b"], "a is in .* already; ids must differ; choose another"),
        ("m m", ["b"], "id is 'm m'; it takes letters, digits, - and _ only"),
        ("m", ["b", "q"], "unknown neighbor 'q'; known: a, b, c, d, e"),
        ("m", [], "no neighbors for m; a node talks to one at least; name some of a, b, c, d, e"),
    ],
)
def test_what_cannot_be_added(ring: Path, id: str, neighbors: list[str], says: str) -> None:
    text = ring.read_text()
    with pytest.raises(InputError, match=says):
        add(ring, id, neighbors)
    assert ring.read_text() == text


def test_what_cannot_be_removed(ring: Path) -> None:
    remove(ring, "c")
    text = ring.read_text()
    with pytest.raises(InputError, match="unknown node 'c'; known: a, b, d, e"):
        remove(ring, "c")
    with pytest.raises(
        InputError, match=r"links: the network falls into parts: a, b \| d; all nodes must be connected"
    ):
        remove(ring, "e")
    with pytest.raises(InputError, match="unknown node 'c'; known: a, b, d"):
        remove(ring, "e", [("a", "c")])
    assert ring.read_text() == text
    for id in "eda":
        remove(ring, id, [("b", "d")] if id == "e" else [])
    with pytest.raises(InputError, match="b is the only node; a network has one at least; remove the file"):
        remove(ring, "b")


def test_what_is_written_otherwise_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    inline = (
        PLAIN[: PLAIN.index("[[nodes]]")] + 'nodes = [{id = "a", listen = "tcp/h:1"}, {id = "b", listen = "tcp/h:2"}'
    )
    path.write_text(inline + ', {id = "c", listen = "tcp/h:3"}]\n[learning]\nmethod = "paper"\n')
    with pytest.raises(InputError, match=r"no \[\[nodes\]\] with lines of their own; .* edit the file by hand"):
        add(path, "m", ["a"])
    (tmp_path / "spec.toml").write_text('method = "paper"\ntopology = "path"\n')
    spec = PLAIN[: PLAIN.index("links")] + 'learning = "spec.toml"\n' + PLAIN[PLAIN.index("[[nodes]]") :]
    path.write_text(spec[: spec.index("[learning]")])
    with pytest.raises(InputError, match=r"links: given beside learning\.topology; a network has one graph"):
        add(path, "m", ["a"])

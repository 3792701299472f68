"""A network's file to start from, with comments that say what each key does."""

import json
import string
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omkl.errors import InputError, whole
from omkl.node.config import Calibration, NetworkConfig, parse

LISTEN, METRICS = 7447, 17447  # the first ports: zenoh's, and one that no exporter of Prometheus's list has

TEXT = string.Template("""\
# A network whose nodes learn one model together, each from its own stream. This file goes to every
# device as it is; there, start the node of that device by its id:
#
#     omkl node --network $file --id $first
#
# Whatever is wrong in it is said at the start, in one line that names the key.

# Keeps this network apart from others on the same wire. Letters, digits, - and _.
name = $name

# How many numbers an observation x has. Bring each to a mean near 0 and a deviation near 1: the
# method below expects that. Nodes that see like data can do so themselves: learning.standardize.
inputs = $inputs

# Who talks to whom: learning.topology, below, draws it over the nodes in the order they are listed.
# To choose the links one by one, remove topology there and write them here. They go both ways and
# must connect all nodes.
# links = [["a", "b"], ["b", "c"]]

# The nodes. An id takes letters, digits, - and _.
# listen: where its neighbors reach the node. On devices of their own put each one's address, as
#   tcp/192.168.1.10:7447, and open that port. A name will do that means this address on the device
#   too, and not 127.0.1.1. A link is one connection; the node that is listed later opens it, and
#   opens it again when it was lost. So nodes that cannot be reached go last.
# metrics: where it serves health and Prometheus metrics over HTTP. 127.0.0.1 is for the device
#   itself alone; its own address, or 0.0.0.0 for all it has, lets a Prometheus elsewhere in.
#   Whoever reaches it reads it: no password, no TLS. Without the line it serves none.
# position = [x, y]: where omkl dashboard draws it, to the right and up; leave it out, and it finds
#   a place by the links.
$nodes
# What is learned, and how: the keys of a simulation's spec, to be tried first with omkl simulate. To
# deploy a spec as it stands, remove both tables of learning and write above the nodes:
# learning = "spec.toml"
# Keys that only a simulation needs are checked and not used: data, faults, seeds, shuffle,
# record_every, pooled, devices, shard.
[learning]
topology = $topology
weights = "metropolis"  # how much neighbors count, from how many each has
seed = 0                # of the random features, which all nodes share, and of rounding at random
$standardize

# The default method learns best and has nothing to tune but the loss. It compares x with landmarks,
# those of [calibration], below: some 500 inputs without labels, which every node holds, and nothing
# else of anyone's stream. With basis = {source = "normal"} they are drawn at random and no input
# leaves a device; x must then have a mean near 0 and a deviation near 1, and others are learned worse.
[learning.method]
name = "recommended"    # "frugal": a third of the bytes
# "logistic": labels -1 and 1; "squared": numbers; {name = "softmax", classes = 3}: 0, 1 or 2.
loss = $loss
$basis
# clip = 0.1            # bounds what a neighbor that lies can do; for nodes that see like data

# In seconds.
[timing]
mode = "lockstep"       # rounds go with observations, in step with neighbors; "timer": with a clock, and pace = false
deadline = 5.0          # a neighbor silent for so long is left out until it is heard again
patience = 1.0          # lockstep: wait so long for an observation while neighbors wait for this node
period = 1.0            # timer: from round to round; observations are learned as they come

# A node that is started again goes on from its checkpoint. Paths here are relative to this file.
[checkpoint]
folder = "checkpoints"  # a file for each node, by its id
every = 100             # rounds; "observation": before each is acknowledged, so that none is ever lost

# The inputs that are shared, if any: some 500 without labels, the same file on every device, in the
# units that nodes observe in. They become the landmarks of the method. omkl node inputs rows.csv
# writes it, or np.savez("calibration.npz", X=X). With their labels too (--labels; y=y), columns are
# weighed by what they say of these: much better where most columns say nothing.
$calibration

# Who may ask a node for what, beside its neighbors' gossip. ["*"]: everyone who reaches its port; []:
# nobody; with TLS, the names of certificates, as ["screen"].
[access]
predict = ["*"]         # predictions
observe = ["*"]         # to give it observations
model = ["*"]           # the file of its model
status = ["*"]          # how it stands: what omkl dashboard shows

# Nodes that prove who they are, on links that nobody else can read. Each listen above then begins
# with tls/ instead of tcp/. {id} stands for the node's id; a device needs its own two files and ca.
# A certificate's common name is the id, and nobody can speak as another. omkl node certificates
# makes them.
$tls
""")

TLS = """\
[tls]
ca = "certificates/ca.pem"
certificate = "certificates/{id}.pem"
key = "certificates/{id}.key"
"""


def write(
    path: Path | str,
    *,
    nodes: int | None = None,
    ids: Sequence[str] = (),
    hosts: Sequence[str] = (),
    port: int = LISTEN,
    metrics: str = f"127.0.0.1:{METRICS}",
    topology: str = "ring",
    name: str = "sensors",
    inputs: int | None = None,
    loss: str = "logistic",
    calibration: Path | str | None = None,
    standardize: bool = False,
    tls: bool = False,
) -> NetworkConfig:
    """Return the network of a commented file that is written; an existing file is refused.

    Parameters
    ----------
    path
        The file to write.
    nodes
        How many; as many as ids or hosts, or five.
    ids
        Their names; letters, or n1, n2 and so on where those do not suffice.
    hosts
        The address of each node, or one with ``{id}`` or ``{n}`` in it, which counts from 1; this machine's own,
        127.0.0.1, where there is none.
    port
        Where they listen; nodes on one machine take the next ones.
    metrics
        Host and port where they serve metrics, with ``{id}`` or ``{n}`` where that is wanted; "none" serves none.
    topology
        The graph over them, by name.
    name, inputs
        The network's name, and the length of x: 2, or that of the inputs that are shared.
    loss
        ``"logistic"``, ``"squared"``, or a table as in TOML: ``{name = "softmax", classes = 3}``.
    calibration
        The file of the inputs that are shared, from beside the network's; without it landmarks are drawn at random.
    standardize
        Whether nodes scale inputs by what they see.
    tls
        Whether nodes prove who they are; their certificates are to be made.
    """
    path = Path(path)
    names = _names(ids, whole("nodes", len(ids) or _many(hosts) or 5 if nodes is None else nodes))
    addresses = _addresses(hosts, names)
    width = _width(path.parent, calibration, inputs)
    members = _members(names, addresses, whole("port", port), metrics, "tls" if tls else "tcp")
    text = TEXT.substitute(
        name=json.dumps(name), topology=json.dumps(topology), inputs=json.dumps(width), file=path.name, first=names[0],
        nodes=members, loss=loss if loss.startswith("{") else json.dumps(loss),
        standardize=_line("standardize = true    # x as it comes, scaled by what the node has seen", standardize),
        basis='basis = {source = "normal"}' if calibration is None else '# basis = {source = "normal"}',
        calibration=_lines(f"[calibration]\nfile = {json.dumps(str(calibration or 'calibration.npz'))}", calibration),
        tls=_lines(TLS.strip(), tls),
    )  # fmt: skip
    config = parse(_table(text, loss), path.parent)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(f"{path} exists; it is never overwritten; remove it or choose another name") from None
    return config


def filled(pattern: str, id: str, number: int) -> str:
    """Return an address whose ``{id}`` and ``{n}`` are a node's id and its number, counted from 1."""
    text = pattern.replace("{id}", id).replace("{n}", str(number))
    if {"{", "}"} & set(text):
        raise InputError(
            f"{pattern} given; braces stand around id or n alone; write sensor-{{id}}.local or 10.0.0.{{n}}"
        )
    return text


def member(id: str, listen: str, metrics: str | None) -> str:
    """Return the table of a node, as text."""
    text = f'[[nodes]]\nid = "{id}"\nlisten = {json.dumps(listen)}\n'
    return text + (f"metrics = {json.dumps(metrics)}\n" if metrics else "")


def _members(ids: Sequence[str], hosts: Sequence[str], port: int, metrics: str, protocol: str) -> str:
    tables = []
    for k, (id, host) in enumerate(zip(ids, hosts, strict=True)):
        beside = hosts[:k].count(host)  # nodes on one machine need ports of their own
        page = None if metrics == "none" else _page(filled(metrics, id, k + 1), beside)
        tables.append(member(id, f"{protocol}/{host}:{port + beside}", page))
    return "\n".join(tables)


def _page(address: str, beside: int) -> str:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        raise InputError(f"metrics is {address}; it must be a host and a port, or none; write 127.0.0.1:{METRICS}")
    return f"{host}:{int(port) + beside}"


def _many(hosts: Sequence[str]) -> int:
    """Return how many nodes hosts make; a pattern says nothing of that."""
    return 0 if any("{" in host for host in hosts) else len(hosts)


def _names(ids: Sequence[str], nodes: int) -> Sequence[str]:
    if ids and len(ids) != nodes:
        raise InputError(f"{len(ids)} ids for {nodes} nodes; each node has one; leave nodes out")
    return ids or [string.ascii_lowercase[k] if nodes <= 26 else f"n{k + 1}" for k in range(nodes)]


def _addresses(hosts: Sequence[str], ids: Sequence[str]) -> Sequence[str]:
    if len(hosts) == 1 and "{" in hosts[0]:
        return [filled(hosts[0], id, k + 1) for k, id in enumerate(ids)]
    if hosts and len(hosts) != len(ids):
        raise InputError(
            f"{len(hosts)} hosts for {len(ids)} nodes; each node needs one; leave nodes out, or give a single one with "
            "{id} or {n} in it, as 10.0.0.{n}"
        )
    return hosts or ["127.0.0.1"] * len(ids)


def _width(folder: Path, calibration: Path | str | None, inputs: int | None) -> int:
    if calibration is None:
        return 2 if inputs is None else inputs
    width = int(Calibration(file=Path(calibration)).read(folder)[0].shape[-1])
    if inputs not in (None, width):
        raise InputError(f"inputs is {inputs}; the rows of {calibration} have {width} numbers; leave inputs out")
    return width


def _table(text: str, loss: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(
            f'loss is {loss}, which is no TOML ({error}); write logistic, squared or {{name = "softmax", classes = 3}}'
        ) from None


def _line(text: str, wanted: object) -> str:
    return text if wanted else f"# {text}"


def _lines(text: str, wanted: object) -> str:
    return "\n".join(_line(line, wanted) for line in text.splitlines())

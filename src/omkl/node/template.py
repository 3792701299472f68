"""A network's file to start from, with comments that say what each key does."""

import json
import string
import tomllib
from collections.abc import Sequence
from pathlib import Path

from omkl.errors import InputError, whole
from omkl.node.config import NetworkConfig, parse

LISTEN, METRICS = 7447, 9100  # the first ports, those of zenoh and of Prometheus's exporters

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
#   tcp/192.168.1.10:7447, and open that port. A link is one connection; the node that is listed
#   later opens it, and opens it again when it was lost. So nodes that cannot be reached go last.
# metrics: where it serves health and Prometheus metrics over HTTP; 127.0.0.1 is for the device
#   itself alone. Without the line it serves none.
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
# standardize = true    # x as it comes, scaled by what the node has seen; for nodes that see like data

# The default method learns best and has nothing to tune but the loss. It compares x with landmarks.
# source = "normal" draws them at random: no input leaves a device, and x must have a mean near 0 and a
# deviation near 1. Other x are learned better with landmarks of their own: remove the line of basis
# and give some 500 inputs without labels in [calibration], below. Every node then holds these inputs,
# and nothing else of anyone's stream; centers of clusters or public rows do as well.
[learning.method]
name = "recommended"    # "frugal": a third of the bytes
loss = "logistic"       # labels -1 and 1; "squared": numbers; {name = "softmax", classes = 3}: 0, 1, 2
basis = {source = "normal"}
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

# The inputs that are shared, if any: an array X of some 500 inputs without labels, a row each, the same
# file on every device, in the units that nodes observe in. They become the landmarks of the method.
# Write it by np.savez("calibration.npz", X=X). With their labels too, y=y, columns are weighed by what
# they say of these: much better where most columns say nothing.
# [calibration]
# file = "calibration.npz"

# Who may ask a node for what, beside its neighbors' gossip. ["*"]: everyone who reaches its port; []:
# nobody; with TLS, the names of certificates, as ["screen"].
[access]
predict = ["*"]         # predictions
observe = ["*"]         # to give it observations
model = ["*"]           # the file of its model
status = ["*"]          # how it stands: what omkl dashboard shows

# Nodes that prove who they are, on links that nobody else can read. Each listen above then begins
# with tls/ instead of tcp/. {id} stands for the node's id; a device needs its own two files and ca.
# A certificate's common name is the id, and nobody can speak as another. deploy/certificates.sh
# makes them.
# [tls]
# ca = "certificates/ca.pem"
# certificate = "certificates/{id}.pem"
# key = "certificates/{id}.key"
""")


def write(
    path: Path | str,
    *,
    nodes: int | None = None,
    hosts: Sequence[str] = (),
    topology: str = "ring",
    name: str = "sensors",
    inputs: int = 2,
) -> NetworkConfig:
    """Return the network of a commented file that is written; an existing file is refused.

    Parameters
    ----------
    path
        The file to write.
    nodes
        How many; as many as hosts, or five.
    hosts
        The address of each node; this machine's own, 127.0.0.1, where there are none.
    topology
        The graph over them, by name.
    name, inputs
        The network's name, and the length of x.
    """
    path = Path(path)
    nodes = whole("nodes", len(hosts) or 5 if nodes is None else nodes)
    if hosts and len(hosts) != nodes:
        raise InputError(f"{len(hosts)} hosts for {nodes} nodes; each node needs one; leave nodes out")
    members = _members(hosts or ["127.0.0.1"] * nodes)
    quoted = {"name": json.dumps(name), "topology": json.dumps(topology), "inputs": json.dumps(inputs)}
    text = TEXT.substitute(quoted, file=path.name, first=_id(0, nodes), nodes=members)
    config = parse(tomllib.loads(text), path.parent)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(f"{path} exists; it is never overwritten; remove it or choose another name") from None
    return config


def _members(hosts: Sequence[str]) -> str:
    tables = []
    for k, host in enumerate(hosts):
        beside = hosts[:k].count(host)  # nodes on one machine need ports of their own
        tables.append(
            f'[[nodes]]\nid = "{_id(k, len(hosts))}"\nlisten = {json.dumps(f"tcp/{host}:{LISTEN + beside}")}\n'
            f'metrics = "127.0.0.1:{METRICS + beside}"\n'
        )
    return "\n".join(tables)


def _id(k: int, nodes: int) -> str:
    return string.ascii_lowercase[k] if nodes <= 26 else f"n{k + 1}"

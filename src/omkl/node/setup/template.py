"""A network's file to start from, with comments that say what each key does."""

import json
import string
import tomllib
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from omkl import storage
from omkl.errors import InputError, whole
from omkl.node.config import Calibration, NetworkConfig, parse
from omkl.node.settings import check_certified

LISTEN, METRICS = 7447, 17447  # the first ports: zenoh's, and one that no exporter of Prometheus's list has

TEXT = "network.toml.in"  # beside this
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
        Their names, or one with ``{n}`` in it, which counts from 1; letters, or n1, n2 and so on where those do not
        suffice.
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
    storage.require_folder(path)
    names = _names(ids, whole("nodes", _many(ids) or _many(hosts) or 5 if nodes is None else nodes))
    for one in names if tls else ():
        check_certified("id", one)
    addresses = _addresses(hosts, names)
    width = _width(path.parent, calibration, inputs)
    members = _members(names, addresses, whole("port", port), metrics, "tls" if tls else "tcp")
    text = string.Template((files(__package__) / TEXT).read_text(encoding="utf-8")).substitute(
        name=json.dumps(name), topology=json.dumps(topology), inputs=json.dumps(width), file=path.name, first=names[0],
        nodes=members, loss=loss if loss.startswith("{") else json.dumps(loss),
        standardize=_line("standardize = true    # x in raw units, scaled by what the node has seen", standardize),
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
    tables, listed = [], Counter[str]()
    for k, (id, host) in enumerate(zip(ids, hosts, strict=True)):
        beside = listed[host]  # nodes on one machine need ports of their own
        listed[host] += 1
        page = None if metrics == "none" else _page(filled(metrics, id, k + 1), beside)
        tables.append(member(id, f"{protocol}/{host}:{port + beside}", page))
    return "\n".join(tables)


def _page(address: str, beside: int) -> str:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        raise InputError(f"metrics is {address}; it must be a host and a port, or none; write 127.0.0.1:{METRICS}")
    return f"{host}:{int(port) + beside}"


def _many(hosts: Sequence[str]) -> int:
    """Return how many nodes ids or hosts make; a pattern says nothing of that."""
    return 0 if any("{" in host for host in hosts) else len(hosts)


def _names(ids: Sequence[str], nodes: int) -> Sequence[str]:
    if len(ids) == 1 and "{n}" in ids[0]:
        return [ids[0].replace("{n}", str(k + 1)) for k in range(nodes)]
    if ids and len(ids) != nodes:
        raise InputError(
            f"{len(ids)} ids for {nodes} nodes; each node has one; leave nodes out, or give a pattern, as s{{n}}"
        )
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
        raise InputError(
            f"inputs is {inputs}; the rows of {calibration} have {width} numbers; is one of their columns the label? "
            "make the file anew with omkl node inputs --label NAME, or leave inputs out"
        )
    return width


def _table(text: str, loss: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(
            f'loss is {loss}, which is not TOML ({error}); write logistic, squared or {{name = "softmax", classes = 3}}'
        ) from None


def _line(text: str, wanted: object) -> str:
    return text if wanted else f"# {text}"


def _lines(text: str, wanted: object) -> str:
    return "\n".join(_line(line, wanted) for line in text.splitlines())

"""``omkl node init`` and what else sets a network up or changes who is in it; all write files, and reach no node."""

import json
import shutil
import subprocess
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from omkl.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from omkl.node.setup.membership import Change

Network: TypeAlias = Annotated[Path, typer.Option("--network", help="The network's file.", metavar="NETWORK.toml")]
Id: TypeAlias = Annotated[str, typer.Option("--id", help="Id of the node.", metavar="ID")]
DryRun: TypeAlias = Annotated[
    bool, typer.Option("--dry-run", help="Print what would be done, and leave the file as it is.")
]
Host: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Address of the node. Without it: that of the last node.", metavar="HOST", show_default=False),
]


def load(module: str) -> Any:
    """Return a module of ``omkl.node``, which takes a while to import."""
    try:
        return import_module(f"omkl.node.{module}")
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "eclipse-zenoh", "node") from None


def init(
    path: Annotated[Path, typer.Argument(help="The file to write.", metavar="NETWORK.toml")] = Path("network.toml"),
    nodes: Annotated[
        int | None,
        typer.Option(
            help="Number of nodes. Without it: as many as ids or hosts, else 5.", metavar="INT", show_default=False
        ),
    ] = None,
    ids: Annotated[
        str | None,
        typer.Option(
            help="Ids of the nodes, or a pattern, as s-{n}. Without it: a, b, c and so on.",
            metavar="A,B,C",
            show_default=False,
        ),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(
            help="Address of a node; repeat it for each, or give a pattern, as sensor-{id}.local or 10.0.0.{n}. "
            "Without it: 127.0.0.1.",
            metavar="HOST",
            show_default=False,
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(help="Port to listen on; nodes on one machine take the next ones.", metavar="INT")
    ] = 7447,
    metrics: Annotated[
        str, typer.Option(help="Where nodes serve metrics; may be a pattern too, or none.", metavar="HOST:PORT")
    ] = "127.0.0.1:17447",
    topology: Annotated[
        str, typer.Option(help="Which nodes talk to each other: path, ring, star, ...", metavar="NAME")
    ] = "ring",
    name: Annotated[str, typer.Option(help="The network's name.", metavar="WORD")] = "sensors",
    inputs: Annotated[
        int | None,
        typer.Option(
            help="How many numbers an observation has. Without it: as in --calibration, else 2.",
            metavar="INT",
            show_default=False,
        ),
    ] = None,
    loss: Annotated[
        str, typer.Option(help='What to learn: logistic, squared, or {name = "softmax", classes = 3}.', metavar="NAME")
    ] = "logistic",
    calibration: Annotated[
        Path | None,
        typer.Option(
            help="File of the inputs that all nodes share; omkl node inputs writes it.",
            metavar="FILE.npz",
            show_default=False,
        ),
    ] = None,
    standardize: Annotated[
        bool, typer.Option("--standardize", help="Let each node scale its inputs by what it has seen.")
    ] = False,
    tls: Annotated[
        bool,
        typer.Option(
            "--tls", help="Encrypt links, and let nodes prove who they are; omkl node certificates makes the files."
        ),
    ] = False,
) -> None:
    """Write a network's file to start from, with comments that say what each key does.

    Give --calibration if nodes may share some inputs: the default method then learns best. Without it landmarks are
    drawn at random, and no input leaves a node.

    Example: omkl node init --nodes 3 --topology path --inputs 2
    """
    config = load("setup.template").write(
        path, nodes=nodes, ids=_split(ids), hosts=host or (), port=port, metrics=metrics, topology=topology, name=name,
        inputs=inputs, loss=loss, calibration=calibration, standardize=standardize, tls=tls,
    )  # fmt: skip
    print(f"{path}: {config.name}, {len(config.ids)} nodes: {', '.join(config.ids)}")
    if tls:
        print(f"make their certificates: omkl node certificates --network {path}")


def inputs(
    table: Annotated[Path, typer.Argument(help="A CSV file with a header, or a Parquet file.", metavar="ROWS.csv")],
    path: Annotated[Path, typer.Argument(help="The file to write.", metavar="FILE.npz")] = Path("calibration.npz"),
    rows: Annotated[int, typer.Option(help="How many rows to share; they are drawn at random.", metavar="INT")] = 500,
    labels: Annotated[
        str | None, typer.Option(help="Columns of labels, if labels are shared too.", metavar="A,B", show_default=False)
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(
            help="Column of the label, which is left out; or none. Without it: y, label, target or class.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    drop: Annotated[
        str | None, typer.Option(help="Other columns that are no inputs.", metavar="A,B", show_default=False)
    ] = None,
    centers: Annotated[bool, typer.Option("--centers", help="Share centers of clusters instead of rows.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the draw.", metavar="INT")] = 0,
) -> None:
    """Write the inputs that all nodes share, from a table; they become the landmarks of the default method.

    The table is in the units that nodes observe in, and its columns are in the order of an observation.

    Example: omkl node inputs rows.csv, then omkl node init --calibration calibration.npz
    """
    made = load("setup.shared").write(
        table, path, rows=rows, labels=_split(labels), label=label, drop=_split(drop), by_centers=centers, seed=seed
    )
    what = f"{made.rows} centers of" if centers else f"{made.rows} of"
    told = f" and {', '.join(made.labels)}" if made.labels else ""
    told += f", without the label {', '.join(made.without)}" if made.without else ""
    print(f"{path}: {what} {made.of} rows of {', '.join(made.columns)}{told}")
    flag = " --standardize" if made.unlike else ""
    if made.unlike:
        print("columns differ much in scale, or are far from zero: let nodes scale them, if they see like data")
    print(f"write the network's file beside it: omkl node init --calibration {path.name}{flag}")


def certificates(
    names: Annotated[
        list[str] | None, typer.Argument(help="Programs or people who ask nodes for something.", metavar="NAME...")
    ] = None,
    network: Network = Path("network.toml"),
) -> None:
    """Make the certificates that a network's file names, with OpenSSL; those that exist are left as they are.

    Each is made out to its name, and a node's to the host of its listen too, for programs that compare the host.
    A device needs ca.pem and its own two files. Keep ca.key, the authority's key, where it was made. If the network's
    file has no [tls], the command prints the lines to add.

    Example: omkl node certificates screen
    """
    config = load("config").load(network)
    folder = network.parent / FOLDER if config.tls is None else config.tls.certificate.parent
    wanted = [*config.ids, *sorted(config.access.names), *(names or [])]
    host_of = load("setup.membership").host_of
    hosts = {member.id: host_of(member.listen).strip("[]") for member in config.members}
    if config.tls is not None and vars(config.tls) != {key: folder / name for key, name in FILES.items()}:
        raise InputError(f"[tls] of {network} names other files than {', '.join(FILES.values())}; make them by openssl")
    for name in wanted:
        load("settings").check_certified("name", name)
    missing = [name for name in dict.fromkeys(wanted) if not _is_filled(folder / f"{name}.pem")]
    if missing:
        _openssl(folder, [f"{name}={hosts[name]}" if name in hosts else name for name in missing])
    print(f"{folder}: made {', '.join(missing) or 'none, all were there'}")
    if config.tls is None:
        lines = "\n".join(f'{key} = "{FOLDER}/{name}"' for key, name in FILES.items())
        print(f"{network} has no [tls] yet: add these lines at its end, and write tls/ for tcp/ in every listen")
        print(f"\n[tls]\n{lines}")


FOLDER = "certificates"  # beside the network's file, where that names none
FILES = {"ca": "ca.pem", "certificate": "{id}.pem", "key": "{id}.key"}


def add(
    id: Id,
    neighbors: Annotated[str, typer.Option(help="Nodes that it talks to.", metavar="A,B")],
    host: Host = None,
    port: Annotated[
        int | None,
        typer.Option(
            help="Port to listen on. Without it: that of the last node, or the next that is free there.",
            metavar="INT",
            show_default=False,
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            help="Where it serves metrics, or none. Without it: as the last node.",
            metavar="HOST:PORT",
            show_default=False,
        ),
    ] = None,
    network: Network = Path("network.toml"),
    dry_run: DryRun = False,
) -> None:
    """Add a node to a network's file, and print what to do next.

    Example: omkl node add --id m --neighbors c,d --host 192.168.1.22
    """
    change = load("setup.membership").add(network, id, _split(neighbors), host, port, metrics, dry_run)
    _tell_dry(network, dry_run)
    listen = change.after.members[-1].listen
    print(f"{network}: {id} on {listen}, a neighbor of {', '.join(change.after.neighbors(id))}")
    if change.after.tls is not None:
        print(f"make its certificate: omkl node certificates --network {network}")
    print(f"copy the file to {', '.join([*change.restart, id])}; restart {_each(change)}; then start {id}")
    _tell_weights(change)


def remove(
    id: Id,
    link: Annotated[
        list[str] | None,
        typer.Option(
            help="A link to put in place of the node's own; repeat it for each.", metavar="A,B", show_default=False
        ),
    ] = None,
    network: Network = Path("network.toml"),
    dry_run: DryRun = False,
) -> None:
    """Remove a node from a network's file, and print what to do next.

    Example: omkl node remove --id m --link c,d
    """
    links = [tuple(_split(one)) for one in link or []]
    if wrong := [one for one in links if len(one) != 2]:
        raise InputError(f"link is {','.join(wrong[0])!r}; a link joins two nodes; write --link c,d")
    change = load("setup.membership").remove(network, id, links, dry_run)
    _tell_dry(network, dry_run)
    print(f"{network}: without {id}, {len(change.after.ids)} nodes")
    print(f"stop {id}; copy the file to {', '.join(change.restart)}; restart {_each(change)}")
    if apart := change.parted(id):
        joined = f"--link {','.join(apart[:2])}" if dry_run else f"{json.dumps(apart[:2])} among links of {network}"
        whom = "them" if len(apart) == 2 else "two of them"
        print(f"{' and '.join(apart)} lose a neighbor and are not linked; {joined} links {whom}")
    _tell_weights(change)


def _tell_dry(network: Path, dry_run: bool) -> None:
    if dry_run:
        print(f"{network} is left as it is; without --dry-run:")


def _each(change: "Change") -> str:
    return ", then ".join(change.restart)


def _tell_weights(change: "Change") -> None:
    if change.weighed:
        print(
            f"{', '.join(change.weighed)} may go on as they are: a link of theirs has another weight now, of which the "
            "smaller counts; they take theirs when they start next"
        )


def _openssl(folder: Path, names: list[str]) -> None:
    for program in ("sh", "openssl"):
        if shutil.which(program) is None:
            raise InputError(
                f"{program} is not installed; certificates are made by it; install it, or make them elsewhere"
            )
    script = files("omkl.node.setup") / "certificates.sh"
    made = subprocess.run(["sh", str(script), str(folder), *names], capture_output=True, text=True, check=False)
    if made.returncode:
        raise InputError(f"no certificates in {folder}: {made.stderr.strip()}")


def _is_filled(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _split(names: str | None) -> list[str]:
    return [name.strip() for name in names.split(",")] if names else []


COMMANDS = (init, inputs, certificates, add, remove)

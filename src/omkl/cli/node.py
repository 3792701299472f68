"""``omkl node``: a node of a real network, and what helps to set one up."""

import json
import logging
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer
from rich.table import Table

from omkl import storage
from omkl.cli import network as networks
from omkl.cli import options, show
from omkl.cli.exits import Exit
from omkl.cli.network import load as _load
from omkl.cli.options import Format
from omkl.errors import DivergedError, InputError, RestoreError
from omkl.node import inputs, journal  # light ones: no zenoh, no pydantic

if TYPE_CHECKING:
    from omkl.node.config import NetworkConfig

OBSERVATIONS, OUTPUT = "Observations", "Output"
TIMEOUT = 5.0
DEFAULT = Path("network.toml")

node = typer.Typer(no_args_is_help=True, invoke_without_command=True)

File = typer.Option("--network", help="The network's file.", metavar="NETWORK.toml")
Id = typer.Option("--id", help="Id of the node.", metavar="ID")

As: TypeAlias = Annotated[
    str | None,
    typer.Option("--as", help="Name of the certificate to show. Without it: the node's own.", metavar="NAME"),
]
Stream: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--input",
        rich_help_panel=OBSERVATIONS,
        help="File of observations, one a line; - is standard input.",
        metavar="FILE",
    ),
]
FormatIn: TypeAlias = Annotated[
    inputs.Format | None,
    typer.Option(
        rich_help_panel=OBSERVATIONS,
        help="Format of --input. Without it: csv for a file .csv, else by the first line.",
        show_default=False,
    ),
]
Label: TypeAlias = Annotated[
    str | None, typer.Option(rich_help_panel=OBSERVATIONS, help="Column of the label, for csv.", metavar="NAME")
]
Strict: TypeAlias = Annotated[
    bool, typer.Option("--strict", rich_help_panel=OBSERVATIONS, help="Stop at a bad line, instead of skipping it.")
]
UntilEnd: TypeAlias = Annotated[
    bool, typer.Option("--until-end", rich_help_panel=OBSERVATIONS, help="Leave the network after the last line.")
]
Predictions: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--predictions",
        rich_help_panel=OUTPUT,
        help="Print a line of JSON for each observation: what was predicted before it was learned.",
    ),
]
Export: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        rich_help_panel=OUTPUT, help="Write the model here when the node leaves, and on SIGUSR1.", metavar="MODEL.npz"
    ),
]
Metrics: TypeAlias = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=OUTPUT,
        help="Where this device serves metrics and health, whatever the file says; or none.",
        metavar="HOST:PORT",
        show_default=False,
    ),
]
LogFormat: TypeAlias = Annotated[journal.LogFormat, typer.Option(rich_help_panel=OUTPUT, help="Format of the log.")]
Quiet: TypeAlias = Annotated[bool, typer.Option("--quiet", rich_help_panel=OUTPUT, help="Log warnings only.")]


@node.callback()
def run(
    ctx: typer.Context,
    network: Annotated[Path | None, File] = None,
    id: Annotated[str | None, Id] = None,
    stream: Stream = None,
    format_in: FormatIn = None,
    label: Label = None,
    strict: Strict = False,
    until_end: UntilEnd = False,
    predictions: Predictions = False,
    export: Export = None,
    metrics: Metrics = None,
    log_format: LogFormat = journal.LogFormat.TEXT,
    quiet: Quiet = False,
) -> None:
    """Run a node until SIGTERM or Ctrl-C; then it finishes its round, writes its checkpoint and leaves.

    Observations come from --input, and on the zenoh key omkl/NETWORK/ID/observe. A line of JSON is
    {"x": [0.5, -1.0], "y": 1}; without y it is only predicted. In CSV the label is the column --label, else y, else the
    last one; a first line of names is a header. Two classes are -1 and 1, or 0 and 1. After the last line the node goes
    on in its neighbors' rounds, unless you give --until-end.

    The log goes to standard error. Exit codes: 0 after SIGTERM or --until-end, 130 after Ctrl-C, 2 if the network's
    file is wrong, a port is taken, or the first 20 lines are all refused (with --strict, any line), 3 if a package is
    missing, 4 if the model
    diverged, 5 if a disk fails when it begins or leaves, an address in the file is not this device's, as before its
    network is up, or its certificate is not valid yet, as before its clock is set.

    Example: omkl node --network network.toml --id a --input a.csv
    """
    if ctx.invoked_subcommand is not None:
        return
    if network is None or id is None:
        raise InputError("a node needs its network and its id; give --network NETWORK.toml --id ID")
    daemon, feeds = _load("daemon"), _load("feed")
    config = _load("config").load(network)
    config = config if metrics is None else config.served_at(id, None if metrics == "none" else metrics)
    feed = None
    if stream is not None:
        feed = feeds.Feed(file=stream, format=format_in, label=label, strict=strict, until_end=until_end)
    elif until_end or strict or label or format_in:
        raise InputError("no --input; the flags on its lines need one; give a file, or - for standard input")
    if predictions and sys.stdout is None:
        raise InputError("standard output is closed; --predictions writes there; open it, as by > FILE")
    if export is not None:
        storage.require_folder(export)
    log = journal.handler(log_format)
    logging.basicConfig(handlers=[log], level=logging.WARNING if quiet else logging.INFO)
    try:
        end = daemon.run(config, id, feed, sys.stdout if predictions else None, export)
    except DivergedError:  # the log says so already
        raise typer.Exit(Exit.DIVERGED) from None
    except RestoreError as error:
        where = "" if network == DEFAULT else f" --network {shlex.quote(str(network))}"
        raise InputError(f"{error}{where} --id {id}") from None
    finally:
        log.flush()  # what went wrong is told after what led to it
    raise typer.Exit(Exit.INTERRUPTED if end is daemon.End.INTERRUPTED else Exit.OK)


@node.command()
def check(
    path: Annotated[Path | None, typer.Argument(help="The network's file.", metavar="NETWORK.toml")] = None,
    network: Annotated[Path, File] = DEFAULT,
    output: options.Output = Format.TABLE,
) -> None:
    """Check a network's file, and print its nodes, their links, and what all nodes must agree on.

    The file may stand with or without --network, as other commands take it.

    Example: omkl node check network.toml
    """
    if path is not None and network != DEFAULT:
        raise InputError(f"{path} and --network {network} given; one file is checked; leave one of them out")
    config = _load("config").load(path or network)
    if output is Format.JSON:
        show.print_json(_describe(config))
    else:
        _print(config)


@node.command()
def predict(
    id: Annotated[str, Id],
    x: Annotated[str, typer.Option("--x", help="The input, separated by commas.", metavar="NUMBERS")],
    network: Annotated[Path, File] = DEFAULT,
    timeout: Annotated[float, typer.Option(help="How long to wait for the node.", metavar="SECONDS")] = TIMEOUT,
    name: As = None,
    output: options.Output = Format.JSON,
) -> None:
    """Ask a running node for a prediction, and print its label, outputs and round.

    With a logistic or softmax loss it also prints the probability of each label. Two classes are -1 and 1 here, also if
    the node is fed 0 and 1.

    Example: omkl node predict --network network.toml --id a --x 0.5,-1.0
    """
    try:
        values = [float(number) for number in x.split(",")]
    except ValueError:
        raise InputError(f"x is {x!r}; it must be numbers; write --x 0.5,-1.0") from None
    answer = _load("client").predict(_load("config").load(network), id, values, timeout, name)
    print(answer if output is Format.JSON else _readable(json.loads(answer)))


@node.command()
def reset(id: Annotated[str, Id], network: Annotated[Path, File] = DEFAULT) -> None:
    """Remove the checkpoints of a node that is not running, so that it starts anew.

    It then begins with what its neighbors have kept of its models, or with nothing.

    Example: omkl node reset --network network.toml --id a
    """
    config = _load("config").load(network)
    config.index(id)  # refuses one that is not there
    if config.checkpoint is None:
        raise InputError(f"{network} has no [checkpoint]; a node without keeps nothing; start it")
    removed = _load("persistence").reset(config.checkpoint, id)
    print(f"{id}: removed {', '.join(map(str, removed)) or 'nothing'}")


@node.command()
def export(
    path: Annotated[Path, typer.Argument(help="The file to write.", metavar="MODEL.npz")],
    id: Annotated[str, Id],
    network: Annotated[Path, File] = DEFAULT,
    timeout: Annotated[float, typer.Option(help="How long to wait for the node.", metavar="SECONDS")] = TIMEOUT,
    name: As = None,
) -> None:
    """Ask a running node for its model, and write the file that omkl.load_model reads.

    Example: omkl node export model.npz --network network.toml --id a
    """
    storage.write_whole(path, _load("client").model(_load("config").load(network), id, timeout, name))


def _readable(answer: dict[str, Any]) -> str:
    lines = {"label": str(answer["label"])}
    if "probabilities" in answer:
        lines["probabilities"] = ", ".join(
            f"{label}: {chance:.2%}" for label, chance in answer["probabilities"].items()
        )
    lines["output"] = ", ".join(f"{value:.5g}" for value in answer["output"])
    lines["round"] = f"{answer['round']:,}"
    return "\n".join(f"{key:15}{text}" for key, text in lines.items())


for command in networks.COMMANDS:
    node.command()(command)


def _describe(config: "NetworkConfig") -> dict[str, Any]:
    nodes = {
        member.id: {
            "listen": member.listen,
            "metrics": member.metrics,
            "connects_to": [peer for peer in config.neighbors(member.id) if config.index(peer) < k],
            "weights": config.neighbors(member.id),
        }
        for k, member in enumerate(config.members)
    }
    contract = dict(line.partition(" ")[::2] for line in config.role(config.ids[0]).contract().splitlines())
    access = {service: list(names) for service, names in vars(config.access).items()}
    return {
        "name": config.name,
        "inputs": config.inputs,
        "nodes": nodes,
        "access": access,
        "contract": contract,
        "missing": _missing(config),
    }


def _missing(config: "NetworkConfig") -> dict[str, list[str]]:
    """Return the files of TLS that are not there, and whose each is."""
    found: dict[str, list[str]] = {}
    for id in config.ids:
        for path in _files(config, id):
            if not path.exists():
                found.setdefault(str(path), []).append(id)
    return found


def _files(config: "NetworkConfig", id: str) -> list[Path]:
    """Return the files of TLS of a node."""
    return [] if config.tls is None else list(vars(config.tls.named(id)).values())


def _print(config: "NetworkConfig") -> None:
    about = _describe(config)
    page = Table("id", "listens on", "connects to", "neighbors and their weights", "metrics", box=None, pad_edge=False)
    for id, one in about["nodes"].items():
        weights = ", ".join(f"{peer} {weight:.3g}" for peer, weight in one["weights"].items())
        page.add_row(id, one["listen"], ", ".join(one["connects_to"]), weights, one["metrics"] or "")
    console = show.console()
    timing = config.timing
    console.print(f"{config.name}: {len(config.ids)} nodes, {config.inputs} inputs, {timing.mode}")
    console.print(page)
    everyone = "everyone in reach" if config.tls is None else "everyone with a certificate of this authority"
    for service, names in about["access"].items():
        who = everyone if names == ["*"] else ", ".join(names) or "nobody"
        console.print(f"  {service} is for: {who}")
    for key, value in about["contract"].items():
        console.print(f"  {key}: {value}")
    if missing := about["missing"]:
        files = ", ".join(f"{path} ({', '.join(ids)})" for path, ids in missing.items())
        if not any(path.exists() for id in config.ids for path in _files(config, id)):
            files = "any certificate"
        console.print(f"not on this device: {files}; a node needs tls.ca and its own two; omkl node certificates")

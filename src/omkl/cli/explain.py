"""``omkl explain``: what the theory says of a setting."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from omkl import config, data, theory
from omkl.cli import options, show
from omkl.cli.options import Format
from omkl.data.tables import Roles
from omkl.errors import InputError
from omkl.experiment import Experiment, label
from omkl.methods import PRESETS, Gossip, Method, suited
from omkl.quantizers import Quantizer
from omkl.settings import settings
from omkl.theory.explanation import TAKEN

NODES = 20  # where nothing says how many

FLAGS = options.flags("topology nodes weights method")


@dataclass
class explain(FLAGS):  # type: ignore[misc, valid-type]
    """Explain a setting: spectral gap, contraction, regret bound.

    The setting is that of a file as for omkl simulate, or the recommended one on a path of 20 nodes, with what flags
    change in it. The regret bound is for the paper's method.

    Example: omkl explain --method paper --topology ring --nodes 20 --rounds 5000
    """

    spec: options.Spec = None
    rounds: Annotated[
        int | None,
        typer.Option(
            help="Length of the stream, T. Without it: that of the data in SPEC.toml, else 1000.",
            metavar="INT",
            show_default=False,
        ),
    ] = None
    output: options.Output = Format.TABLE

    def __post_init__(self) -> None:
        table = config.merge(config.load(self.spec) if self.spec else {}, options.tables(self))
        method, channel = _method(table.pop("method", {}))
        run = config.converted(Experiment, table, "")
        roles = {key: run.pop(key) for key in settings(Roles) if key in run}
        with show.log(True):  # notes on a table are for those who learn it
            given = config.data(run["data"], roles) if "data" in run else None
        chosen = data.known(given) if isinstance(given, str) else None
        source = chosen or (given if isinstance(given, data.Table) else None)
        method = method if source is None else suited(method, source.loss)
        count = run.get("nodes", (given is not None and config.own_nodes(given)) or NODES)
        own = data.load(chosen.name).graph if chosen is not None and chosen.graph and "topology" not in run else None
        graph = own or config.topology(run.get("topology", "path"), count)
        length = run.get("rounds") if self.rounds is None else self.rounds
        page = theory.explain(
            graph,
            count if isinstance(graph, str) else run.get("nodes"),
            weights=run.get("weights", "metropolis"),
            rounds=_rounds(given, count, run.get("partition")) if length is None else length,
            method=method,
            quantizer=channel,
        )
        if self.output is Format.JSON:
            show.print_json(vars(page) | {"regret": page.terms.total, "vacuous": page.vacuous})
        else:
            show.print_page(str(page))


def _rounds(given: Any, nodes: int, partition: Any) -> int | None:
    """Return how many rounds the nodes can take from data, if there are any."""
    if given is None:
        return None
    if isinstance(given, str):
        return data.known(given).n // max(1, nodes)
    return len(data.as_stream(given, nodes, partition=partition)[0].X)


def _method(value: Any) -> tuple[Method, Quantizer]:
    """Return a gossip method without quantizer, and the quantizer: one that gossip refuses is the one to explain."""
    layers = [dict(config.as_table(one, "method")) for one in (value if isinstance(value, tuple) else (value,))]
    latest = max((k for k, one in enumerate(layers) if one.get("name") in PRESETS), default=0)
    given = [one.pop("quantizer", {}) for one in layers][latest:]  # a preset takes nothing of what was there
    before = config.method(tuple(layers))
    if type(before) is not Gossip:
        raise InputError(f"method: {label(before)} given; the theory is of gossip; {TAKEN}")
    channel = before.channel.quantizer
    for one in given:
        channel = config.part(config.PARTS[Quantizer], one, "quantizer", channel)
    if before.sent % (block := getattr(channel, "block", None) or 1):
        raise InputError(f"quantizer.block: {block} given; a model is {before.sent} numbers; use a divisor of them")
    return before.replace(quantizer=None), channel

"""``omkl explain``: what the theory says of a setting."""

from dataclasses import dataclass
from typing import Annotated

import typer

from omkl import config, theory
from omkl.cli import options, show
from omkl.cli.options import Format
from omkl.errors import InputError
from omkl.experiment import Experiment
from omkl.methods import Gossip
from omkl.quantizers import Quantizer

NODES = 20  # where neither flags nor a graph say how many

FLAGS = options.flags("topology nodes weights method")


@dataclass
class explain(FLAGS):  # type: ignore[misc, valid-type]
    """Explain a setting: spectral gap, contraction, regret bound.

    The setting is the recommended one on a path of 20 nodes, with what flags change in it. The regret bound is for
    the paper's method.

    Example: omkl explain --method paper --topology ring --nodes 20 --rounds 5000
    """

    rounds: Annotated[int, typer.Option(help="Length of the stream, T.", metavar="INT")] = 1000
    output: options.Output = Format.TABLE

    def __post_init__(self) -> None:
        table = options.tables(self)
        given = config.as_table(table.pop("method", {}), "method")
        # A quantizer that gossip refuses is the one to explain, so it is read apart.
        quantizer = given.pop("quantizer", {})
        before = config.method(given)
        if type(before) is not Gossip:
            raise InputError(f"method: {before.name} given; the theory is of gossip; name a preset, or gossip")
        channel = config.part(config.PARTS[Quantizer], quantizer, "quantizer", before.channel.quantizer)
        method: Gossip = before.replace(quantizer=None)
        if method.sent % (block := getattr(channel, "block", None) or 1):
            raise InputError(f"quantizer.block: {block} given; a model is {method.sent} numbers; use a divisor of them")
        run = config.converted(Experiment, table, "")
        graph = config.topology(run.get("topology", "path"), run.get("nodes", NODES))
        page = theory.explain(
            graph,
            run.get("nodes", NODES if isinstance(graph, str) else None),
            weights=run.get("weights", "metropolis"),
            rounds=self.rounds,
            **theory.explanation.settings_of(method, channel),
        )
        if self.output is Format.JSON:
            show.print_json(vars(page) | {"regret": page.terms.total, "vacuous": page.vacuous})
        else:
            show.print_page(str(page))

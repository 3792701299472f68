"""``omkl explain``: what the theory says of a setting."""

from typing import Annotated

import typer

from omkl import theory
from omkl.cli import options, show
from omkl.cli.options import METHOD, Format
from omkl.compressors import QUANTIZERS
from omkl.methods import PRESETS, Gossip

BEYOND = ("basis", "learner", "common_weights", "reach", "momentum", "clip", "pace", "sending")  # not in the theory


@options.describes_method
def explain(
    ctx: typer.Context,
    topology: options.Topology = None,
    nodes: options.Nodes = None,
    weights: options.Weights = None,
    rounds: Annotated[int, typer.Option(rich_help_panel=METHOD, help="Length of the stream, T.", metavar="INT")] = 1000,
    output: options.Output = Format.TABLE,
) -> None:
    """Explain a setting: spectral gap, contraction, regret bound.

    The setting is the recommended one, if nothing is said of it. The regret bound is for the letter's method.

    Example: omkl explain --method letter --topology ring --nodes 20 --rounds 5000
    """
    from omkl import specs  # pydantic takes a while to import

    table = options.tables(ctx.params)
    settings = specs.method_table(table.get("method", {}))
    # A quantizer that gossip refuses is the one to explain, so it is read apart.
    channel = specs.choose("quantizer", QUANTIZERS, settings.get("quantizer", {}), "quantizer", "qsgd")
    known = {**PRESETS, Gossip.name: Gossip}
    method: Gossip = specs.choose("method", known, settings | {"quantizer": "exact"}, "method", Gossip.name)
    page = theory.explain(
        specs.topology(table.get("topology", "path"), nodes),
        nodes,
        weights=table.get("weights", "metropolis"),
        quantizer=channel,
        features=method.bank.features,
        kernels=method.members,
        rounds=rounds,
        eta=method.eta,
        gamma=method.mixing.gamma,
        momentum=method.mixing.momentum,
        weight_rate=method.weights.rate,
        regularization=method.regularization,
        loss=method.objective,
        sent=method.sent,
        share=method.channel.least_share(method.members),
        beyond=[name for name in BEYOND if method.settings()[name]],
    )
    if output is Format.JSON:
        show.print_json(vars(page) | {"regret": page.terms.total, "vacuous": page.vacuous})
    else:
        show.print_page(str(page))

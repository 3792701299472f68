"""``omkl explain``: what the theory says of a setting."""

from typing import Annotated

import typer

from omkl import theory
from omkl.cli import options, show
from omkl.cli.options import METHOD, Format
from omkl.compressors import QUANTIZERS
from omkl.methods import Gossip


def explain(
    ctx: typer.Context,
    topology: options.Topology = None,
    nodes: options.Nodes = None,
    weights: options.Weights = None,
    kernels: options.Kernels = None,
    features: options.Features = None,
    eta: options.Eta = None,
    gamma: options.Gamma = None,
    regularization: options.Regularization = None,
    loss: options.Loss = None,
    quantizer: options.Quantizer = None,
    bits: options.Bits = None,
    rescale: options.Rescale = None,
    step: options.Step = None,
    block: options.Block = None,
    rounds: Annotated[int, typer.Option(rich_help_panel=METHOD, help="Length of the stream, T.", metavar="INT")] = 1000,
    output: options.Output = Format.TABLE,
) -> None:
    """Explain a setting: spectral gap, contraction, regret bound.

    Example: omkl explain --topology ring --nodes 20 --quantizer nearest --rounds 5000
    """
    from omkl import specs  # pydantic takes a while to import

    table = options.tables(ctx.params)
    settings = table.get("method", {})
    # A quantizer that gossip refuses is the one to explain, so it is read apart.
    channel = specs.choose("quantizer", QUANTIZERS, settings.pop("quantizer", {}), "quantizer", "qsgd")
    method = specs.choose("method", {"gossip": Gossip}, settings | {"quantizer": "exact"}, "method", "gossip")
    page = theory.explain(
        specs.topology(table.get("topology", "path"), nodes),
        nodes,
        weights=table.get("weights", "metropolis"),
        quantizer=channel,
        features=method.features,
        kernels=len(method.kernels),
        rounds=rounds,
        eta=method.eta,
        gamma=method.gamma,
        momentum=method.momentum,
        regularization=method.regularization,
        loss=method.objective,
    )
    if output is Format.JSON:
        show.print_json(vars(page) | {"regret": page.terms.total, "vacuous": page.vacuous})
    else:
        show.print_page(str(page))

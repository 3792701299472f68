"""One self-contained HTML page, for a person who has not seen the paper."""

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { line-height: 1.2; } h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
table { border-collapse: collapse; margin: 1rem 0; font-size: .92rem; display: block; overflow-x: auto; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
figure { margin: 1.5rem 0; } img { max-width: 100%; background: white; } figcaption { color: #777; font-size: .9rem; }
span { font-weight: 600; } .holds { color: #15803d; } .fails { color: #b91c1c; } .partly { color: #b45309; }
code { background: var(--soft); padding: .1rem .3rem; }
"""  # fmt: skip

VERDICTS = {"holds": "holds", "yes": "holds", "undecided": "partly", "does not hold": "fails", "no": "fails"}

INTRODUCTION = """
<p>A network of devices learns one nonlinear model. Each device sees its own stream of labeled samples, talks only to
its neighbors in a graph, and sends a few dozen bytes a round. It holds a few <em>kernel models</em>, linear models on
random sines and cosines of the input, one for each bandwidth sigma, and predicts with their weighted mean. In every
round a device pulls its models a little towards those of its neighbors (<em>gossip</em>, step gamma), sends a coarsely
rounded difference (<em>quantizer</em>, M levels), predicts its sample, then learns from it (step eta).</p>
<p>The method is from T. Ortega and H. Jafarkhani, <em>Gossiped and Quantized Online Multi-Kernel Learning</em>, IEEE
Signal Processing Letters 30 (2023). This page repeats its experiments and puts each of its claims to the test. What is
called loss is ln(1 + exp(-y f)), scored before the sample is learned; a device that always says "don't know" loses
ln&nbsp;2&nbsp;=&nbsp;0.6931. <a href='#words'>Words</a> says what OMKL and the other names below mean.</p>
"""


TITLES = {
    "claims": "The claims",
    "figure1": "Figure 1: the methods on each data set",
    "figure2": "Figure 2: the topology at larger steps",
    "regret": "Regret",
    "quantizers": "Quantizers",
    "frontier": "Beyond the paper: what a byte buys",
}

GLOSSARY = {
    "path, ring, complete": "who talks to whom: neighbors in a row, in a circle, or everybody with everybody",
    "OMKL": "what the paper compares with, on the complete graph: all nodes hold one model, and each broadcasts its "
            "quantized gradient and its losses in every round",
    "single-kernel CHOCO": "the same gossip with one kernel, sigma = 1, instead of three",
    "M": "levels of the quantizer: M = 7 is three bits and a sign a coefficient before coding; exact sends 32 bits",
    "feature draw, shuffle": "two sources of chance: the random frequencies of the kernels, and the order of the data",
    "final loss": "the mean loss over the last tenth of the stream",
    "h": "the hidden state: what a node's neighbors know of its model, the sum of all messages so far",
    "J, P, D": "20 nodes, 3 Gaussian kernels (sigma = 1, 3, 5), 20 random frequencies each: 40 coefficients a kernel",
    "lambda": "weight of the squared coefficients in what is learned, 0.001",
    "rho": "spectral gap of the gossip weights (Metropolis): 1 agrees at once, near 0 hardly ever",
    "delta": "share of a message's energy that a quantizer is sure to deliver",
    "gamma*, c": "the gossip step of the theory, and the share of disagreement a round should then remove",
    "L": "bound on the gradient of the loss",
}  # fmt: skip


def page(bodies: Mapping[str, str], settings: Mapping[str, object], versions: Mapping[str, object],
         missing: Sequence[str]) -> str:  # fmt: skip
    """Return the whole page, from the bodies of the finished parts."""
    gap = f"This page is incomplete. Not computed with these settings: {', '.join(missing)}. omkl paper all does it."
    sections = [f"<h2>{html.escape(TITLES[part])}</h2>\n{body}" for part, body in bodies.items()]
    tables = [table(["", ""], rows.items()) for rows in (GLOSSARY, settings, versions)]
    return f"""<!doctype html><html lang='en'><head><meta charset='utf-8'>
<meta name='viewport' content='width=device-width, initial-scale=1'>
<title>The paper, reproduced</title><style>{STYLE}</style></head><body>
<h1>Gossiped and quantized online multi-kernel learning, reproduced</h1>
{INTRODUCTION}{paragraph(gap) if missing else ""}
{"".join(sections)}
<h2 id='words'>Words</h2>
{tables[0]}
<h2>How this page was made</h2>
{tables[1]}{tables[2]}</body></html>
"""


def paragraph(text: str) -> str:
    """Return plain text as a paragraph."""
    return f"<p>{html.escape(text)}</p>"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table, with numbers and their heads aligned right and verdicts in color."""
    body = [[str(value) for value in row] for row in rows]
    kinds = [" class='number'" if all(_is_figure(row[i]) for row in body) else "" for i in range(len(head))]
    heads = "".join(f"<th{kind}>{html.escape(name)}</th>" for name, kind in zip(head, kinds, strict=True))
    cells = ("".join(f"<td{kind}>{_cell(text)}</td>" for text, kind in zip(row, kinds, strict=True)) for row in body)
    lines = "".join(f"<tr>{row}</tr>" for row in cells)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table>"


def image(path: Path, caption: str) -> str:
    """Return a PNG inside the page."""
    data = base64.b64encode(path.read_bytes()).decode()
    alt = html.escape(caption, quote=True)
    return (
        f"<figure><img alt='{alt}' src='data:image/png;base64,{data}'>"
        f"<figcaption>{html.escape(caption)}</figcaption></figure>"
    )


def _is_figure(text: str) -> bool:
    return bool(text) and text.strip("+-.0123456789e±% ()×[],<") == ""


def _cell(text: str) -> str:
    kind = "partly" if text.startswith("holds on") else VERDICTS.get(text)
    return f"<span class='{kind}'>{html.escape(text)}</span>" if kind else html.escape(text)

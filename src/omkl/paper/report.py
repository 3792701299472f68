"""One self-contained HTML page, for a person who has not seen the letter."""

import base64
import html
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { line-height: 1.2; } h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
table { border-collapse: collapse; margin: 1rem 0; font-size: .92rem; display: block; overflow-x: auto; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
figure { margin: 1.5rem 0; } img { max-width: 100%; background: white; } figcaption { color: #777; font-size: .9rem; }
span { font-weight: 600; } .holds { color: #15803d; } .fails { color: #b91c1c; } .partly { color: #b45309; }
code { background: var(--soft); padding: .1rem .3rem; }
"""  # fmt: skip

INTRODUCTION = """
<p>A network of devices learns one nonlinear model. Each device sees its own stream of labeled samples, talks only to
its neighbors in a graph, and sends a few dozen bytes a round. It holds a few <em>kernel models</em>, linear models on
random sines and cosines of the input, one for each bandwidth sigma, and predicts with their weighted mean. In every
round a device pulls its models a little towards those of its neighbors (<em>gossip</em>, step gamma), sends a coarsely
rounded difference (<em>quantizer</em>, M levels), predicts its sample, then learns from it (step eta).</p>
<p>The method is from T. Ortega and H. Jafarkhani, <em>Gossiped and Quantized Online Multi-Kernel Learning</em>, IEEE
Signal Processing Letters 30 (2023). This page repeats its experiments and puts each of its claims to the test. What is
called loss is ln(1 + exp(-y f)), scored before the sample is learned; a device that always says "don't know" loses
ln&nbsp;2&nbsp;=&nbsp;0.6931.</p>
"""


class Section(NamedTuple):
    """A heading and what stands under it, as HTML."""

    title: str
    body: str


def write(path: Path, sections: Iterable[Section], settings: str, missing: Sequence[str]) -> None:
    """Write the page."""
    parts = ["<!doctype html><html lang='en'><head><meta charset='utf-8'>",
             "<meta name='viewport' content='width=device-width, initial-scale=1'>",
             f"<title>The letter, reproduced</title><style>{STYLE}</style></head><body>",
             "<h1>Gossiped and quantized online multi-kernel learning, reproduced</h1>", INTRODUCTION]  # fmt: skip
    if missing:
        parts.append(paragraph(f"This page is incomplete. Not computed yet: {', '.join(missing)}."))
    parts += [f"<h2>{html.escape(section.title)}</h2>\n{section.body}" for section in sections]
    parts += ["<h2>How this page was made</h2>", paragraph(settings), "</body></html>\n"]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(parts), encoding="utf-8")


def paragraph(text: str) -> str:
    """Return plain text as a paragraph."""
    return f"<p>{html.escape(text)}</p>"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table; numbers, and their columns' heads, to the right; a verdict in its color."""
    body = [list(row) for row in rows]
    numeric = [all(isinstance(row[i], float | int) or _figure(str(row[i])) for row in body) for i in range(len(head))]
    lines = ["<table><thead><tr>"]
    lines += [f"<th{_right(right)}>{html.escape(name)}</th>" for name, right in zip(head, numeric, strict=True)]
    lines.append("</tr></thead><tbody>")
    for row in body:
        cells = [f"<td{_right(right)}>{_cell(value)}</td>" for value, right in zip(row, numeric, strict=True)]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return "".join([*lines, "</tbody></table>"])


def image(path: Path, caption: str) -> str:
    """Return a PNG inside the page."""
    data = base64.b64encode(path.read_bytes()).decode()
    alt = html.escape(caption, quote=True)
    return (
        f"<figure><img alt='{alt}' src='data:image/png;base64,{data}'>"
        f"<figcaption>{html.escape(caption)}</figcaption></figure>"
    )


def _figure(text: str) -> bool:
    return bool(text) and text.strip("+-.0123456789e±% ()×[],<") == ""


def _right(right: bool) -> str:
    return " class='number'" if right else ""


def _cell(value: object) -> str:
    text = html.escape(str(value))
    for start, kind in (
        ("holds on", "partly"),
        ("holds", "holds"),
        ("does not", "fails"),
        ("yes", "holds"),
        ("no", "fails"),
    ):
        if text == start or (start != "no" and text.startswith(start)):
            return f"<span class='{kind}'>{text}</span>"
    return text

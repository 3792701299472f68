"""How results and models show themselves: a title and a few lines, as text or as a small table of HTML."""

import html
import textwrap
from collections.abc import Mapping, Sequence

LONGEST = 60  # characters of a name that a user has given


def as_text(title: str, rows: Mapping[str, str]) -> str:
    """Return a title and rows of text.

    >>> print(as_text("A run", {"loss": "0.25", "nodes": "3"}))
    A run
      loss   0.25
      nodes  3
    """
    width = max(map(len, rows)) + 2
    return "\n".join([title, *(f"  {name:{width}}{text}" for name, text in rows.items())])


def aligned(table: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table of texts: the first column to the left, the others to the right.

    >>> aligned([["", "loss"], ["alone", "0.5"], ["together", "0.25"]])
    ['            loss', '  alone      0.5', '  together  0.25']
    """
    first, *widths = (max(map(len, column)) for column in zip(*table, strict=True))
    return [
        "  ".join(["", f"{name:{first}}", *(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))])
        for name, *cells in table
    ]


def as_html(title: str, rows: Mapping[str, str]) -> str:
    """Return the same as a table; what is shown is escaped.

    >>> as_html("A < B", {"loss": "0.25"})
    '<table><caption>A &lt; B</caption><tr><th>loss</th><td>0.25</td></tr></table>'
    """
    cells = (f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>" for name, text in rows.items())
    return f"<table><caption>{html.escape(title)}</caption>{''.join(cells)}</table>"


def counted(number: int, noun: str) -> str:
    """Return a number of things in words.

    >>> counted(1, "seed"), counted(1500, "round")
    ('1 seed', '1,500 rounds')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def short(name: object, longest: int = LONGEST) -> str:
    """Return a name on one line, cut where it is long."""
    return textwrap.shorten(str(name), longest, placeholder="...")

"""``omkl data``: the data sets and where they are."""

from rich.markup import escape
from rich.table import Column, Table

from omkl.cli import options, show
from omkl.cli.options import Format


def data(output: options.Output = Format.TABLE) -> None:
    """List the data sets, where they are, and how to get them.

    omkl reads and checks every copy, which takes a few seconds.

    Example: omkl data
    """
    from omkl.data import inventory

    sets = inventory()
    if output is Format.JSON:
        show.print_json(sets)
        return
    n, d, nodes = (Column(name, justify="right") for name in ("n", "d", "nodes"))
    table = Table("name", "task", n, d, nodes, "license", "copy", box=None, header_style="bold", padding=(0, 2, 0, 0))
    where = Table.grid(padding=(0, 2, 0, 0))
    told: set[str] = set()
    for one in sets:
        copy = "verified" if one.verified else "wrong" if one.place else "missing"
        table.add_row(one.name, one.task, f"{one.n:,}", f"{one.d:,}", str(one.nodes or ""), one.license, copy)
        where.add_row(one.name, escape(one.remedy or one.place or ""))
        for file, digest in one.checksums.items():
            if digest not in told:  # sets may be made of the same files
                where.add_row("", f"[dim]sha256 {digest[:16]}...  {file}[/dim]")
        told.update(one.checksums.values())
    console = show.console()
    console.print(table, "", where)

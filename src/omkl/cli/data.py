"""``omkl data``: the data sets and where they are."""

from rich.table import Table

from omkl.cli import options, show
from omkl.cli.options import Format


def data(output: options.Output = Format.TABLE) -> None:
    """List the data sets, where they are, and how to get them.

    Every copy is read and checked, which takes a few seconds.

    Example: omkl data
    """
    from omkl.data import inventory

    sets = inventory()
    if output is Format.JSON:
        show.print_json(sets)
        return
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("name", "n", "d"):
        table.add_column(name, justify="left" if name == "name" else "right", no_wrap=True)
    for name in ("copy", "where", "license"):
        table.add_column(name, overflow="fold")
    for one in sets:
        copy = "verified" if one.verified else "wrong" if one.place else "missing"
        table.add_row(one.name, f"{one.n:,}", f"{one.d:,}", copy, one.place or "-", one.license)
    console = show.console()
    console.print(table)
    for one in sets:
        if one.remedy:
            console.print(f"\n[bold]{one.name}[/bold]: {one.remedy}")

"""Data sets by name, tables from files, and streams dealt to the nodes."""

from omkl.data.lookup import Data, Status, inventory, known, load, status
from omkl.data.sets import DATA_SETS, DataSet
from omkl.data.streams import Source, Stream, as_stream, by_node, deal
from omkl.data.tables import Table, read_table

__all__ = [
    "DATA_SETS",
    "Data",
    "DataSet",
    "Source",
    "Status",
    "Stream",
    "Table",
    "as_stream",
    "by_node",
    "deal",
    "inventory",
    "known",
    "load",
    "read_table",
    "status",
]

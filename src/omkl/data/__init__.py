"""Data sets by name, tables from files, streams dealt to the nodes, and drift."""

from omkl.data.drift import abrupt, gradual, recurring, relabeled, switched
from omkl.data.lookup import Data, Status, inventory, known, load, status
from omkl.data.partition import IID, PARTITIONS, Column, Dirichlet, Partition, Position, Quantity, Shards
from omkl.data.sets import DATA_SETS, DataSet
from omkl.data.streams import Source, Stream, as_stream, by_node, deal, first_rounds
from omkl.data.tables import Table, read_table

__all__ = [
    "DATA_SETS",
    "IID",
    "PARTITIONS",
    "Column",
    "Data",
    "DataSet",
    "Dirichlet",
    "Partition",
    "Position",
    "Quantity",
    "Shards",
    "Source",
    "Status",
    "Stream",
    "Table",
    "abrupt",
    "as_stream",
    "by_node",
    "deal",
    "first_rounds",
    "gradual",
    "inventory",
    "known",
    "load",
    "read_table",
    "recurring",
    "relabeled",
    "status",
    "switched",
]

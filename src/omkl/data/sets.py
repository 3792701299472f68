"""The data sets: what is known of each, and how its copies become ``X`` and ``y``."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from omkl.data import readers, sensors
from omkl.data.files import File, Raw
from omkl.data.readers import BANANA, DIGITS, Prepare, above, equal, given, scaled, standardized, units, upper
from omkl.losses import Loss, Softmax
from omkl.topology import Graph


@dataclass(frozen=True)
class Bundle:
    """A copy inside an installed package: the package, the extra that installs it, the path in it, and its reader."""

    package: str
    extra: str
    path: str
    read: Callable[[Path], Raw]


@dataclass(frozen=True)
class DataSet:
    """What is known of a data set, and how its copies are read.

    Attributes
    ----------
    loss
        What suits its labels, for methods that do not say.
    n, d, positives
        Rows of all nodes together, inputs, and labels above zero, which are checked after reading.
    prepare
        Turns the table and labels of any source into ``X`` and ``y``.
    folder, files, read
        The files in ``$OMKL_DATA/<folder>/`` and what turns their contents into a table and labels, or a stream.
    openml
        Number at OpenML.
    nodes, graph
        Where rows belong to nodes: their number, and what turns the contents of the files into their graph.
    """

    name: str
    task: Literal["binary", "multiclass", "regression"]
    loss: Loss | str
    n: int
    d: int
    positives: int
    license: str
    source: str
    prepare: Prepare
    folder: str
    files: tuple[File, ...] = ()
    read: Callable[[Sequence[bytes]], Raw] | None = None
    bundle: Bundle | None = None
    openml: int | None = None
    nodes: int | None = None
    graph: Callable[[Sequence[bytes]], Graph] | None = None


_CREDIT_CARD = File(
    "UCI_Credit_Card.csv.gz", 979921, "3b1c8e69fc71fb19229d8d3dedeeaf70012b7706bee03b534a33a6ba32a78394"
)
_MNIST = (
    File("train-images-idx3-ubyte.gz", 9912422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
    File("train-labels-idx1-ubyte.gz", 28881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
    File("t10k-images-idx3-ubyte.gz", 1648877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
    File("t10k-labels-idx1-ubyte.gz", 4542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
)
_ROOM = File("Occupancy_Estimation.csv.gz", 114202, "d3a8f9a5bf94a5cb2344c39ec03413e7666db67d518032a701f1551cc0fbc90c")
_TWITTER = File("TwitterData.mat", 1564675, "667066c5b8e2e16153d25082a4da77884293432abd1f744b991f4e55047b9dea")
_AIR = File("AirData.mat", 561217, "b372262a9478e06b8a775f0df4079747751e69b12bbcb986570c2530f2258051")
_ENERGY = File("EnergyData.mat", 2046381, "7ee099ae8ed25820607dff789cf80e2bfbf908d3c7caade34197032553da5096")
_STATIONS = {
    "Aotizhongxin": (728009, "28a5b697f46d2e7780a41cf4077e7b60cf3629a9ea90c8084a586ad7dac1a4d5"),
    "Changping": (724268, "338044e897f877d704fcaf460adb3695721ab26bde5dbb8d5fcb12eb19e07ab1"),
    "Dingling": (706230, "441e0b941e6916df524083c73eb1d2e06cad13cfc1f9ddb6e16bcaca1eb1cee3"),
    "Dongsi": (728253, "9143e9bdf9c8cc31fe7c996fed90aa4299f6baed07f5c808b92c930cbecbdedc"),
    "Guanyuan": (726823, "8f5f74750038acc13d43e43bb5dff7ec94cad964f0edf4e0a0ef4a24ed4f1ca4"),
    "Gucheng": (724369, "448eec899812080e11380a748a184e9700d5e708c4303be52a9e234df3427ff3"),
    "Huairou": (710232, "75afaac82fada503bd2c362e27c96658f988bcda14e65e702f7ef9b110700efe"),
    "Nongzhanguan": (735318, "e71a07558749e736fbe8539adbef44befaea597053ff89b8bf8f3f4b22259567"),
    "Shunyi": (717694, "a5099a112eea0d8b1df522fa706ce165742986ef6d40781c9cd8e59f95e7349a"),
    "Tiantan": (723639, "5990391e4765a1c788addd4dd5115fc85c39b41d7358eaf5133cd6e174431eed"),
    "Wanliu": (733529, "87351fafaaa66944852ee327f9823388795f82990700dee86243e89e1c24ddf6"),
    "Wanshouxigong": (732092, "a766e89cffb938f71963140037a399b4c7562c8a7b214672ba03bb40e0457b69"),
}
_BEIJING = (
    *(File(f"PRSA_Data_{name}_20130301-20170228.csv.gz", *known) for name, known in _STATIONS.items()),
    File("stations.csv", 320, "dbbadf03a070fbfa5f7e491012bb712d58aedb62e491be6524e9978c0ece4c8e"),
)
_LOS_LOOP = (
    File("los_speed.csv.gz", 746677, "aa316cf7a071f59effc96c8dcd0edea559dda402b3c351916e1bc24d54e9b58d"),
    File("los_adj.csv.gz", 17007, "8b9f8da6cb2a3a6b15c541539ba90dd03ed68d3daea0addebcd0ca20511b5321"),
    File("graph_sensor_locations.csv", 6341, "eb8ea96e07358b45d0e4ba3b89c2673fa20c54af50150249e627389e749ade6f"),
)
_IN_SKLEARN = Bundle("sklearn", "sklearn", "datasets/data/digits.csv.gz", readers.bundled_digits)
_AIR_OF_BEIJING = (
    "UCI 501, Zhang et al. 2017: {} of ten other readings, wind direction, hour and season, standardized; {}"
)
_BY_HOUR = "rows of all stations in order of time"
_BY_STATION = "12 stations as nodes, the hours that none misses, linked by distance"

_SETS = (
    DataSet(
        "banana", "binary", "logistic", n=5300, d=2, positives=2376,
        license="none stated (research benchmark)",
        source="Raetsch, Onoda, Mueller 2001: two interleaved clusters, columns of mean 0 and standard deviation 1",
        prepare=scaled(1, upper), folder="banana", files=(BANANA,), read=readers.banana, openml=1460,
        bundle=Bundle("river", "river", "datasets/banana.zip", readers.zipped_banana),
    ),
    DataSet(
        "credit_card", "binary", "logistic", n=30000, d=23, positives=6636,
        license="CC BY 4.0",
        source="UCI 350, Yeh and Lien 2009: default of credit card clients, columns standardized",
        prepare=standardized(equal(1)), folder="credit_card", files=(_CREDIT_CARD,), read=readers.credit_card,
        openml=42477,
    ),
    DataSet(
        "mnist", "binary", "logistic", n=70000, d=784, positives=6825,
        license="CC BY-SA 3.0 (as commonly stated)",
        source="LeCun, Cortes, Burges 1998: 8 against the rest, pixels in 0 ... 1, training images first",
        prepare=scaled(255, equal(8)), folder="mnist", files=_MNIST, read=readers.mnist, openml=554,
    ),
    DataSet(
        "mnist10", "multiclass", Softmax(10), n=70000, d=784, positives=63097,
        license="CC BY-SA 3.0 (as commonly stated)",
        source="LeCun, Cortes, Burges 1998: ten digits, pixels in 0 ... 1, training images first",
        prepare=scaled(255, given), folder="mnist", files=_MNIST, read=readers.mnist, openml=554,
    ),
    DataSet(
        "digits", "binary", "logistic", n=1797, d=64, positives=174,
        license="CC BY 4.0",
        source="UCI 80, Alpaydin and Kaynak 1998: 8 against the rest, 8 x 8 pixels in 0 ... 1; stands in for mnist",
        prepare=scaled(16, equal(8)), folder="digits", files=(DIGITS,), read=readers.digits, bundle=_IN_SKLEARN,
    ),
    DataSet(
        "digits10", "multiclass", Softmax(10), n=1797, d=64, positives=1619,
        license="CC BY 4.0",
        source="UCI 80, Alpaydin and Kaynak 1998: ten digits, 8 x 8 pixels in 0 ... 1; stands in for mnist10",
        prepare=scaled(16, given), folder="digits", files=(DIGITS,), read=readers.digits, bundle=_IN_SKLEARN,
    ),
    DataSet(
        "room_occupancy", "multiclass", Softmax(4), n=10129, d=16, positives=1901,
        license="CC BY 4.0",
        source="UCI 864, Singh et al. 2018: 0 ... 3 people in a room, by the readings of seven sensors, standardized",
        prepare=standardized(given), folder="room_occupancy", files=(_ROOM,), read=readers.room_occupancy,
    ),
    DataSet(
        "room_occupied", "binary", "logistic", n=10129, d=16, positives=1901,
        license="CC BY 4.0",
        source="UCI 864, Singh et al. 2018: anyone in a room, by the readings of seven sensors, standardized",
        prepare=standardized(above(0)), folder="room_occupancy", files=(_ROOM,), read=readers.room_occupancy,
    ),
    DataSet(
        "twitter", "regression", "squared", n=13813, d=77, positives=3258,
        license="CC BY 4.0 (UCI; none stated for these arrays)",
        source="UCI 248, as Shen, Chen, Giannakis 2019 use it: buzz on Twitter, standardized",
        prepare=standardized(units), folder="online_mkl_benchmarks", files=(_TWITTER,), read=readers.matlab,
    ),
    DataSet(
        "air", "regression", "squared", n=7322, d=13, positives=2996,
        license="CC BY 4.0 (UCI; none stated for these arrays)",
        source="UCI 360, as Shen, Chen, Giannakis 2019 use it: carbon monoxide in the order of time, standardized",
        prepare=standardized(units), folder="online_mkl_benchmarks", files=(_AIR,), read=readers.matlab,
    ),
    DataSet(
        "energy", "regression", "squared", n=18604, d=25, positives=6300,
        license="CC BY 4.0 (UCI; none stated for these arrays)",
        source="UCI 374, as Shen, Chen, Giannakis 2019 use it: energy of appliances, standardized",
        prepare=standardized(units), folder="online_mkl_benchmarks", files=(_ENERGY,), read=readers.matlab,
    ),
    DataSet(
        "beijing", "regression", "squared", n=382168, d=16, positives=141360,
        license="CC BY 4.0", source=_AIR_OF_BEIJING.format("PM2.5", _BY_HOUR),
        prepare=standardized(units), folder="beijing_multisite", files=_BEIJING, read=sensors.beijing,
    ),
    DataSet(
        "beijing_high", "binary", "logistic", n=382168, d=16, positives=148631,
        license="CC BY 4.0", source=_AIR_OF_BEIJING.format("PM2.5 above 75", _BY_HOUR),
        prepare=standardized(above(75)), folder="beijing_multisite", files=_BEIJING, read=sensors.beijing,
    ),
    DataSet(
        "beijing_stations", "regression", "squared", n=198132, d=16, positives=72952, nodes=12,
        license="CC BY 4.0", source=_AIR_OF_BEIJING.format("PM2.5", _BY_STATION),
        prepare=standardized(units), folder="beijing_multisite", files=_BEIJING, read=sensors.beijing_stations,
        graph=sensors.beijing_graph,
    ),
    DataSet(
        "beijing_stations_high", "binary", "logistic", n=198132, d=16, positives=76513, nodes=12,
        license="CC BY 4.0", source=_AIR_OF_BEIJING.format("PM2.5 above 75", _BY_STATION),
        prepare=standardized(above(75)), folder="beijing_multisite", files=_BEIJING, read=sensors.beijing_stations,
        graph=sensors.beijing_graph,
    ),
    DataSet(
        "los_loop", "regression", "squared", n=414414, d=14, positives=294088, nodes=207,
        license="MIT",
        source="METR-LA as in Zhao et al. 2020: speed in a quarter of an hour, of the last hour and the time of day, "
        "standardized; a week, 207 sensors as nodes on the road graph, its one without a link joined to the nearest",
        prepare=scaled(1, given), folder="los_loop", files=_LOS_LOOP, read=sensors.los_loop,
        graph=sensors.los_loop_graph,
    ),
)  # fmt: skip

DATA_SETS: dict[str, DataSet] = {one.name: one for one in _SETS}

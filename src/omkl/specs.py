"""Settings by name: what a TOML file and the flags say, made into the objects of the Python interface.

Names and settings come from the registries and signatures of the library, so whatever is new there is known here.
Every key and type is checked before anything is computed, and an error names the key by its path.
"""

import inspect
import tomllib
from collections import ChainMap
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError

from omkl.calibration import Basis
from omkl.compressors import QUANTIZERS
from omkl.data import DATA_SETS, PARTITIONS, Partition, by_node, known, read_table
from omkl.errors import InputError, pick, unknown
from omkl.features import SPECTRA, Kernel
from omkl.landmarks import Landmarks
from omkl.learners import LEARNERS, Learner
from omkl.losses import LOSSES, Loss
from omkl.methods import METHODS, PRESETS, Gossip, Method, recommended, suited, tables
from omkl.methods.composed import Composed, Setting
from omkl.methods.mixing import MIXING, Mixing
from omkl.quantizers import Quantizer
from omkl.sending import SENDING, Budget, Pace, Sending
from omkl.topology import GRAPHS, WEIGHTS, Faults, Schedule

T = TypeVar("T")
Table: TypeAlias = dict[str, Any]
Registry: TypeAlias = Mapping[str, Callable[..., Any]]
Count: TypeAlias = Annotated[int, Field(ge=1)]

TASK = {"loss"}  # of a method's settings: what is to be learned, not how
CHOICES: dict[Any, tuple[str, Registry]] = {
    Learner: ("learner", LEARNERS),
    Loss: ("loss", LOSSES),
    Mixing: ("mixing", MIXING),
    Method: ("method", ChainMap(PRESETS, METHODS)),  # type: ignore[arg-type]
    Partition: ("partition", PARTITIONS),
    Quantizer: ("quantizer", QUANTIZERS),
    Sending: ("sending", SENDING),
}


# A table without a name is of the first that has its settings: a basis of random features, a pace of rounds a sample.
UNNAMED: dict[Any, tuple[str, Registry]] = {
    Basis: ("basis", {"features": Basis, Landmarks.name: Landmarks}),
    Budget: ("pace", {"pace": Pace, Budget.name: Budget}),
}


@dataclass(frozen=True, kw_only=True)
class Spec:
    """The parameters of ``omkl.simulate``."""

    data: Any
    topology: Any = None
    nodes: Count | None = None
    method: Method = recommended()  # noqa: RUF009 - it is frozen
    weights: str = "metropolis"
    faults: Faults | None = None
    seeds: Count = 1
    seed: int = 0
    shuffle: int | None = 0
    partition: Partition | None = None
    rounds: Count | None = None
    record_every: Count = 1
    pooled: bool = False
    standardize: bool = False
    devices: Count = 1
    shard: Literal["nodes", "seeds"] | None = None


def load(path: Path) -> Table:
    """Return the table of a TOML file; a data file in it is looked for beside it."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is no TOML ({error}); mend it") from None
    data = table.get("data")
    if isinstance(data, dict) and isinstance(data.get("file"), str):
        data["file"] = str(path.parent / data["file"])
    return table


def merge(table: Table, flags: Table) -> Table:
    """Return the table with the flags over it.

    A flag that names a thing replaces it with all its settings, and any other replaces one setting. Another method
    keeps what the old one shares with it, so that one file serves to compare them; a preset keeps the loss alone.
    """
    merged = table | flags
    if "method" in flags:
        merged["method"] = _merge_method(as_table(table.get("method", {}), "method"), flags["method"])
    return merged


def resolve(table: Table) -> Spec:
    """Return what the table specifies."""
    if "data" not in table:
        raise InputError("data is missing; a simulation needs a stream to learn; pass --data banana")
    values = _arguments(Spec, table, "")
    values["data"] = data = _data(values["data"])
    nodes = values.get("nodes")
    if nodes is None and isinstance(data, str):
        nodes = known(data).nodes
    elif nodes is None and data[0].ndim == 3:
        nodes = data[0].shape[1]
    if "topology" in values:
        values["topology"] = topology(values["topology"], nodes)
    with at("weights"):
        pick("weights", values.get("weights", "metropolis"), WEIGHTS)
    return Spec(**values)


def deployed(table: Table, nodes: int) -> Spec:
    """Return what the table specifies for that many real nodes: data may be missing, and no file of them is read."""
    data = table.get("data")
    if isinstance(data, dict):
        _require(_read_file, _arguments(_read_file, data, "data"), "data")
    unread = {} if "data" in table and not isinstance(data, dict) else {"data": next(iter(DATA_SETS))}
    spec = resolve({"nodes": nodes, "topology": "path"} | table | unread)
    return spec if unread else replace(spec, method=suited(spec.method, known(spec.data).loss))


def fill(make: Callable[..., T], value: Any, path: str) -> T:
    """Return what ``make`` makes of a table, with every key and type checked against its signature."""
    return _make(make, _arguments(make, checked(Table, value, path), path), path)


def topology(value: Any, nodes: int | None) -> Any:
    """Return the graph of a name with settings, or a schedule; a name alone or a matrix is for the library to read."""
    if isinstance(value, list):
        return checked(list[list[float]], value, "topology")
    table = as_table(value, "topology")
    if "graphs" in table:
        graphs = _arguments(Schedule, table, "topology")["graphs"]
        return _make(Schedule, {"graphs": [topology(one, nodes) for one in graphs]}, "topology")
    if set(table) == {"name"}:
        with at("topology"):
            pick("topology", str(table["name"]), GRAPHS)
        return table["name"]
    if nodes is None:
        raise InputError("nodes is missing; a topology with settings is drawn for a number of nodes; pass --nodes 20")
    return choose("topology", GRAPHS, table, "topology", "path", nodes=nodes)


def choose(kind: str, known: Registry, value: Any, path: str, default: Any, **fixed: Any) -> Any:
    """Return the thing that a name, or a table of a name and settings, stands for; ``default`` where it has no name."""
    table = as_table(value, path)
    name = table.get("name", default)
    with at(path):
        make = pick(kind, str(name), known)
    values = _arguments(make, {key: table[key] for key in table if key != "name"}, path, fixed)
    return _make(make, values | fixed, path)


def method_table(value: Any) -> Table:
    """Return the table of a method, a preset spelled out; one that says no more than the loss is the recommended."""
    table = as_table(value, "method")
    return _spelled_out({"name": recommended.__name__} | table if set(table) <= TASK else table)


def _spelled_out(table: Table) -> Table:
    """Return the table with all settings of the preset that it names, those it gives itself over them."""
    if (name := table.get("name")) not in list(PRESETS):  # a name from a file may be anything
        return table
    preset = {key: value for key, value in tables.as_table(PRESETS[name]()).items() if key not in TASK}
    if "eta" in table and preset.get("learner") and "weight_rate" in preset and table.get("learner") is not False:
        raise InputError(
            f"method.eta: {table['eta']} given; {name} learns by a rule that has no such rate; leave eta out, or take "
            'another: learner = {name = "sgd", eta = 1.0}, or learner = false'
        )
    return _over(preset, {key: table[key] for key in table if key != "name"})


def _merge_method(table: Table, flags: Table) -> Table:
    if flags.get("name") in PRESETS:
        return {key: table[key] for key in table if key in TASK} | flags
    table = _spelled_out(table)
    old, new = (METHODS.get(str(given.get("name", Gossip.name))) for given in (table, table | flags))
    if old and new:
        lost = set(_settings(old)) - set(_settings(new))
        table = {key: value for key, value in table.items() if key not in lost}
    return _over(table, flags)


def _over(table: Table, changes: Table) -> Table:
    """Return a method's table with changes; settings without a name are those of the thing that is there."""
    merged = table | changes
    for key, value in changes.items():
        if isinstance(value, dict) and "name" not in value and table.get(key, False) is not False and key != "kernels":
            there = as_table(table[key], f"method.{key}")
            merged[key] = _over_pace(there, value) if key == "pace" else there | value
    return merged


def _over_pace(there: Table, value: Table) -> Table:
    """Return the pace that is there with changes, or another pace, where these are settings of the other one."""
    _, known = UNNAMED[Budget]
    kind = there.get("name") or _first_with(there, known)
    return {"name": kind} | there | value if kind in known and set(value) <= set(_settings(known[kind])) else value


def as_table(value: Any, path: str) -> Table:
    """Return a table, or the table that a name alone stands for."""
    if isinstance(value, str):
        return {"name": value}
    if isinstance(value, dict):
        return value
    raise InputError(f"{path}: {value!r} given; it must be a name or a table with a name and settings")


def _settings(make: Callable[..., Any]) -> Mapping[str, Setting]:
    """Return what a thing is made of: names, types and defaults."""
    made = _makes(make)
    if made is not None:
        return made.known()
    hints = get_type_hints(make, include_extras=True)
    return {key: Setting(hints[key], one.default) for key, one in inspect.signature(make).parameters.items()}


def _makes(make: Any) -> type[Composed] | None:
    """Return the class of parts that is made, by itself or by a preset."""
    if isinstance(make, type):
        return make if issubclass(make, Composed) else None
    return Gossip if make in PRESETS.values() else None


def _arguments(make: Callable[..., Any], table: Table, path: str, fixed: Table | None = None) -> Table:
    """Return the table's values, each as ``make`` wants it."""
    settings = _settings(make)
    known = [key for key in settings if key not in (fixed or {})]
    values = {}
    for key, value in table.items():
        place = f"{path}.{key}".lstrip(".")
        if key not in known:
            raise InputError(f"{place}: {_unknown_key(key, known)}")
        values[key] = _convert(settings[key].hint, value, place, settings[key].default)
    return values


def _unknown_key(key: str, known: list[str]) -> str:
    if not known:
        return "unknown key; there is nothing to set here; leave it out"
    return unknown("key", key, known).replace(f" {key!r}", "", 1)  # the path before it ends in the key


def _convert(hint: Any, value: Any, path: str, default: Any) -> Any:
    if value is False and (hint is Quantizer or type(None) in get_args(hint)):  # TOML has no null
        return None
    if hint == tuple[Kernel, ...]:
        return _kernels(value, path)
    if hint is Method:
        value = method_table(value)
    if get_origin(hint) is tuple:
        return tuple(checked(list[get_args(hint)[0]], list(value) if isinstance(value, tuple) else value, path))  # type: ignore[misc]
    if hint is Path:
        return Path(checked(str, value, path))
    for kind in get_args(hint) or (hint,):
        if kind in UNNAMED:
            what, known = UNNAMED[kind]
            return choose(what, known, value, path, _first_with(value, known))
        if kind in CHOICES:
            return choose(*CHOICES[kind], value, path, getattr(default, "name", default))
        if isinstance(kind, type) and is_dataclass(kind):
            return fill(kind, value, path)
    return checked(hint, value, path)


def checked(hint: Any, value: Any, path: str) -> Any:
    """Return a value of that type; refuse any other."""
    try:
        return TypeAdapter(hint).validate_python(value, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join([path, *map(str, first["loc"])])
        rule = first["msg"].replace("Input should", "it must").replace("a valid dictionary", "a table, as {setting=1}")
        raise InputError(f"{place}: {first['input']!r} given; {rule}") from None


def _first_with(value: Any, known: Registry) -> str:
    """Return the first name whose settings include those of a table; the first of all where none does."""
    having = (name for name, make in known.items() if isinstance(value, dict) and set(value) <= set(_settings(make)))
    return next(having, next(iter(known)))


def _kernels(value: Any, path: str) -> tuple[Kernel, ...]:
    families = checked(dict[str, list[float]], value, path)
    with at(path):
        for family in families:
            pick("kernel", family, SPECTRA)
        return tuple(Kernel(family, sigma) for family, sigmas in families.items() for sigma in sigmas)


def _data(value: Any) -> Any:
    if isinstance(value, dict):
        return fill(_read_file, value, "data")
    name = checked(str, value, "data")
    with at("data"):
        if Path(name).suffix:
            raise InputError(
                f'{name} seems to be a file; a file needs its label column; give {{file="{name}", target="..."}}'
            )
        known(name)
    return name


def _read_file(file: str, target: str | list[str], node: str | None = None, drop: list[str] | None = None) -> Any:
    table = read_table(file, target, node, drop or ())
    return (table.X, table.y) if table.node is None else by_node(table.X, table.y, table.node, np.float64)


def _make(make: Callable[..., T], values: Table, path: str) -> T:
    _require(make, values, path)
    with at(path, values):
        return make(**values)


def _require(make: Callable[..., Any], values: Table, path: str) -> None:
    missing = [
        key for key, one in _settings(make).items() if one.default is inspect.Parameter.empty and key not in values
    ]
    if missing:
        raise InputError(f"{path}.{missing[0]}: missing; it has no default; set it".lstrip("."))


@contextmanager
def at(path: str, keys: Container[str] = ()) -> Iterator[None]:
    """Put the path before the message of an InputError, down to the key it begins with ("eta is -1; ...")."""
    try:
        yield
    except InputError as error:
        key = str(error).partition(" ")[0]
        raise InputError(f"{path}.{key}: {error}" if key in keys else f"{path}: {error}") from None

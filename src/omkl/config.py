"""Configuration: what TOML files, flags and grids say, made into the objects of the Python interface.

Names come from the registries, and what a thing can be given from ``omkl.settings``: whatever is new there is known
here. Every key and type is checked before anything is computed, and an error names the key by its path.
"""

import tomllib
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple, TypeAlias, Union, get_args, get_origin

from omkl import registry
from omkl.calibration import Basis
from omkl.compressors import QUANTIZERS
from omkl.data import DATA_SETS, PARTITIONS, Partition, known, tables
from omkl.data.reading import is_file as is_table
from omkl.data.tables import Roles
from omkl.errors import InputError, nearest, pick
from omkl.experiment import Experiment, label
from omkl.features import SPECTRA, Kernel
from omkl.landmarks import Landmarks
from omkl.learners import LEARNERS, Learner
from omkl.losses import LOSSES, Loss
from omkl.methods import METHODS, PRESETS, Gossip, Method, recommended, suited
from omkl.methods.mixing import MIXING, Mixing
from omkl.quantizers import Quantizer
from omkl.sending import SENDING, Budget, Pace, Sending
from omkl.settings import REQUIRED, Setting, build, settings, values
from omkl.topology import GRAPHS, Schedule, opened
from omkl.topology.files import is_file

Table: TypeAlias = dict[str, Any]
Registry: TypeAlias = Mapping[str, Callable[..., Any]]

MOST_BYTES = 2**22  # of a file
TASK = ("loss",)  # of a method's settings: what is to be learned, not how


class Choice(NamedTuple):
    """What a setting may be, by name."""

    kind: str
    known: Registry
    by_settings: bool = False
    """Whether a table without a name is of the first that has its settings."""


PARTS: dict[Any, Choice] = {
    Basis: Choice("basis", {"features": Basis, Landmarks.name: Landmarks}, by_settings=True),
    Budget: Choice("pace", {"pace": Pace, Budget.name: Budget}, by_settings=True),
    Learner: Choice("learner", LEARNERS),
    Mixing: Choice("mixing", MIXING),
    Loss: Choice("loss", LOSSES),
    Partition: Choice("partition", PARTITIONS),
    Quantizer: Choice("quantizer", QUANTIZERS),
    Sending: Choice("sending", SENDING),
}

# What a value must be, by the kind that begins pydantic's name of the error.
RULES = {
    "bool": "true or false", "dict": "a table, as {setting=1}", "float": "a number", "int": "a whole number",
    "list": "a list", "sequence": "a list", "string": "a text",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class File(Roles):
    """A table of a file and the roles of its columns, together.

    Attributes
    ----------
    file
        The path of a CSV or Parquet file, relative to the spec.
    """

    file: str


def load(path: Path) -> Table:
    """Return the table of a TOML file; the files of data and graphs in it are looked for beside it."""
    if (size := path.stat().st_size) > MOST_BYTES:
        raise InputError(f"{path} has {size} bytes; settings take {MOST_BYTES} at most; is it the right file?")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # also of numbers with too many digits
        raise InputError(f"{path} is not TOML ({error}); mend it") from None
    if "data" in table:
        table["data"] = data_beside(path, table["data"])
    if "topology" in table:
        table["topology"] = graph_beside(path, table["topology"])
    return table


def data_beside(path: Path, data: Any) -> Any:
    """Return data with their file, if any, beside another file."""
    if isinstance(data, dict):
        return data | {"file": str(path.parent / data["file"])} if isinstance(data.get("file"), str) else data
    return str(path.parent / data) if isinstance(data, str) and is_table(data) else data


def graph_beside(path: Path, topology: Any) -> Any:
    """Return a topology with its files, if any, beside another file."""
    if isinstance(topology, dict) and isinstance(topology.get("graphs"), list):
        return topology | {"graphs": [graph_beside(path, one) for one in topology["graphs"]]}
    return str(path.parent / topology) if isinstance(topology, str) and is_file(topology) else topology


def merge(table: Table, over: Table) -> Table:
    """Return the table with flags or a point of a grid over it; a tuple holds methods laid over each other."""
    both = "method" in table and "method" in over
    return table | over | ({"method": (*_layers(table["method"]), *_layers(over["method"]))} if both else {})


def experiment(table: Table) -> Experiment:
    """Return the experiment that a table describes."""
    if "data" not in table:
        raise InputError("data is missing; a simulation needs a stream to learn; pass --data banana")
    for key in (table.keys() - settings(Experiment).keys() - settings(Roles).keys()) & settings(recommended()).keys():
        raise InputError(f"{key}: unknown key; it is a setting of the method; write it as method.{key}")
    laid = {"method": method(table["method"])} if "method" in table else {}
    values = converted(Experiment, {key: table[key] for key in table if key != "method"}, "") | laid
    roles = {key: values.pop(key) for key in settings(Roles) if key in values}
    values["data"] = stream = data(values["data"], roles)
    if "topology" in values:
        values["topology"] = topology(values["topology"], values.get("nodes") or own_nodes(stream))
    return made(Experiment, values, "")  # type: ignore[no-any-return]


def own_nodes(data: Any) -> int | None:
    """Return the number of nodes that data tell, if they do."""
    if isinstance(data, str):
        return known(data).nodes
    if isinstance(data, tables.Table):
        return None if data.names is None else len(data.names)
    return int(data[0].shape[1]) if data[0].ndim == 3 else None


def deployed(table: Table, nodes: int) -> Experiment:
    """Return what a table describes for that many real nodes: data may be missing, and no file of them is read."""
    given = table.get("data")
    if isinstance(given, dict):
        table_of_file(given, table)
    of_file = isinstance(given, dict) or is_table(given)
    unread = {"data": next(iter(DATA_SETS))} if given is None or of_file else {}
    if of_file:
        table = {"standardize": True} | table  # as in a simulation of it
    others = {key: value for key, value in table.items() if not (unread and key in settings(Roles))}
    found = experiment({"nodes": nodes, "topology": "path"} | others | unread)
    return found if unread else replace(found, method=suited(found.method, known(found.data).loss))


def method(value: Any) -> Method:
    """Return the method of a name or a table, or of several, each laid over those before.

    Settings without a name change the method that is there, at first the recommended one. Another name keeps what the
    old method was given and the new one has too, so that one file serves to compare them; a preset keeps the loss
    alone.
    """
    there: Method | None = None
    for layer in _layers(value):
        there = _laid(there, as_table(layer, "method"))
    assert there is not None
    return there


def _layers(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _laid(there: Method | None, table: Table) -> Method:
    base: Any = there or recommended()
    kept: Table = {}
    if "name" in table:
        with at("method"):
            make = pick("method", str(table["name"]), ChainMap(PRESETS, METHODS))
        base, names = (make(), TASK) if table["name"] in PRESETS else (make, settings(make))
        before = {} if there is None else settings(there)
        kept = {key: before[key].default for key in names if key in before and key in settings(base)}
        kept = {key: value for key, value in kept.items() if value != settings(type(there))[key].default}
    given = kept | converted(base, {key: table[key] for key in table if key != "name"}, "method")
    if isinstance(base, Gossip):
        _require_effect(base, given)
    found: Method = made(base, given, "method")
    return found


def _require_effect(base: Gossip, given: Table) -> None:
    """Refuse changes to a method that would change nothing."""
    after = values(base) | given
    idle: dict[str, tuple[str, str]] = {}
    if None not in (values(base)["learner"], base.weights.rate, after["learner"]):
        idle["eta"] = "learns by a rule that has no such rate", 'learner: {name = "sgd", eta = 1.0}'
    if isinstance(after["basis"], Landmarks):
        instead = "compares inputs with landmarks, not by random features", 'basis: {name = "features", rank = 20}'
        idle |= dict.fromkeys(("features", "orthogonal"), instead)
    for key in idle.keys() & given.keys():
        why, other = idle[key]
        raise InputError(
            f"method.{key}: {given[key]} given; {label(base)} {why}; leave {key} out, or take another {other}; "
            'name = "gossip" begins with the paper\'s settings'
        )


def data(value: Any, roles: Table | None = None) -> Any:
    """Return a data set's name, or the table of a file; what was read before is taken as it is."""
    given = dict(roles or {})
    if isinstance(value, dict):
        given |= table_of_file(value, given)
        value = given.pop("file")
    elif not isinstance(value, tuple | tables.Table):
        value = checked(str, value, "data")
    with at("data"):
        if not given and isinstance(value, str) and not is_table(value):
            known(value)
        return tables.opened(value, Roles(**given))


def table_of_file(value: Any, roles: Table) -> Table:
    """Return a table of a file and its columns, checked; roles may be given beside it."""
    given = converted(File, checked(Table, value, "data"), "data")
    for key in ("file", "target"):
        if key not in given | roles:
            raise InputError(f"data.{key}: {key} is missing; it has no default; give it")
    return given


def topology(value: Any, nodes: int | None) -> Any:
    """Return the graph of a file or of a name with settings, or a schedule; a name alone or a matrix stays as it is."""
    if isinstance(value, list):
        return checked(list[list[float]], value, "topology")
    if isinstance(value, str) and is_file(value):
        with at("topology"):
            return opened(value)
    table = as_table(value, "topology")
    if "graphs" in table:
        graphs = converted(Schedule, table, "topology")["graphs"]
        return made(Schedule, {"graphs": [topology(one, nodes) for one in graphs]}, "topology")
    with at("topology"):
        make = pick("topology", str(table.get("name", "path")), GRAPHS)
    if set(table) == {"name"}:
        return table["name"]
    if nodes is None:
        raise InputError("nodes is missing; a topology with settings is drawn for a number of nodes; pass --nodes 20")
    own = {key: table[key] for key in table if key != "name"}
    return made(make, converted(make, own, "topology", ("nodes",)) | {"nodes": nodes}, "topology")


def fill(thing: Any, value: Any, path: str) -> Any:
    """Return what a class or function makes of a table, or an object changed by it, with every key and type checked."""
    return made(thing, converted(thing, checked(Table, value, path), path), path)


def part(choice: Choice, value: Any, path: str, there: Any = None) -> Any:
    """Return the thing of a name, or of a table of a name and settings; without a name it is the one there, changed."""
    table = as_table(value, path)
    own = {key: table[key] for key in table if key != "name"}
    if "name" in table:
        with at(path):
            make = pick(choice.kind, str(table["name"]), choice.known)
    else:
        make = _unnamed(choice, own, path, there)
    return made(make, converted(make, own, path), path)


def _unnamed(choice: Choice, own: Table, path: str, there: Any) -> Any:
    """Return what settings without a name are of."""
    known = choice.known.own if isinstance(choice.known, registry.Registry) else choice.known  # imports nothing
    having = [name for name, make in known.items() if own.keys() <= settings(make).keys()]
    strange = [] if there is None else [key for key in own if key not in settings(there)]
    if there is not None and not strange:
        return there
    if choice.by_settings and (having or there is None):
        return choice.known[(having or list(choice.known))[0]]
    if there is None:
        rule = f"there is no {choice.kind} whose settings these could be; add a name"
        raise InputError(f"{path}: {own} given; {rule}; {nearest('', choice.known)}")
    if having:
        rule = f"{there.name} has no such setting; leave it out, or name what has: name = {having[0]!r}"
        raise InputError(f"{path}.{strange[0]}: {own[strange[0]]!r} given; {rule}")
    return there


def as_table(value: Any, path: str) -> Table:
    """Return a table, or the table that a name alone stands for."""
    if isinstance(value, str):
        return {"name": value}
    if isinstance(value, dict):
        return value
    raise InputError(f"{path}: {value!r} given; it must be a name or a table with a name and settings")


def converted(thing: Any, table: Table, path: str, fixed: tuple[str, ...] = ()) -> Table:
    """Return a table's values, each as the class or function wants it, or as a change to the object."""
    known = {key: one for key, one in settings(thing).items() if key not in fixed}
    values = {}
    for key, value in table.items():
        place = f"{path}.{key}".lstrip(".")
        if key not in known:
            rule = nearest(key, known) if known else "there is nothing to set here; leave it out"
            raise InputError(f"{place}: unknown key; {rule}")
        values[key] = _converted(known[key], value, place, changes=not callable(thing))
    return values


def _converted(setting: Setting, value: Any, path: str, changes: bool) -> Any:
    hint = setting.hint
    if value is False and (hint is Quantizer or type(None) in get_args(hint)):  # TOML has no null
        return None
    if hint == tuple[Kernel, ...]:
        return _kernels(value, path)
    if get_origin(hint) is tuple:
        return tuple(checked(list[get_args(hint)[0]], list(value) if isinstance(value, tuple) else value, path))  # type: ignore[misc]
    if hint is Path:
        if "\0" in (text := checked(str, value, path)):
            raise InputError(f"{path}: {text!r} given; a path has no NUL; write it as it is on the disk")
        return Path(text)
    there = None if setting.default is REQUIRED else setting.default
    for kind in get_args(hint) or (hint,):
        if kind in PARTS:
            choice = PARTS[kind]
            return part(choice, value, path, choice.known[there]() if isinstance(there, str) else there)
        if isinstance(kind, type) and is_dataclass(kind):
            return fill(there if changes and isinstance(there, kind) else kind, value, path)
    return checked(hint, value, path)


def checked(hint: Any, value: Any, path: str) -> Any:
    """Return a value of that type; refuse any other."""
    from pydantic import TypeAdapter, ValidationError  # takes a while to import

    try:
        return TypeAdapter(hint).validate_python(value, strict=True)
    except ValidationError as error:
        wrong = error.errors()
    if get_origin(hint) not in (Union, UnionType) or len(wrong) == 1:  # else places are the names of types
        path, value, wrong = ".".join([path, *map(str, wrong[0]["loc"])]), wrong[0]["input"], wrong[:1]
    kinds = [(one["type"].partition("_")[0], one.get("ctx", {}).get("expected", one["msg"])) for one in wrong]
    rules = dict.fromkeys(RULES.get(*kind) for kind in kinds)
    raise InputError(f"{path}: {value!r} given; it must be {' or '.join(rules)}")


def _kernels(value: Any, path: str) -> tuple[Kernel, ...]:
    families = checked(dict[str, list[float]], value, path)
    with at(path):
        for family in families:
            pick("kernel", family, SPECTRA)
        return tuple(Kernel(family, sigma) for family, sigmas in families.items() for sigma in sigmas)


def made(thing: Any, values: Table, path: str) -> Any:
    """Return ``build(thing, values)``; an error names its key, or the only one without which there is none."""
    try:
        return build(thing, values)
    except InputError as error:
        keys = [error.key] if error.key in settings(thing) else [key for key in values if _frees(thing, values, key)]
        place = f"{path}.{keys[0]}" if len(keys) == 1 else path
        raise InputError(f"{place}: {error}".lstrip(".: ")) from None


def _frees(thing: Any, values: Table, key: str) -> bool:
    """Return whether values make a thing without this one."""
    try:
        build(thing, {other: values[other] for other in values if other != key})
    except InputError:
        return False
    return True


@contextmanager
def at(path: str) -> Iterator[None]:
    """Put a path before the message of an InputError."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{path}: {error}") from None

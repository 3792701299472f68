"""Configuration: what TOML files, flags and grids say, made into the objects of the Python interface.

Names come from the registries, and what a thing can be given from ``omkl.settings``: whatever is new there is known
here. Every key and type is checked before anything is computed, and an error names the key by its path.
"""

import tomllib
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple, TypeAlias, TypeVar, Union, get_args, get_origin

import numpy as np

from omkl.calibration import Basis
from omkl.compressors import QUANTIZERS
from omkl.data import DATA_SETS, PARTITIONS, Partition, by_node, known, read_table
from omkl.errors import InputError, nearest, pick
from omkl.experiment import Experiment, label
from omkl.features import SPECTRA, Kernel
from omkl.landmarks import Landmarks
from omkl.learners import LEARNERS, Learner
from omkl.losses import LOSSES, Loss
from omkl.methods import METHODS, PRESETS, Method, recommended, suited
from omkl.quantizers import Quantizer
from omkl.sending import SENDING, Budget, Pace, Sending
from omkl.settings import REQUIRED, Setting, build, settings
from omkl.topology import GRAPHS, Schedule

T = TypeVar("T")
Table: TypeAlias = dict[str, Any]
Registry: TypeAlias = Mapping[str, Callable[..., Any]]

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
    Loss: Choice("loss", LOSSES),
    Partition: Choice("partition", PARTITIONS),
    Quantizer: Choice("quantizer", QUANTIZERS),
    Sending: Choice("sending", SENDING),
}

# What a value must be, by pydantic's names of what is wrong with it.
RULES = {
    "bool_type": "true or false",
    "dict_type": "a table, as {setting=1}",
    "float_type": "a number",
    "int_from_float": "a whole number",
    "int_type": "a whole number",
    "list_type": "a list",
    "sequence_str": "a list",
    "string_type": "a text",
}


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


def merge(table: Table, over: Table) -> Table:
    """Return the table with flags or a point of a grid over it; a tuple holds methods laid over each other."""
    both = "method" in table and "method" in over
    return table | over | ({"method": (*_layers(table["method"]), *_layers(over["method"]))} if both else {})


def experiment(table: Table) -> Experiment:
    """Return the experiment that a table describes."""
    if "data" not in table:
        raise InputError("data is missing; a simulation needs a stream to learn; pass --data banana")
    laid = {"method": method(table["method"])} if "method" in table else {}
    values = converted(Experiment, {key: table[key] for key in table if key != "method"}, "") | laid
    values["data"] = data = _data(values["data"])
    nodes = values.get("nodes")
    if nodes is None and isinstance(data, str):
        nodes = known(data).nodes
    elif nodes is None and data[0].ndim == 3:
        nodes = data[0].shape[1]
    if "topology" in values:
        values["topology"] = topology(values["topology"], nodes)
    return made(Experiment, values, "")  # type: ignore[no-any-return]


def deployed(table: Table, nodes: int) -> Experiment:
    """Return what a table describes for that many real nodes: data may be missing, and no file of them is read."""
    data = table.get("data")
    if isinstance(data, dict):
        _require(_read_file, converted(_read_file, data, "data"), "data")
    unread = {} if "data" in table and not isinstance(data, dict) else {"data": next(iter(DATA_SETS))}
    found = experiment({"nodes": nodes, "topology": "path"} | table | unread)
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
    name, given = table.get("name", REQUIRED), {key: table[key] for key in table if key != "name"}
    base: Any = recommended() if there is None else there
    kept: Table = {}
    if name is not REQUIRED:
        with at("method"):
            make = pick("method", str(name), ChainMap(PRESETS, METHODS))  # type: ignore[arg-type]
        base = make() if name in PRESETS else make
        kept = {} if there is None else _shared(there, base, TASK if name in PRESETS else settings(make))
    values = kept | converted(base, given, "method")
    found: Method = made(base, values, "method")
    if not callable(base):
        _require_effect(base, found, given)
    return found


def _require_effect(base: Any, found: Any, given: Table) -> None:
    """Refuse changes to a method that would change nothing."""
    rateless = None not in (base.learner, base.weight_rate, found.learner)
    if "eta" in given and rateless:
        raise InputError(
            f"method.eta: {given['eta']} given; {label(base)} learns by a rule that has no such rate; leave eta out, "
            'or take another learner: {name = "sgd", eta = 1.0}; name = "gossip" begins with the letter\'s settings'
        )
    for key in ("features", "orthogonal") if isinstance(found.basis, Landmarks) else ():
        if key in given:
            raise InputError(
                f"method.{key}: {given[key]} given; {label(base)} compares inputs with landmarks and has no random "
                f'features; leave {key} out, or take another basis: {{name = "features", rank = 20}}'
            )


def _shared(there: Method, new: Any, names: Any) -> Table:
    """Return what a method has of some settings, beyond the defaults of its class."""
    plain, fits = settings(type(there)), settings(new)
    own = {key: one.default for key, one in settings(there).items() if key in names and key in fits}
    return {key: value for key, value in own.items() if value != plain[key].default}


def topology(value: Any, nodes: int | None) -> Any:
    """Return the graph of a name with settings, or a schedule; a name alone or a matrix is for the library to read."""
    if isinstance(value, list):
        return checked(list[list[float]], value, "topology")
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


def fill(make: Callable[..., T], value: Any, path: str) -> T:
    """Return what ``make`` makes of a table, with every key and type checked."""
    found: T = made(make, converted(make, checked(Table, value, path), path), path)
    return found


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
    having = [name for name, make in choice.known.items() if own.keys() <= settings(make).keys()]
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
    if value is False and type(None) in get_args(hint):  # TOML has no null
        return None
    if hint == tuple[Kernel, ...]:
        return _kernels(value, path)
    if get_origin(hint) is tuple:
        return tuple(checked(list[get_args(hint)[0]], list(value) if isinstance(value, tuple) else value, path))  # type: ignore[misc]
    if hint is Path:
        return Path(checked(str, value, path))
    there = None if setting.default is REQUIRED else setting.default
    for kind in get_args(hint) or (hint,):
        if kind in PARTS:
            choice = PARTS[kind]
            return part(choice, value, path, choice.known[there]() if isinstance(there, str) else there)
        if isinstance(kind, type) and is_dataclass(kind):
            thing = there if changes and isinstance(there, kind) else kind
            return made(thing, converted(thing, checked(Table, value, path), path), path)
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
    rules = dict.fromkeys(RULES.get(one["type"]) or one.get("ctx", {}).get("expected", one["msg"]) for one in wrong)
    raise InputError(f"{path}: {value!r} given; it must be {' or '.join(rules)}")


def _kernels(value: Any, path: str) -> tuple[Kernel, ...]:
    families = checked(dict[str, list[float]], value, path)
    with at(path):
        for family in families:
            pick("kernel", family, SPECTRA)
        return tuple(Kernel(family, sigma) for family, sigmas in families.items() for sigma in sigmas)


def _data(value: Any) -> Any:
    if isinstance(value, dict):
        values = converted(_read_file, value, "data")
        _require(_read_file, values, "data")
        with at("data"):
            return _read_file(**values)
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


def made(thing: Any, values: Table, path: str) -> Any:
    """Return ``build(thing, values)``; an error names its key, or the only one without which there is none."""
    _require(thing, values, path)
    try:
        return build(thing, values)
    except InputError as error:
        without = {key: {other: values[other] for other in values if other != key} for key in values}
        found = [error.key] if error.key in values else [key for key in values if _builds(thing, without[key])]
        place = f"{path}.{found[0]}" if len(found) == 1 else path
        raise InputError(f"{place}: {error}".lstrip(".: ")) from None


def _builds(thing: Any, values: Table) -> bool:
    try:
        _require(thing, values, "")
        build(thing, values)
    except InputError:
        return False
    return True


def _require(thing: Any, values: Table, path: str) -> None:
    missing = [key for key, one in settings(thing).items() if one.default is REQUIRED and key not in values]
    if missing:
        raise InputError(f"{path}.{missing[0]}: missing; it has no default; set it".lstrip("."))


@contextmanager
def at(path: str) -> Iterator[None]:
    """Put a path before the message of an InputError."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{path}: {error}") from None

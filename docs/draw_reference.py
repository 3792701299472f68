"""Writes the pages of ``docs/reference``, from the schema that the program goes by: ``python docs/draw_reference.py``.

``command-line.md`` follows the commands of ``omkl``; ``spec-toml.md`` and ``network-toml.md`` follow what
``omkl.config`` and ``omkl.node`` read. ``tests/test_docs_reference.py`` compares the pages with what this would write.
"""

import inspect
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from typer.main import get_command

from omkl.cli import options
from omkl.cli.app import app
from omkl.cli.exits import MEANINGS
from omkl.config import PARTS, File
from omkl.experiment import Experiment
from omkl.features import SPECTRA, Kernel
from omkl.methods import METHODS, PRESETS, Gossip, recommended
from omkl.methods.tables import as_table
from omkl.node.config import LEARNED, FileKeys
from omkl.node.settings import Access, Calibration, Checkpoint, Member, Timing, Tls
from omkl.reach import Reach
from omkl.settings import REQUIRED, Setting, settings
from omkl.topology import GRAPHS, WEIGHTS, Faults

FOLDER = Path(__file__).parent / "reference"
COMMAND = "python docs/draw_reference.py"
MADE = f"<!-- Made from the program by {COMMAND}: change the texts in the source and run that. -->\n"
WORDS = {int: "whole number", float: "number", str: "text", bool: "true or false", Path: "path"}
ROOT: Any = get_command(app)
SNIPPET = re.compile(
    r"""(?<![\w`])(
    --[a-z][\w-]*(?:\ '[^']*')?           # a flag
    | \{[^{}]*\} | \w+=(?:\[[^]]*\]|"[^"]*")  # TOML, JSON
    | omkl/[\w/]+ | \$[A-Z]\w+
    | omkl(?:\ (?:COMMANDS))+(?!\w)
    | [\w.]*[a-z0-9]{2}_\w\w[\w.]*(?<!\.)  # a name, and no formula's
    | [\w-]+\.(?:toml|npz|csv|pem|key)\b
    )""".replace("COMMANDS", "|".join([*ROOT.commands, *ROOT.commands["node"].commands])),
    re.VERBOSE,
)
GOES_ON = ", then "  # between two commands of an example
KEYS = ("key", "value", "default", "meaning")

Row = tuple[str, ...]
Told = Mapping[str, tuple[str, str]]
NOTHING: Told = {}

TEXTS = tomllib.loads((Path(__file__).parent / "reference_texts.toml").read_text(encoding="utf-8"))


def texts(name: str) -> Told:
    """Return what a file says in another way than Python: the value and the meaning of some keys."""
    return {key: (one.get("value", ""), one.get("meaning", "")) for key, one in TEXTS[name].items()}


# Markdown


def coded(text: object) -> str:
    """Return text as code that may stand in a table."""
    return f"`{str(text).replace('|', chr(92) + '|')}`"


def prose(text: str) -> str:
    """Return a docstring's text as Markdown: code stays code, and nothing else is markup."""
    parts = re.split(r"``(.*?)``", " ".join(text.split()))
    parts[::2] = map(_marked, parts[::2])
    parts[1::2] = map(coded, parts[1::2])
    return "".join(parts)


def _marked(text: str) -> str:
    """Return text with flags, names and the like as code."""
    parts = SNIPPET.split(text)
    parts[::2] = [re.sub(r"([*_<|])", r"\\\1", part) for part in parts[::2]]
    parts[1::2] = map(coded, parts[1::2])
    return "".join(parts)


def table(head: Row, rows: Iterable[Row]) -> str:
    """Return a table."""
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def first_line(thing: Any) -> str:
    """Return the first line of a docstring."""
    line = inspect.cleandoc(thing.__doc__ or "").partition("\n")[0]
    told = line.removeprefix("Return ")
    return prose(line if told == line else told[:1].upper() + told[1:])


def page(title: str, *parts: str) -> str:
    """Return a page."""
    return "\n".join([f"# {title}\n", MADE, *parts])


# The command line


def command_line() -> str:
    """Return the page of commands."""
    commands = [(("omkl", name), command) for name, command in ROOT.commands.items()]
    commands += [
        ((*path, name), one) for path, group in commands for name, one in getattr(group, "commands", {}).items()
    ]
    commands.sort(key=lambda pair: list(ROOT.commands).index(pair[0][1]))
    shared = method_flags(ROOT.commands["simulate"])
    listed = table(
        ("command", "does"), ((f"[{' '.join(path)}](#{'-'.join(path)})", summary(one)) for path, one in commands)
    )
    codes = table(("code", "means"), ((str(int(code)), f"{meaning}") for code, meaning in MEANINGS.items()))
    return page(
        "Command line",
        "Each command prints the same with `--help`. Data goes to standard output, progress and logs to standard "
        "error. `omkl --version` prints the version.\n",
        listed,
        "## Exit codes\n",
        codes,
        *(section(path, one, shared) for path, one in commands),
        "## Flags of a method\n",
        "`omkl simulate`, `omkl cluster` and `omkl explain` take these flags. The default is that of the recommended "
        "method; `--method NAME` changes to another one. [The spec](spec-toml.md#method) has the same keys, and says "
        "more about each. `none` leaves a part out. A part is a name, or a table of a name and settings: "
        "`--quantizer '{name=\"qsgd\", bits=4}'`.\n",
        table(("flag", "default", "meaning"), map(flag_row, shared)),
    )


def method_flags(command: Any) -> list[Any]:
    """Return the flags of a command that set its method."""
    return [one for one in command.params if getattr(one, "rich_help_panel", None) == "Method"]


def summary(command: Any) -> str:
    """Return what a command does, in a line."""
    return prose(paragraphs(command)[0])


def paragraphs(command: Any) -> list[str]:
    """Return what a command says of itself; the last paragraph is its example."""
    return inspect.cleandoc(command.help or "").split("\n\n")


def section(path: tuple[str, ...], command: Any, shared: list[Any]) -> str:
    """Return what there is to say of a command."""
    *told, example = paragraphs(command)
    assert example.startswith("Example: "), path
    own = [one for one in command.params if one not in method_flags(command)]
    takes_all = [one.name for one in method_flags(command)] == [one.name for one in shared]
    if not takes_all:
        own += method_flags(command)
    own = [one for one in own if not one.hidden and one.name != "help"]
    own.sort(key=lambda one: one.param_type_name != "argument")
    arguments = [value(one) if one.required else f"[{value(one)}]" for one in own if one.param_type_name == "argument"]
    usage = " ".join([*path, *arguments, "[FLAGS]"])
    lines = [f"## {' '.join(path)}\n", f"```text\n{usage}\n```\n", *(f"{prose(text)}\n" for text in told)]
    lines += ["```text\n" + example.removeprefix("Example: ").replace(GOES_ON, "\n") + "\n```\n"]
    if own:
        lines.append(table(("argument or flag", "default", "meaning"), map(flag_row, own)))
    if takes_all:
        lines.append("It also takes the [flags of a method](#flags-of-a-method).\n")
    return "\n".join(lines)


def flag_row(one: Any) -> Row:
    """Return a row of a table of flags."""
    if one.param_type_name == "argument":
        name = coded(value(one))
    else:
        name = ", ".join(coded(f"{flag} {value(one)}".strip()) for flag in [*one.opts, *one.secondary_opts])
    told = prose(one.help or "")
    assert not getattr(one, "multiple", False) or "repeat" in told, one.name
    if one.envvar:
        told += f" Environment: {coded(one.envvar)}."
    return name, flag_default(one), told


def value(one: Any) -> str:
    """Return what stands for the value of a flag or argument; nothing for a switch."""
    if getattr(one, "is_flag", False):
        return ""
    return one.metavar or "|".join(map(str, one.type_descriptor.choices or [one.name.upper()]))


def flag_default(one: Any) -> str:
    """Return the default of a flag; of one that is made from a setting, the setting's."""
    if one.required:
        return "required"
    made = None
    if one.rich_help_panel == "Experiment":
        made = options.RUN.get(one.name)
    elif one.rich_help_panel == "Method":
        made = options.METHOD.get(one.name) or options.QUANTIZER.get(one.name)
    if made is not None:
        return "" if made.default in (False, REQUIRED) else default(made)
    usual = getattr(one.default, "value", one.default)
    return "" if usual is None or usual is False else coded(usual)


# Tables of keys


def kind(hint: Any) -> str:
    """Return what a value may be, in words."""
    if hint in WORDS:
        return WORDS[hint]
    if hint is Any:
        return "name or table"
    if hint == tuple[Kernel, ...]:
        return "[table](#kernels)"
    if get_origin(hint) is Literal:
        return " or ".join(coded(f'"{one}"') for one in get_args(hint))
    if get_origin(hint) in (Union, UnionType):
        found = dict.fromkeys(kind(one) for one in get_args(hint) if one is not type(None))
        named = any("name or table" in one for one in found)  # a name is a text
        return " or ".join(one for one in found if not (named and one == "text"))
    if hint in PARTS:
        return f"[name or table](#{PARTS[hint].kind})"
    if get_origin(hint) is dict:
        return "table"
    if get_origin(hint) is not None:
        inner = kind(get_args(hint)[0])
        return f"list of {inner.replace('list', 'lists') if 'list' in inner else f'{inner}s'}"
    return collection(hint)


def collection(hint: Any) -> str:
    """Return what a class is in a file."""
    found = next((f"[name or table](#{one.kind})" for one in PARTS.values() if hint in one.known.values()), None)
    return found or ("table" if hint is dict or is_dataclass(hint) else "name or table")


def default(one: Setting) -> str:
    """Return a default as a file would have it; nothing stands for None."""
    if one.default is REQUIRED:
        return "required"
    return "" if one.default is None else coded(toml(one.default))


def toml(value: Any) -> str:
    """Return a value as TOML, a part by its name and what it does not have by default."""
    if isinstance(value, tuple) and value and all(isinstance(one, Kernel) for one in value):
        families = dict.fromkeys(one.name for one in value)
        return toml({name: [one.sigma for one in value if one.name == name] for name in families})
    if is_dataclass(value) and not isinstance(value, type):
        own = as_table(value)
        usual = as_table(type(value)()) if "name" in own else {}
        changed = {key: one for key, one in own.items() if key == "name" or one != usual.get(key)}
        return toml(changed["name"] if changed.keys() == {"name"} else changed)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {toml(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else str(value)


def key_row(one: Setting, others: Told = NOTHING) -> Row:
    """Return a row of a table of keys; what a file takes may differ from what a docstring says of Python."""
    hint, doc = others.get(one.name, ("", ""))
    return coded(one.name), hint or kind(one.hint), default(one), doc or prose(one.doc)


def keys(thing: Any, without: Iterable[str] = (), others: Told = NOTHING) -> str:
    """Return the table of what a thing may be given."""
    known = settings(thing)
    assert others.keys() <= known.keys(), others.keys() - known.keys()
    return table(KEYS, (key_row(one, others) for name, one in known.items() if name not in without))


def choices(known: Mapping[str, Any], without: Iterable[str] = ()) -> str:
    """Return what there is by name, and the settings of each."""
    listed = table(("name", "is"), ((coded(f'"{name}"'), first_line(make)) for name, make in known.items()))
    rows = [(coded(f'"{name}"'), *key_row(one)) for name, make in known.items() for one in own_keys(make, without)]
    return listed + ("\n" + table(("of", *KEYS), rows) if rows else "")


def own_keys(make: Any, without: Iterable[str] = ()) -> Iterator[Setting]:
    """Return the settings of a class or function."""
    return (one for name, one in settings(make).items() if name not in without)


# A simulation's spec


def spec() -> str:
    """Return the page of a simulation's spec."""
    parts = {one.kind: choices(one.known) for one in PARTS.values() if one.kind != "partition"}
    return page(
        "spec.toml",
        "A spec describes a simulation: `omkl simulate spec.toml`. `omkl cluster` and `omkl node` read the same keys. "
        "A flag of the [command line](command-line.md#omkl-simulate) wins over the file.\n",
        f"```toml\n{TEXTS['examples']['spec']}```\n",
        'A *name or table* is a name alone, `"ring"`, or a table of a name and settings, `{name = "qsgd", bits = '
        "4}`. Where the column *default* is empty, the key is not set. A meaning may speak of None, which is Python's "
        "word for that: leave the key out, or write `false` to leave out a part of a method. An unknown key is an "
        "error that names the key.\n",
        "## Keys\n",
        keys(Experiment, others=texts("spec")),
        "## data\n",
        "A data set is a name; `omkl data` lists them. A file of your own is a table:\n",
        keys(File),
        "## topology\n",
        choices(GRAPHS, ("nodes",)),
        'Graphs that take turns: `topology = {graphs = ["ring", "star"]}`. A list of lists of numbers is a gossip '
        "matrix.\n",
        "## weights\n",
        table(("name", "is"), ((coded(f'"{name}"'), first_line(rule)) for name, rule in WEIGHTS.items())),
        "## faults\n",
        keys(Faults, others=texts("faults")),
        "## partition\n",
        choices(PARTS_BY_KIND["partition"].known),
        "## method\n",
        "`[method]` changes the recommended method, or the one that `name` says. The columns show what a key is in "
        '`name = "recommended"` and in `name = "gossip"`, which begins with the paper\'s settings.\n',
        methods(),
        "## kernels\n",
        "A table of families, each with its bandwidths: `kernels = {gaussian = [1, 3, 5], laplacian = [2]}`. Families: "
        f"{', '.join(coded(name) for name in SPECTRA)}.\n",
        "## reach\n",
        keys(Reach, ("knots",)),
        *(f"## {name}\n\n{text}" for name, text in parts.items()),
    )


PARTS_BY_KIND = {one.kind: one for one in PARTS.values()}


def methods() -> str:
    """Return the tables of methods, their common keys, and the keys of one or some alone."""
    names = {**PRESETS, **METHODS}
    listed = table(("name", "is"), ((coded(f'"{name}"'), first_line(make)) for name, make in names.items()))
    best, common = settings(recommended()), settings(Gossip)
    assert texts("method").keys() <= common.keys()
    rows = [
        (row[0], row[1], default(best[name]), default(one), row[-1])
        for name, one in common.items()
        for row in [key_row(one, texts("method"))]
    ]
    told = [listed, table(("key", "value", "recommended", "gossip", "meaning"), rows)]
    others = [(name, make) for name, make in METHODS.items() if make is not Gossip]
    own = [
        (coded(f'"{name}"'), *key_row(one))
        for name, make in others
        for key, one in settings(make).items()
        if key not in common
    ]
    lacks = [
        (coded(f'"{name}"'), ", ".join(coded(key) for key in common if key not in settings(make)))
        for name, make in others
    ]
    told += ["Keys of one method alone:\n", table(("of", *KEYS), own)]
    told += ["Keys that a method does not take:\n", table(("method", "without"), (row for row in lacks if row[1]))]
    return "\n".join(told)


# A network's file


def network() -> str:
    """Return the page of a network's file."""
    used = [name for name in LEARNED if name in settings(Experiment)]
    unused = [name for name in settings(Experiment) if name not in LEARNED and name != "nodes"]
    return page(
        "network.toml",
        "One file describes a network, and is the same on every device. `omkl node init` writes it with comments; "
        "`omkl node check` says what it comes to. [Ten minutes to a network](../ten-minutes.md) takes you through it, "
        "and [nodes on devices](../deploy.md) says how to change it later. An unknown key is an error that names the "
        "key. Paths are relative to the file.\n",
        f"```toml\n{TEXTS['examples']['network']}```\n",
        "## Keys\n",
        table(KEYS, (key_row(without_tables(one), texts("network")) for one in settings(FileKeys).values())),
        *(
            f"## {head}\n\n{coded(HEADS.get(head, f'[{head}]'))}: {first_line(thing)}\n\n{keys(thing)}"
            for head, thing in TABLES.items()
        ),
        "## learning\n",
        "What the nodes learn, and how: keys of [a simulation's spec](spec-toml.md). So you can try the settings with "
        '`omkl simulate` first. `learning = "spec.toml"` reads them from a file.\n',
        table(KEYS, (key_row(options.RUN[name], texts("learning")) for name in used)),
        "`[learning.method]` has the keys of [a spec's method](spec-toml.md#method). Nodes run `recommended`, "
        "`frugal`, `paper`, `gossip`, and `choco` without `fresh`.\n",
        "These keys of a spec are checked and then not used, because only a simulation needs them: "
        f"{', '.join(map(coded, unused))}. `nodes` may stand there if it agrees with the list.\n",
    )


def without_tables(one: Setting) -> Setting:
    """Return a key of a network's file; a table's defaults stand in the part about it."""
    return one._replace(default=None) if is_dataclass(one.default) else one


HEADS = {"nodes": "[[nodes]]"}
TABLES = {
    "nodes": Member,
    "timing": Timing,
    "checkpoint": Checkpoint,
    "calibration": Calibration,
    "access": Access,
    "tls": Tls,
}

PAGES = {"command-line.md": command_line, "spec-toml.md": spec, "network-toml.md": network}


def main() -> None:
    """Write all pages."""
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PAGES.items():
        (FOLDER / name).write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()

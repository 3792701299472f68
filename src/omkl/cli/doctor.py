"""``omkl doctor``: what is installed, what is missing, and whether it works."""

import os
import platform
import re
import time
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

import numpy as np
import typer
from rich.markup import escape
from rich.table import Table

import omkl
from omkl.cli import options, show
from omkl.cli.exits import Exit
from omkl.cli.options import Format
from omkl.data import files, inventory
from omkl.errors import MissingExtraError

EXTRAS = "need pip install 'omkl[fast]' or 'omkl[sim]'"


def doctor(output: options.Output = Format.TABLE) -> None:
    """Show what is installed, what is missing, and whether a small simulation runs.

    Example: omkl doctor --format json
    """
    code, verdict = _try()
    findings = {
        "works": code is Exit.OK,
        "verdict": verdict,
        "omkl": version("omkl"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "memory_gib": _memory(),
        "devices": _devices(),
        "packages": _packages(),
        "programs": _programs(),
        "data_folder": str(files.local_folder() or "") or None,
        "data_cache": str(files.cache_folder()),
        "data": {one.name: one.place for one in inventory()},
    }
    if output is Format.JSON:
        show.print_json(findings)
    else:
        _print(findings)
    raise typer.Exit(code)


def _try() -> tuple[Exit, str]:
    X = np.random.default_rng(0).standard_normal((12, 2))
    start = time.perf_counter()
    try:
        omkl.simulate((X, np.sign(X[:, 0])), "path", nodes=3, method=omkl.Gossip(features=2))
    except MissingExtraError as error:
        return Exit.MISSING, str(error)
    except Exception as error:  # whatever is wrong, a doctor reports it
        return Exit.UNEXPECTED, f"a simulation of 3 nodes failed: {type(error).__name__}: {error}"
    return Exit.OK, f"a simulation of 3 nodes ran in {time.perf_counter() - start:.1f} s, with {_engines()}"


def _engines() -> str:
    """Return what a small simulation runs with, and a longer one."""
    from omkl.simulator.engine import has_accelerator

    if has_accelerator():
        return "JAX"
    longer = [name for name in ("Numba", "JAX") if _version(name.lower())]
    return f"NumPy; longer ones {'run with ' + ' or '.join(longer) if longer else EXTRAS}"


def _packages() -> dict[str, dict[str, str | None]]:
    """Return the version of every dependency by extra, None where it is not installed."""
    groups: dict[str, dict[str, str | None]] = {}
    for line in requires("omkl") or []:
        name = re.split(r"[^\w.-]", line, maxsplit=1)[0]
        extra = re.search(r"extra == ['\"](\w+)", line)
        groups.setdefault(extra[1] if extra else "core", {})[name] = _version(name)
    return {extra: groups[extra] for extra in groups if extra not in ("all", "test")}


def _version(package: str) -> str | None:
    with suppress(PackageNotFoundError):
        return version(package)
    return None


def _devices() -> list[str]:
    with suppress(ImportError, RuntimeError):
        import jax

        return [str(device.device_kind) for device in jax.devices()]
    return []


def _programs() -> str | None:
    with suppress(ImportError):
        from omkl.simulator import cache

        return str(cache.folder() or "") or None
    return None


def _memory() -> float | None:
    with suppress(AttributeError, ValueError, OSError):  # Windows has no sysconf
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    return None


def _kept(programs: str | None) -> str:
    """Return where compiled programs are kept, in words."""
    if programs:
        return f"what JAX compiles is kept in {programs}; $OMKL_CACHE names another folder; off keeps nothing\n"
    return "what JAX compiles is not kept, so each start compiles anew; $OMKL_CACHE names a folder to keep it in\n"


def _print(findings: dict[str, Any]) -> None:
    console = show.console()
    memory = f", {findings['memory_gib']} GiB" if findings["memory_gib"] else ""
    console.print(f"[bold]omkl {findings['omkl']}[/bold], Python {findings['python']}, {findings['platform']}")
    if _version("jax") is None:
        console.print(f"{findings['cores']} cores{memory}; JAX is not installed\n")
    else:
        console.print(f"{findings['cores']} cores{memory}; JAX on {', '.join(findings['devices']) or 'no device'}")
        console.print(_kept(findings["programs"]))
    packages = Table.grid(padding=(0, 2))
    for extra, versions in findings["packages"].items():
        here = [f"{name} {found}" for name, found in versions.items() if found]
        missing = [name for name, found in versions.items() if not found]
        if missing:
            here.append(f"[yellow]missing: {', '.join(missing)}[/]; pip install 'omkl\\[{extra}]'")
        packages.add_row(f"[bold]{extra}[/]", "; ".join(here))
    console.print(packages)
    console.print("\n[bold]data[/]")
    page = Table.grid(padding=(0, 2))
    for name, place in findings["data"].items():
        page.add_row(f"  {name}", place or "missing; omkl data says how to get it")
    folder = findings["data_folder"] or "not set"
    page.add_row("  looked in", f"$OMKL_DATA ({folder}), {findings['data_cache']}, installed packages")
    console.print(page)
    color = "green" if findings["works"] else "red"
    console.print(f"\n[bold {color}]{'works' if findings['works'] else 'broken'}[/]: {escape(findings['verdict'])}")

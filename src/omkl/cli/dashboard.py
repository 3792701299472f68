"""``omkl dashboard``: a page to look at networks."""

import os
import secrets
import signal
import socket
import sys
import tempfile
import webbrowser
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from omkl import config
from omkl.cli.options import OUTPUT
from omkl.dashboard import events
from omkl.errors import InputError, extra

if TYPE_CHECKING:
    from omkl.dashboard.runs import Runs
    from omkl.dashboard.sources import Memory

PORT = 8321
TOKEN = "OMKL_DASHBOARD_TOKEN"
SERVE = "Server"

Source = typer.Argument(
    exists=True, metavar="SOURCE", help="A saved run, a folder of runs, or a network's file.", show_default=False
)


def dashboard(
    source: Annotated[Path | None, Source] = None,
    port: Annotated[
        int,
        typer.Option(
            rich_help_panel=SERVE, min=0, max=2**16 - 1, help="Port to listen on; 0 takes any free one.", metavar="INT"
        ),
    ] = PORT,
    host: Annotated[
        str, typer.Option(rich_help_panel=SERVE, help="Address to listen on.", metavar="HOST")
    ] = "127.0.0.1",
    no_browser: Annotated[
        bool, typer.Option("--no-browser", rich_help_panel=SERVE, help="Print the address and open no browser.")
    ] = False,
    name: Annotated[
        str | None,
        typer.Option(
            "--as",
            help="Name of the certificate to show to nodes with TLS. Without it: that of the first node in the file.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(rich_help_panel=OUTPUT, file_okay=False, help="Keep new runs here.", metavar="FOLDER"),
    ] = None,
) -> None:
    """Watch networks in your browser: start small simulations, replay saved runs, look at real nodes.

    Without SOURCE you start simulations on the page. SOURCE may be a folder that omkl simulate --out wrote, while it
    runs or later; --events there adds the single nodes. It may be a folder of such folders. Or it is the file of a real
    network: the page asks its nodes how they stand, and changes nothing.

    The command prints an address with a token. The token is new at each start, or it is $OMKL_DASHBOARD_TOKEN. From
    another machine run ssh -L 8321:127.0.0.1:8321 HOST, and open the address there.

    Example: omkl dashboard
    """
    with extra("dashboard", "starlette"):
        import uvicorn

        from omkl.dashboard.guard import Guard
        from omkl.dashboard.server import Server, application
    signal.signal(signal.SIGTERM, _leave)  # so that what was started is ended
    if hasattr(signal, "SIGHUP"):  # the terminal was closed; not everywhere does that tell
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
    token = os.environ.get(TOKEN) or secrets.token_urlsafe(24)
    with _opened(source, out, name) as runs, closing(_listening(host, port)) as listener:
        place = f"{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
        address = f"http://{place}/?token={quote(token, safe='')}"
        print(f"omkl: the page is at {address}", file=sys.stderr, flush=True)
        if not no_browser:
            webbrowser.open(address)
        config = uvicorn.Config(
            Guard(application(runs), token, (host, socket.gethostname())),
            log_level="warning",
            lifespan="off",
            timeout_graceful_shutdown=1,
            ws="none",
        )
        Server(config, runs).run(sockets=[listener])


@contextmanager
def _opened(source: Path | None, out: Path | None, name: str | None) -> Iterator["Runs"]:
    """Give the runs that there are to see; new ones go to a folder of their own, for the time being where none is."""
    from omkl.dashboard.runs import Runs
    from omkl.dashboard.saved import RESULT, Saved
    from omkl.dashboard.sources import File, Memory
    from omkl.dashboard.sources import Source as Stream

    others: dict[str, Stream] = {}
    with ExitStack() as stack:
        if source is not None and source.is_file():
            others["network"] = memory = Memory()
            _observe(source, memory, name, stack)
        elif source is not None and (source / events.FILE).is_file():
            others[source.resolve().name] = File(source / events.FILE)
        elif source is not None and (source / RESULT).is_file():
            others[source.resolve().name] = Saved(source)
        elif source is not None:
            out = out or source
        folder = out or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="omkl-", ignore_cleanup_errors=True))
        )
        yield stack.enter_context(closing(Runs(folder, others)))


def _observe(file: Path, memory: "Memory", name: str | None, stack: ExitStack) -> None:
    with extra("node", "eclipse-zenoh"):
        from omkl.dashboard.observer import Observer
        from omkl.node import config as network
    table = config.load(file)
    if "data" in table and "nodes" not in table:
        raise InputError(
            f"{file} describes a simulation, not a network; run it: omkl simulate {file} --out FOLDER --events, and "
            "open that folder"
        )
    observer = stack.enter_context(closing(Observer(network.load(file), memory.add, name, file)))
    observer.start()


def _leave(*_: object) -> None:
    raise typer.Exit


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise InputError(f"{host}:{port} cannot be listened on ({error}); is the port taken? give --port 0") from None

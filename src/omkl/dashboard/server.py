"""The server of the page: its files, the runs it can open, and their events, sent as they come."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from omkl.dashboard.form import options
from omkl.dashboard.runs import Runs
from omkl.errors import InputError, MissingExtraError

STATIC = Path(__file__).parent / "static"
PAUSE = 0.1  # seconds between two looks for more; with what is read at a time, it bounds what is sent in a second
SILENCE = 15.0  # seconds after which a word is sent, so that a lost connection shows
MOST_BODY = 2**14  # bytes of a form
MOST_READERS = 32  # of events at a time; each looks for more again and again


class Readers:
    """Counts those who read events, and turns away those that are too many."""

    def __init__(self) -> None:
        self._count = 0

    def answer(self, messages: AsyncIterator[str]) -> Response:
        """Return a response of messages, or one that says that there is no room."""
        if self._count >= MOST_READERS:
            text = f"{MOST_READERS} pages read events; that is the most; close one"
            return JSONResponse({"error": text}, 503, {"Retry-After": "10"})
        self._count += 1
        return _Stream(messages, self._leave)

    def _leave(self) -> None:
        self._count -= 1


class _Stream(StreamingResponse):
    """A response of messages that tells when it is over, however it ends."""

    def __init__(self, messages: AsyncIterator[str], leave: Callable[[], None]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(messages, media_type="text/event-stream", headers=headers)
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leave()


class Server(uvicorn.Server):
    """A server that tells whoever reads events when it is to end; it would wait for them, and then cut them off."""

    def __init__(self, config: uvicorn.Config, runs: Runs) -> None:
        super().__init__(config)
        self._runs = runs

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Note that the process was asked to end."""
        self._runs.closed.set()
        super().handle_exit(sig, frame)


def application(runs: Runs) -> Starlette:
    """Return the application, yet to be guarded."""
    readers = Readers()

    async def listed(_: Request) -> Response:
        return JSONResponse(await run_in_threadpool(runs.about))

    async def chosen(_: Request) -> Response:
        return JSONResponse(await run_in_threadpool(options))

    async def started(request: Request) -> Response:
        form = _parsed(await _body(request))
        return JSONResponse({"run": await run_in_threadpool(runs.start, form)}, 201)

    async def stopped(request: Request) -> Response:
        await run_in_threadpool(runs.stop, request.path_params["name"])
        return Response(status_code=204)

    async def followed(request: Request) -> Response:
        name = request.path_params["name"]
        await run_in_threadpool(runs.source, name)  # one that is not there is refused before the answer begins
        return readers.answer(_messages(runs, name))

    return Starlette(
        routes=[
            Route("/", lambda _: FileResponse(STATIC / "index.html")),
            Route("/api/options", chosen),
            Route("/api/runs", listed, methods=["GET"]),
            Route("/api/runs", started, methods=["POST"]),
            Route("/api/runs/{name}/events", followed),
            Route("/api/runs/{name}/stop", stopped, methods=["POST"]),
            Route("/static/plotly.js", _plotly),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        exception_handlers={InputError: _refused},
    )


async def _messages(runs: Runs, name: str) -> AsyncIterator[str]:
    """Yield events as they come, each a message, and at the end one that says so."""
    cursor, ended, quiet = 0, False, 0.0
    while not ended and not runs.closed.is_set():
        try:
            lines, cursor, ended = await run_in_threadpool(lambda at: runs.source(name).read(at), cursor)
        except (InputError, OSError):  # its folder was removed, or cannot be read
            break
        if lines:
            quiet = 0.0
            yield "".join(f"data: {line}\n\n" for line in lines)
        elif (quiet := quiet + PAUSE) >= SILENCE:
            quiet = 0.0
            yield ": nothing new\n\n"
        await asyncio.sleep(PAUSE)
    if ended:
        yield "event: close\ndata: \n\n"


async def _plotly(_: Request) -> Response:
    headers = {"Content-Encoding": "gzip", "Cache-Control": "private, max-age=86400"}
    return Response(await run_in_threadpool(_packed), media_type="text/javascript", headers=headers)


@cache
def _packed() -> bytes:
    """Return plotly.js, which comes with the Python package of that name, at a quarter of its size."""
    found = find_spec("plotly")
    if found is None or found.origin is None:
        raise MissingExtraError("plotly", "dashboard")
    return gzip.compress((Path(found.origin).parent / "package_data" / "plotly.min.js").read_bytes())


async def _body(request: Request) -> bytes:
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise InputError("the body is not JSON; a form is an object of settings; send it as application/json")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BODY:
            raise InputError(f"more than {MOST_BODY} bytes; a form takes less; send settings only")
    return body


def _parsed(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the body is not JSON ({error}); send an object") from None


async def _refused(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, 400)

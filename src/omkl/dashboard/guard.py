"""Who may see the page: holders of the token, on this site alone."""

import hashlib
import secrets
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("127.0.0.1", "localhost", "::1")
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
        "connect-src 'self'; font-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Guard:
    """Lets requests through to an application, and refuses the others.

    The token comes once, as ``/?token=...``, and what follows from it is kept in a cookie; programs may send the token
    itself as ``Authorization: Bearer ...``. A request has to name this machine as its host, or a number, so that no
    name that was made to point here passes, and to come from a page of this server, if from any.

    Parameters
    ----------
    app
        What is guarded.
    token
        What a visitor has to know.
    hosts
        Names by which the server is reached, besides those of loopback.
    """

    def __init__(self, app: ASGIApp, token: str, hosts: tuple[str, ...] = ()) -> None:
        self._app, self._token, self._hosts = app, token, (*LOOPBACK, *hosts)
        # Cookies do not tell ports apart: each of several servers has its own, and none shows the token to the others.
        digest = hashlib.sha256(b"omkl dashboard " + token.encode()).hexdigest()
        self._cookie, self._pass = f"omkl-{digest[:8]}", digest[8:]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        answer = self._refusal(scope) or self._entry(scope)
        await (answer or self._app)(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if (name := _name(host)) not in self._hosts and not _is_address(name):
            return PlainTextResponse(f"{host!r} is not a name of this server; open it as 127.0.0.1 or localhost\n", 403)
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        elsewhere = site not in ("same-origin", "none") and headers.get("sec-fetch-mode") != "navigate"
        if elsewhere or (origin is not None and origin != f"{scope['scheme']}://{host}"):
            return PlainTextResponse("a request of another site; this page alone may ask\n", 403)
        return None

    def _entry(self, scope: Scope) -> Response | None:
        """Return what answers a request without the cookie: a page that sets it, or a refusal."""
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token")
        if scope["path"] == "/" and given and _same(given[0], self._token):
            answer = RedirectResponse("/", 303)
            answer.set_cookie(self._cookie, self._pass, httponly=True, samesite="strict")
            return answer
        headers = Headers(scope=scope)
        kind, _, bearer = headers.get("authorization", "").partition(" ")
        knows = kind.lower() == "bearer" and _same(bearer, self._token)
        if knows or _same(_cookie(headers, self._cookie), self._pass):
            return None
        text = "the token is missing or another's; open the address that omkl dashboard printed, with its token\n"
        return PlainTextResponse(text, 401, {"WWW-Authenticate": "Bearer"})


def _same(given: str, expected: str) -> bool:
    return secrets.compare_digest(given.encode(), expected.encode())


def _name(host: str) -> str:
    """Return the name in a header ``Host``, without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _cookie(headers: Headers, name: str) -> str:
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return morsel.value if morsel else ""

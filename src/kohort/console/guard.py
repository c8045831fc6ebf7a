"""Who may talk to the console: Host and Origin, the token, and the headers of every answer. An ASGI middleware.

On the loopback no token is needed, but only names of the loopback are answered: a web page that rebinds its name to
127.0.0.1 is not one of them. Bound elsewhere, nothing is answered without the token.
"""

from __future__ import annotations

import hmac
import ipaddress
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.responses import JSONResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "kohort_console"
CHANGE_HEADER = "x-kohort-change"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Rules:
    """`token` is None on the loopback alone."""

    token: str | None = None

    def refusal(self, headers: Headers, query: str, method: str) -> tuple[int, str] | None:
        host = _host_of(headers.get("host", ""))
        if host is None or (self.token is None and not is_loopback(host)):
            return 421, "this name is not the console's: open it as http://127.0.0.1 or http://localhost"
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != headers.get("host"):
            return 403, "another web site asked for this"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return 403, "another web site asked for this"
        if self.token is not None and not self._known(headers, query):
            return 401, "a token is needed: open the address that kohort console printed"
        if method not in ("GET", "HEAD") and not _meant(headers):
            return 403, f"a change is JSON and says so with the header {CHANGE_HEADER}"
        return None

    def _known(self, headers: Headers, query: str) -> bool:
        given = [headers.get("authorization", "").removeprefix("Bearer "), _cookie(headers), token_in(query)]
        expected = (self.token or "").encode()
        return any(hmac.compare_digest(one.encode("utf-8", "replace"), expected) for one in given if one)


def _meant(headers: Headers) -> bool:
    """What a form of another site cannot send."""
    return headers.get("content-type", "").startswith("application/json") and CHANGE_HEADER in headers


def _host_of(value: str) -> str | None:
    try:
        return urlsplit(f"//{value}").hostname
    except ValueError:
        return None


def _cookie(headers: Headers) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found is not None else ""


def token_in(query: str) -> str:
    found: str = QueryParams(query).get("token", "")
    return found


class Guard:
    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        self._app, self._rules = app, rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        query = scope["query_string"].decode("latin-1")
        refused = self._rules.refusal(Headers(scope=scope), query, scope["method"])
        if refused is not None:
            answer: Any = JSONResponse({"error": refused[1]}, refused[0])
        elif self._rules.token is not None and scope["path"] == "/" and token_in(query):
            # The token goes into a cookie: it must not stay in the address, which people send to each other.
            answer = RedirectResponse("/", 303)
            answer.set_cookie(COOKIE, self._rules.token, httponly=True, samesite="strict")
        else:
            answer = self._app

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if scope["path"].startswith("/static/"):
                    headers.setdefault("cache-control", "no-cache")  # kept, and asked for whether it is still the same
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await answer(scope, receive, with_headers)

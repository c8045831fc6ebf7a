"""The credentials of SASL, and bearer tokens: of a user's function, or of an OAuth 2 server by client credentials.

Kept until most of their life is over, one for all connections with the same settings. Asking for one blocks.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any, NamedTuple

from kohort.client.config import Config
from kohort.client.errors import AuthenticationError, ConfigError
from kohort.client.sasl import OAUTHBEARER, Credentials

_USED_OF_LIFE = 0.8
_SECONDS = 30
_lock = threading.Lock()
_kept: dict[tuple[str, ...], tuple[str, float]] = {}


def credentials(config: Config) -> Credentials | None:
    """None where security.protocol has no SASL. May block, for a new bearer token."""
    if not config["security.protocol"].startswith("SASL"):
        return None
    if config["sasl.mechanism"] == OAUTHBEARER:
        return Credentials(OAUTHBEARER, "(a bearer token)", bearer_token(config))
    return Credentials(config["sasl.mechanism"], config["sasl.username"], config["sasl.password"])


class Token(NamedTuple):
    value: str
    lifetime_s: float


def bearer_token(config: Config) -> str:
    """A token that is still good for a while."""
    names = (
        "sasl.oauthbearer.token.provider", "sasl.oauthbearer.token.endpoint.url",
        "sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.scope",
    )  # fmt: skip
    key = tuple(str(config[name]) for name in names)
    with _lock:
        value, good_until = _kept.get(key, ("", 0.0))
        if time.monotonic() >= good_until:
            token = _provided(config) if config[names[0]] else _granted(config)
            value, good_until = token.value, time.monotonic() + token.lifetime_s * _USED_OF_LIFE
            _kept[key] = (value, good_until)
        return value


def _provided(config: Config) -> Token:
    value, ends = token_of(config["sasl.oauthbearer.token.provider"])
    return Token(value, ends - time.time())


def token_of(provider: Any) -> tuple[str, float]:
    """What the user's function gives: a token, or a token and when it ends (seconds since 1970)."""
    made = function_of(provider)()
    value, ends = made if isinstance(made, tuple) else (made, None)
    return str(value), time.time() + _life_of(str(value)) if ends is None else float(ends)


def function_of(provider: Any) -> Callable[[], Any]:
    """A function, or the name of one: `package.module:function`, which every process can look up for itself."""
    if callable(provider):
        found: Callable[[], Any] = provider
        return found
    module, colon, name = str(provider).partition(":")
    try:
        function: Callable[[], Any] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"sasl.oauthbearer.token.provider={provider!r} must be a function, or name one as package.module:function"
            f"{'' if colon else ' (there is no colon in it)'}: {error}"
        ) from None
    return function


def _granted(config: Config) -> Token:
    """RFC 6749, 4.4."""
    form = {"grant_type": "client_credentials"}
    if config["sasl.oauthbearer.scope"]:
        form["scope"] = config["sasl.oauthbearer.scope"]
    client = config["sasl.oauthbearer.client.credentials.client.id"]
    secret = config["sasl.oauthbearer.client.credentials.client.secret"]
    url = config["sasl.oauthbearer.token.endpoint.url"]
    request = urllib.request.Request(url, urllib.parse.urlencode(form).encode())
    request.add_header("Authorization", "Basic " + base64.b64encode(f"{client}:{secret}".encode()).decode())
    request.add_header("Accept", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as response:
            answer = json.load(response)
        return Token(answer["access_token"], float(answer.get("expires_in") or _life_of(answer["access_token"])))
    except urllib.error.HTTPError as error:
        said = error.read(1000).decode(errors="replace")
        raise AuthenticationError(f"{url} gave client {client!r} no token: HTTP {error.code} {said}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AuthenticationError(f"{url} gave client {client!r} no token: {error!r}") from None


def _life_of(token: str) -> float:
    """Until a JWT's `exp`; a minute where it is not one."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return float(claims["exp"]) - time.time()
    except (IndexError, ValueError, KeyError, TypeError):
        return 60.0


def aws_msk_iam() -> tuple[str, float]:
    """For Amazon MSK: `sasl.oauthbearer.token.provider=kohort.client.tokens:aws_msk_iam`; the region as AWS_REGION."""
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
    except ImportError:
        raise ConfigError("Amazon MSK's tokens need: pip install 'kohort[msk]'") from None
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        raise ConfigError("Amazon MSK's tokens are of a region: set AWS_REGION")
    token, expires_ms = MSKAuthTokenProvider.generate_auth_token(region)
    return token, expires_ms / 1000

"""Who a connection is: the steps of SASL on it, and what may be asked before it is known. Mechanisms are in `sasl.py`.

A connection of a SASL listener has a Guard. Re-authentication (KIP-368): where sessions end, the same steps are taken
again before they do, by the same user and mechanism; a request after the end closes the connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from kohort.broker.bearer import Bearer
from kohort.broker.connection import ANONYMOUS, MAX_TOKEN_BYTES
from kohort.broker.sasl import AuthenticationFailed, Exchange, Identity, exchange
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import SaslAuthenticateResponse, SaslHandshakeResponse

if TYPE_CHECKING:
    from kohort.broker.connection import Call, Connection
    from kohort.broker.core import Core

logger = logging.getLogger("kohort.security")

_OPENING = frozenset({"ApiVersions", "SaslHandshake", "SaslAuthenticate"})
_RAW_VERSION = 0


class Step(Enum):
    HANDSHAKE = "has not chosen a mechanism"
    EXCHANGE = "exchanges messages of its mechanism"
    KNOWN = "is known"


MOVES: dict[Step, frozenset[Step]] = {
    Step.HANDSHAKE: frozenset({Step.EXCHANGE}),
    Step.EXCHANGE: frozenset({Step.KNOWN}),
    Step.KNOWN: frozenset({Step.EXCHANGE}),
}


class Guard:
    def __init__(
        self, mechanisms: Sequence[str], max_session_ms: Callable[[str], int] = lambda mechanism: 0, listener: str = ""
    ) -> None:
        """`max_session_ms` says of a mechanism how long a session lasts; 0 is for ever."""
        self.step = Step.HANDSHAKE
        self.mechanism: str | None = None
        self.raw = False
        """The next frames are bare messages of the mechanism: the way before SaslAuthenticate."""
        self._mechanisms = list(mechanisms)
        self._max_session_ms = max_session_ms
        self._listener = listener
        self._exchange: Exchange | None = None
        self._ends_ms: int | None = None

    def transition_to(self, step: Step) -> None:
        if step not in MOVES[self.step]:
            raise ValueError(f"a connection that {self.step.value} cannot become one that {step.value}")
        self.step = step

    @property
    def is_known(self) -> bool:
        return self.step is Step.KNOWN

    def refuses(self, api: str, now_ms: int) -> str | None:
        """Why a request is not even looked at; None where it is."""
        if api in _OPENING:
            return None
        if self.step is not Step.KNOWN:
            return f"{api} before the connection is authenticated"
        if self._ends_ms is not None and now_ms >= self._ends_ms:
            return "its session is over and it did not authenticate again"
        return None

    def handshake(self, core: Core, call: Call, request: Any) -> Any:
        if self.step is Step.EXCHANGE or request.mechanism not in self._mechanisms or self._another(request.mechanism):
            illegal = self.step is Step.EXCHANGE or request.mechanism in self._mechanisms
            code = ErrorCode.ILLEGAL_SASL_STATE if illegal else ErrorCode.UNSUPPORTED_SASL_MECHANISM
            core.reply(call, SaslHandshakeResponse(error_code=code, mechanisms=self._mechanisms))
            core.disconnect(call.connection, f"SASL handshake refused: {code.name}")
            return None
        self.mechanism = request.mechanism
        self._exchange = exchange(
            request.mechanism,
            core.users,
            lambda: core.random_bytes(16).hex(),
            lambda token: _checked(core, token),
            self._listener,
        )
        self.transition_to(Step.EXCHANGE)
        self.raw = call.version == _RAW_VERSION
        return SaslHandshakeResponse(mechanisms=self._mechanisms)

    def _another(self, mechanism: str) -> bool:
        return self.step is Step.KNOWN and mechanism != self.mechanism

    def authenticate(self, core: Core, call: Call, request: Any, now_ms: int) -> Any:
        if self.step is not Step.EXCHANGE:
            core.reply(call, SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))
            core.disconnect(call.connection, "SaslAuthenticate without a handshake")
            return None
        try:
            answer = self._take(call.connection, bytes(request.auth_bytes), now_ms)
        except AuthenticationFailed as error:
            logger.warning("authentication of %s by %s failed", call.connection, self.mechanism)
            code = ErrorCode.SASL_AUTHENTICATION_FAILED
            core.reply(call, SaslAuthenticateResponse(error_code=code, error_message=str(error)))
            core.disconnect(call.connection, f"authentication by {self.mechanism} failed")
            return None
        left = 0 if self._ends_ms is None or self._exchange is not None else self._ends_ms - now_ms
        return SaslAuthenticateResponse(auth_bytes=answer, session_lifetime_ms=left, error_message=None)

    def take_raw(self, core: Core, connection: Connection, message: bytes, now_ms: int) -> bytes | None:
        """A bare message; the bare answer, or None where the connection was closed."""
        try:
            answer = self._take(connection, message, now_ms)
        except AuthenticationFailed:
            core.disconnect(connection, f"authentication by {self.mechanism} failed")
            return None
        self.raw = self.step is Step.EXCHANGE
        return answer

    def _take(self, connection: Connection, message: bytes, now_ms: int) -> bytes:
        assert self._exchange is not None
        if len(message) > MAX_TOKEN_BYTES:
            raise AuthenticationFailed("Authentication failed: the message is too large")
        try:
            return self._exchange.send(message)
        except StopIteration as end:
            identity: Identity = end.value
        principal = f"User:{identity.user}"
        if connection.principal not in (ANONYMOUS, principal):
            raise AuthenticationFailed("Cannot change principals during re-authentication")
        self._exchange = None
        connection.principal = principal
        self.transition_to(Step.KNOWN)
        lasts_ms = self._max_session_ms(self.mechanism or "")
        ends = [now_ms + lasts_ms] if lasts_ms > 0 else []
        self._ends_ms = min([*ends, *([identity.expires_ms] if identity.expires_ms is not None else [])], default=None)
        logger.info("%s is %s", connection, principal)
        return identity.last_message


def _checked(core: Core, token: str) -> Bearer:
    assert core.tokens is not None
    return core.tokens.check(token, core.topics.now_ms)

"""One connection to one broker, sans-IO: frames, correlation, versions, authentication. Bytes in, answers out.

A transport owns the socket: it writes what `take_output` gives, receives into `get_buffer` and tells `received` how
much came. Large answers are received straight into memory of their own size. What is not Kafka's protocol is an error
as soon as it shows, before any memory is taken for it. Nothing here waits, retries or knows the time.

Where sessions of SASL end, whoever owns the connection has it `renew` with the next request (KIP-368): that, and what
comes meanwhile, leaves when the broker knows again who asks.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Generator
from enum import Enum
from typing import Any, NamedTuple

from kohort import __version__
from kohort.client.compat import downgrade, upgrade
from kohort.client.errors import AuthenticationError, NotConnectedError
from kohort.client.sasl import Credentials, exchange
from kohort.protocol.apis import ApiKey
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.frames import decode_response, encode_request
from kohort.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from kohort.protocol.wire import DecodeError

API_VERSIONS_VERSION = 3
SMALL_READ = 64 * 1024
HANDSHAKE_LIMIT = 1024 * 1024
"""Answers before the connection is ready are small; whoever announces more does not speak Kafka."""
MAX_ANSWER = 512 * 1024 * 1024
MOST_KEPT = 8 * 1024 * 1024
"""Memory kept for answers that need not last: cheaper than fresh memory, which the kernel clears page by page."""

_SIZE = struct.Struct(">i")
_HEAD = struct.Struct(">ii")


class Phase(Enum):
    NEW = "not begun"
    NEGOTIATING = "asks for the broker's versions"
    AUTHENTICATING = "exchanges SASL messages"
    READY = "takes requests"
    RENEWING = "exchanges SASL messages again"
    CLOSED = "closed"


PHASES: dict[Phase, frozenset[Phase]] = {
    Phase.NEW: frozenset({Phase.NEGOTIATING, Phase.CLOSED}),
    Phase.NEGOTIATING: frozenset({Phase.AUTHENTICATING, Phase.READY, Phase.CLOSED}),
    Phase.AUTHENTICATING: frozenset({Phase.READY, Phase.CLOSED}),
    Phase.READY: frozenset({Phase.RENEWING, Phase.CLOSED}),
    Phase.RENEWING: frozenset({Phase.READY, Phase.CLOSED}),
    Phase.CLOSED: frozenset(),
}


class Answer(NamedTuple):
    token: int
    response: Any


class _Waiting(NamedTuple):
    """A request that was sent. `token` is None for those of the handshake."""

    correlation_id: int
    token: int | None
    request: Any
    version: int
    lasting: bool


class _Held(NamedTuple):
    """A request that waits until the session is renewed."""

    request: Any
    version: int
    token: int
    lasting: bool
    answered: bool


class Connection:
    """Requests out, answers in, in order. `start` begins the handshake; `ready` says when it is over."""

    def __init__(
        self,
        name: str,
        client_id: str,
        credentials: Credentials | None = None,
        nonce: str = "",
        max_answer: int = MAX_ANSWER,
    ) -> None:
        self.name = name
        self.phase = Phase.NEW
        self.closed: str | None = None
        """Why it was closed."""
        self.versions: dict[int, tuple[int, int]] = {}
        self._client_id = client_id
        self.credentials = credentials
        """May be given until `start`."""
        self.logins = 0
        """How often the broker has accepted them."""
        self.session_lifetime_ms = 0
        """Until when they are to be shown again, from the last time on; 0 where that is never."""
        self._nonce = nonce
        self._max_answer = max_answer
        self._exchange: Generator[bytes, bytes, None] | None = None
        self._correlation_id = 0
        self._waiting: deque[_Waiting] = deque()
        self._later: list[_Held] = []
        self._output: list[bytes | memoryview] = []
        self._small = bytearray(SMALL_READ)
        self._held = 0
        self._frame: memoryview | None = None
        self._filled = 0
        self._kept = bytearray()

    def _enter(self, phase: Phase) -> None:
        if phase not in PHASES[self.phase]:
            raise RuntimeError(f"connection to {self.name}: {self.phase.name} -> {phase.name}")
        self.phase = phase

    @property
    def ready(self) -> bool:
        return self.phase is Phase.READY or self.phase is Phase.RENEWING

    @property
    def is_shaking_hands(self) -> bool:
        """The next answer may be about who asks: there may be something to write then."""
        return self.phase is not Phase.READY

    @property
    def in_flight(self) -> int:
        return len(self._waiting) + len(self._later)

    # -- sending ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._enter(Phase.NEGOTIATING)
        request = ApiVersionsRequest(client_software_name="kohort", client_software_version=__version__)
        self._put(request, API_VERSIONS_VERSION, None)

    def version_for(self, request: Any, min_version: int = 0, max_version: int | None = None) -> int:
        """The newest version that both sides and the caller's limits allow."""
        low, high = self.versions.get(request.API_KEY, (0, -1))
        low = max(low, request.MIN_VERSION, min_version)
        high = min(high, request.MAX_VERSION, request.MAX_VERSION if max_version is None else max_version)
        if low > high:
            title = ApiKey(request.API_KEY).title
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{self.name} does not speak {title} in a version that is needed here (at least {low})",
            )
        return int(high)

    def send(
        self,
        token: int,
        request: Any,
        min_version: int = 0,
        max_version: int | None = None,
        *,
        lasting: bool = True,
        answered: bool = True,
    ) -> None:
        """`received` will give the answer under `token`. One that need not last shares its memory with the next such.

        `answered=False` is for Produce with acks=0, which gets no answer.
        """
        if not self.ready:
            raise NotConnectedError(f"the connection to {self.name} is {self.closed or self.phase.value}")
        version = self.version_for(request, min_version, max_version)
        if self.phase is Phase.RENEWING:
            self._later.append(_Held(request, version, token, lasting, answered))
        else:
            self._put(request, version, token, lasting, answered)

    def hold(self) -> None:
        """Requests wait from now on: the session is to be renewed before it ends, by `renew`."""
        if self.phase is Phase.READY:
            self._exchange = None
            self._enter(Phase.RENEWING)

    def renew(self, credentials: Credentials) -> None:
        """Show again who asks, by the same mechanism."""
        self.hold()
        self.credentials = credentials
        self._ask(SaslHandshakeRequest(mechanism=credentials.mechanism))

    def _put(self, request: Any, version: int, token: int | None, lasting: bool = True, answered: bool = True) -> None:
        number = (self._correlation_id + 1) & 0x7FFFFFFF
        self._output += encode_request(number, self._client_id, version, downgrade(request, version))
        self._correlation_id = number
        if answered:
            self._waiting.append(_Waiting(number, token, request, version, lasting))

    def take_output(self) -> bytes:
        """What is to be written now."""
        return b"".join(self.take_parts())

    def take_parts(self) -> list[bytes | memoryview]:
        """The same in parts, of which large ones need not be copied."""
        output, self._output = self._output, []
        return output

    # -- receiving ----------------------------------------------------------------------------------------------------

    def get_buffer(self) -> memoryview:
        """Where to receive into; never empty."""
        if self._frame is not None:
            return self._frame[self._filled :]
        return memoryview(self._small)[self._held :]

    def received(self, count: int) -> list[Answer]:
        """`count` bytes are in the buffer: the answers that are complete now. KafkaError where the broker errs."""
        answers: list[Answer] = []
        try:
            if self._frame is None:
                self._held += count
                self._split(answers)
            else:
                self._filled += count
                if self._filled == len(self._frame):
                    frame, self._frame = self._frame, None
                    self._take(frame, answers)
        except DecodeError as error:
            raise NotConnectedError(f"{self.name} sent what is not Kafka's protocol: {error}") from None
        return answers

    def _split(self, answers: list[Answer]) -> None:
        """Take whole frames out of the small buffer; one that is too large for it gets memory of its own."""
        pos, held = 0, self._held
        small = memoryview(self._small)
        while held - pos >= 8:
            size, correlation_id = _HEAD.unpack_from(small, pos)
            self._expect(size, correlation_id, small[pos:held])
            end = pos + 4 + size
            if end > held:
                if size + 4 > SMALL_READ // 2:
                    self._frame = self._memory(size)
                    self._filled = held - pos - 4
                    self._frame[: self._filled] = small[pos + 4 : held]
                    pos = held
                break
            frame: memoryview | bytes = small[pos + 4 : end]
            if self._waiting[0].lasting or answers:
                frame = bytes(frame)
            else:
                kept = self._memory(size)
                kept[:] = frame
                frame = kept
            self._take(frame, answers)
            pos = end
        if pos:
            small[: held - pos] = bytes(small[pos:held])
        self._held = held - pos

    def _expect(self, size: int, correlation_id: int, data: memoryview) -> None:
        """The first eight bytes of an answer tell whether it is one."""
        foreign = foreign_protocol(bytes(data[:8]))
        if foreign is not None:
            raise DecodeError(foreign)
        if not self._waiting:
            raise DecodeError("an answer that nobody asked for")
        limit = self._max_answer if self.ready else HANDSHAKE_LIMIT
        if not 4 <= size <= limit:
            raise DecodeError(f"an answer of {size} bytes, the limit is {limit} (receive.message.max.bytes)")
        if correlation_id != self._waiting[0].correlation_id:
            raise DecodeError("an answer to another question")

    def _memory(self, size: int) -> memoryview:
        if self._waiting[0].lasting or size > MOST_KEPT:
            return memoryview(bytearray(size))
        if len(self._kept) < size:
            self._kept = bytearray(size)
        return memoryview(self._kept)[:size]

    def _take(self, frame: bytes | memoryview, answers: list[Answer]) -> None:
        waiting = self._waiting.popleft()
        kind = ApiKey(waiting.request.API_KEY).response
        if kind is ApiVersionsResponse and frame[4:6] == b"\x00\x23":
            response = kind.decode(frame, 0, 4)  # KIP-511: an old broker answers what it does not know in version 0
        else:
            response = decode_response(frame, waiting.version, kind)
        if waiting.token is None:
            self._handshake(response)
        else:
            answers.append(Answer(waiting.token, upgrade(waiting.request, response, waiting.version)))

    # -- the handshake ------------------------------------------------------------------------------------------------

    def _handshake(self, response: Any) -> None:
        if self.phase is Phase.NEGOTIATING:
            self._negotiate(response)
        elif self._exchange is None:
            self._begin_exchange(response)
        else:
            self._go_on(response)

    def _negotiate(self, response: Any) -> None:
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            self._put(ApiVersionsRequest(), 0, None)
            return
        if response.error_code:
            raise KafkaError(ErrorCode.of(response.error_code), f"{self.name} refused ApiVersions")
        self.versions = self._versions_of(response)
        if self.credentials is None:
            self._enter(Phase.READY)
            return
        self._enter(Phase.AUTHENTICATING)
        self._ask(SaslHandshakeRequest(mechanism=self.credentials.mechanism))

    @staticmethod
    def _versions_of(response: Any) -> dict[int, tuple[int, int]]:
        return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}

    def _ask(self, request: Any) -> None:
        self._put(request, self.version_for(request), None)

    def _begin_exchange(self, response: Any) -> None:
        assert self.credentials is not None
        if response.error_code:
            offered = ", ".join(response.mechanisms) or "none"
            mechanism = self.credentials.mechanism
            raise AuthenticationError(f"{self.name} does not offer sasl.mechanism={mechanism}, only: {offered}")
        self._exchange = exchange(self.credentials, self._nonce)
        self._ask(SaslAuthenticateRequest(auth_bytes=next(self._exchange)))

    def _go_on(self, response: Any) -> None:
        assert self._exchange is not None and self.credentials is not None
        if response.error_code:
            user = self.credentials.username
            raise AuthenticationError(f"{self.name} refused sasl.username={user}: {response.error_message}")
        try:
            token = self._exchange.send(bytes(response.auth_bytes))
        except StopIteration:
            self._enter(Phase.READY)
            self.logins += 1
            self.session_lifetime_ms = response.session_lifetime_ms
            held, self._later = self._later, []
            for one in held:
                self._put(*one)
        except (ValueError, KeyError) as error:
            raise AuthenticationError(f"{self.name} answered what is not SASL: {error!r}") from None
        else:
            self._ask(SaslAuthenticateRequest(auth_bytes=token))

    def close(self, reason: str) -> None:
        if self.phase is not Phase.CLOSED:
            self._enter(Phase.CLOSED)
            self.closed = reason
            self._waiting.clear()
            self._later.clear()


def foreign_protocol(head: bytes) -> str | None:
    """What the first bytes of an answer look like, where they cannot be Kafka's."""
    if head.startswith((b"HTTP", b"http")):
        return "it answers in HTTP; is this the port of a web server?"
    if head[0] in (0x15, 0x16) and head[1] == 0x03:
        return "it answers in TLS; set security.protocol to SSL or SASL_SSL"
    if head.startswith((b"SSH-", b"220 ", b"+OK ", b"-ERR")):
        return f"it answers {head[:4].decode()!r}; is this the port of something else?"
    return None

"""The security of a broker in a test, in one line: certificates, users, access control, the settings of clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kohort.broker.acls import Acl
from kohort.broker.boot import Security
from kohort.broker.config_keys import AUTHORIZER
from kohort.broker.listeners import Protocol

if TYPE_CHECKING:
    import tempfile

    from kohort.broker.certificates import TestAuthority

_PROTOCOLS = {
    (False, False): Protocol.PLAINTEXT,
    (True, False): Protocol.SSL,
    (False, True): Protocol.SASL_PLAINTEXT,
    (True, True): Protocol.SASL_SSL,
}
_HOSTS = ("localhost", "127.0.0.1", "::1")


class TestSecurity:
    """What `kohort.Broker(tls=, users=, acls=)` amounts to."""

    __test__ = False

    def __init__(self, tls: bool, users: Mapping[str, str] | None, acls: Sequence[Acl] | None) -> None:
        self.protocol = _PROTOCOLS[tls, users is not None]
        self.given = Security(dict(users or {}), tuple(acls or ()))
        self._guarded = acls is not None
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self.authority: TestAuthority | None = None
        """Signs the certificate of the broker, and more of them: authority.sign("alice")."""
        if tls:
            import tempfile  # slow to import, and most tests do without
            from pathlib import Path

            from kohort.broker.certificates import TestAuthority

            self._directory = tempfile.TemporaryDirectory(prefix="kohort-tls-")
            self.authority = TestAuthority(Path(self._directory.name))
            self._certificate = self.authority.sign("broker", *_HOSTS)

    def config(self) -> dict[str, Any]:
        made: dict[str, Any] = {}
        if self.protocol is not Protocol.PLAINTEXT:
            made["listener.security.protocol.map"] = f"PLAINTEXT:{self.protocol}"
        if self.authority is not None:
            made["ssl.keystore.location"] = str(self._certificate)
            made["ssl.truststore.location"] = str(self.authority.ca_file)
        if self._guarded:
            made["authorizer.class.name"] = AUTHORIZER
        return made

    def client(self, user: str | None = None, mechanism: str = "SCRAM-SHA-256") -> dict[str, str]:
        """The settings of a client, by the names of librdkafka and of Java's clients."""
        made = {"security.protocol": self.protocol.value}
        if user is not None:
            made |= {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": self.given.users[user]}
        if self.authority is not None:
            made["ssl.ca.location"] = str(self.authority.ca_file)
        return made

    def close(self) -> None:
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None

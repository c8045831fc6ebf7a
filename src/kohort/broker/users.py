"""Who may log in: passwords for PLAIN, kept in memory alone, and what is kept of passwords for SCRAM, in the store."""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.scram import HASHES, MIN_ITERATIONS, ScramKeys, keys_of, salted_password

if TYPE_CHECKING:
    from kohort.storage.store import Store

DOCUMENT = "kohort.users.json"
_SALT_BYTES = 16
_PARTS = ("salt", "stored_key", "server_key")


class Users:
    def __init__(self, store: Store, random_bytes: Callable[[int], bytes]) -> None:
        self._store = store
        self._random_bytes = random_bytes
        self._passwords: dict[str, bytes] = {}
        self._at: dict[str, dict[str, bytes]] = {}
        """Of listeners that have users of their own for PLAIN."""
        self.scram: dict[tuple[str, str], ScramKeys] = {}
        """(user, mechanism) -> keys."""
        self._given: dict[tuple[str, str], ScramKeys] = {}

    def load(self) -> None:
        """What is kept, in place of what is known of it."""
        data = self._store.read_file(DOCUMENT)
        self.scram = {}
        if data is None:
            return
        try:
            for user, mechanisms in json.loads(data)["scram"].items():
                for mechanism, kept in mechanisms.items():
                    salt, stored, server = (base64.b64decode(kept[part]) for part in _PARTS)
                    self.scram[user, mechanism] = ScramKeys(salt, kept["iterations"], stored, server)
        except (ValueError, KeyError, TypeError):
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{DOCUMENT} in the data directory, or in the store of the cluster, is damaged: restore it from a "
                "copy, or move it away and add the users of SCRAM again",
            ) from None

    def give(self, passwords: Mapping[str, str]) -> None:
        """Users of the configuration: they can log in by PLAIN and by SCRAM, and are not kept."""
        for user, password in passwords.items():
            self._passwords[user] = password.encode()
            for mechanism in HASHES:
                salt = self._random_bytes(_SALT_BYTES)
                salted = salted_password(mechanism, password, salt, MIN_ITERATIONS)
                self._given[user, mechanism] = keys_of(mechanism, salted, salt, MIN_ITERATIONS)

    def give_at(self, listener: str, passwords: Mapping[str, str]) -> None:
        """Who can log in by PLAIN at one listener, and nobody else there."""
        self._at[listener] = {user: password.encode() for user, password in passwords.items()}

    def take_back(self) -> None:
        """Forget the users of the configuration."""
        self._at.clear()
        self._passwords.clear()
        self._given.clear()

    def knows_password(self, user: str, password: bytes, listener: str = "") -> bool:
        expected = self._at.get(listener, self._passwords).get(user)
        return hmac.compare_digest(expected if expected is not None else b"\0", password) and expected is not None

    def keys(self, user: str, mechanism: str) -> ScramKeys | None:
        return self.scram.get((user, mechanism)) or self._given.get((user, mechanism))

    def change(self, changes: Mapping[tuple[str, str], ScramKeys | None]) -> None:
        """Set or remove (None) what is kept of users, all or nothing."""
        before, self.scram = self.scram, dict(self.scram)
        for who, keys in changes.items():
            if keys is None:
                self.scram.pop(who, None)
            else:
                self.scram[who] = keys
        try:
            self._save()
        except KafkaError:
            self.scram = before
            raise

    def _save(self) -> None:
        document: dict[str, dict[str, Any]] = {}
        for (user, mechanism), keys in self.scram.items():
            kept = {part: base64.b64encode(getattr(keys, part)).decode() for part in _PARTS}
            document.setdefault(user, {})[mechanism] = kept | {"iterations": keys.iterations}
        self._store.write_file(DOCUMENT, json.dumps({"scram": document}).encode())

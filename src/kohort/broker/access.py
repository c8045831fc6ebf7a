"""The access control entries of a broker: loaded from its store, changed there first, then in effect."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kohort.broker.acls import Acl, Acls, Operation, Pattern, Permission, Resource
from kohort.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kohort.broker.config import BrokerConfig
    from kohort.storage.store import Store

DOCUMENT = "kohort.acls.json"


class Access:
    def __init__(self, config: BrokerConfig, store: Store) -> None:
        self._store = store
        super_users = (name.strip() for name in (config["super.users"] or "").split(";"))
        self.acls = Acls((name for name in super_users if name), config["allow.everyone.if.no.acl.found"])
        self._kept: dict[Acl, None] = {}

    def load(self) -> None:
        """What is kept, in place of what is known of it."""
        data = self._store.read_file(DOCUMENT)
        kept: dict[Acl, None] = {}
        try:
            for row in json.loads(data)["acls"] if data is not None else ():
                kept[
                    Acl(
                        row["principal"],
                        Operation[row["operation"]],
                        Resource[row["resource"]],
                        row["name"],
                        Pattern[row["pattern"]],
                        Permission[row["permission"]],
                        row["host"],
                    )
                ] = None
        except (ValueError, KeyError, TypeError):
            # Fail closed: without its entries a broker would refuse everybody, or nobody where everyone is allowed.
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{DOCUMENT} in the data directory is damaged: restore it from a copy, or move it away and create the "
                "access control entries again",
            ) from None
        self.acls.change(add=kept, remove=self._kept.keys() - kept.keys())
        self._kept = kept

    def give(self, acls: Iterable[Acl]) -> None:
        """Entries of whoever starts the broker: in effect, and not kept."""
        self.acls.add(*acls)

    def change(self, add: Iterable[Acl] = (), remove: Iterable[Acl] = ()) -> None:
        """Stored, then in effect; KafkaError where it cannot be stored."""
        add, remove = list(add), list(remove)
        gone = set(remove)
        kept = {acl: None for acl in (*self._kept, *add) if acl not in gone}
        rows = [
            {
                "principal": acl.principal,
                "operation": acl.operation.name,
                "resource": acl.resource.name,
                "name": acl.name,
                "pattern": acl.pattern.name,
                "permission": acl.permission.name,
                "host": acl.host,
            }
            for acl in kept
        ]
        self._store.write_file(DOCUMENT, json.dumps({"acls": rows}).encode())
        self._kept = kept
        self.acls.change(add, remove)

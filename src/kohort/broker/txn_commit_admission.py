"""TxnOffsetCommit before the group coordinator sees it: the transaction must hold the group's partition (KIP-890).

Clients of TV2 have the partition added by that, older ones have added it with AddOffsetsToTxn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kohort.broker.admission import supported_error
from kohort.coordinator import txn_offsets
from kohort.coordinator.effects import Request
from kohort.coordinator.records import OFFSETS_TOPIC
from kohort.coordinator.transactions.asks import Enlist, Enlisted
from kohort.coordinator.transactions.transaction import TV_0, TV_2, TopicPartition
from kohort.protocol.errors import ErrorCode
from kohort.storage.producers import Admitted

if TYPE_CHECKING:
    from kohort.broker.core import Core
    from kohort.broker.groups import GroupService

ABORTABLE_SINCE, TV2_SINCE = 4, 5
_NOT_HEARD = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_COORDINATOR})
"""Of the transaction's coordinator; the client would look for the group's, or knows nothing of it."""


class TxnCommitAdmission:
    """One request until the transaction's coordinator has been asked."""

    def __init__(self, core: Core, groups: GroupService, request: Request) -> None:
        self._core = core
        self._groups = groups
        self._request = request
        self._where: TopicPartition = (OFFSETS_TOPIC, -1)
        self._is_tv2 = request.version >= TV2_SINCE
        self._life = -1

    def outlives(self, marker_epoch: int) -> bool:
        """Whether the answer is still about a transaction that may go on, after a marker of its producer."""
        return Admitted(self._request.message.producer_epoch, self._is_tv2).outlives(marker_epoch)

    def begin(self, now_ms: int) -> None:
        message, coordinator = self._request.message, self._groups.coordinator
        if txn_offsets.names_nothing(self._groups.topics, message):
            return self._refuse(ErrorCode.NONE)
        partition = coordinator.partition_for(message.group_id)
        if not message.group_id or not coordinator.is_loaded(partition):
            return self._groups.serve(self._request, now_ms)
        self._where = (OFFSETS_TOPIC, partition)
        self._life = coordinator.life_of(partition)
        known = self._core.topics.partition(*self._where)
        state = None if known is None else known.log.producers.get(message.producer_id)
        if state is not None and message.producer_epoch < state.epoch:
            return self._refuse(ErrorCode.INVALID_PRODUCER_EPOCH)
        if (
            state is not None
            and state.has_open(message.producer_epoch)
            and coordinator.has_pending(partition, message.producer_id)
        ):
            return self._groups.serve(self._request, now_ms)
        self._ask(message, now_ms)

    def _ask(self, message: Any, now_ms: int) -> None:
        ask = Enlist(
            message.transactional_id,
            message.producer_id,
            message.producer_epoch,
            (self._where,),
            not self._is_tv2,
            TV_2 if self._is_tv2 else TV_0,
        )
        if message.transactional_id:
            self._groups.ask_about(self, self._where[1], message.producer_id)
            self._core.enlist(ask, self, now_ms)
        else:
            self._refuse(ErrorCode.INVALID_REQUEST)

    def answered(self, errors: Enlisted, now_ms: int) -> None:
        knows_abortable = self._request.version >= ABORTABLE_SINCE
        error = supported_error(errors[self._where], knows_abortable=knows_abortable)
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if error in _NOT_HEARD else error
        is_current = self._groups.still_asks(self, self._where[1], self._request.message.producer_id)
        if not error and self._life != self._groups.coordinator.life_of(self._where[1]):
            error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # whoever led it meanwhile may have ended the transaction
        if not error and not is_current:
            error = ErrorCode.INVALID_TXN_STATE
        if error:
            self._refuse(error)
        else:
            self._groups.serve(self._request, now_ms)

    def _refuse(self, error: ErrorCode) -> None:
        self._core.reply(self._request.call, txn_offsets.response(self._groups.topics, self._request, error))

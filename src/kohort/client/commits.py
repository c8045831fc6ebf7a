"""Commits and committed offsets asked of the coordinator: waiting, in flight, answered. Sans-IO; the member owns one.

What an answer means for the membership is handed back as a `Verdict`; nothing here changes a member's state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from kohort.client import offset_messages as wire
from kohort.client.effects import CommitDone, Destination, MemberOutbox, OffsetsFetched
from kohort.client.errors import RebalanceInProgressError, error_for
from kohort.client.types import OffsetAndMetadata, TopicPartition, partition_list
from kohort.protocol.errors import ErrorCode, KafkaError

NO_GENERATION_ID = -1


class Generation(NamedTuple):
    generation_id: int = NO_GENERATION_ID
    member_id: str = ""
    protocol_name: str | None = None

    @property
    def valid(self) -> bool:
        return self.generation_id != NO_GENERATION_ID and self.member_id != ""


NO_GENERATION = Generation()


class Kind(Enum):
    COMMIT = "commit"
    AUTO = "automatic commit"
    PREPARE = "commit before giving partitions up"
    FETCH = "committed offsets"


@dataclass(slots=True)
class Ask:
    """One commit or one question for committed offsets. `generation` is what it was sent with."""

    kind: Kind
    ask_id: int
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    partitions: frozenset[TopicPartition] | None = None
    generation: Generation = NO_GENERATION


class Verdict(Enum):
    """What a commit's answer says about the membership."""

    NOTHING = "nothing"
    REJOIN = "the group is rebalancing"
    EVICTED = "the coordinator does not know this member"
    OUTDATED = "the group has moved on to another generation"
    FENCED = "another member has the same instance id"
    COORDINATOR_LOST = "not the coordinator (any more)"


_VERDICTS = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Verdict.COORDINATOR_LOST,
    ErrorCode.NOT_COORDINATOR: Verdict.COORDINATOR_LOST,
    ErrorCode.REQUEST_TIMED_OUT: Verdict.COORDINATOR_LOST,
    ErrorCode.REBALANCE_IN_PROGRESS: Verdict.REJOIN,
    ErrorCode.UNKNOWN_MEMBER_ID: Verdict.EVICTED,
    ErrorCode.ILLEGAL_GENERATION: Verdict.OUTDATED,
    ErrorCode.STALE_MEMBER_EPOCH: Verdict.OUTDATED,
    ErrorCode.FENCED_INSTANCE_ID: Verdict.FENCED,
}


class Commits:
    """Asks wait until the coordinator is known, then fly one request each."""

    def __init__(
        self, group_id: str, group_instance_id: str | None, request_timeout_ms: int, out: MemberOutbox
    ) -> None:
        self._group_id = group_id
        self._group_instance_id = group_instance_id
        self._request_timeout_ms = request_timeout_ms
        self._out = out
        self.waiting: list[Ask] = []
        self.aside: list[Ask] = []
        """To be sent again with an epoch that is not known yet."""
        self.in_flight: dict[int, Ask] = {}

    def submit(self, ask: Ask) -> None:
        self.waiting.append(ask)

    def take_waiting(self) -> list[Ask]:
        waiting, self.waiting = self.waiting, []
        return waiting

    def take_back(self, ask_id: int) -> bool:
        """Whether it was still here; automatic commits (0) stay."""
        kept = [ask for ask in self.waiting if ask.ask_id != ask_id or ask_id == 0]
        kept_aside = [ask for ask in self.aside if ask.ask_id != ask_id or ask_id == 0]
        found = len(kept) < len(self.waiting) or len(kept_aside) < len(self.aside)
        self.waiting, self.aside = kept, kept_aside
        return found

    def bring_back(self) -> None:
        """What was set aside waits to be sent again."""
        aside, self.aside = self.aside, []
        self.waiting += aside

    def send_commit(self, ask: Ask, generation: Generation, static: bool, least_version: int = 0) -> None:
        ask.generation = generation
        instance_id = self._group_instance_id if static else None
        request = wire.commit_request(
            self._group_id, generation.generation_id, generation.member_id, instance_id, ask.offsets
        )
        with_instance = 7 if instance_id else 0
        self._send(ask, request, max(with_instance, least_version if generation.valid else 0))

    def send_fetch(self, ask: Ask, asker: Generation = NO_GENERATION) -> None:
        """As a member, where there is an epoch to check (KIP-848)."""
        ask.generation = asker
        request = wire.fetch_request(self._group_id, ask.partitions)
        if asker.valid:
            (group,) = request.groups
            group.member_id, group.member_epoch = asker.member_id, asker.generation_id
        self._send(ask, request, wire.LEAST_VERSION_WITH_EPOCH if asker.valid else 0)

    def _send(self, ask: Ask, request: Any, min_version: int = 0) -> None:
        token = self._out.send(
            request, Destination.COORDINATOR, self._request_timeout_ms, min_version, wire.MAX_VERSION_WITH_NAMES
        )
        self.in_flight[token] = ask

    def finish(self, ask: Ask, error: Exception | None) -> None:
        """Tell whoever asked; automatic commits have nobody to tell."""
        if ask.kind is Kind.COMMIT:
            self._out.add(CommitDone(ask.ask_id, ask.offsets, error))
        elif ask.kind is Kind.FETCH:
            self._out.add(OffsetsFetched(ask.ask_id, None, error))

    def fetch_answered(self, ask: Ask, response: Any) -> Verdict:
        try:
            found = wire.fetched_offsets(response)
        except KafkaError as error:
            self.finish(ask, error)
            verdict = _VERDICTS.get(error.code, Verdict.NOTHING)
            return verdict if verdict is Verdict.COORDINATOR_LOST else Verdict.NOTHING
        if ask.partitions is not None:
            found = {tp: found.get(tp) for tp in ask.partitions}
        self._out.add(OffsetsFetched(ask.ask_id, found, None))
        return Verdict.NOTHING


def commit_outcome(response: Any) -> tuple[KafkaError | None, Verdict]:
    """The worst error of a commit's answer and what it means for the membership."""
    errors = wire.commit_errors(response)
    if not errors:
        return None, Verdict.NOTHING
    for code in errors.values():
        if code in _VERDICTS:
            verdict = _VERDICTS[code]
            if verdict is Verdict.REJOIN:
                return RebalanceInProgressError(
                    "the group is rebalancing; poll() completes it, then commit again what is still assigned"
                ), verdict
            return error_for(code), verdict
    code = next(iter(errors.values()))
    bad = [tp for tp, other in errors.items() if other is code]
    return error_for(code, f"offsets of {partition_list(bad)} were not committed: {code.message}"), Verdict.NOTHING

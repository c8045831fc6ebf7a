"""Deliberate bugs in transactions, each switched on for a while; see mutations.py. For tests only."""

from __future__ import annotations

from typing import Any

from kohort.broker.apis import fetch
from kohort.broker.transactions import TransactionService
from kohort.coordinator.replay import ShardGroups
from kohort.coordinator.runtime import Runtime
from kohort.coordinator.transactions import enlisting
from kohort.coordinator.transactions.shard_transactions import ShardTransactions
from kohort.coordinator.transactions.transaction import Transaction
from kohort.protocol.errors import ErrorCode
from kohort.sim.mutations import Mutation, reply_before_append
from kohort.storage.producers import ProducerStates


def _show_what_is_open(original: Any) -> Any:
    return property(lambda self: None)


def _show_what_is_aborted(original: Any) -> Any:
    return lambda log, offset, limit: []


def _one_marker_too_few(original: Any) -> Any:
    def write(self: Any, marker: Any, now_ms: int) -> None:
        for partition in marker.partitions[1:]:
            self.marker_written(marker, partition, ErrorCode.NONE, now_ms)
        original(self, marker._replace(partitions=marker.partitions[:1]), now_ms)

    return write


def _commit_what_is_aborted(original: Any) -> Any:
    return property(lambda self: True)


def _no_markers_after_a_load(original: Any) -> Any:
    return lambda self, max_append_bytes: []


def _offsets_whatever_the_end(original: Any) -> Any:
    def end(self: Any, producer_id: int, committed: bool) -> None:
        original(self, producer_id, True)

    return end


def _no_fence_at_the_coordinator(original: Any) -> Any:
    def error(transaction: Any, ask: Any) -> ErrorCode:
        found: ErrorCode = original(transaction, ask)
        return ErrorCode.NONE if found is ErrorCode.PRODUCER_FENCED else found

    return error


TXN_MUTATIONS: tuple[Mutation, ...] = (
    Mutation("show what is open", ProducerStates, "first_unstable_offset", _show_what_is_open),
    Mutation("show what is aborted", fetch, "_aborted", _show_what_is_aborted),
    Mutation("one marker too few", TransactionService, "_write", _one_marker_too_few),
    Mutation("commit what is aborted", Transaction, "is_commit", _commit_what_is_aborted),
    Mutation("no markers after a load", ShardTransactions, "loaded", _no_markers_after_a_load),
    Mutation("offsets count whatever the end", ShardGroups, "_end_transaction", _offsets_whatever_the_end),
    Mutation("no fence at the coordinator", enlisting, "_error", _no_fence_at_the_coordinator),
    Mutation("reply before append", Runtime, "decided", reply_before_append),
)

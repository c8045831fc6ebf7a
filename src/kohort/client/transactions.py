"""What a transactional producer may do now, and what its errors mean: steps, moves, codes. Pure.

IDLE -> OPEN -> COMMITTING -> IDLE
          |  -> ABORTING   -> IDLE
          |  -> HANDED_OVER -> OPEN       somebody else ends it; the next one begins under new numbers
          +-> BROKEN -> ABORTING          something of it failed: it can only be aborted
any -> STOPPED                            fenced: this producer is out for good
"""

from __future__ import annotations

from enum import Enum

from kohort.client.errors import ProducerFencedError, TransactionAbortableError, error_for
from kohort.protocol.errors import ErrorCode, KafkaError


class Step(Enum):
    IDLE = "idle"
    OPEN = "open"
    BROKEN = "broken"
    COMMITTING = "committing"
    ABORTING = "aborting"
    HANDED_OVER = "handed over"
    STOPPED = "stopped"


MOVES: dict[Step, frozenset[Step]] = {
    Step.IDLE: frozenset({Step.OPEN, Step.STOPPED}),
    Step.OPEN: frozenset({Step.BROKEN, Step.COMMITTING, Step.ABORTING, Step.HANDED_OVER, Step.STOPPED}),
    Step.BROKEN: frozenset({Step.ABORTING, Step.STOPPED}),
    Step.COMMITTING: frozenset({Step.COMMITTING, Step.IDLE, Step.BROKEN, Step.STOPPED}),
    Step.ABORTING: frozenset({Step.ABORTING, Step.IDLE, Step.STOPPED}),
    Step.HANDED_OVER: frozenset({Step.OPEN, Step.STOPPED}),
    Step.STOPPED: frozenset({Step.STOPPED}),
}

_STOP = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
    }
)
_NOT_FOR_THIS_PRODUCER = frozenset(
    {
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_REQUEST,
    }
)
_LOST_ITS_PLACE = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)


def end_version(is_tv2: bool) -> int:
    """Of EndTxn: the newest in which the end does, or does not, raise the producer's epoch (KIP-890)."""
    return 5 if is_tv2 else 4


class Transaction:
    """The transaction of one producer, from one to the next."""

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.step = Step.IDLE
        self.cause: KafkaError | None = None  # why it is broken, or stopped
        self.has_offsets = False

    def become(self, step: Step) -> None:
        """The only writer of `step`."""
        if step not in MOVES[self.step]:
            raise AssertionError(f"transaction of {self.transactional_id}: {self.step.value} -> {step.value}")
        self.step = step
        if step is Step.OPEN:
            self.cause, self.has_offsets = None, False

    def failed(self, error: KafkaError) -> None:
        """Something of the open transaction failed: a record, an enlisting, its offsets."""
        if isinstance(error, ProducerFencedError):
            self.stop(error)
        elif self.step in (Step.OPEN, Step.COMMITTING):
            self.become(Step.BROKEN)
            self.cause = error

    def stop(self, error: KafkaError) -> None:
        self.become(Step.STOPPED)
        self.cause = error

    # ---- may this be done?

    def require(self, call: str, *steps: Step) -> None:
        if self.step in steps:
            return
        if self.step is Step.STOPPED and self.cause is not None:
            raise self.cause
        if self.step is Step.BROKEN:
            raise TransactionAbortableError(f"{call}: the transaction cannot go on, abort() it; {self.cause}")
        doing = {
            Step.IDLE: "no transaction is open: begin() one first",
            Step.OPEN: "a transaction is open: commit() or abort() it first",
            Step.COMMITTING: "the commit is not answered yet: call commit() again to learn how it went",
            Step.ABORTING: "the abort is not answered yet: call abort() again",
            Step.HANDED_OVER: "the transaction was handed over, whoever has it ends it: begin() another one",
        }[self.step]
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, f"{call}: {doing}")

    def error(self, code: ErrorCode, doing: str) -> KafkaError:
        """What a refusal means: abort, or stop."""
        who = f"transactional.id {self.transactional_id}"
        if code in _STOP:
            return ProducerFencedError(
                code,
                f"{doing}: another producer has taken over {who}, or the transaction was open longer than "
                f"transaction.timeout.ms ({code.name}): stop, or make a new producer",
            )
        if code in _NOT_FOR_THIS_PRODUCER:
            return error_for(code, f"{doing}: the broker refuses {who}: {code.name}")
        if code in _LOST_ITS_PLACE:
            return TransactionAbortableError(
                f"{doing}: the consumer has lost its place in the group ({code.name}): abort(), and read on from the "
                "committed offsets",
            )
        return TransactionAbortableError(f"{doing}: {code.name}: abort(), and do it again")

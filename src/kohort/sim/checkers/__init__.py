"""One file a property that must hold whatever goes wrong. A checker that catches no mutation has no place here."""

from kohort.sim.checkers.closed import Closed
from kohort.sim.checkers.durability import CommitDurability, RecordDurability
from kohort.sim.checkers.epochs import Epochs
from kohort.sim.checkers.fenced import Fenced
from kohort.sim.checkers.handover import HandOver
from kohort.sim.checkers.kept import Kept
from kohort.sim.checkers.leaders import Leaders
from kohort.sim.checkers.legality import Legality
from kohort.sim.checkers.liveness import Liveness
from kohort.sim.checkers.memory import Memory
from kohort.sim.checkers.order import Order
from kohort.sim.checkers.ownership import Ownership
from kohort.sim.checkers.processing import Processing
from kohort.sim.checkers.prompt import Prompt
from kohort.sim.checkers.sink_output import SinkOutput
from kohort.sim.checkers.stored import Stored
from kohort.sim.checkers.stored_anywhere import StoredAnywhere
from kohort.sim.checkers.transactions import Transactions
from kohort.sim.checkers.usable import Usable
from kohort.sim.trace import Checker

ALL: tuple[type[Checker], ...] = (
    Liveness,
    Ownership,
    Processing,
    RecordDurability,
    HandOver,
    Legality,
    Stored,
    Kept,
    Closed,
    Usable,
    Prompt,
    Memory,  # before the next, which restarts the broker once more
    CommitDurability,
    Order,
)
CLUSTER: tuple[type[Checker], ...] = (
    Leaders,
    Liveness,
    Ownership,
    Processing,
    RecordDurability,
    HandOver,
    StoredAnywhere,
    Kept,
    CommitDurability,
    Order,
)
"""For worlds with several brokers: what was acknowledged by any of them is what whoever leads has."""
ANY_PROTOCOL: tuple[type[Checker], ...] = (Epochs, Fenced, *(one for one in ALL if one is not Ownership))
"""For worlds with groups of the consumer protocol, whose members are in different epochs at once."""
CLUSTER_ANY_PROTOCOL: tuple[type[Checker], ...] = (Epochs, Fenced, *(one for one in CLUSTER if one is not Ownership))
"""The same with groups of the consumer protocol."""
TRANSACTIONAL: tuple[type[Checker], ...] = (Transactions, Processing, RecordDurability)
"""For worlds with transactions."""
SINK: tuple[type[Checker], ...] = (SinkOutput, RecordDurability)
"""For worlds with Spark's queries."""
CLUSTER_TRANSACTIONAL: tuple[type[Checker], ...] = (Leaders, *TRANSACTIONAL)
"""For worlds with transactions whose coordinators, leaders and markers are of several brokers."""

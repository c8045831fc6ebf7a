"""Who gets which partitions: Kafka's four assignors, their wire formats, and the protocol for custom ones.

Pure and on its own: nothing here imports another package of kohort, or does any input or output.
"""

from kohort.assignors.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolError,
    decode_assignment,
    decode_subscription,
    decode_subscriptions,
    encode_assignment,
    encode_subscription,
)
from kohort.assignors.leader import InvalidAssignmentError, assign_group, decode_group
from kohort.assignors.loading import (
    BUILTIN,
    AssignorConfigError,
    load_assignor,
    load_assignors,
    rebalance_protocol,
)
from kohort.assignors.range import RangeAssignor
from kohort.assignors.roundrobin import RoundRobinAssignor
from kohort.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from kohort.assignors.types import (
    DEFAULT_GENERATION,
    Assignment,
    Assignor,
    ClusterMetadata,
    ConsumerGroupMetadata,
    RebalanceProtocol,
    Subscription,
)

__all__ = [
    "BUILTIN",
    "DEFAULT_GENERATION",
    "PROTOCOL_TYPE",
    "Assignment",
    "Assignor",
    "AssignorConfigError",
    "ClusterMetadata",
    "ConsumerGroupMetadata",
    "ConsumerProtocolError",
    "CooperativeStickyAssignor",
    "InvalidAssignmentError",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "StickyAssignor",
    "Subscription",
    "assign_group",
    "decode_assignment",
    "decode_group",
    "decode_subscription",
    "decode_subscriptions",
    "encode_assignment",
    "encode_subscription",
    "load_assignor",
    "load_assignors",
    "rebalance_protocol",
]

"""Who gets which partitions: Kafka's assignors, of the client and of the server, and the protocols for custom ones.

Pure and on its own: nothing here imports another package of kohort, or does any input or output. Assignors of clients
are imported on first use: no broker needs them.
"""

from typing import TYPE_CHECKING

from kohort.assignors.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolError,
    decode_assignment,
    decode_subscription,
    decode_subscriptions,
    encode_assignment,
    encode_subscription,
)
from kohort.assignors.naming import AssignorConfigError
from kohort.assignors.server import AssignmentError, GroupSpec, MemberSpec, ServerAssignor, TopicSpec
from kohort.assignors.server_loading import is_builtin, load_server_assignors
from kohort.assignors.server_range import ServerRangeAssignor
from kohort.assignors.server_uniform import UniformAssignor
from kohort.assignors.types import (
    DEFAULT_GENERATION,
    Assignment,
    Assignor,
    ClusterMetadata,
    ConsumerGroupMetadata,
    RebalanceProtocol,
    Subscription,
)
from kohort.lazy_names import imported_on_use

if TYPE_CHECKING:
    from kohort.assignors.leader import InvalidAssignmentError, assign_group, decode_group
    from kohort.assignors.loading import BUILTIN, load_assignor, load_assignors, rebalance_protocol
    from kohort.assignors.range import RangeAssignor
    from kohort.assignors.roundrobin import RoundRobinAssignor
    from kohort.assignors.sticky import CooperativeStickyAssignor, StickyAssignor

__all__ = [
    "BUILTIN",
    "DEFAULT_GENERATION",
    "PROTOCOL_TYPE",
    "Assignment",
    "AssignmentError",
    "Assignor",
    "AssignorConfigError",
    "ClusterMetadata",
    "ConsumerGroupMetadata",
    "ConsumerProtocolError",
    "CooperativeStickyAssignor",
    "GroupSpec",
    "InvalidAssignmentError",
    "MemberSpec",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "ServerAssignor",
    "ServerRangeAssignor",
    "StickyAssignor",
    "Subscription",
    "TopicSpec",
    "UniformAssignor",
    "assign_group",
    "decode_assignment",
    "decode_group",
    "decode_subscription",
    "decode_subscriptions",
    "encode_assignment",
    "encode_subscription",
    "is_builtin",
    "load_assignor",
    "load_assignors",
    "load_server_assignors",
    "rebalance_protocol",
]

_HOMES = {
    "BUILTIN": "kohort.assignors.loading",
    "CooperativeStickyAssignor": "kohort.assignors.sticky",
    "InvalidAssignmentError": "kohort.assignors.leader",
    "RangeAssignor": "kohort.assignors.range",
    "RoundRobinAssignor": "kohort.assignors.roundrobin",
    "StickyAssignor": "kohort.assignors.sticky",
    "assign_group": "kohort.assignors.leader",
    "decode_group": "kohort.assignors.leader",
    "load_assignor": "kohort.assignors.loading",
    "load_assignors": "kohort.assignors.loading",
    "rebalance_protocol": "kohort.assignors.loading",
}

if not TYPE_CHECKING:  # a type checker knows the names above, and that there are no others
    __getattr__ = imported_on_use(globals(), _HOMES)

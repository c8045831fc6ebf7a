"""The features of the cluster (KIP-584): which levels there are, which are in effect. None of them can be changed.

`kafka-features.sh` shows them. A level says what the cluster does, so it is not raised before that is served: with
group.version 1 there are groups of the consumer protocol (KIP-848), with transaction.version 2 there is KIP-890, both
parts of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.broker.core import Core

KAFKA_4_3 = 30
LEVELS = {
    "metadata.version": KAFKA_4_3,
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "transaction.version": 2,
    "share.version": 0,
    "streams.version": 0,
}
_EPOCH = 0
_UPGRADE_TYPES = (1, 2, 3)
_REFUSED = "The update failed for all features since the following feature had an error: "


def levels(core: Core) -> dict[str, int]:
    """Those in effect: there are no transactions where brokers cannot ask each other."""
    alone = core.membership is None or core.membership.peers.closed_door is None
    return LEVELS if alone else LEVELS | {"transaction.version": 0}


def add_to(core: Core, response: Any, version: int) -> None:
    """The features as ApiVersions carries them, from version 3 on."""
    supported, finalized = response.SupportedFeatureKey, response.FinalizedFeatureKey
    for name, level in levels(core).items():
        if level > 0 or version >= 4:  # older clients do not take a lowest level of 0
            response.supported_features.append(supported(name=name, min_version=level, max_version=level))
        if level > 0:
            response.finalized_features.append(finalized(name=name, min_version_level=level, max_version_level=level))
    response.finalized_features_epoch = _EPOCH


def update_features(core: Core, call: Call, request: Any, now_ms: int) -> Any:
    response = messages.UpdateFeaturesResponse(error_message=None)
    for update in request.feature_updates:
        reason = _refusal(core, call.version, update)
        if reason is not None:
            response.error_code = ErrorCode.INVALID_UPDATE_VERSION
            response.error_message = (
                f"{_REFUSED}Invalid update version {update.max_version_level} for feature {update.feature}. {reason}"
            )
            response.results = []
            break
        if call.version < 2:
            row = response.UpdatableFeatureResult(feature=update.feature, error_message=ErrorCode.NONE.name)
            response.results.append(row)
    return response


def _refusal(core: Core, version: int, update: Any) -> str | None:
    if version >= 1 and update.upgrade_type not in _UPGRADE_TYPES:
        return "The controller does not support the given upgrade type."
    level = levels(core).get(update.feature)
    if level is None:
        return f"Local controller {core.node_id} does not support this feature."
    if update.max_version_level != level:
        return f"Local controller {core.node_id} only supports versions {level}-{level}"
    return None

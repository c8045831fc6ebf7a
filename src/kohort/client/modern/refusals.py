"""What a coordinator's refusal of a member of the consumer protocol means, and what to do, in words. Pure."""

from __future__ import annotations

from kohort.client.errors import error_for
from kohort.client.states import MemberConfig
from kohort.protocol.errors import ErrorCode, KafkaError


def explained(code: ErrorCode, told: str | None, config: MemberConfig, regex: str) -> KafkaError:
    group = config.group_id
    advice = {
        ErrorCode.UNSUPPORTED_VERSION: f"the broker does not speak the consumer protocol (KIP-848), or not with what "
        f"group {group} needs of it: use group.protocol=classic, or a broker from Kafka 4.0 on with group.version=1",
        ErrorCode.UNRELEASED_INSTANCE_ID: f"group.instance.id={config.group_instance_id!r} is still held in group "
        f"{group} by another consumer: close that one, or wait until its session has ended, and poll again; "
        "every running consumer needs an instance id of its own",
        ErrorCode.UNSUPPORTED_ASSIGNOR: f"the broker has no assignor group.remote.assignor="
        f"{config.group_remote_assignor!r}: leave it out, or name one of the broker's group.consumer.assignors",
        ErrorCode.GROUP_MAX_SIZE_REACHED: f"group {group} already has group.consumer.max.size members",
        ErrorCode.INVALID_REGULAR_EXPRESSION: f"the broker does not take the pattern {regex!r}, which must be in the "
        "syntax of RE2; a pattern of re.compile() is matched here instead",
        ErrorCode.GROUP_ID_NOT_FOUND: f"group {group} cannot be moved to the consumer protocol: it is of another kind, "
        "or group.consumer.migration.policy, its size or an assignor of its classic members forbids it; end those "
        "members first, or use group.protocol=classic",
        ErrorCode.INVALID_GROUP_ID: f"the broker does not accept group.id={group!r}",
        ErrorCode.GROUP_AUTHORIZATION_FAILED: f"not allowed to read as group {group}",
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: f"group {group} is subscribed to a topic that it may not describe",
    }
    known = advice.get(code, f"group {group} does not take this consumer: {code.message}")
    return error_for(code, f"{known} ({told})" if told else known)

"""Every broker configuration that has an effect here, as data: name, type, default, limits, one line of help.

Names and defaults are Kafka's; where a default differs, its line says so. `kohort.` marks what Kafka does not have.
"""

from __future__ import annotations

from typing import Any

from kohort.config_key import INT_MAX, LONG_MAX, ConfigKey, ConfigType, by_name

_B, _S, _I, _L, _D, _LIST = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.LIST,
)
_COMPRESSION = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_CLEANUP = ("compact", "delete")
_TIMESTAMP = ("CreateTime", "LogAppendTime")
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_DAY_MS = 24 * 60 * 60 * 1000
_HOUR_MS = 60 * 60 * 1000


def _key(
    name: str,
    type: ConfigType,
    default: Any,
    doc: str,
    low: float | None = None,
    high: float | None = None,
    **more: Any,
) -> ConfigKey:
    return ConfigKey(name, type, default, doc, low, high, **more)


_BROKER = [
    # Identity and listeners.
    _key("node.id", _I, 1, "The id of this broker in the cluster.", 0),
    _key("broker.rack", _S, None, "The rack of this broker, shown in Metadata."),
    _key("broker.session.timeout.ms", _I, 9000, "In a cluster: a broker silent for longer is taken for dead.", 1),
    _key("broker.heartbeat.interval.ms", _I, 2000, "In a cluster: how often a broker gives a sign of life.", 1),
    _key(
        "kohort.cluster.balance.delay.ms",
        _L,
        5000,
        "In a cluster: how long after a broker came or went partitions move to where they belong.",
        0,
    ),
    _key(
        "kohort.cluster.journal.objects",
        _I,
        500,
        "In a cluster: objects of a broker's journal after which they are turned into segments and deleted.",
        1,
    ),
    _key(
        "kohort.cluster.drained.brokers",
        _LIST,
        (),
        "In a cluster: ids of brokers that are to lead nothing; what they lead moves to others.",
        dynamic=True,
    ),
    _key(
        "kohort.cluster.cache.bytes",
        _L,
        128 * 1024 * 1024,
        "In a cluster: memory of a broker for records that the store has in segments; what is not there is read from "
        "the store. Records that no segment has yet are written to one when they are a quarter of that.",
        1024 * 1024,
    ),
    _key("listeners", _LIST, None, "NAME://HOST:PORT, several with commas; in place of --host and --port."),
    _key("advertised.listeners", _LIST, None, "NAME://HOST:PORT told to clients instead of the address listened on."),
    _key(
        "listener.security.protocol.map",
        _LIST,
        None,
        "NAME:PROTOCOL of listeners whose name is no protocol: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL.",
    ),
    # Security.
    _key("ssl.keystore.location", _S, None, "The private key and the certificates of the broker: PEM, PKCS12 or JKS."),
    _key("ssl.keystore.password", ConfigType.PASSWORD, None, "The password of that store."),
    _key("ssl.keystore.type", _S, None, "No effect: whether it is PEM, PKCS12 or JKS is seen from the store itself."),
    _key("ssl.key.password", ConfigType.PASSWORD, None, "The password of the private key."),
    _key("ssl.truststore.location", _S, None, "The authorities that sign certificates of clients: PEM, PKCS12 or JKS."),
    _key("ssl.truststore.password", ConfigType.PASSWORD, None, "The password of that store."),
    _key("ssl.truststore.type", _S, None, "No effect: whether it is PEM, PKCS12 or JKS is seen from the store itself."),
    _key(
        "ssl.client.auth", _S, "none", "Whether clients show a certificate.", choices=("none", "requested", "required")
    ),
    _key("ssl.principal.mapping.rules", _S, "DEFAULT", "Which user the name in a certificate is."),
    _key(
        "sasl.enabled.mechanisms",
        _LIST,
        ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
        "How clients of SASL listeners can log in.",
        choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
    ),
    _key("sasl.jaas.config", ConfigType.PASSWORD, None, 'Users of the broker: user_NAME="PASSWORD" of a JAAS line.'),
    _key("sasl.oauthbearer.jwks.endpoint.url", _S, None, "file:///path or https:// of the keys of bearer tokens."),
    _key(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        _L,
        3600000,
        "How often those of https:// are read again.",
        1,
    ),
    _key("sasl.oauthbearer.expected.audience", _LIST, None, "Whom bearer tokens must be for; any of these."),
    _key("sasl.oauthbearer.expected.issuer", _S, None, "Who must have made bearer tokens."),
    _key("sasl.oauthbearer.sub.claim.name", _S, "sub", "The claim of a bearer token that names the user."),
    _key("sasl.oauthbearer.clock.skew.seconds", _I, 30, "How far clocks of issuers may be off.", 0),
    _key("connections.max.reauth.ms", _L, 0, "How long a SASL session lasts before it is authenticated again.", 0),
    _key("authorizer.class.name", _S, "", "Turns access control on.", choices=("", AUTHORIZER)),
    _key("super.users", _S, "", "Who may do everything: User:NAME, several with semicolons."),
    _key("allow.everyone.if.no.acl.found", _B, False, "Whether a resource without any entry is open."),
    # Network.
    _key("socket.request.max.bytes", _I, 104857600, "The largest request accepted; a larger one closes.", 1),
    _key("connections.max.idle.ms", _L, 600000, "Connections idle for longer are closed; -1 keeps them."),
    _key("max.connections", _I, INT_MAX, "The most connections held at a time.", 0, dynamic=True),
    _key("max.connections.per.ip", _I, INT_MAX, "The most connections from one address.", 0, dynamic=True),
    _key("fetch.max.bytes", _I, 57671680, "The most bytes of records one fetch response carries.", 1024),
    _key(
        "max.incremental.fetch.session.cache.slots",
        _I,
        1000,
        "How many incremental fetch sessions are kept; 0 declines them all.",
        0,
    ),
    _key("max.request.partition.size.limit", _I, 2000, "The most partitions one DescribeTopicPartitions shows.", 1),
    # Topics.
    _key("auto.create.topics.enable", _B, True, "Create a topic when a client asks for its metadata."),
    _key("delete.topic.enable", _B, True, "Whether topics can be deleted."),
    _key("num.partitions", _I, 1, "Partitions of a topic created without a count.", 1),
    _key("default.replication.factor", _I, 1, "Replicas of a topic created without a count; one broker, so 1.", 1),
    # Logs: the defaults of every topic.
    _key("message.max.bytes", _I, 1048588, "The largest record batch accepted.", 0, dynamic=True),
    _key("log.segment.bytes", _I, 1073741824, "The size at which a segment file is full.", 1048576, dynamic=True),
    _key("log.roll.ms", _L, None, "The age at which a segment is closed; over log.roll.hours.", dynamic=True),
    _key("log.roll.hours", _I, 168, "The age at which a segment is closed, in hours.", 1),
    _key("log.roll.jitter.ms", _L, None, "The most that is taken off the age of a segment.", dynamic=True),
    _key("log.roll.jitter.hours", _I, 0, "The most that is taken off the age of a segment, in hours.", 0),
    _key("log.index.size.max.bytes", _I, 10485760, "The largest index file.", 4, dynamic=True),
    _key("log.index.interval.bytes", _I, 4096, "Bytes of log between two index entries.", 0, dynamic=True),
    _key("log.retention.ms", _L, None, "How long records are kept; over minutes and hours; -1 forever.", dynamic=True),
    _key("log.retention.minutes", _I, None, "How long records are kept, in minutes."),
    _key("log.retention.hours", _I, 168, "How long records are kept, in hours."),
    _key("log.retention.bytes", _L, -1, "How many bytes of a partition are kept; -1 all.", dynamic=True),
    _key("log.retention.check.interval.ms", _L, 300000, "How often retention is enforced.", 1),
    _key("log.segment.delete.delay.ms", _L, 60000, "No effect: a removed file goes at once.", 0, dynamic=True),
    _key("log.cleanup.policy", _LIST, ("delete",), "delete, compact or both.", choices=_CLEANUP, dynamic=True),
    _key("log.cleaner.enable", _B, True, "Whether compacted topics are compacted."),
    _key("log.cleaner.backoff.ms", _L, 15000, "How often the cleaner looks for logs to compact.", 0, dynamic=True),
    _key("log.cleaner.delete.retention.ms", _L, _DAY_MS, "How long tombstones are kept.", 0, dynamic=True),
    _key("log.cleaner.min.compaction.lag.ms", _L, 0, "The youngest age that is compacted.", 0, dynamic=True),
    _key("log.cleaner.max.compaction.lag.ms", _L, LONG_MAX, "The age that is compacted always.", 1, dynamic=True),
    _key("log.cleaner.min.cleanable.ratio", _D, 0.5, "The dirty share that starts a compaction.", 0, 1, dynamic=True),
    _key("log.flush.interval.messages", _L, LONG_MAX, "Records between two fsyncs; 1 means always.", 1, dynamic=True),
    _key("log.flush.interval.ms", _L, None, "Time between two fsyncs; empty leaves it to the system.", dynamic=True),
    _key("log.flush.scheduler.interval.ms", _L, LONG_MAX, "How often a flush is considered."),
    _key("log.preallocate", _B, False, "No effect: files grow as they are written.", dynamic=True),
    _key("log.message.timestamp.type", _S, "CreateTime", "Whose time counts.", choices=_TIMESTAMP, dynamic=True),
    _key("log.message.timestamp.before.max.ms", _L, LONG_MAX, "How old a record may be.", 0, dynamic=True),
    _key("log.message.timestamp.after.max.ms", _L, _HOUR_MS, "How far in the future a record may be.", 0, dynamic=True),
    _key("log.local.retention.ms", _L, -2, "No effect: there is no tiered storage.", -2, dynamic=True),
    _key("log.local.retention.bytes", _L, -2, "No effect: there is no tiered storage.", -2, dynamic=True),
    _key("compression.type", _S, "producer", "The codec records are stored in.", choices=_COMPRESSION, dynamic=True),
    _key(
        "compression.gzip.level", _I, -1, "Level where the broker compresses with gzip.", 1, 9, also=(-1,), dynamic=True
    ),
    _key("compression.lz4.level", _I, 9, "Level where the broker compresses with lz4.", 1, 17, dynamic=True),
    _key("compression.zstd.level", _I, 3, "Level where the broker compresses with zstd.", -131072, 22, dynamic=True),
    _key("min.insync.replicas", _I, 1, "No effect on a single broker.", 1, dynamic=True),
    _key("unclean.leader.election.enable", _B, False, "No effect on a single broker.", dynamic=True),
    _key(
        "kohort.fsync", _S, "never", "never (as Kafka), interval, or always.", choices=("never", "interval", "always")
    ),
    # Producers.
    _key("producer.id.expiration.ms", _I, 86400000, "How long an idle producer's sequence is kept.", 1, dynamic=True),
    # Transactions.
    _key("transaction.max.timeout.ms", _I, 900000, "The longest a producer may let a transaction be open.", 1),
    _key("transactional.id.expiration.ms", _I, 604800000, "How long an unused transactional.id is remembered.", 1),
    _key(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        _I,
        10000,
        "How often transactions are checked for their timeout.",
        1,
    ),
    _key(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        _I,
        3600000,
        "How often transactional ids are checked for expiry.",
        1,
    ),
    _key("transaction.state.log.num.partitions", _I, 50, "Partitions of __transaction_state; fixed once created.", 1),
    _key("transaction.state.log.segment.bytes", _I, 104857600, "Segment size of __transaction_state.", 1),
    _key("transaction.state.log.load.buffer.size", _I, 5242880, "Bytes read at a time when it is loaded.", 1),
    _key("transaction.state.log.replication.factor", ConfigType.SHORT, 1, "No effect on a single broker.", 1),
    _key("transaction.state.log.min.isr", _I, 1, "No effect on a single broker.", 1),
    # Groups.
    _key("group.min.session.timeout.ms", _I, 6000, "The shortest session timeout a member may ask for.", 1),
    _key("group.max.session.timeout.ms", _I, 1800000, "The longest session timeout a member may ask for.", 1),
    _key("group.initial.rebalance.delay.ms", _I, 3000, "How long a new group waits for more members.", 0),
    _key("group.max.size", _I, INT_MAX, "The most members of a group.", 1),
    _key(
        "kohort.max.groups",
        _I,
        200_000,
        "The most groups of the broker: a new one is refused (GROUP_MAX_SIZE_REACHED).",
        1,
    ),
    _key(
        "kohort.group.max.pending.members",
        _I,
        10_000,
        "The most members of a group that have an id and have not joined.",
        1,
    ),
    # Groups of the consumer protocol (KIP-848): defaults of what a group can have of its own, and their limits.
    _key("group.consumer.session.timeout.ms", _I, 45000, "Default of a group's consumer.session.timeout.ms.", 1),
    _key("group.consumer.min.session.timeout.ms", _I, 45000, "The lowest consumer.session.timeout.ms.", 1),
    _key("group.consumer.max.session.timeout.ms", _I, 60000, "The highest consumer.session.timeout.ms.", 1),
    _key("group.consumer.heartbeat.interval.ms", _I, 5000, "Default of a group's consumer.heartbeat.interval.ms.", 1),
    _key("group.consumer.min.heartbeat.interval.ms", _I, 5000, "The lowest consumer.heartbeat.interval.ms.", 1),
    _key("group.consumer.max.heartbeat.interval.ms", _I, 15000, "The highest consumer.heartbeat.interval.ms.", 1),
    _key(
        "group.consumer.assignment.interval.ms",
        _I,
        1000,
        "Default of a group's consumer.assignment.interval.ms.",
        0,
        dynamic=True,
    ),
    _key("group.consumer.max.size", _I, INT_MAX, "The most members of a group of the consumer protocol.", 1),
    _key(
        "group.consumer.assignors",
        _LIST,
        ("uniform", "range"),
        "Server assignors, the default first: uniform, range, or package.module:Class.",
    ),
    _key(
        "kohort.group.consumer.assignor.timeout.ms",
        _I,
        10_000,
        "How long a server assignor of one's own may take for a target; then the last one stands.",
        1,
    ),
    _key(
        "group.consumer.migration.policy",
        _S,
        "bidirectional",
        "Which groups move between the protocols while they run.",
        choices=("bidirectional", "upgrade", "downgrade", "disabled"),
    ),
    _key(
        "group.consumer.regex.refresh.interval.ms",
        _I,
        600000,
        "How often expressions are resolved again at the latest.",
        10000,
    ),
    _key("group.consumer.min.assignment.interval.ms", _I, 0, "The lowest consumer.assignment.interval.ms.", 0),
    _key("group.consumer.max.assignment.interval.ms", _I, 15000, "The highest consumer.assignment.interval.ms.", 0),
    _key("offset.metadata.max.bytes", _I, 4096, "The longest metadata of a committed offset.", 0),
    _key("offsets.commit.timeout.ms", _I, 5000, "How long a commit may take to be stored.", 1),
    _key("offsets.load.buffer.size", _I, 5242880, "Bytes read at a time when groups are loaded.", 1),
    _key("offsets.retention.check.interval.ms", _L, 600000, "How often offsets are checked for expiry.", 1),
    _key("offsets.retention.minutes", _I, 10080, "How long offsets of an empty group are kept, in minutes.", 1),
    _key("offsets.topic.compression.codec", _I, 0, "Codec of __consumer_offsets: 0 none, 1 gzip, 2 snappy.", 0, 4),
    _key("offsets.topic.num.partitions", _I, 50, "Partitions of __consumer_offsets; fixed once created.", 1),
    _key("offsets.topic.replication.factor", ConfigType.SHORT, 1, "No effect on a single broker.", 1),
    _key("offsets.topic.segment.bytes", _I, 104857600, "Segment size of __consumer_offsets.", 1),
    _key("kohort.group.events.topic.enable", _B, False, "Whether group events go to __kohort_group_events."),
]

BROKER_KEYS: dict[str, ConfigKey] = by_name(_BROKER)


def _group_key(name: str, default: int, doc: str, low: float) -> ConfigKey:
    return ConfigKey(name, _I, default, doc, low, dynamic=True, synonyms=(f"group.{name}",))


# Of Kafka's, those of the consumer protocol; share and streams groups are not served.
GROUP_KEYS: dict[str, ConfigKey] = by_name(
    [
        _group_key("consumer.session.timeout.ms", 45000, "No effect on classic groups: members bring their own.", 1),
        _group_key("consumer.heartbeat.interval.ms", 5000, "No effect on classic groups: members bring their own.", 1),
        _group_key("consumer.assignment.interval.ms", 1000, "No effect on classic groups: members assign.", 0),
    ]
)

# Broker configurations in other units than the topic configuration they stand in for.
TO_MILLISECONDS: dict[str, int] = {
    "log.roll.hours": _HOUR_MS,
    "log.roll.jitter.hours": _HOUR_MS,
    "log.retention.minutes": 60_000,
    "log.retention.hours": _HOUR_MS,
}

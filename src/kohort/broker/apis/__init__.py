"""The apis of the broker, in one table: key, name, versions, handler. Groups and transactions add their own rows
(`broker/groups.py`, `broker/transactions.py`).

Versions are those Apache Kafka 4.3 serves by default. Handlers in quotes are imported at their first request: no test
pays for what it does not use.
"""

from kohort.broker.apis import api_versions
from kohort.broker.table import Api

TABLE: list[Api] = [
    Api(0, "Produce", 3, 13, "produce.handle"),
    Api(1, "Fetch", 4, 18, "fetch.handle"),
    Api(2, "ListOffsets", 1, 11, "offsets.list_offsets"),
    Api(3, "Metadata", 0, 13, "metadata.handle"),
    Api(17, "SaslHandshake", 0, 1, "sasl.sasl_handshake"),
    Api(18, "ApiVersions", 0, 4, api_versions.handle),
    Api(19, "CreateTopics", 2, 7, "topics.create_topics"),
    Api(20, "DeleteTopics", 1, 6, "topics.delete_topics"),
    Api(21, "DeleteRecords", 0, 2, "topics.delete_records"),
    Api(23, "OffsetForLeaderEpoch", 2, 4, "offsets.offset_for_leader_epoch"),
    Api(29, "DescribeAcls", 1, 3, "acls.describe_acls"),
    Api(30, "CreateAcls", 1, 3, "acls.create_acls"),
    Api(31, "DeleteAcls", 1, 3, "acls.delete_acls"),
    Api(32, "DescribeConfigs", 1, 4, "describe_configs.describe_configs"),
    Api(33, "AlterConfigs", 0, 2, "alter_configs.alter_configs"),
    Api(35, "DescribeLogDirs", 1, 5, "log_dirs.handle"),
    Api(36, "SaslAuthenticate", 0, 2, "sasl.sasl_authenticate"),
    Api(37, "CreatePartitions", 0, 3, "topics.create_partitions"),
    Api(43, "ElectLeaders", 0, 2, "reassignment.elect_leaders"),
    Api(44, "IncrementalAlterConfigs", 0, 1, "alter_configs.incremental_alter_configs"),
    Api(45, "AlterPartitionReassignments", 0, 1, "reassignment.alter_partition_reassignments"),
    Api(46, "ListPartitionReassignments", 0, 0, "reassignment.list_partition_reassignments"),
    Api(48, "DescribeClientQuotas", 0, 1, "quotas.describe_client_quotas"),
    Api(49, "AlterClientQuotas", 0, 1, "quotas.alter_client_quotas"),
    Api(50, "DescribeUserScramCredentials", 0, 0, "sasl.describe_users"),
    Api(51, "AlterUserScramCredentials", 0, 0, "sasl.alter_users"),
    Api(57, "UpdateFeatures", 0, 2, "features.update_features"),
    Api(60, "DescribeCluster", 0, 2, "metadata.describe_cluster"),
    Api(61, "DescribeProducers", 0, 0, "producers.describe_producers"),
    Api(74, "ListConfigResources", 0, 1, "describe_configs.list_config_resources"),
    Api(75, "DescribeTopicPartitions", 0, 0, "metadata.describe_topic_partitions"),
]

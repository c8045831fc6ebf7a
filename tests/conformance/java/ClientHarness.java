import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Kafka's own clients against a broker: does one job, prints `name=value` lines that the test reads. */
public class ClientHarness {
    static String servers;

    public static void main(String[] args) throws Exception {
        servers = args[0];
        switch (args[1]) {
            case "produce" -> produce(args[2], args[3], Integer.parseInt(args[4]));
            case "consume" -> consume(args[2], Integer.parseInt(args[3]));
            case "admin" -> admin();
            default -> throw new IllegalArgumentException(args[1]);
        }
    }

    static void print(String name, Object value) {
        System.out.println(name + "=" + value);
    }

    static Properties base() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", servers);
        return properties;
    }

    /** The producer at its defaults: idempotent, acks=all. */
    static void produce(String topic, String codecs, int count) throws Exception {
        for (String codec : codecs.split(",")) {
            Properties properties = base();
            properties.put("compression.type", codec);
            properties.put("linger.ms", "5");
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            try (var producer = new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
                for (int i = 0; i < count; i++) {
                    byte[] value = (codec + "-" + i).getBytes(StandardCharsets.UTF_8);
                    byte[] key = ("key-" + i).getBytes(StandardCharsets.UTF_8);
                    var record = new ProducerRecord<>(topic, 0, 1000L + i, key, value,
                        List.of(new RecordHeader("codec", codec.getBytes(StandardCharsets.UTF_8))));
                    sent.add(producer.send(record));
                }
                producer.flush();
                print(codec, sent.get(0).get().offset() + ".." + sent.get(count - 1).get().offset());
            }
        }
    }

    static void consume(String topic, int count) {
        Properties properties = base();
        properties.put("isolation.level", "read_committed");
        TopicPartition partition = new TopicPartition(topic, 0);
        try (var consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(Set.of(partition));
            consumer.seekToBeginning(Set.of(partition));
            int seen = 0;
            Map<String, Integer> codecs = new TreeMap<>();
            long end = System.currentTimeMillis() + 60_000;
            while (seen < count && System.currentTimeMillis() < end) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    seen++;
                    String codec = new String(record.headers().lastHeader("codec").value(), StandardCharsets.UTF_8);
                    codecs.merge(codec, 1, Integer::sum);
                }
            }
            print("seen", seen);
            print("codecs", codecs);
            print("end", consumer.endOffsets(Set.of(partition)).get(partition));
            print("by_time", consumer.offsetsForTimes(Map.of(partition, 1005L)).get(partition).offset());
        }
    }

    static void admin() throws Exception {
        try (Admin admin = Admin.create(base())) {
            admin.createTopics(List.of(new NewTopic("java", 2, (short) 1).configs(Map.of("retention.ms", "1234")))).all().get();
            print("again", failure(admin.createTopics(List.of(new NewTopic("java", 2, (short) 1))).all()));
            print("replicas", failure(admin.createTopics(List.of(new NewTopic("three", 2, (short) 3))).all()));
            print("name", failure(admin.createTopics(List.of(new NewTopic("a/b", 1, (short) 1))).all()));
            admin.createPartitions(Map.of("java", NewPartitions.increaseTo(4))).all().get();
            TopicDescription topic = admin.describeTopics(List.of("java")).allTopicNames().get().get("java");
            print("partitions", topic.partitions().size());
            print("by_id", admin.describeTopics(
                org.apache.kafka.common.TopicCollection.ofTopicIds(List.of(topic.topicId()))).allTopicIds().get().size());
            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, "java");
            admin.incrementalAlterConfigs(Map.of(resource, List.of(
                new AlterConfigOp(new ConfigEntry("max.message.bytes", "4321"), AlterConfigOp.OpType.SET)))).all().get();
            var config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
            print("configs", config.get("retention.ms").value() + " " + config.get("max.message.bytes").value()
                + " " + config.get("cleanup.policy").source());
            print("cluster", admin.describeCluster().nodes().get().size());
            TopicPartition partition = new TopicPartition("t", 0);
            for (var spec : Map.of("earliest", OffsetSpec.earliest(), "latest", OffsetSpec.latest(),
                    "max", OffsetSpec.maxTimestamp(), "time", OffsetSpec.forTimestamp(1003L),
                    "local", OffsetSpec.earliestLocal()).entrySet()) {
                print(spec.getKey(), admin.listOffsets(Map.of(partition, spec.getValue())).all().get().get(partition).offset());
            }
            print("producers", admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers().size() > 0);
            print("transactions", admin.listTransactions().all().get().size());
            print("features", admin.describeFeatures().featureMetadata().get().finalizedFeatures().size());
            int node = admin.describeCluster().nodes().get().iterator().next().id();
            print("log_dirs", admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node).values().iterator().next()
                .replicaInfos().containsKey(partition));
            print("deleted", admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(5))).all().get() == null);
            print("low", admin.listOffsets(Map.of(partition, OffsetSpec.earliest())).all().get().get(partition).offset());
            admin.deleteTopics(List.of("java")).all().get();
            print("left", admin.listTopics().names().get().contains("java"));
        }
    }

    static String failure(org.apache.kafka.common.KafkaFuture<?> future) throws InterruptedException {
        try {
            future.get();
            return "none";
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        }
    }
}

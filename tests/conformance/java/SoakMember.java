// Java consumers of a soak: they read, note what they did, commit, leave and come back; see tests/soak_worker.py, whose
// arguments and ledger these are.

import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class SoakMember {
    private static final double LIFETIME_S = 120;
    private static volatile boolean stopping = false;
    private static FileOutputStream ledger;

    // The monotonic clock that all processes share.
    private static double now() {
        return System.nanoTime() / 1e9;
    }

    private static void write(String... values) {
        try {
            synchronized (ledger) {
                ledger.write(("[" + String.join(",", values) + "]\n").getBytes(StandardCharsets.UTF_8));
            }
        } catch (IOException e) {
            throw new RuntimeException(e);
        }
    }

    private static String quoted(String text) {
        return "\"" + text.replace("\\", "/").replace("\"", "'").replace("\n", " ") + "\"";
    }

    private static String number(double value) {
        return String.format(java.util.Locale.ROOT, "%.6f", value);
    }

    // One life of a consumer.
    private static class Life implements ConsumerRebalanceListener {
        private final String servers, topic, name, group;
        private final Map<TopicPartition, Integer> periods = new HashMap<>();
        private final Map<TopicPartition, Long> last = new HashMap<>();
        private final Map<TopicPartition, long[]> runs = new HashMap<>();
        private final Map<TopicPartition, OffsetAndMetadata> uncommitted = new HashMap<>();
        private int period = 0;
        private double committedAt = now();
        private KafkaConsumer<byte[], byte[]> consumer;

        Life(String servers, String group, String topic, String name) {
            this.servers = servers;
            this.group = group;
            this.topic = topic;
            this.name = name;
        }

        private Properties settings() {
            Properties settings = new Properties();
            settings.put("bootstrap.servers", servers);
            settings.put("group.id", group);
            settings.put("client.id", name);
            settings.put("auto.offset.reset", "earliest");
            settings.put("enable.auto.commit", "false");
            settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer.RangeAssignor");
            settings.put("session.timeout.ms", "15000");
            settings.put("max.poll.interval.ms", "60000");
            settings.put("heartbeat.interval.ms", "1500");
            settings.put("reconnect.backoff.max.ms", "1000");
            return settings;
        }

        void run() {
            double end = now() - LIFETIME_S * Math.log(1 - ThreadLocalRandom.current().nextDouble());
            consumer = new KafkaConsumer<>(settings(), new ByteArrayDeserializer(), new ByteArrayDeserializer());
            try {
                consumer.subscribe(List.of(topic), this);
                while (!stopping && now() < end) {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                        got(new TopicPartition(record.topic(), record.partition()), record.offset());
                    }
                    processed();
                    if (!uncommitted.isEmpty() && now() - committedAt > 1) {
                        commit(new HashMap<>(uncommitted));
                    }
                }
            } finally {
                consumer.close();
            }
        }

        private void got(TopicPartition place, long offset) {
            if (!periods.containsKey(place)) {
                return;
            }
            Long before = last.put(place, offset);
            if (before != null && offset != before + 1) {
                write("\"V\"", quoted(name), quoted(group + " " + place + ": " + offset + " right after " + before));
            }
            uncommitted.put(place, new OffsetAndMetadata(offset + 1));
            long[] run = runs.get(place);
            if (run != null && run[1] + 1 == offset) {
                run[1] = offset;
            } else {
                processed();
                runs.put(place, new long[] {offset, offset});
            }
        }

        private void processed() {
            runs.forEach((place, run) -> write("\"R\"", quoted(name), quoted(group), quoted(place.topic()),
                "" + place.partition(), "" + periods.getOrDefault(place, 0), "" + run[0], "" + run[1]));
            runs.clear();
        }

        private void commit(Map<TopicPartition, OffsetAndMetadata> offsets) {
            if (offsets.isEmpty()) {
                return;
            }
            double sent = now();
            try {
                consumer.commitSync(offsets, Duration.ofSeconds(30));
            } catch (KafkaException e) {
                return;
            }
            committedAt = now();
            offsets.forEach((place, offset) -> {
                uncommitted.remove(place, offset);
                write("\"C\"", number(sent), number(committedAt), quoted(group), quoted(place.topic()),
                    "" + place.partition(), "" + offset.offset());
            });
        }

        private void forget(Collection<TopicPartition> places) {
            processed();
            for (TopicPartition place : places) {
                periods.remove(place);
                uncommitted.remove(place);
                last.remove(place);
            }
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> places) {
            processed();
            Map<TopicPartition, OffsetAndMetadata> due = new HashMap<>(uncommitted);
            due.keySet().retainAll(places);
            commit(due);
            forget(places);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> places) {
            forget(places);
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> places) {
            processed();
            period++;
            for (TopicPartition place : places) {
                periods.put(place, period);
                last.remove(place);
                write("\"A\"", number(now()), quoted(name), quoted(group),
                    "" + consumer.groupMetadata().generationId(), quoted(place.topic()), "" + place.partition(),
                    "" + period);
            }
        }
    }

    private static void keepRunning(String servers, String group, String topic, String name) {
        for (int life = 1; !stopping; life++) {
            String named = name + "." + life;
            try {
                new Life(servers, group, topic, named).run();
            } catch (RuntimeException e) {
                write("\"E\"", quoted(named), quoted("" + e));
                try {
                    Thread.sleep(1000);
                } catch (InterruptedException ended) {
                    return;
                }
            }
        }
    }

    public static void main(String[] args) throws Exception {
        Map<String, String> options = new HashMap<>();
        int at = 0;
        for (; args[at].startsWith("--"); at += 2) {
            options.put(args[at], args[at + 1]);
        }
        ledger = new FileOutputStream(options.get("--ledger"), true);
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; at < args.length; at++, number++) {
            String[] consumer = args[at].split(":");
            String name = options.get("--name") + "-" + number + "-java";
            threads.add(new Thread(() -> keepRunning(options.get("--servers"), consumer[1], consumer[2], name)));
        }
        threads.forEach(Thread::start);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopping = true;
            for (Thread thread : threads) {
                try {
                    thread.join(60_000);
                } catch (InterruptedException e) {
                    return;
                }
            }
        }));
    }
}

// A Java consumer in a group: prints what it is assigned and what it reads, ends when standard input does.
// Arguments: bootstrap servers, topic or (with a ^) expression of the broker, group, assignor class or "-", further settings as key=value.

import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.StringDeserializer;

public class GroupMember {
    private static volatile boolean ended = false;

    private static void tell(String sign, Collection<TopicPartition> partitions) {
        for (TopicPartition one : partitions) {
            System.out.println(sign + " " + one.partition() + " " + System.currentTimeMillis());
        }
    }

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("group.id", args[2]);
        if (!args[3].equals("-")) {
            settings.put("partition.assignment.strategy", args[3]);
        }
        settings.put("auto.offset.reset", "earliest");
        for (int i = 4; i < args.length; i++) {
            int at = args[i].indexOf('=');
            settings.put(args[i].substring(0, at), args[i].substring(at + 1));
        }
        Thread watcher = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (java.io.IOException e) {
                // as good as the end
            }
            ended = true;
        });
        watcher.setDaemon(true);
        watcher.start();
        try (KafkaConsumer<byte[], String> consumer =
                 new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new StringDeserializer())) {
            ConsumerRebalanceListener listener = new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    tell("-", partitions);
                }

                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    tell("+", partitions);
                }
            };
            if (args[1].startsWith("^")) {
                consumer.subscribe(new SubscriptionPattern(args[1]), listener);
            } else {
                consumer.subscribe(List.of(args[1]), listener);
            }
            int owned = -1;
            while (!ended) {
                for (ConsumerRecord<byte[], String> record : consumer.poll(Duration.ofMillis(100))) {
                    System.out.println("R " + record.value());
                }
                if (consumer.assignment().size() != owned) {
                    owned = consumer.assignment().size();
                    System.out.println("A " + owned);
                }
            }
        }
        System.out.println("A 0");
    }
}

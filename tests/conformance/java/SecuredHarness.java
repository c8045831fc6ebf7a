import java.io.FileInputStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Kafka's own clients over secured listeners: each file of properties is a case, its outcome a line `case=...`. */
public class SecuredHarness {
    public static void main(String[] args) throws Exception {
        if (args[0].equals("renew")) {
            renew(args[1], args[2], Integer.parseInt(args[3]));
            return;
        }
        for (int i = 1; i < args.length; i++) {
            String name = args[i].substring(args[i].lastIndexOf('/') + 1).replace(".properties", "");
            System.out.println(name + "=" + outcome(read(args[i]), args[0] + "-" + name));
        }
    }

    static Properties read(String path) throws Exception {
        Properties properties = new Properties();
        try (var in = new FileInputStream(path)) {
            properties.load(in);
        }
        allow("org.apache.kafka.sasl.oauthbearer.allowed.urls", properties);
        allow("org.apache.kafka.sasl.oauthbearer.allowed.files", properties);
        return properties;
    }

    static void allow(String property, Properties properties) {
        String url = properties.getProperty("sasl.oauthbearer.token.endpoint.url");
        if (url != null) {
            System.setProperty(property, url);
        }
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static KafkaConsumer<byte[], byte[]> consumer(Properties settings, String topic) {
        Properties own = new Properties();
        own.putAll(settings);
        own.put("group.id", topic);
        own.put("auto.offset.reset", "earliest");
        own.put("enable.auto.commit", "false");
        var made = new KafkaConsumer<>(own, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        made.subscribe(List.of(topic));
        return made;
    }

    /** One record there and back, committed; or the name of what the client says instead. */
    static String outcome(Properties settings, String topic) throws Exception {
        settings.put("max.block.ms", "20000");
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.send(new ProducerRecord<>(topic, bytes("hello"))).get();
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        } catch (Exception error) {
            return error.getClass().getSimpleName();
        }
        try (var consumer = consumer(settings, topic)) {
            long end = System.currentTimeMillis() + 60_000;
            while (System.currentTimeMillis() < end) {
                for (var record : consumer.poll(Duration.ofSeconds(1))) {
                    consumer.commitSync();
                    return new String(record.value(), StandardCharsets.UTF_8);
                }
            }
        }
        return "nothing came";
    }

    /** Produces, reads and commits for a while: how many came, and how often each side has authenticated again. */
    static void renew(String path, String topic, int seconds) throws Exception {
        Properties settings = read(path);
        long end = System.currentTimeMillis() + seconds * 1000L;
        int sent = 0;
        int seen = 0;
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
                var consumer = consumer(settings, topic)) {
            while (System.currentTimeMillis() < end || seen < sent && System.currentTimeMillis() < end + 30_000) {
                if (System.currentTimeMillis() < end) {
                    producer.send(new ProducerRecord<>(topic, bytes("v" + sent++))).get();
                }
                for (var record : consumer.poll(Duration.ofMillis(20))) {
                    if (!new String(record.value(), StandardCharsets.UTF_8).equals("v" + seen++)) {
                        throw new IllegalStateException("another record than the next");
                    }
                }
                consumer.commitSync();
            }
            System.out.println("sent=" + sent);
            System.out.println("seen=" + seen);
            System.out.println("producer=" + renewed(producer.metrics().values()));
            System.out.println("consumer=" + renewed(consumer.metrics().values()));
        }
    }

    static int renewed(Iterable<? extends org.apache.kafka.common.Metric> metrics) {
        double total = 0;
        for (var metric : metrics) {
            if (metric.metricName().name().equals("successful-reauthentication-total")) {
                total += (Double) metric.metricValue();
            }
        }
        return (int) total;
    }
}

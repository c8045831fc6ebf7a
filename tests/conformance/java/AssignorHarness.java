import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;

/**
 * Runs Kafka's own assignors on cases from standard input, from encoded subscriptions to encoded assignments.
 *
 * A case is a line "case ASSIGNOR", lines "topic NAME COUNT [RACKS]" (racks of a partition joined by ',', partitions by
 * ';'), lines "member ID INSTANCE_ID|- BASE64" and a line "end". The answer is one line: "ok" with ID and BASE64 of each
 * member, or "error" with what was thrown. With the argument "bench N", a case is run until warm, then N times, and the
 * answer is the N times in milliseconds.
 */
public final class AssignorHarness {
    private static final Node NO_RACK = new Node(0, "h", 1);
    private String assignor;
    private final List<PartitionInfo> partitions = new ArrayList<>();
    private final Map<String, Node> nodes = new HashMap<>();
    private final Map<String, byte[]> metadata = new LinkedHashMap<>();
    private final Map<String, String> instances = new HashMap<>();

    public static void main(String[] args) throws Exception {
        int runs = args.length == 2 && args[0].equals("bench") ? Integer.parseInt(args[1]) : 0;
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        AssignorHarness group = null;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "case":
                    group = new AssignorHarness();
                    group.assignor = words[1];
                    break;
                case "topic":
                    group.addTopic(words[1], Integer.parseInt(words[2]), words.length > 3 ? words[3] : "");
                    break;
                case "member":
                    group.metadata.put(words[1], Base64.getDecoder().decode(words[3]));
                    if (!words[2].equals("-"))
                        group.instances.put(words[1], words[2]);
                    break;
                case "end":
                    out.println(runs > 0 ? group.bench(runs) : group.answer());
                    out.flush();
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
        }
    }

    private void addTopic(String topic, int count, String racks) {
        String[] perPartition = racks.isEmpty() ? new String[0] : racks.split(";", -1);
        for (int p = 0; p < count; p++) {
            String known = p < perPartition.length ? perPartition[p] : "";
            Node[] replicas = known.isEmpty()
                ? new Node[] {NO_RACK}
                : Arrays.stream(known.split(",")).map(this::node).toArray(Node[]::new);
            partitions.add(new PartitionInfo(topic, p, replicas[0], replicas, replicas));
        }
    }

    private Node node(String rack) {
        return nodes.computeIfAbsent(rack, r -> new Node(nodes.size() + 1, "h", 1, r));
    }

    private static ConsumerPartitionAssignor make(String name) {
        switch (name) {
            case "range": return new RangeAssignor();
            case "roundrobin": return new RoundRobinAssignor();
            case "sticky": return new StickyAssignor();
            case "cooperative-sticky": return new CooperativeStickyAssignor();
            default: throw new IllegalArgumentException(name);
        }
    }

    private Map<String, ByteBuffer> assign(Cluster cluster) {
        Map<String, Subscription> subscriptions = new LinkedHashMap<>();
        metadata.forEach((member, data) -> {
            Subscription subscription = ConsumerProtocol.deserializeSubscription(ByteBuffer.wrap(data));
            subscription.setGroupInstanceId(Optional.ofNullable(instances.get(member)));
            subscriptions.put(member, subscription);
        });
        Map<String, Assignment> assigned =
            make(assignor).assign(cluster, new GroupSubscription(subscriptions)).groupAssignment();
        Map<String, ByteBuffer> encoded = new HashMap<>();
        assigned.forEach((member, assignment) -> encoded.put(member, ConsumerProtocol.serializeAssignment(assignment)));
        return encoded;
    }

    private Cluster cluster() {
        nodes.put("", NO_RACK);
        return new Cluster("c", nodes.values(), partitions, Collections.emptySet(), Collections.emptySet());
    }

    private String answer() {
        StringBuilder text = new StringBuilder("ok");
        try {
            assign(cluster()).forEach((member, buffer) -> {
                byte[] bytes = new byte[buffer.remaining()];
                buffer.get(bytes);
                text.append(' ').append(member).append(' ').append(Base64.getEncoder().encodeToString(bytes));
            });
        } catch (RuntimeException e) {
            return "error " + e;
        }
        return text.toString();
    }

    private String bench(int runs) {
        Cluster cluster = cluster();
        long warmUntil = System.nanoTime() + 3_000_000_000L;
        for (int i = 0; i < 5 || System.nanoTime() < warmUntil; i++)
            assign(cluster);
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < runs; i++) {
            long began = System.nanoTime();
            assign(cluster);
            text.append(i > 0 ? " " : "").append((System.nanoTime() - began) / 1e6);
        }
        return text.toString();
    }
}

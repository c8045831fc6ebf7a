import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * Runs Kafka's server-side assignors on cases from standard input.
 *
 * A case is a line "case ASSIGNOR alike|mixed", lines "topic HIGH:LOW COUNT", lines
 * "member ID INSTANCE_ID|- TOPICS|- ASSIGNED|-" (topics joined by ',', assigned as HIGH:LOW=P,P;...) and a line "end".
 * The answer is one line: "ok" with ID and ASSIGNED|- of each member, or "error" with what was thrown. With the argument
 * "bench N", a case is run until warm, then N times, and the answer is the N times in milliseconds.
 */
public final class ServerAssignorHarness implements SubscribedTopicDescriber {
    private String assignor;
    private boolean alike;
    private final Map<Uuid, Integer> counts = new HashMap<>();
    private final Map<String, MemberSubscriptionAndAssignmentImpl> members = new LinkedHashMap<>();
    private final Map<Uuid, Map<Integer, String>> inverted = new HashMap<>();

    public static void main(String[] args) throws Exception {
        int runs = args.length == 2 && args[0].equals("bench") ? Integer.parseInt(args[1]) : 0;
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        ServerAssignorHarness group = null;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "case":
                    group = new ServerAssignorHarness();
                    group.assignor = words[1];
                    group.alike = words[2].equals("alike");
                    break;
                case "topic":
                    group.counts.put(id(words[1]), Integer.parseInt(words[2]));
                    break;
                case "member":
                    group.add(words[1], words[2], words[3], words[4]);
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

    private static Uuid id(String text) {
        String[] parts = text.split(":");
        return new Uuid(Long.parseLong(parts[0]), Long.parseLong(parts[1]));
    }

    private void add(String member, String instance, String topics, String assigned) {
        Set<Uuid> subscribed = new HashSet<>();
        if (!topics.equals("-"))
            Arrays.stream(topics.split(",")).forEach(topic -> subscribed.add(id(topic)));
        Map<Uuid, Set<Integer>> partitions = new HashMap<>();
        if (!assigned.equals("-")) {
            for (String part : assigned.split(";")) {
                String[] sides = part.split("=");
                Set<Integer> numbers = new HashSet<>();
                for (String number : sides[1].split(",")) {
                    numbers.add(Integer.parseInt(number));
                    inverted.computeIfAbsent(id(sides[0]), k -> new HashMap<>()).put(Integer.parseInt(number), member);
                }
                partitions.put(id(sides[0]), numbers);
            }
        }
        members.put(member, new MemberSubscriptionAndAssignmentImpl(
            Optional.empty(),
            instance.equals("-") ? Optional.empty() : Optional.of(instance),
            subscribed,
            new Assignment(Collections.unmodifiableMap(partitions))));
    }

    private GroupAssignment assign() {
        ConsumerGroupPartitionAssignor made = assignor.equals("range") ? new RangeAssignor() : new UniformAssignor();
        SubscriptionType type = alike ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        return made.assign(new GroupSpecImpl(members, type, inverted), this);
    }

    @Override
    public int numPartitions(Uuid topicId) {
        return counts.getOrDefault(topicId, -1);
    }

    @Override
    public Set<String> racksForPartition(Uuid topicId, int partition) {
        return Set.of();
    }

    private String answer() {
        StringBuilder text = new StringBuilder("ok");
        try {
            assign().members().forEach((member, assignment) -> {
                StringBuilder parts = new StringBuilder();
                new TreeMap<>(assignment.partitions()).forEach((topic, numbers) -> {
                    if (numbers.isEmpty()) return;
                    parts.append(parts.length() > 0 ? ";" : "")
                        .append(topic.getMostSignificantBits()).append(':').append(topic.getLeastSignificantBits()).append('=')
                        .append(String.join(",", new TreeSet<>(numbers).stream().map(String::valueOf).toList()));
                });
                text.append(' ').append(member).append(' ').append(parts.length() > 0 ? parts : "-");
            });
        } catch (RuntimeException e) {
            return "error " + e;
        }
        return text.toString();
    }

    private String bench(int runs) {
        long warmUntil = System.nanoTime() + 3_000_000_000L;
        for (int i = 0; i < 5 || System.nanoTime() < warmUntil; i++)
            assign();
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < runs; i++) {
            long began = System.nanoTime();
            assign();
            text.append(i > 0 ? " " : "").append((System.nanoTime() - began) / 1e6);
        }
        return text.toString();
    }
}

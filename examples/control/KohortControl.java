// The control port of `kohort serve --control-port 0` for the JVM: one file, no dependency, Java 17 or newer.
//
//   try (var kohort = KohortControl.start()) {      // needs `kohort` on the path (pip install kohort)
//       kohort.post("/topics", "{\"name\": \"orders\", \"partitions\": 3}");
//       ... your consumers use kohort.bootstrapServers() ...
//       kohort.waitStable("billing", 2);
//       kohort.advance(45);                         // sessions expire without waiting
//   }
//   try (var kohort = KohortControl.startCluster(3)) {   // several brokers
//       kohort.kill(kohort.coordinatorOf("billing"));
//   }
//
// Answers are JSON text: read them with the library that your tests have. `java KohortControl.java` tries it.

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

public final class KohortControl implements AutoCloseable {
    private final HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    private final Process process;
    private final String url;
    private final String bootstrapServers;

    private KohortControl(Process process, String url, String bootstrapServers) {
        this.process = process;
        this.url = url;
        this.bootstrapServers = bootstrapServers;
    }

    /** A broker in memory on a free port, as a process of its own. */
    public static KohortControl start(String... options) throws IOException {
        List<String> words = new ArrayList<>(List.of(
            "kohort", "serve", "--memory", "--port", "0", "--control-port", "0", "--log-level", "error",
            "--config", "group.initial.rebalance.delay.ms=0"));
        words.addAll(List.of(options));
        Process process = new ProcessBuilder(words).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        BufferedReader lines = new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
        String listening = lines.readLine();
        String control = lines.readLine();
        if (listening == null || control == null) throw new IOException("kohort serve did not start");
        return new KohortControl(process, control.replace("kohort control on ", ""), listening.replace("kohort listening on ", ""));
    }

    /** Several brokers of one cluster, in one process. */
    public static KohortControl startCluster(int brokers, String... options) throws IOException {
        List<String> words = new ArrayList<>(List.of("--brokers", "" + brokers));
        words.addAll(List.of(options));
        return start(words.toArray(new String[0]));
    }

    public String bootstrapServers() { return bootstrapServers; }

    public String createTopic(String name, int partitions) throws IOException, InterruptedException {
        return post("/topics", "{\"name\": \"" + name + "\", \"partitions\": " + partitions + "}");
    }
    public String records(String topic) throws IOException, InterruptedException { return get("/topics/" + path(topic) + "/records"); }
    public String committed(String group) throws IOException, InterruptedException { return get("/groups/" + path(group) + "/committed"); }
    public String group(String group) throws IOException, InterruptedException { return get("/groups/" + path(group)); }
    public String story(String group) throws IOException, InterruptedException { return get("/groups/" + path(group) + "/story"); }
    public String requests(String api) throws IOException, InterruptedException { return get("/requests?api=" + path(api)); }
    public String waitStable(String group, int members) throws IOException, InterruptedException {
        return post("/groups/" + path(group) + "/wait-stable", "{\"members\": " + members + "}");
    }
    public String evictClient(String group, String clientId) throws IOException, InterruptedException {
        return post("/groups/" + path(group) + "/evict", "{\"client\": \"" + clientId + "\"}");
    }
    public String advance(double seconds) throws IOException, InterruptedException {
        return post("/clock/advance", "{\"seconds\": " + seconds + "}");
    }
    public String restart() throws IOException, InterruptedException { return post("/broker/restart", "{}"); }

    // Of several brokers; each is named by its node id.

    public int coordinatorOf(String group) throws IOException, InterruptedException {
        return nodeId(get("/groups/" + path(group) + "/coordinator"));
    }
    public int leaderOf(String topic, int partition) throws IOException, InterruptedException {
        return nodeId(get("/topics/" + path(topic) + "/leader?partition=" + partition));
    }
    /** As kill -9. */
    public String kill(int node) throws IOException, InterruptedException { return broker(node, "kill"); }
    /** Cleanly: what it leads is handed over. */
    public String stop(int node) throws IOException, InterruptedException { return broker(node, "stop"); }
    public String start(int node) throws IOException, InterruptedException { return broker(node, "start"); }
    public String pause(int node) throws IOException, InterruptedException { return broker(node, "pause"); }
    public String resume(int node) throws IOException, InterruptedException { return broker(node, "resume"); }
    public String heal(int node) throws IOException, InterruptedException { return broker(node, "heal"); }
    public String partition(int node, boolean store, boolean clients) throws IOException, InterruptedException {
        return post("/brokers/" + node + "/partition", "{\"store\": " + store + ", \"clients\": " + clients + "}");
    }
    public int addBroker() throws IOException, InterruptedException { return nodeId(post("/brokers", "{}")); }
    public String move(String topic, int partition, int to) throws IOException, InterruptedException {
        return post("/cluster/move", "{\"topic\": \"" + topic + "\", \"partition\": " + partition + ", \"to\": " + to + "}");
    }
    private String broker(int node, String action) throws IOException, InterruptedException {
        return post("/brokers/" + node + "/" + action, "{}");
    }
    private static int nodeId(String json) {
        return Integer.parseInt(json.replaceAll("(?s).*\"node_id\": (\\d+).*", "$1"));
    }

    public String get(String path) throws IOException, InterruptedException { return ask("GET", path, ""); }
    public String post(String path, String json) throws IOException, InterruptedException { return ask("POST", path, json); }
    public String delete(String path) throws IOException, InterruptedException { return ask("DELETE", path, ""); }

    private String ask(String method, String path, String json) throws IOException, InterruptedException {
        var request = HttpRequest.newBuilder(URI.create(url + path)).method(method, BodyPublishers.ofString(json)).build();
        var answer = client.send(request, BodyHandlers.ofString());
        if (answer.statusCode() >= 400) throw new IllegalStateException(answer.body().strip());
        return answer.body();
    }

    private static String path(String name) { return URLEncoder.encode(name, StandardCharsets.UTF_8).replace("+", "%20"); }

    @Override public void close() {
        process.destroy();
        try {
            process.waitFor();
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    public static void main(String[] arguments) throws Exception {
        try (var kohort = start()) {
            kohort.createTopic("orders", 3);
            check(kohort.records("orders").contains("\"records\": []"));
            check(kohort.waitStable("billing", 0).contains("Dead"));
            check(kohort.post("/faults", "{\"action\": \"drop\", \"api\": \"Fetch\"}").contains("\"hits\": 0"));
            kohort.advance(45);
            kohort.restart();
            try {
                kohort.evictClient("billing", "nobody");
                check(false);
            } catch (IllegalStateException refused) {
                check(refused.getMessage().contains("no member"));
            }
        }
        try (var cluster = startCluster(3)) {
            cluster.createTopic("orders", 3);
            int was = cluster.coordinatorOf("billing");
            cluster.kill(was);
            check(cluster.coordinatorOf("billing") != was);
            cluster.start(was);
            cluster.move("orders", 0, was);
            check(cluster.leaderOf("orders", 0) == was);
            cluster.pause(was);
            cluster.resume(was);
            cluster.partition(was, true, false);
            cluster.heal(was);
            check(cluster.addBroker() == 4);
            cluster.stop(4);
            System.out.println("ok");
        }
    }

    private static void check(boolean held) {
        if (!held) throw new AssertionError();
    }
}

import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.jar.JarFile;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.Struct;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;
import org.apache.kafka.common.record.internal.MemoryRecords;

/**
 * Every generated message of Kafka, driven by lines on standard input:
 *   list                        -> CLASS LOWEST HIGHEST ..., one a line, then an empty line
 *   make CLASS VERSION SEED     -> HEX TAB JSON of an instance filled from the schema, as the generated class writes it
 *   echo CLASS VERSION HEX      -> HEX TAB JSON of what the generated class read, or "error: REASON"
 */
public final class CodecHarness {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", -1);
            String answer;
            try {
                answer = switch (words[0]) {
                    case "list" -> list();
                    case "make" -> make(words[1], Short.parseShort(words[2]), Long.parseLong(words[3]));
                    case "echo" -> echo(words[1], Short.parseShort(words[2]), HEX.parseHex(words[3]));
                    default -> "error: unknown command " + words[0];
                };
            } catch (Exception e) {
                Throwable cause = e.getCause() != null ? e.getCause() : e;
                answer = "error: " + cause.toString().replace('\n', ' ');
            }
            out.print(answer);
            out.print('\n');
            if (!in.ready()) {
                out.flush();
            }
        }
        out.flush();
    }

    private static String list() throws Exception {
        StringBuilder found = new StringBuilder();
        for (String jar : System.getProperty("java.class.path").split(java.io.File.pathSeparator)) {
            if (!jar.endsWith(".jar") || !jar.contains("kafka")) {
                continue;
            }
            try (JarFile file = new JarFile(jar)) {
                Set<String> names = new TreeSet<>();
                file.stream().forEach(entry -> names.add(entry.getName()));
                for (String name : names) {
                    String base = name.replaceFirst("\\.class$", "");
                    if (!name.matches(".*\\w\\.class") || name.contains("$") || !names.contains(base + "JsonConverter.class")) {
                        continue;
                    }
                    Class<?> type = Class.forName(base.replace('/', '.'));
                    found.append(type.getName()).append(' ')
                        .append(type.getField("LOWEST_SUPPORTED_VERSION").getShort(null)).append(' ')
                        .append(type.getField("HIGHEST_SUPPORTED_VERSION").getShort(null)).append('\n');
                }
            }
        }
        return found.toString();
    }

    private static String make(String name, short version, long seed) throws Exception {
        Schema schema = ((Schema[]) Class.forName(name).getField("SCHEMAS").get(null))[version];
        Struct struct = new Filler(seed).struct(schema);
        ByteBuffer buffer = ByteBuffer.allocate(schema.sizeOf(struct));
        schema.write(buffer, struct);
        return echo(name, version, buffer.array());
    }

    private static String echo(String name, short version, byte[] bytes) throws Exception {
        Class<?> type = Class.forName(name);
        Message message = (Message) type.getConstructor().newInstance();
        ByteBufferAccessor readable = new ByteBufferAccessor(ByteBuffer.wrap(bytes));
        message.read(readable, version);
        if (readable.remaining() > 0) {
            return "error: " + readable.remaining() + " bytes were not read";
        }
        ByteBuffer written = MessageUtil.toByteBufferAccessor(message, version).buffer();
        byte[] again = new byte[written.remaining()];
        written.get(again);
        Method toJson = Class.forName(name + "JsonConverter").getMethod("write", type, short.class);
        JsonNode json = (JsonNode) toJson.invoke(null, message, version);
        return HEX.formatHex(again) + "\t" + json;
    }

    /** Values for a schema: seed 0 leaves empty and null what can be, seed 1 fills everything, others choose. */
    private static final class Filler {
        private final long seed;
        private final Random random;

        Filler(long seed) {
            this.seed = seed;
            this.random = new Random(seed);
        }

        Struct struct(Schema schema) {
            Struct struct = new Struct(schema);
            for (BoundField field : schema.fields()) {
                struct.set(field, value(field.def.type));
            }
            return struct;
        }

        private boolean empty() {
            return seed == 0 || (seed > 1 && random.nextInt(4) == 0);
        }

        private Object value(Type type) {
            if (type.isNullable() && empty()) {
                return null;
            }
            if (type instanceof TaggedFields tagged) {
                return tags(tagged);
            }
            if (type.arrayElementType().isPresent()) {
                List<Object> items = new ArrayList<>();
                int count = empty() ? 0 : 1 + random.nextInt(3);
                for (int i = 0; i < count; i++) {
                    items.add(value(type.arrayElementType().get()));
                }
                return items.toArray();
            }
            if (type instanceof Schema schema) {
                return struct(schema);
            }
            return scalar(((Type.DocumentedType) type).typeName());
        }

        private Object scalar(String type) {
            return switch (type) {
                case "BOOLEAN" -> random.nextBoolean();
                case "INT8" -> (byte) random.nextInt();
                case "INT16" -> (short) random.nextInt();
                case "UINT16" -> random.nextInt(65536);
                case "INT32" -> random.nextInt();
                case "UINT32" -> random.nextLong() & 0xFFFFFFFFL;
                case "INT64" -> random.nextLong();
                case "UUID" -> new Uuid(random.nextLong(), random.nextLong());
                case "FLOAT64" -> random.nextGaussian() * 1e6;
                case "STRING", "COMPACT_STRING", "NULLABLE_STRING", "COMPACT_NULLABLE_STRING" -> text();
                case "BYTES", "COMPACT_BYTES", "NULLABLE_BYTES", "COMPACT_NULLABLE_BYTES" -> ByteBuffer.wrap(bytes());
                case "RECORDS", "COMPACT_RECORDS", "NULLABLE_RECORDS", "COMPACT_NULLABLE_RECORDS" ->
                    MemoryRecords.readableRecords(ByteBuffer.wrap(bytes()));
                default -> throw new IllegalArgumentException("no values for the type " + type);
            };
        }

        private Map<Integer, Object> tags(TaggedFields type) {
            TreeMap<Integer, Object> values = new TreeMap<>();
            for (Map.Entry<Integer, Field> known : type.fields().entrySet()) {
                Object value = value(known.getValue().type);
                // A null struct under a tag: the schema writes 0xff where the generated class reads a varint.
                boolean misread = value == null && known.getValue().type instanceof Schema;
                if (!empty() && !misread) {
                    values.put(known.getKey(), value);
                }
            }
            if (seed > 1 && random.nextInt(3) == 0) {
                int tag = 100 + random.nextInt(100_000);
                values.put(tag, new RawTaggedField(tag, bytes()));
            }
            return values;
        }

        private String text() {
            String[] words = {"orders", "größe", "日本語", "a.b-c_d", "🙂"};
            if (empty()) {
                return "";
            }
            return random.nextInt(8) == 0 ? words[0].repeat(30) : words[random.nextInt(words.length)] + random.nextInt(1000);
        }

        private byte[] bytes() {
            byte[] bytes = new byte[empty() ? 0 : random.nextInt(200)];
            random.nextBytes(bytes);
            return bytes;
        }
    }
}

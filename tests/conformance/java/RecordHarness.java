import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;

import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.SimpleRecord;

/**
 * Record batches as Kafka reads and writes them, one request a line:
 *   read BATCHES        -> "offset,timestamp,key,value,header:value,..." per record, joined by ";", or "refused CLASS"
 *   write CODEC RECORDS -> the batch of such records
 * Bytes are base64, null is "~".
 */
public class RecordHarness {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", -1);
            System.out.println(words[0].equals("read") ? read(words[1]) : write(words[1], words[2]));
        }
    }

    private static String read(String batches) {
        List<String> records = new ArrayList<>();
        try {
            for (MutableRecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(decode(batches))).batches()) {
                batch.ensureValid();
                for (Record record : batch)
                    records.add(describe(record));
            }
        } catch (RuntimeException e) {
            return "refused " + e.getClass().getSimpleName();
        }
        return String.join(";", records);
    }

    private static String describe(Record record) {
        List<String> parts = new ArrayList<>();
        parts.add(Long.toString(record.offset()));
        parts.add(Long.toString(record.timestamp()));
        parts.add(encode(record.key()));
        parts.add(encode(record.value()));
        for (Header header : record.headers()) {
            byte[] value = header.value();
            String key = encode(ByteBuffer.wrap(header.key().getBytes(StandardCharsets.UTF_8)));
            parts.add(key + ":" + encode(value == null ? null : ByteBuffer.wrap(value)));
        }
        return String.join(",", parts);
    }

    private static String write(String codec, String descriptions) {
        List<SimpleRecord> records = new ArrayList<>();
        for (String description : descriptions.split(";")) {
            String[] parts = description.split(",", -1);
            Header[] headers = new Header[parts.length - 4];
            for (int i = 4; i < parts.length; i++) {
                String[] pair = parts[i].split(":", -1);
                headers[i - 4] = new RecordHeader(new String(decode(pair[0]), StandardCharsets.UTF_8), decode(pair[1]));
            }
            records.add(new SimpleRecord(Long.parseLong(parts[1]), decode(parts[2]), decode(parts[3]), headers));
        }
        MemoryRecords written = MemoryRecords.withRecords(
            Compression.of(codec).build(), records.toArray(new SimpleRecord[0]));
        return encode(written.buffer());
    }

    private static String encode(ByteBuffer buffer) {
        if (buffer == null)
            return "~";
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return Base64.getEncoder().encodeToString(bytes);
    }

    private static byte[] decode(String text) {
        return text.equals("~") ? null : Base64.getDecoder().decode(text);
    }
}

/* Kafka record batches (magic 2) to columns: find batches, check their CRC-32C (_crc.c), index their records, gather columns.
 *
 * A plain shared library: no Python in here, every buffer comes from the caller, nothing is allocated. Input is hostile
 * until proven otherwise: no read leaves [src, src + src_len), no write passes a stated capacity. kernel.py mirrors the
 * structs below; change both or neither. */

#include <stdint.h>
#include <string.h>

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

#if defined(__GNUC__) || defined(__clang__)
#define LIKELY(x) __builtin_expect(!!(x), 1)
#else
#define LIKELY(x) (x)
#endif

uint32_t kohort_crc32c_on(uint32_t start, const uint8_t *p, int64_t len);   /* _crc.c */

enum {
    ERR_LENGTH = -1,      /* a batch length smaller than its header */
    ERR_OLD_MAGIC = -2,   /* magic 0 or 1 */
    ERR_MAGIC = -3,       /* no such magic */
    ERR_OFFSET = -4,      /* a base offset that no log has */
    ERR_CRC = -5,         /* checksum mismatch */
    ERR_COUNT = -6,       /* a record count the bytes cannot hold */
    ERR_RECORD = -7,      /* a record that does not parse */
    ERR_TRAILING = -8,    /* bytes after the last record */
    ERR_CAPACITY = -9,    /* the caller's arrays are too small */
    ERR_DELTA = -10       /* records that do not count their offsets from 0 */
};

enum { HEADER_SIZE = 61, LOG_OVERHEAD = 12, LEGACY_MIN_LENGTH = 14, MIN_RECORD_SIZE = 7 };
enum { CODEC_MASK = 0x07, TIMESTAMP_TYPE_FLAG = 0x08, CONTROL_FLAG = 0x20 };

typedef struct {
    int64_t pos, size;             /* the whole batch in the scanned buffer */
    int64_t data_pos, data_len;    /* its records in the buffer given to kohort_index */
    int64_t count, attributes;
    int64_t base_offset, last_offset;
    int64_t base_timestamp, max_timestamp;
    int64_t producer_id;
} batch_t;

typedef struct {
    int64_t next_pos;              /* where the next scan goes on */
    int64_t rows;                  /* sum of the counts of the batches found */
    int64_t bytes;                 /* sum of their sizes */
    int64_t attributes;            /* all their attributes, or-ed */
    int64_t done;                  /* 1: no complete batch is left */
} scan_t;

typedef struct {
    int64_t capacity, rows;
    int64_t key_nulls, key_bytes;
    int64_t value_nulls, value_bytes;
    int64_t header_rows, headers, header_key_bytes, header_value_bytes, header_value_nulls;
    int64_t *offset, *timestamp;
    int32_t *timestamp_type;
    int32_t *key_start, *key_end, *value_start, *value_end;   /* end is -1 for null */
    int32_t *header_start, *header_count;
} index_t;

typedef struct {
    int64_t count, base_timestamp;       /* of the batch */
    int64_t append_time;                 /* 1: every record has the time max_timestamp, whatever it says */
    int64_t earliest, latest;            /* the timestamps that may be */
    int64_t keys_needed, inner_codec;    /* 1: a record needs a key; 1: a record with a codec of its own is at fault */
    int64_t max_timestamp;               /* in for append_time, else out */
    int64_t faults, capacity;            /* how many records are at fault, and how many of them may be listed */
    int32_t *fault;                      /* index * 4 + what is wrong: 0 no key, 1 its timestamp, 2 a codec */
} walk_t;

typedef struct {
    int64_t rows, headers;         /* capacities */
    int64_t key_bytes, value_bytes;
    int64_t row, header, key_pos, value_pos;   /* how far it is filled */
    int32_t *list_offset;
    uint8_t *list_valid;
    int32_t *key_offset;
    uint8_t *key_data;
    int32_t *value_offset;
    uint8_t *value_data;
    uint8_t *value_valid;
} headers_t;

/* ---------------------------------------------------------------------------------------------------- big endian */

static inline uint32_t be32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static inline uint64_t be64(const uint8_t *p) { return (uint64_t)be32(p) << 32 | be32(p + 4); }

/* ---------------------------------------------------------------------------------------------------------- scan */

static void read_batch(const uint8_t *p, int64_t pos, int64_t size, batch_t *batch) {
    batch->pos = pos;
    batch->size = size;
    batch->data_pos = pos + HEADER_SIZE;
    batch->data_len = size - HEADER_SIZE;
    batch->attributes = (int16_t)(p[21] << 8 | p[22]);
    batch->base_offset = (int64_t)be64(p);
    batch->last_offset = batch->base_offset + (int32_t)be32(p + 23);
    batch->base_timestamp = (int64_t)be64(p + 27);
    batch->max_timestamp = (int64_t)be64(p + 35);
    batch->producer_id = (int64_t)be64(p + 43);
    batch->count = (int32_t)be32(p + 57);
}

/* Finds complete batches that may hold offsets of [from, to), from `pos` on: at least one, then as many as max_rows
 * allows, until max_bytes is reached or `capacity` batches are found. Returns how many, or an error; result->next_pos
 * then is where the bad batch starts. */
EXPORT int64_t kohort_scan(const uint8_t *buf, int64_t len, int64_t pos, int64_t from, int64_t to, int64_t max_rows,
                           int64_t max_bytes, int64_t check_crc, batch_t *out, int64_t capacity, scan_t *result) {
    int64_t found = 0;
    memset(result, 0, sizeof *result);
    while (found < capacity && result->rows < max_rows && result->bytes < max_bytes) {
        result->next_pos = pos;
        int64_t left = len - pos;
        const uint8_t *p = buf + pos;
        if (left < LOG_OVERHEAD) { result->done = 1; break; }
        int64_t length = (int32_t)be32(p + 8);
        if (length < LEGACY_MIN_LENGTH) return ERR_LENGTH;
        if (left <= 16) { result->done = 1; break; }
        if (p[16] != 2) return p[16] < 2 ? ERR_OLD_MAGIC : ERR_MAGIC;
        int64_t size = length + LOG_OVERHEAD;
        if (size < HEADER_SIZE) return ERR_LENGTH;
        if (left < HEADER_SIZE) { result->done = 1; break; }
        uint64_t base_offset = be64(p);
        if (base_offset > (uint64_t)INT64_MAX - UINT32_MAX) return ERR_OFFSET;
        if (size > left) { result->done = 1; break; }
        batch_t *batch = out + found;
        read_batch(p, pos, size, batch);
        pos += size;
        if (batch->last_offset < from) { result->next_pos = pos; continue; }
        if (batch->base_offset >= to) { result->next_pos = pos; result->done = 1; break; }
        if (found && batch->count > max_rows - result->rows) break;
        if (check_crc && kohort_crc32c_on(0, p + 21, size - 21) != be32(p + 17)) return ERR_CRC;
        if (batch->count < 0) return ERR_COUNT;
        result->next_pos = pos;
        result->rows += batch->count;
        result->bytes += size;
        result->attributes |= batch->attributes;
        found++;
    }
    return found;
}

/* --------------------------------------------------------------------------------------------------------- index */

/* Both return the position after the varint, or NULL where it does not end in time. */
static inline const uint8_t *varint(const uint8_t *p, const uint8_t *end, int32_t *out) {
    uint32_t raw = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        if (p >= end) return NULL;
        uint32_t byte = *p++;
        raw |= (byte & 0x7f) << shift;
        if (byte < 0x80) {
            *out = (int32_t)(raw >> 1 ^ (0u - (raw & 1)));
            return p;
        }
    }
    return NULL;
}

static inline const uint8_t *varlong(const uint8_t *p, const uint8_t *end, int64_t *out) {
    uint64_t raw = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        if (p >= end) return NULL;
        uint64_t byte = *p++;
        raw |= (byte & 0x7f) << shift;
        if (byte < 0x80) {
            *out = (int64_t)(raw >> 1 ^ (0ull - (raw & 1)));
            return p;
        }
    }
    return NULL;
}

/* A length and its bytes; a negative length is null and has none. */
static inline const uint8_t *field(const uint8_t *p, const uint8_t *end, const uint8_t **start, int32_t *length) {
    p = varint(p, end, length);
    if (!p) return NULL;
    *start = p;
    if (*length < 0) return p;
    if (*length > end - p) return NULL;
    return p + *length;
}

static const uint8_t *skip_headers(const uint8_t *p, const uint8_t *end, int32_t count, int64_t sums[3]) {
    const uint8_t *start;
    int32_t length;
    for (int32_t i = 0; i < count; i++) {
        p = field(p, end, &start, &length);
        if (!p || length < 0) return NULL;
        sums[0] += length;
        p = field(p, end, &start, &length);
        if (!p) return NULL;
        if (length < 0) sums[2]++;
        else sums[1] += length;
    }
    return p;
}

static int64_t index_batch(const uint8_t *src, const batch_t *batch, int64_t from, int64_t to, index_t *ix) {
    const uint8_t *p = src + batch->data_pos, *stop = p + batch->data_len;
    const int append_time = (batch->attributes & TIMESTAMP_TYPE_FLAG) != 0;
    int64_t row = ix->rows;
    for (int64_t i = 0; i < batch->count; i++) {
        int32_t size, delta, key_len, value_len, count;
        int64_t timestamp;
        const uint8_t *key, *value, *header_start;
        p = varint(p, stop, &size);
        if (!p || size < 1 || size > stop - p) return ERR_RECORD;
        const uint8_t *end = p + size;
        if (!(p = varlong(p + 1, end, &timestamp))) return ERR_RECORD;
        if (!(p = varint(p, end, &delta))) return ERR_RECORD;
        if (!(p = field(p, end, &key, &key_len))) return ERR_RECORD;
        if (!(p = field(p, end, &value, &value_len))) return ERR_RECORD;
        if (!(p = varint(p, end, &count))) return ERR_RECORD;
        if (count < 0 || count > end - p) return ERR_RECORD;
        header_start = p;
        int64_t sums[3] = {0, 0, 0};
        if (count && !(p = skip_headers(p, end, count, sums))) return ERR_RECORD;
        if (p != end) return ERR_RECORD;
        int64_t offset = batch->base_offset + delta;
        if (offset < from || offset >= to) continue;
        if (row >= ix->capacity) return ERR_CAPACITY;
        ix->offset[row] = offset;
        ix->timestamp[row] = append_time ? batch->max_timestamp
                                         : (int64_t)((uint64_t)batch->base_timestamp + (uint64_t)timestamp);
        ix->timestamp_type[row] = append_time;
        ix->key_start[row] = (int32_t)(key - src);
        ix->key_end[row] = key_len < 0 ? -1 : (int32_t)(key - src) + key_len;
        ix->value_start[row] = (int32_t)(value - src);
        ix->value_end[row] = value_len < 0 ? -1 : (int32_t)(value - src) + value_len;
        ix->header_start[row] = (int32_t)(header_start - src);
        ix->header_count[row] = count;
        if (key_len < 0) ix->key_nulls++;
        else ix->key_bytes += key_len;
        if (value_len < 0) ix->value_nulls++;
        else ix->value_bytes += value_len;
        if (count) {
            ix->header_rows++;
            ix->headers += count;
            ix->header_key_bytes += sums[0];
            ix->header_value_bytes += sums[1];
            ix->header_value_nulls += sums[2];
        }
        row++;
    }
    if (batch->count && p != stop) return ERR_TRAILING;
    ix->rows = row;
    return 0;
}

/* Appends the records of [from, to) of `count` batches, whose data_pos and data_len lie in src, to the index. */
EXPORT int64_t kohort_index(const uint8_t *src, int64_t src_len, const batch_t *batches, int64_t count, int64_t from,
                            int64_t to, index_t *ix) {
    if (src_len > INT32_MAX) return ERR_CAPACITY;
    for (int64_t i = 0; i < count; i++) {
        const batch_t *batch = batches + i;
        if (batch->data_pos < 0 || batch->data_len < 0 || batch->data_pos > src_len ||
            batch->data_len > src_len - batch->data_pos)
            return ERR_LENGTH;
        if (batch->count < 0 || batch->count > batch->data_len / MIN_RECORD_SIZE) return ERR_COUNT;
        int64_t error = index_batch(src, batch, from, to, ix);
        if (error) return error;
    }
    return 0;
}

/* ---------------------------------------------------------------------------------------------------------- walk */

static void at_fault(walk_t *walk, int64_t row, int what) {
    if (walk->faults < walk->capacity) walk->fault[walk->faults] = (int32_t)(row * 4 + what);
    walk->faults++;
}

/* Reads the inflated records of one produced batch once: their structure, their offsets from 0 on, and what the rules
 * of the topic say about each. */
EXPORT int64_t kohort_walk(const uint8_t *p, int64_t len, walk_t *walk) {
    const uint8_t *stop = p + len;
    int64_t latest = -1;
    walk->faults = 0;
    if (walk->count < 0 || walk->count > len / MIN_RECORD_SIZE || walk->count > INT32_MAX / 4) return ERR_COUNT;
    for (int64_t i = 0; i < walk->count; i++) {
        int32_t size, delta, key_len, value_len, count;
        int64_t timestamp, sums[3] = {0, 0, 0};
        const uint8_t *start;
        p = varint(p, stop, &size);
        if (!p || size < 1 || size > stop - p) return ERR_RECORD;
        const uint8_t *end = p + size;
        const uint8_t attributes = *p;
        if (!(p = varlong(p + 1, end, &timestamp))) return ERR_RECORD;
        if (!(p = varint(p, end, &delta))) return ERR_RECORD;
        if (!(p = field(p, end, &start, &key_len))) return ERR_RECORD;
        if (!(p = field(p, end, &start, &value_len))) return ERR_RECORD;
        if (!(p = varint(p, end, &count))) return ERR_RECORD;
        if (count < 0 || count > end - p) return ERR_RECORD;
        if (count && !(p = skip_headers(p, end, count, sums))) return ERR_RECORD;
        if (p != end) return ERR_RECORD;
        if (delta != i) return ERR_DELTA;
        timestamp = walk->append_time ? walk->max_timestamp
                                      : (int64_t)((uint64_t)walk->base_timestamp + (uint64_t)timestamp);
        if (timestamp > latest) latest = timestamp;
        if (walk->inner_codec && (attributes & 7)) at_fault(walk, i, 2);
        else if (walk->keys_needed && key_len < 0) at_fault(walk, i, 0);
        else if (timestamp != -1 && (timestamp < walk->earliest || timestamp > walk->latest)) at_fault(walk, i, 1);
    }
    if (p != stop) return ERR_TRAILING;
    walk->max_timestamp = latest;
    return 0;
}

/* 1: `p` is one plain batch with the producer's timestamps that can be stored as it came. 0 says nothing: look closer. */
EXPORT int64_t kohort_sound(const uint8_t *p, int64_t len, int64_t now_ms, int64_t before_max_ms, int64_t after_max_ms,
                            int64_t keys_needed) {
    batch_t batch;
    if (len < HEADER_SIZE || (int64_t)(int32_t)be32(p + 8) + LOG_OVERHEAD != len || p[16] != 2) return 0;
    if (now_ms < 0 || before_max_ms < 0 || after_max_ms < 0) return 0;
    read_batch(p, 0, len, &batch);
    if (batch.base_offset != 0 || batch.count < 1 || batch.last_offset + 1 != batch.count) return 0;
    if (batch.attributes & (CODEC_MASK | TIMESTAMP_TYPE_FLAG | CONTROL_FLAG)) return 0;
    if (batch.producer_id >= 0 && (int32_t)be32(p + 53) < 0) return 0;
    if (kohort_crc32c_on(0, p + 21, len - 21) != be32(p + 17)) return 0;
    walk_t walk = {.count = batch.count, .base_timestamp = batch.base_timestamp, .keys_needed = keys_needed};
    walk.earliest = now_ms - before_max_ms;
    walk.latest = after_max_ms > INT64_MAX - now_ms ? INT64_MAX : now_ms + after_max_ms;
    if (kohort_walk(p + HEADER_SIZE, len - HEADER_SIZE, &walk)) return 0;
    return !walk.faults && walk.max_timestamp == batch.max_timestamp;
}

/* -------------------------------------------------------------------------------------------------------- gather */

/* Copies `rows` fields [start, end) of src into an Arrow binary column: row `row` on, data from data_pos on. `offsets`
 * has an entry more than rows and its first is set by the caller; `valid` is zeroed by the caller, or NULL where no
 * field is null. Returns the new end of the data, or an error. */
EXPORT int64_t kohort_gather(const uint8_t *src, int64_t src_len, const int32_t *start, const int32_t *end,
                             int64_t rows, int64_t row, int32_t *offsets, uint8_t *data, int64_t data_pos,
                             int64_t data_capacity, uint8_t *valid) {
    for (int64_t i = 0; i < rows; i++) {
        int64_t length = (int64_t)end[i] - start[i];
        if (LIKELY(end[i] >= 0)) {
            if (start[i] < 0 || length < 0 || end[i] > src_len || length > data_capacity - data_pos)
                return ERR_CAPACITY;
            memcpy(data + data_pos, src + start[i], (size_t)length);
            data_pos += length;
            if (valid) valid[(row + i) >> 3] |= (uint8_t)(1u << ((row + i) & 7));
        } else if (!valid) {
            return ERR_CAPACITY;
        }
        offsets[row + i + 1] = (int32_t)data_pos;
    }
    return data_pos;
}

static const uint8_t *gather_header(const uint8_t *p, const uint8_t *stop, headers_t *h) {
    const uint8_t *start;
    int32_t length;
    int64_t at = h->header;
    p = field(p, stop, &start, &length);
    if (!p || length < 0 || length > h->key_bytes - h->key_pos) return NULL;
    memcpy(h->key_data + h->key_pos, start, (size_t)length);
    h->key_pos += length;
    p = field(p, stop, &start, &length);
    if (!p) return NULL;
    if (length >= 0) {
        if (length > h->value_bytes - h->value_pos) return NULL;
        memcpy(h->value_data + h->value_pos, start, (size_t)length);
        h->value_pos += length;
        h->value_valid[at >> 3] |= (uint8_t)(1u << (at & 7));
    }
    h->key_offset[at + 1] = (int32_t)h->key_pos;
    h->value_offset[at + 1] = (int32_t)h->value_pos;
    h->header = at + 1;
    return p;
}

/* Copies the headers of `rows` indexed records into an Arrow list<struct<key, value>>; a record without any is null. */
EXPORT int64_t kohort_gather_headers(const uint8_t *src, int64_t src_len, const int32_t *start, const int32_t *count,
                                     int64_t rows, headers_t *h) {
    if (rows > h->rows - h->row) return ERR_CAPACITY;
    for (int64_t i = 0; i < rows; i++) {
        if (count[i] > 0) {
            if (count[i] > h->headers - h->header || start[i] < 0 || start[i] > src_len) return ERR_CAPACITY;
            const uint8_t *p = src + start[i];
            for (int32_t k = 0; k < count[i]; k++)
                if (!(p = gather_header(p, src + src_len, h))) return ERR_RECORD;
            h->list_valid[h->row >> 3] |= (uint8_t)(1u << (h->row & 7));
        }
        h->row++;
        h->list_offset[h->row] = (int32_t)h->header;
    }
    return 0;
}

/* Columns to Kafka records (magic 2), the reverse of _decode.c: the records of a batch, the partition of each key, a sum
 * over rows. The header of a batch and its compression are the caller's.
 *
 * As there: no Python in here, every buffer comes from the caller, nothing is allocated. The columns are Arrow's, whose
 * offsets the caller has checked; no write passes a stated capacity. kernel.py mirrors the structs below; change both or
 * neither. */

#include <stdint.h>
#include <string.h>

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

enum { ERR_CAPACITY = -9 };

uint32_t kohort_crc32c_on(uint32_t start, const uint8_t *p, int64_t len);

typedef struct {
    const uint8_t *data;
    const int32_t *offset;         /* an entry more than rows; NULL: every row is null */
    const uint8_t *valid;          /* NULL: no row is null */
    int64_t bit;                   /* of `valid`, where the first row is */
} field_t;

typedef struct {
    int64_t rows;
    field_t key, value;
    const int64_t *timestamp;
    const int32_t *partition;      /* -1: none was given */
    const int32_t *header_start;   /* an entry more than rows; NULL: no row has headers */
    field_t header_key, header_value;
} columns_t;

/* -1: null. */
static inline int32_t length_of(const field_t *field, int64_t row) {
    if (!field->offset) return -1;
    if (field->valid) {
        int64_t bit = field->bit + row;
        if (!(field->valid[bit >> 3] >> (bit & 7) & 1)) return -1;
    }
    return field->offset[row + 1] - field->offset[row];
}

/* -------------------------------------------------------------------------------------------------------- records */

static inline int64_t varint_size(int64_t value) {
    uint64_t raw = (uint64_t)value << 1 ^ (uint64_t)(value >> 63);
    int64_t size = 1;
    while (raw >= 0x80) {
        raw >>= 7;
        size++;
    }
    return size;
}

static inline uint8_t *put_varint(uint8_t *p, int64_t value) {
    uint64_t raw = (uint64_t)value << 1 ^ (uint64_t)(value >> 63);
    while (raw >= 0x80) {
        *p++ = (uint8_t)(raw | 0x80);
        raw >>= 7;
    }
    *p++ = (uint8_t)raw;
    return p;
}

static inline int64_t field_size(int32_t length) { return varint_size(length) + (length < 0 ? 0 : length); }

static inline uint8_t *put_field(uint8_t *p, const field_t *field, int64_t row, int32_t length) {
    p = put_varint(p, length);
    if (length <= 0) return p;
    memcpy(p, field->data + field->offset[row], (size_t)length);
    return p + length;
}

/* Writes the records of `count` rows of the columns, in the order given, or from `first` on where `order` is NULL.
 * Returns how many bytes they take, or an error. */
EXPORT int64_t kohort_encode(const columns_t *c, const int64_t *order, int64_t first, int64_t count,
                             int64_t base_timestamp, uint8_t *out, int64_t capacity) {
    uint8_t *p = out;
    for (int64_t i = 0; i < count; i++) {
        int64_t row = order ? order[i] : first + i;
        if (row < 0 || row >= c->rows) return ERR_CAPACITY;
        int32_t key = length_of(&c->key, row), value = length_of(&c->value, row);
        int64_t delta = (int64_t)((uint64_t)c->timestamp[row] - (uint64_t)base_timestamp);
        int64_t header = c->header_start ? c->header_start[row] : 0;
        int64_t headers = c->header_start ? c->header_start[row + 1] - header : 0;
        int64_t size = 1 + varint_size(delta) + varint_size(i) + field_size(key) + field_size(value) +
                       varint_size(headers);
        for (int64_t h = header; h < header + headers; h++)
            size += field_size(length_of(&c->header_key, h)) + field_size(length_of(&c->header_value, h));
        if (size > INT32_MAX || size + 5 > capacity - (p - out)) return ERR_CAPACITY;
        p = put_varint(p, size);
        *p++ = 0;
        p = put_varint(p, delta);
        p = put_varint(p, i);
        p = put_field(p, &c->key, row, key);
        p = put_field(p, &c->value, row, value);
        p = put_varint(p, headers);
        for (int64_t h = header; h < header + headers; h++) {
            p = put_field(p, &c->header_key, h, length_of(&c->header_key, h));
            p = put_field(p, &c->header_value, h, length_of(&c->header_value, h));
        }
    }
    return p - out;
}

/* ----------------------------------------------------------------------------------------------------- partitions */

static uint32_t murmur2(const uint8_t *p, int32_t length) {
    const uint32_t m = 0x5bd1e995u;
    uint32_t h = 0x9747b28cu ^ (uint32_t)length;
    for (; length >= 4; p += 4, length -= 4) {
        uint32_t k = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        k *= m;
        k ^= k >> 24;
        h = h * m ^ k * m;
    }
    if (length >= 3) h ^= (uint32_t)p[2] << 16;
    if (length >= 2) h ^= (uint32_t)p[1] << 8;
    if (length >= 1) h = (h ^ p[0]) * m;
    h ^= h >> 13;
    h *= m;
    return h ^ h >> 15;
}

/* Gives each row that has a key, and -1 in `out`, the partition where every Kafka client puts that key. */
EXPORT int64_t kohort_partition(const columns_t *c, int64_t partitions, int32_t *out) {
    if (partitions < 1 || partitions > INT32_MAX) return ERR_CAPACITY;
    for (int64_t row = 0; row < c->rows; row++) {
        int32_t length = length_of(&c->key, row);
        if (out[row] < 0 && length >= 0)
            out[row] = (int32_t)((murmur2(c->key.data + c->key.offset[row], length) & 0x7fffffffu) %
                                 (uint32_t)partitions);
    }
    return 0;
}

/* The same for one key, whose record is sent alone. */
EXPORT int64_t kohort_partition_of(const char *key, int64_t length, int64_t partitions) {
    if (partitions < 1 || partitions > INT32_MAX || length < 0 || length > INT32_MAX) return ERR_CAPACITY;
    return (murmur2((const uint8_t *)key, (int32_t)length) & 0x7fffffffu) % (uint32_t)partitions;
}

/* --------------------------------------------------------------------------------------------------------- digest */

static uint32_t digest_number(uint32_t crc, int32_t number) {
    uint32_t n = (uint32_t)number;
    const uint8_t bytes[4] = {(uint8_t)n, (uint8_t)(n >> 8), (uint8_t)(n >> 16), (uint8_t)(n >> 24)};
    return kohort_crc32c_on(crc, bytes, 4);
}

static uint32_t digest_field(uint32_t crc, const field_t *field, int64_t row) {
    int32_t length = length_of(field, row);
    crc = digest_number(crc, length);
    return length <= 0 ? crc : kohort_crc32c_on(crc, field->data + field->offset[row], length);
}

/* The sum of a checksum of each row, its timestamp left out: the same for the same rows in whatever order. */
EXPORT int64_t kohort_digest(const columns_t *c, int64_t seed) {
    uint64_t sum = 0;
    for (int64_t row = 0; row < c->rows; row++) {
        uint32_t crc = digest_number((uint32_t)seed, c->partition[row]);
        crc = digest_field(crc, &c->key, row);
        crc = digest_field(crc, &c->value, row);
        int64_t header = c->header_start ? c->header_start[row] : 0;
        int64_t headers = c->header_start ? c->header_start[row + 1] - header : 0;
        crc = digest_number(crc, (int32_t)headers);
        for (int64_t h = header; h < header + headers; h++) {
            crc = digest_field(crc, &c->header_key, h);
            crc = digest_field(crc, &c->header_value, h);
        }
        sum += crc;
    }
    return (int64_t)(sum & INT64_MAX);
}

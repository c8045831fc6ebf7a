/* CRC-32C, by the processor's own instruction where it has one; for _decode.c, _encode.c and callers from outside. */

#include <stdint.h>
#include <string.h>

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

#define ABI_VERSION 1

uint32_t kohort_crc32c_on(uint32_t start, const uint8_t *p, int64_t len);

static uint32_t crc_table[8][256];

static void init_software(void) {
    for (int i = 0; i < 256; i++) {
        uint32_t crc = (uint32_t)i;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
        crc_table[0][i] = crc;
    }
    for (int i = 0; i < 256; i++)
        for (int k = 1; k < 8; k++)
            crc_table[k][i] = crc_table[k - 1][i] >> 8 ^ crc_table[0][crc_table[k - 1][i] & 0xff];
}

static uint32_t crc_software(uint32_t crc, const uint8_t *p, int64_t len) {
    crc = ~crc;
    while (len >= 8) {
        uint32_t lo = crc ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
        crc = crc_table[7][lo & 0xff] ^ crc_table[6][lo >> 8 & 0xff] ^ crc_table[5][lo >> 16 & 0xff] ^
              crc_table[4][lo >> 24] ^ crc_table[3][p[4]] ^ crc_table[2][p[5]] ^ crc_table[1][p[6]] ^
              crc_table[0][p[7]];
        p += 8;
        len -= 8;
    }
    while (len-- > 0) crc = crc >> 8 ^ crc_table[0][(crc ^ *p++) & 0xff];
    return ~crc;
}

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define HARDWARE_CRC 1
#define CRC_TARGET __attribute__((target("sse4.2")))
#define CRC_STEP(crc, word) __builtin_ia32_crc32di((crc), (word))
#define CRC_BYTE(crc, byte) __builtin_ia32_crc32qi((uint32_t)(crc), (byte))
static int hardware_present(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2");
}
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#define HARDWARE_CRC 1
#define CRC_TARGET
#define CRC_STEP(crc, word) __crc32cd((uint32_t)(crc), (word))
#define CRC_BYTE(crc, byte) __crc32cb((uint32_t)(crc), (byte))
static int hardware_present(void) { return 1; }
#endif

static int use_hardware = 0;

#ifdef HARDWARE_CRC
/* One instruction depends on the last, so three streams run side by side and are joined: shifting a CRC over LANE zero
 * bytes is linear, hence four table lookups. */
enum { LANE = 1024 };
static uint32_t lane_shift[4][256];

static inline uint64_t load64(const uint8_t *p) {
    uint64_t word;
    memcpy(&word, p, 8);
    return word;
}

static inline uint32_t shift_lane(uint32_t crc) {
    return lane_shift[0][crc & 0xff] ^ lane_shift[1][crc >> 8 & 0xff] ^ lane_shift[2][crc >> 16 & 0xff] ^
           lane_shift[3][crc >> 24];
}

CRC_TARGET static void init_hardware(void) {
    uint32_t basis[32];
    for (int bit = 0; bit < 32; bit++) {
        uint64_t crc = (uint64_t)1 << bit;
        for (int i = 0; i < LANE / 8; i++) crc = CRC_STEP(crc, 0);
        basis[bit] = (uint32_t)crc;
    }
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 256; i++) {
            uint32_t crc = 0;
            for (int bit = 0; bit < 8; bit++)
                if (i >> bit & 1) crc ^= basis[8 * k + bit];
            lane_shift[k][i] = crc;
        }
}

CRC_TARGET static uint32_t crc_hardware(uint32_t start, const uint8_t *p, int64_t len) {
    uint64_t crc = ~start;
    while (len >= 3 * LANE) {
        uint64_t second = 0, third = 0;
        for (int i = 0; i < LANE; i += 8) {
            crc = CRC_STEP(crc, load64(p + i));
            second = CRC_STEP(second, load64(p + LANE + i));
            third = CRC_STEP(third, load64(p + 2 * LANE + i));
        }
        crc = shift_lane(shift_lane((uint32_t)crc) ^ (uint32_t)second) ^ (uint32_t)third;
        p += 3 * LANE;
        len -= 3 * LANE;
    }
    for (; len >= 8; p += 8, len -= 8) crc = CRC_STEP(crc, load64(p));
    for (; len > 0; p++, len--) crc = CRC_BYTE(crc, *p);
    return ~(uint32_t)crc;
}
#endif

/* Goes on from the checksum of what came before. */
uint32_t kohort_crc32c_on(uint32_t start, const uint8_t *p, int64_t len) {
#ifdef HARDWARE_CRC
    if (use_hardware) return crc_hardware(start, p, len);
#endif
    return crc_software(start, p, len);
}

/* Builds the tables; call once before anything else. */
EXPORT int64_t kohort_init(int64_t allow_hardware) {
    init_software();
#ifdef HARDWARE_CRC
    use_hardware = allow_hardware && hardware_present();
    if (use_hardware) init_hardware();
#else
    (void)allow_hardware;
#endif
    return ABI_VERSION;
}

EXPORT int64_t kohort_has_hardware_crc(void) { return use_hardware; }

EXPORT int64_t kohort_crc32c(const uint8_t *p, int64_t len) { return (int64_t)kohort_crc32c_on(0, p, len); }

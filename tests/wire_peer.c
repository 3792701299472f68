/* A codec for gossip frames of QSGD and Nearest, written from src/omkl/wire/FORMAT.md alone: proof that it suffices.

   wire_peer {q M | n k} BLOCKS LENGTH SEED BOOT ROUND   reads frames in hexadecimal, one a line, and answers each with
   "refused", or with the codes of the steps, the levels, and the frame written again. ROUND is that of the copy that
   the first is to be added to; later ones are held against it too. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { F = 4096, FIRST = 17152, CODES = 30721, SILENT = 0, FAR = 1, NEAR = 2, LAST = 3, MOST = 1 << 16 };
static const int kind_f[] = {64, 64, 3968, 4032}, kind_c[] = {0, 64, 128, 64};
static int M, A, blocks, length, seed, boot, f_of[511], c_of[511], codes[MOST], levels[MOST], told[MOST], kinds[MOST];
static unsigned char x[MOST], frame[MOST], again[MOST];
static int x_len;
static long copy_round;

static void multiply(unsigned m, unsigned add) {
    for (int i = 0; i < x_len; i++, add >>= 8) { add += x[i] * m; x[i] = add; }
    for (; add; add >>= 8) x[x_len++] = add;
}
static unsigned divide(unsigned m) {
    unsigned rest = 0;
    for (int i = x_len - 1; i >= 0; i--) { rest = rest << 8 | x[i]; x[i] = rest / m; rest %= m; }
    while (x_len && !x[x_len - 1]) x_len--;
    return rest;
}
static void push(int f, int c) { unsigned r = divide(f); multiply(F, c + r); }

static long double density(long double z) { return expl(-z * z / 2) / sqrtl(2 * acosl(-1)); }
static long double above(long double z) { return z > 12 ? 0 : erfcl(z / sqrtl(2)) / 2; }
static long double excess(long double z) { return z > 12 ? 0 : density(z) - z * above(z); }

static void tables(char family, double k) {
    long double s = M / sqrtl(length), p;
    int sum = 0;
    for (int l = 1; l <= M; l++) {
        if (family == 'n') p = above((l - .5L) * k) - (l < M ? above((l + .5L) * k) : 0);
        else if (l == M) p = s * (excess((l - 1) / s) - excess(l / s));
        else p = s * (excess((l - 1) / s) - 2 * excess(l / s) + excess((l + 1) / s));
        sum += f_of[M + l] = f_of[M - l] = 1 + (p > 0 ? (int)floorl((F - A) * p) : 0);
    }
    f_of[M] = F - 2 * sum;
    for (int i = 1; i < A; i++) c_of[i] = c_of[i - 1] + f_of[i - 1];
}

static unsigned crc(unsigned value, const unsigned char *data, int size) {
    for (int i = 0; i < size; i++) {
        value ^= data[i] << 8;
        for (int bit = 0; bit < 8; bit++) value = (value << 1 ^ (value & 0x8000 ? 0x1021 : 0)) & 0xffff;
    }
    return value;
}
/* Of a whole head, of which kind and lowest byte of the round are sent. */
static unsigned crc_of(const unsigned char *sent, int size) {
    int ahead = (sent[1] - copy_round) & 255;
    long round = copy_round + (ahead < 128 ? ahead : ahead - 256);
    unsigned char head[] = {sent[0], boot, boot >> 8, round, round >> 8, round >> 16, round >> 24};
    return crc(crc(seed, head, 7), sent + 2, size - 2);
}
static int width(void) { int w = 0; while (1 << w < A) w++; return w; }
static int fixed_size(void) {
    int spoken = 0;
    for (int b = 0; b < blocks; b++) spoken += codes[b] != 0;
    return 2 * blocks + (spoken * length * width() + 7) / 8;
}
static int near(int code, int next) { return next && code - next >= -256 && code - next < 256; }

/* One number: blocks b0 to b1, elements e0 to e1 of each. */
static int pop_number(int b0, int b1, int e0, int e1) {
    int b, next = 0;
    for (b = b0; b < b1; b++) {
        if (!e0) {
            int r = divide(F), last = b == b1 - 1;
            kinds[b] = r < 64 ? SILENT : last ? LAST : r < 128 ? FAR : NEAR;
            multiply(kind_f[kinds[b]], r - kind_c[kinds[b]]);
        }
        for (int e = e0; e < e1; e++) {
            int i = 0, r;
            levels[b * length + e] = 0;
            if (kinds[b] == SILENT) continue;
            for (r = divide(F); r >= c_of[i] + f_of[i];) i++;
            multiply(f_of[i], r - c_of[i]);
            levels[b * length + e] = i - M;
        }
        if (!e0 && kinds[b] != SILENT) told[b] = divide(kinds[b] == NEAR ? 512 : CODES);
    }
    if (x_len) return 0;
    for (b = b1 - 1; b >= b0 && !e0; b--) {
        codes[b] = kinds[b] == SILENT ? 0 : kinds[b] == NEAR ? next + told[b] - 256 : FIRST + told[b];
        if (!codes[b]) { if (kinds[b] != SILENT) return 0; continue; }
        if (codes[b] < FIRST || codes[b] >= FIRST + CODES || near(codes[b], next) != (kinds[b] == NEAR)) return 0;
        next = codes[b];
    }
    return 1;
}
static void push_number(int b0, int b1, int e0, int e1) {
    int next = 0;
    x_len = 0;
    for (int b = b1 - 1; b >= b0; b--) {
        int kind = !codes[b] ? SILENT : b == b1 - 1 ? LAST : near(codes[b], next) ? NEAR : FAR;
        if (!e0 && codes[b]) kind == NEAR ? multiply(512, codes[b] - next + 256) : multiply(CODES, codes[b] - FIRST);
        for (int e = e1 - 1; e >= e0 && codes[b]; e--) {
            int i = levels[b * length + e] + M;
            push(f_of[i], c_of[i]);
        }
        if (!e0) push(kind_f[kind], kind_c[kind]);
        if (codes[b]) next = codes[b];
    }
}

/* Walk over all numbers of a body: read them, or write them and return the size. */
static int numbers(unsigned char *body, int size, int reading) {
    int at = 0, together = length > 512 ? 1 : 512 / length;
    for (int b0 = 0; b0 < blocks; b0 += together)
        for (int e0 = 0; e0 < length; e0 += 512) {
            int b1 = b0 + together < blocks ? b0 + together : blocks, e1 = e0 + 512 < length ? e0 + 512 : length;
            int final = b1 == blocks && e1 == length, head = final ? 0 : 2;
            if (reading) {
                if (size - at < head) return -1;
                x_len = final ? size - at : body[at] | body[at + 1] << 8;
                if (x_len > size - at - head) return -1;
                if (x_len * 8 > 12 * (b1 - b0) * (e1 - e0) + (e0 ? 0 : 27 * (b1 - b0)) + 7) return -1;
                memcpy(x, body + at + head, x_len);
                at += head + x_len;
                if (x_len && !x[x_len - 1]) return -1;
                if (!pop_number(b0, b1, e0, e1)) return -1;
            } else {
                push_number(b0, b1, e0, e1);
                if (!final) { body[at] = x_len; body[at + 1] = x_len >> 8; }
                memcpy(body + at + head, x, x_len);
                at += head + x_len;
            }
        }
    return at;
}
static int read_fixed(const unsigned char *body, int size) {
    int w = width(), bit = 16 * blocks;
    if (size < 2 * blocks) return 0;
    for (int b = 0; b < blocks; b++) {
        codes[b] = body[2 * b] | body[2 * b + 1] << 8;
        if (codes[b] && (codes[b] < FIRST || codes[b] >= FIRST + CODES)) return 0;
    }
    if (size != fixed_size()) return 0;
    for (int i = 0; i < blocks * length; i++) {
        int value = 0;
        for (int k = 0; k < w && codes[i / length]; k++, bit++) value |= (body[bit / 8] >> bit % 8 & 1) << k;
        if (value >= A) return 0;
        levels[i] = codes[i / length] ? value - M : 0;
    }
    for (; bit < 8 * size; bit++) if (body[bit / 8] >> bit % 8 & 1) return 0;
    return 1;
}
static int write_fixed(unsigned char *body) {
    int w = width(), bit = 16 * blocks, size = fixed_size();
    memset(body, 0, size);
    for (int b = 0; b < blocks; b++) { body[2 * b] = codes[b]; body[2 * b + 1] = codes[b] >> 8; }
    for (int i = 0; i < blocks * length; i++)
        for (int k = 0; k < w && codes[i / length]; k++, bit++) body[bit / 8] |= ((levels[i] + M) >> k & 1) << bit % 8;
    return size;
}
static int read_frame(int size) {
    if (size < 4 || (frame[0] != 0x24 && frame[0] != 0x25) || crc_of(frame, size)) return 0;
    if (frame[0] == 0x25) return read_fixed(frame + 2, size - 4);
    return numbers(frame + 2, size - 4, 1) >= 0 && size - 4 < fixed_size();
}
static int write_frame(void) {
    int size = numbers(again + 2, 0, 0);
    memcpy(again, frame, 2);
    again[0] = size < fixed_size() ? 0x24 : 0x25;
    if (again[0] == 0x25) size = write_fixed(again + 2);
    unsigned check = crc_of(again, size + 2);
    again[size + 2] = check >> 8;
    again[size + 3] = check;
    return size + 4;
}

int main(int argc, char **argv) {
    static char line[2 * MOST + 2];
    if (argc != 8) return 2;
    double value = atof(argv[2]);
    blocks = atoi(argv[3]), length = atoi(argv[4]), seed = atoi(argv[5]), boot = atoi(argv[6]);
    copy_round = atol(argv[7]);
    M = argv[1][0] == 'q' ? (int)value : (int)(sqrt(length) / value + .5);
    M = M < 1 ? 1 : M > 255 ? 255 : M;
    A = 2 * M + 1;
    tables(argv[1][0], value);
    while (fgets(line, sizeof line, stdin)) {
        int size = strcspn(line, "\n") / 2;
        unsigned byte;
        for (int i = 0; i < size && sscanf(line + 2 * i, "%2x", &byte) == 1; i++) frame[i] = byte;
        if (!read_frame(size)) { puts("refused"); continue; }
        for (int b = 0; b < blocks; b++) printf("%d ", codes[b]);
        for (int i = 0; i < blocks * length; i++) printf("%d ", levels[i]);
        size = write_frame();
        for (int i = 0; i < size; i++) printf("%02x", again[i]);
        putchar('\n');
    }
    return 0;
}

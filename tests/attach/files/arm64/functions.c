// Functions of the kinds that ggml's devices answer with: names, sizes, tables of ops, loops over shapes.
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct device {
    const char * (*name)(struct device *);
    size_t (*alignment)(struct device *);
    struct { char text[32]; const char * description; } * context;
    int     type;
    uint8_t flags;
    size_t  sizes[4];
};

const char * constant(void) { return "GPU0"; }
const char * description(struct device * d) { return d->context->description; }
const char * text(struct device * d) { return d->context->text; }
const char * name(struct device * d) { return d ? d->name(d) : "none"; }
size_t alignment(struct device * d) { return d->alignment ? d->alignment(d) : 32; }
static size_t sixty_four(struct device * d) { return d->sizes[1] * 4; }
static struct { char text[32]; const char * description; } context = { "Test0", "a device of the tests" };
struct device devices[2] = {
    { description, sixty_four, (void *) &context, 3, 1, { 1, 16, 3, 4 } },
    { text, NULL, (void *) &context, 7, 0, { 5, 6, 7, 8 } },
};
struct device * nth(int i) { return i < 2 ? &devices[i] : NULL; }
size_t padded(struct device * d, size_t n) { size_t a = alignment(d); return (n + a - 1) / a * a; }
size_t rounded(size_t n) { return (n + 255) & ~(size_t) 255; }
bool is_host(struct device * d) { return d->name == text; }

int dense(int op) {
    switch (op) { case 1: return 5; case 2: return 9; case 3: return 1; case 4: return 77; case 5: return -3; case 9: return 8; case 10: return 41; }
    return 0;
}

bool supports(struct device * d, int op, int type) {
    if (op >= 20 && op < 28) { return type == 0 || type == 1; }
    switch (op) {
        case 3: case 7: case 11: case 13: return true;
        case 15: return d->flags & 1;
        case 40: return type != 8 && (d->type == 3 || type > 12);
        default: return false;
    }
}

int64_t product(const int64_t * ne) { int64_t n = 1; for (int i = 0; i < 4; i++) { n *= ne[i]; } return n; }

bool contiguous(const int64_t * ne, const size_t * nb, size_t size) {
    for (int i = 0; i < 4; i++) {
        if (ne[i] != 1 && nb[i] != size) { return false; }
        size *= ne[i];
    }
    return true;
}

bool same(const char * a, const char * b) { while (*a && *a == *b) { a++; b++; } return *a == *b; }
int64_t rest(int64_t a, int64_t b) { return b ? a % b : -1; }
int quotient(int a, int b) { return b ? a / b : 0; }
int between(int a, int low, int high) { return a < low ? low : a > high ? high : a; }
int magnitude(int a) { return a < 0 ? -a : a; }
uint32_t mixed(uint32_t x) { return ((x >> 7 | x << 25) ^ x * 37u) + __builtin_bswap32(x) - (x & 0xff00ff00u); }
uint64_t high(uint64_t a, uint64_t b) { return (uint64_t) (((unsigned __int128) a * b) >> 64) + __builtin_clzll(a | 1); }
int64_t third(int64_t a) { return a / 3 + (int32_t) a / 7; }
int small(const int8_t * p) { return (p[1] >> 1) + ((const int16_t *) p)[2]; }
uint32_t part(uint32_t x) { return (x >> 3 & 31) | (x & 7) << 20; }
uint64_t large(void) { return 0x123456789abcdef0u; }
uint64_t masks(uint64_t x) { return (x & 0x0ffffffffffffff0u) | (x ^ 0x5555555555555555u) >> 60; }
int recursive(int n) { return n < 2 ? n : recursive(n - 1) + recursive(n - 2); }
void writes(int * p) { *p = 1; }
double point(struct device * d) { return d->type * 0.5; }

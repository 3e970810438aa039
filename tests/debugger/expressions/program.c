#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum plain { PLAIN_A, PLAIN_B, PLAIN_C, PLAIN_D };
enum bits { BITS_A = 1, BITS_B = 2, BITS_C = 4 };
struct pair { size_t offset; size_t size; };
struct buffer { void (*clear)(struct buffer *, const void *, size_t); int x; };
typedef struct buffer * buffer_t;
struct tensor {
    enum plain type; struct buffer * buffer; int64_t ne[4]; size_t nb[4]; int32_t params[16]; int32_t flags;
    struct tensor * src[10]; struct tensor * view; void * data; char name[64]; void * extra; char padding[8]; _Bool on;
    float f[12]; double d; uint8_t u8[4]; char c; enum bits bits; const char * s; unsigned short h;
    struct pair pairs[256]; void * events[16][4]; buffer_t bt; buffer_t bts[2];
};

static void clear_it(struct buffer * b, const void * p, size_t n) { (void) b; (void) p; (void) n; }

char text_a[4] = "abc";
struct buffer B = { clear_it, 3 };
struct tensor T = {
    PLAIN_B, &B, {10, 1, 1, 1}, {4, 40, 40, 40}, {0}, 5, {&T, 0, &T}, 0, &T, "blk.0.weight", 0, "", 1,
    {1, 1, 1, 2.5f, -0.1f}, 0.1, {1, 2, 255, 0}, 'x', BITS_A | BITS_C, text_a, 65535,
    {{0, 9223372036854775807}, {64, 18446744073709551615u}}, {{&T, 0, &B, 0}}, &B, {&B, 0},
};
struct tensor * t = &T;
struct tensor ** tt = &t;
float ff[20] = {0, 5.96046448e-08f, 1.1920929e-07f, 1.5f, -2.25f, 1e10f, 100000000.0f, 3.14159265f};
int counted[300] = {1, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 4};
char longer[300] = "a string of no great length, and zeros behind it";
char filled[210] = "12345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901"
                   "23456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345";
char escaped[20] = "a\n\t\"\\\001\3771'z";
char runs[40] = "xxxxxxxxxxxxxxxyzzzzzzzzzzzzzz";
struct pair two[3] = {{1, 2}, {3, 4}, {3, 4}};
int64_t big = 9223372036854775807; size_t wide = 18446744073709551615u; double dd = 1e300; unsigned char uc = 200;
int ten[10]; int eleven[11]; bool yes = 1; short sh = -2; enum bits none = 0; enum bits odd = 9; enum plain high = 7;
int main(void) { return counted[0] - 1; }

// graphs.c with a device that lies, or does worse, when somebody else than ggml asks it:
//   hostile HOW[,HOW...] [what graphs.c takes]

#include "device.h"

static ggml_backend_t hostile_backend(void);

#define device_backend hostile_backend
#define main graphs_main
#include "graphs.c"
#undef main
#undef device_backend

#include <semaphore.h>
#include <setjmp.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>

static const char *    how;
static char            text[1 << 16];
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static sem_t           is_held;
static jmp_buf         elsewhere;

static bool is(const char * word) { return has_word(how, word); }

// Whoever is asked by ggml itself returns into its library.
static bool is_in_ggml(void * address) {
    Dl_info found;
    return dladdr(address, &found) && found.dli_fname && strstr(found.dli_fname, "libggml");
}

#define ASKED_BY_OTHERS (!is_in_ggml(__builtin_return_address(0)))

static void do_it(void) {
    if (is("hang")) { while (!stopped) { } }
    if (is("lock")) { pthread_mutex_lock(&held); }
    if (is("crash")) { *(volatile int *) 0 = 1; }
    if (is("abort")) { abort(); }
    if (is("exit")) { exit(7); }
    if (is("trap")) { raise(SIGTRAP); }
    if (is("signal")) { raise(SIGUSR1); }
    if (is("jump")) { longjmp(elsewhere, 1); }
    if (is("fork") && !fork()) { _exit(0); }
}

static bool hostile_supports_op(ggml_backend_dev_t d, const struct ggml_tensor * op) {
    if (op->op == GGML_OP_UNARY && ASKED_BY_OTHERS) {
        do_it();
    }
    return device_supports_op(d, op);
}

static size_t hostile_size(ggml_backend_buffer_type_t t, const struct ggml_tensor * x) {
    (void) t;
    return ASKED_BY_OTHERS ? SIZE_MAX / 2 + 1 : ggml_nbytes(x);
}

static const char * backend_text(ggml_backend_t b) { (void) b; return text; }
static const char * buft_text(ggml_backend_buffer_type_t t) { (void) t; return text; }
static const char * device_text(ggml_backend_dev_t d) { (void) d; return text; }

static ggml_backend_t hostile_backend(void) {
    ggml_backend_t backend   = device_backend();
    device.iface.supports_op = hostile_supports_op;
    if (is("names")) {
        backend->iface.get_name      = backend_text;
        device.iface.get_name        = device_text;
        device.iface.get_description = device_text;
        device_buft.iface.get_name   = buft_text;
    }
    if (is("sizes")) {
        device_buft.iface.get_alloc_size = hostile_size;
    }
    return backend;
}

static void * hold(void * nothing) {
    pthread_mutex_lock(&held);
    sem_post(&is_held);
    for (;;) {
        pause();
    }
    return nothing;
}

static void write_text(void) {
    static const char part[] = "\033[31m[red]<script>alert(1)</script>\n\"]';&amp;\\l{}|\t\xff";
    for (size_t i = 0; i + 1 < sizeof text; i++) {
        text[i] = part[i % (sizeof part - 1)];
    }
}

int main(int argc, char ** argv) {
    pthread_t thread;
    how = argc > 1 ? argv[1] : "";
    write_text();
    signal(SIGUSR1, SIG_IGN);
    sem_init(&is_held, 0, 0);
    pthread_create(&thread, NULL, hold, NULL);
    sem_wait(&is_held);
    if (is("traceme")) { ptrace(PTRACE_TRACEME, 0, 0, 0); }
    if (is("undumpable")) { prctl(PR_SET_DUMPABLE, 0); }
    if (is("closed")) { for (int fd = 3; fd < 1024; fd++) { close(fd); } }
    if (is("blocked")) {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, NULL);
    }
    if (setjmp(elsewhere)) {
        puts("jumped");
        fflush(stdout);
        return 3;
    }
    return graphs_main(argc - 1, argv + 1);
}

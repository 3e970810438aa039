// graphs.c in a program that behaves badly by itself, whoever looks at it:
//   unruly HOW[,HOW...] [what graphs.c takes]

#include "device.h"

static bool unruly_supports_op(ggml_backend_dev_t d, const struct ggml_tensor * op);
static ggml_backend_t unruly_backend(void);

#define device_backend unruly_backend
#define main graphs_main
#include "graphs.c"
#undef main
#undef device_backend

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static const char * how;
static sigjmp_buf   back;

static bool is(const char * word) { return has_word(how, word); }

// Whoever is asked by ggml itself returns into its library.
static bool asked_by_ggml(void * address) {
    Dl_info found;
    return dladdr(address, &found) && found.dli_fname && strstr(found.dli_fname, "libggml");
}

// A C++ exception from a program in C: the libraries of ggml have the C++ runtime with them.
static void throw_it(void) {
    void * (*allocate)(size_t)             = (void * (*)(size_t)) dlsym(RTLD_DEFAULT, "__cxa_allocate_exception");
    void (*throw)(void *, void *, void *)  = (void (*)(void *, void *, void *)) dlsym(RTLD_DEFAULT, "__cxa_throw");
    int * thrown                           = allocate(sizeof(int));
    *thrown                                = 7;
    throw(thrown, dlsym(RTLD_DEFAULT, "_ZTIi"), NULL);
}

// No file may be opened any more, and no memory mapped: who tries is killed.
static void confine(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = { sizeof filter / sizeof *filter, filter };
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

enum { WARM = 200 };

static bool unruly_supports_op(ggml_backend_dev_t d, const struct ggml_tensor * op) {
    static int n_asked = 0;
    if (is("confined") && n_asked++ == WARM) {
        confine();
    }
    if (is("throw") && op->op == GGML_OP_UNARY && !asked_by_ggml(__builtin_return_address(0))) {
        throw_it();
    }
    return device_supports_op(d, op);
}

static ggml_backend_t unruly_backend(void) {
    ggml_backend_t backend   = device_backend();
    device.iface.supports_op = unruly_supports_op;
    return backend;
}

static void * sleep_on(void * nothing) {
    for (;;) {
        pause();
    }
    return nothing;
}

static void start_threads(int n) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 << 10);
    for (int i = 0; i < n; i++) {
        pthread_t thread;
        pthread_create(&thread, &attributes, sleep_on, NULL);
    }
}

static struct ggml_cgraph *  changed;
static struct ggml_context * changed_in;

// Another thread scribbles over what no computation looks at: names, and places of views.
static void * scribble(void * nothing) {
    for (unsigned n = 0;; n++) {
        for (int i = 0; i < ggml_graph_n_nodes(changed); i++) {
            struct ggml_tensor * t = ggml_graph_node(changed, i);
            memset(t->name, (int) (n % 255 + 1), sizeof t->name);
            t->op_params[15] = (int) n;
        }
    }
    return nothing;
}

static ggml_backend_sched_t new_scheduler(size_t size, ggml_backend_t * backends) {
    backends[0] = unruly_backend();
    backends[1] = ggml_backend_cpu_init();
    return ggml_backend_sched_new(backends, NULL, 2, size, false, true);
}

static struct ggml_cgraph * graph_of(int n, struct ggml_context ** ctx) {
    size_t size                    = (n + 8) * ggml_tensor_overhead() + ggml_graph_overhead_custom(n + 8, false);
    struct ggml_init_params params = { size, NULL, true };
    *ctx                           = ggml_init(params);
    struct ggml_cgraph * graph     = ggml_new_graph_custom(*ctx, n + 8, false);
    struct ggml_tensor * x         = ggml_new_tensor_1d(*ctx, GGML_TYPE_F32, 4);
    ggml_set_input(x);
    for (int i = 0; i < n; i++) {
        ggml_build_forward_expand(graph, x = ggml_add(*ctx, x, x));
    }
    return graph;
}

// A graph of n additions in a row, allocated and, if it is small, computed.
static void run_alone(int n) {
    ggml_backend_t       backends[2];
    ggml_backend_sched_t sched = new_scheduler(n + 8, backends);
    changed                    = graph_of(n, &changed_in);
    if (is("changed")) {
        pthread_t thread;
        pthread_create(&thread, NULL, scribble, NULL);
    }
    for (int i = 0; i < 3; i++) {
        ggml_backend_sched_reset(sched);
        printf("allocated %d\n", ggml_backend_sched_alloc_graph(sched, changed));
        fflush(stdout);
    }
}

static void come_back(int signal) {
    (void) signal;
    siglongjmp(back, 1);
}

// Calls with arguments that lead nowhere; the program survives them by itself.
static void call_badly(void) {
    ggml_backend_t        backends[2];
    ggml_backend_sched_t  sched = new_scheduler(64, backends);
    struct ggml_context * ctx;
    struct ggml_cgraph *  graph = graph_of(4, &ctx);
    struct sigaction      action = { .sa_handler = come_back, .sa_flags = SA_NODEFER };
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    if (sigsetjmp(back, 1)) {
        puts("survived");
        return;
    }
    if (is("freed")) {
        ggml_backend_sched_free(sched);
        sched = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    if (is("cycle")) {
        ggml_graph_node(graph, 1)->src[0] = ggml_graph_node(graph, 3);
        ggml_graph_node(graph, 1)->view_src = ggml_graph_node(graph, 1);
    }
    if (is("huge")) {
        // size, n_nodes: as ggml_cgraph begins.
        ((int *) graph)[0] = ((int *) graph)[1] = 0x7fffffff;
    }
    if (is("junk")) {
        graph = (struct ggml_cgraph *) (uintptr_t) 0x4141414141414141;
    }
    ggml_backend_sched_alloc_graph(sched, graph);
}

// ggml and graphs.c in a library that is opened for a graph and closed again.
static void open_and_close(const char * library, int argc, char ** argv) {
    for (int i = 0; i < 2; i++) {
        void * opened = dlopen(library, RTLD_NOW | RTLD_LOCAL);
        if (!opened) {
            puts(dlerror());
            exit(3);
        }
        ((int (*)(int, char **)) dlsym(opened, "main"))(argc, argv);
        dlclose(opened);
        puts("closed");
        fflush(stdout);
    }
}

static void print_much(void) {
    static char line[1 << 10];
    memset(line, 'x', sizeof line - 1);
    line[sizeof line - 2] = '\n';
    for (int i = 0; i < 4096; i++) {
        fputs(line, i % 2 ? stdout : stderr);
    }
}

int main(int argc, char ** argv) {
    how = argc > 1 ? argv[1] : "";
    if (is("megabytes")) { print_much(); }
    if (is("threads")) { start_threads(2000); }
    if (is("crowd")) { start_threads(100); }
    if (is("vfork") && !vfork()) { _exit(0); }
    if (is("children")) { for (int i = 0; i < 100; i++) { if (!fork()) { _exit(0); } } while (wait(NULL) > 0) { } }
    if (is("user") && setresuid(65534, 65534, 65534)) { return 3; }
    if (is("silent")) { for (int fd = 0; fd < 3; fd++) { close(fd); } }
    if (is("elsewhere")) { dup2(open("/dev/null", O_RDWR), 1); dup2(1, 2); dup2(1, 0); }
    if (is("limits")) { signal(SIGTRAP, SIG_IGN); prctl(PR_SET_PDEATHSIG, 0); prctl(PR_SET_NAME, "\033[31mred"); }
    if (is("exec")) {
        char * again[] = { argv[0], "plain", "--iterations", "1", NULL };
        graphs_main(1, argv);
        execv("/proc/self/exe", again);
    }
    if (is("million")) { run_alone(1000000); return 0; }
    if (is("deep")) { run_alone(100000); return 0; }
    if (is("changed")) { run_alone(1000); return 0; }
    if (is("freed") || is("cycle") || is("huge") || is("junk")) { call_badly(); return 0; }
    if (is("closes")) { open_and_close(argv[2], argc - 2, argv + 2); return 0; }
    return graphs_main(argc - 1, argv + 1);
}

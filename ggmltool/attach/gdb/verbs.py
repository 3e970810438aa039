"""What `ggml` can be asked in gdb: each verb with its usage, what it does, an example, and what completes it.

Both sides read this file: gdb's own Python, and ours.
"""

VERBS = {
    "splits": ("", "Show the splits that the scheduler made: backend, nodes, copied inputs.", "ggml splits", ""),
    "why": (
        "NODE",
        "Explain why a node runs on its backend, by the rules that the scheduler followed.",
        "ggml why ffn_out-3",
        "node",
    ),
    "hash": (
        "[--sched]",
        "Show the allocator's hash set; with --sched the scheduler's, with the backend of each tensor.",
        "ggml hash --sched",
        "",
    ),
    "allocs": (
        "",
        "Show where the graph allocator puts every node (node_allocs, leaf_allocs), and its free blocks.",
        "ggml allocs",
        "",
    ),
    "tensor": (
        "EXPR|NAME",
        "Show everything about a tensor: shape, strides, sources, backend, buffer, address.",
        "ggml tensor node->src[0]",
        "node",
    ),
    "buffers": ("", "Show the buffers of the graph and of the allocator, with their addresses.", "ggml buffers", ""),
    "lifetime": ("NODE", "Show who has a tensor's bytes before it and after it.", "ggml lifetime kq", "node"),
    "graph": ("", "Show the nodes and leafs of the graph, as ggml_graph_print does.", "ggml graph", ""),
    "save": (
        "FILE.json.gz [--redact]",
        "Write the graph, the devices' answers and the state as a scenario, for every command of ggmltool.",
        "ggml save graph.json.gz",
        "file",
    ),
    "verify": ("", "Compare what the process decided with what ggmltool plans for the same graph.", "ggml verify", ""),
    "break": (
        "[--alloc] NODE",
        "Stop before the backend computes the split that a node is in; with --alloc where it gets its address.",
        "ggml break kq_soft_max-0",
        "node",
    ),
    "print": (
        "[/FMT] EXPR",
        "Print an expression of C, with ggml's structs as ggmltool knows them: no debug information is needed.",
        "ggml print *sched->galloc",
        "node",
    ),
    "ptype": (
        "EXPR|TYPE",
        "Show the type of an expression, structs with their fields.",
        "ggml ptype struct ggml_tensor",
        "node",
    ),
    "x": ("[/NFU] EXPR", "Examine memory; a tensor stands for its data.", "ggml x/8fw kq", "node"),
    "use": (
        "[SCHED [GRAPH]]",
        "Choose a scheduler, and a graph, by address or expression; alone: say which ones are looked at.",
        "ggml use 0x5555556f2a40",
        "",
    ),
    "watch": (
        "[off]",
        "Remember the scheduler and the graph of every call from now on, without stopping.",
        "ggml watch",
        "",
    ),
}
"""Usage, meaning, an example, and what is completed: `node` or `file`."""

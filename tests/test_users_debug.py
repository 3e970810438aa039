"""The questions of people about when and why something happened, answered by a few commands of the debugger."""

from __future__ import annotations

from tests.cli.conftest import Call, call

__all__ = ["call"]


def asked(call: Call, scenario: str, *commands: str) -> str:
    """What the debugger says to these commands, without the lines' ends."""
    given = [word for command in commands for word in ("-ex", command)]
    result = call("debug", scenario, "--batch", *given, columns=110)
    assert result.status == 0, result.err
    return " ".join(result.out.split())


def test_who_overwrote_my_tensor(call: Call) -> None:
    """ggml 700, 1151: the tensors that have this memory one after the other, and by which function they got it."""
    out = asked(call, "inplace", "break offset CPU 0", "run", "c", "c")
    assert "90 allocate x: 256 bytes at CPU 0x0" in out
    assert "121 compute x6 in the memory of x, at CPU 0x0" in out
    assert "129 free x6: 256 bytes at CPU 0x0" in out
    assert "ggml_gallocr_allocate_node (galloc=0x555210000000, node=0x555700000e80 <x6>, buffer_id=0)" in out


def test_why_did_it_reallocate(call: Call) -> None:
    """llama.cpp 28753, 29083: the tensor, what the plan has for it and what it needs, where ggml finds out."""
    out = asked(call, "outgrown", "break ggml_gallocr_needs_realloc", "run", "next", "p src->name")
    assert "the reserved plan does not serve: source is larger: many (512 → 4096)" in out
    assert "$1 = \"many\", '\\000' <repeats 59 times>" in out


def test_where_does_this_split_begin_and_why(call: Call) -> None:
    """llama.cpp 18599, 27880: the node with the reason, in the passage of the graph around it."""
    out = asked(call, "transformer", "break split 1", "run", "list")
    assert "split 1 begins on CPU at node 23, ffn_in: ffn_in runs on CPU" in out
    assert "23 → ffn_in = MUL(norm2, ffn_norm) f32[64, 8] CPU 1.wgt1" in out


def test_when_did_this_tensor_get_its_backend(call: Call) -> None:
    """llama.cpp 25800: the event, the weight that decided, and what was asked before."""
    out = asked(call, "transformer", "break backend gate", "run", "why gate")
    assert "115 gate → CPU (1.wgt0): its weight ffn_gate is in CPU" in out
    assert "113 gate not decided on CUDA0 (1.off): offloading starts at a batch of 32, and this one is 8" in out


def test_cannot_run_the_operation_who_refused(call: Call) -> None:
    """llama.cpp 13684, 12045: the stack at which ggml aborts, down to the tensor, and what each backend answered."""
    out = asked(call, "preallocated", "run", "bt", "why stored")
    frame = "ggml_backend_sched_backend_id_from_cur (sched=0x555200000000, tensor=0x555700000020 <stored>)"
    assert f"SIGABRT, Aborted. {frame}" in out
    assert f"#0 {frame}" in out
    assert "#1 ggml_backend_sched_split_graph" in out
    assert "13 stored not decided on CPU (1.dst): CPU cannot use memory in GPU0" in out


def test_tensor_buffer_not_set_in_which_call(call: Call) -> None:
    """whisper.cpp 1859: ggml's function is on the stack of the abort, without arguments that nobody told of."""
    out = asked(call, "buffer-not-set", "run", "bt", "up")
    assert "#0 ggml_backend_tensor_set () at event 31 #1 main () at buffer-not-set, step 3, set c" in out


def test_who_copies_this_between_devices(call: Call) -> None:
    """llama.cpp 13386: the copy with its bytes, and the scheduler's call for a split that makes it."""
    out = asked(call, "pipeline", "break ggml_backend_tensor_copy", "run", "bt", "finish")
    assert "102 copy x → GPU0#x#0: 2048 bytes" in out
    assert "#1 ggml_backend_sched_copy_input" in out

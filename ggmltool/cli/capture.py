"""`ggmltool capture`: the graph that llama.cpp builds for a model, as a scenario."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ggmltool.cli.command import Command
from ggmltool.cli.errors import CliError
from ggmltool.cli.options import output_option
from ggmltool.cli.output import Output, log_lines, note
from ggmltool.sources.llama.options import CACHE_TYPES, FLASH_ATTN, CaptureOptions
from ggmltool.views.text import count, size

if TYPE_CHECKING:
    from ggmltool.sources.llama.capture import Captured

_LASTING = ("weights", "kv")
_NUMBER = click.IntRange(1)
_CACHE_TYPE = click.Choice(CACHE_TYPES)


@click.command(cls=Command)
@click.argument("model", metavar="MODEL.gguf", type=click.Path(path_type=Path))
@click.option(
    "-c", "--ctx-size", type=click.IntRange(0), metavar="N", default=0,
    help="Size of the context (default: the model's own).",
)  # fmt: skip
@click.option(
    "-b", "--batch-size", type=_NUMBER, metavar="N", default=2048, show_default=True, help="Logical batch, in tokens."
)
@click.option(
    "-ub", "--ubatch-size", type=_NUMBER, metavar="N", default=512, show_default=True, help="Physical batch, in tokens."
)
@click.option(
    "-np", "--parallel", type=_NUMBER, metavar="N", default=1, show_default=True, help="Sequences of the context."
)
@click.option(
    "-fa", "--flash-attn", type=click.Choice(list(FLASH_ATTN)), default="auto", show_default=True,
    help="Flash attention; auto is on, as it is where every device has it.",
)  # fmt: skip
@click.option("-ctk", "--cache-type-k", type=_CACHE_TYPE, default="f16", show_default=True, help="Type of the K cache.")
@click.option("-ctv", "--cache-type-v", type=_CACHE_TYPE, default="f16", show_default=True, help="Type of the V cache.")
@click.option("--swa-full", is_flag=True, help="Give sliding windows a cache of the context's size.")
@click.option("-kvu", "--kv-unified", is_flag=True, help="One KV cache for all sequences.")
@click.option("-nkvo", "--no-kv-offload", is_flag=True, help="Note that the KV cache stays on the CPU.")
@click.option("--embeddings", is_flag=True, help="A context that gives embeddings.")
@click.option(
    "--phase", type=click.Choice(["prompt", "token", "both"]), default="prompt", show_default=True,
    help="A whole ubatch of a prompt, one token of each sequence, or a graph of each (`prompt` and `token`).",
)  # fmt: skip
@click.option("--n-tokens", type=_NUMBER, metavar="N", help="Tokens of the graph, instead of what the phase says.")
@click.option("--n-seqs", type=_NUMBER, metavar="N", help="Sequences of the graph (default: all that the context has).")
@click.option(
    "--outputs", type=click.IntRange(0), metavar="N",
    help="Tokens that logits are asked of (default: all, for which llama.cpp reserves memory).",
)  # fmt: skip
@click.option(
    "--weights/--no-weights", default=False, show_default=True,
    help="Say where the weights' values are, so that `run` can compute.",
)  # fmt: skip
@output_option
@click.pass_context
def capture(
    ctx: click.Context,
    model: Path,
    ctx_size: int,
    batch_size: int,
    ubatch_size: int,
    parallel: int,
    flash_attn: Any,
    cache_type_k: str,
    cache_type_v: str,
    swa_full: bool,
    kv_unified: bool,
    no_kv_offload: bool,
    embeddings: bool,
    phase: Any,
    n_tokens: int | None,
    n_seqs: int | None,
    outputs: int | None,
    weights: bool,
    output: Output,
) -> int:
    """Write the graph that llama.cpp builds for a model as a scenario, everything on the CPU.

    Of the weights only names and shapes are read, and they get no memory: a model of 400 GB takes no longer than a
    small one. Of a model in parts, name the first (…-00001-of-0000N.gguf). The scenario is JSON, packed where the
    file's name ends in .gz; on a terminal it goes to MODEL.json.gz here, unless -o says otherwise. Needs the extra
    llama.

    \b
    Example:
      ggmltool capture gemma.gguf -c 8192 -ub 256 -o gemma.json.gz
      ggmltool plan --step reserve gemma.json.gz
    """
    unnamed = output.to_terminal and ctx.get_parameter_source("output") is click.core.ParameterSource.DEFAULT
    if unnamed:
        output = Output(_default_file(model), output.force)
        output.check()
    captured = _capture(
        model, ctx_size, batch_size, ubatch_size, parallel, flash_attn, cache_type_k, cache_type_v, phase,
        n_tokens, n_seqs, outputs, swa_full, kv_unified, not no_kv_offload, embeddings,
    )  # fmt: skip
    log_lines(captured.log)
    if weights:
        _add_weights(captured, model, output)
    output.write(_file(captured.scenario, output.path))
    if unnamed:
        note(_summary(captured, output.path))
    return 0


def _capture(model: Path, *options: Any) -> Captured:
    """Capture with the values of CaptureOptions. Raises CliError."""
    from ggmltool.sources.llama.capture import capture as capture_model
    from ggmltool.sources.llama.errors import CaptureError

    try:
        return capture_model(model, CaptureOptions(*options))
    except CaptureError as error:
        raise CliError(str(error)) from None


def _default_file(model: Path) -> Path:
    from ggmltool.sources.llama.capture import model_name

    return Path(f"{model_name(model)}.json.gz")


def _add_weights(captured: Captured, model: Path, output: Output) -> None:
    """Refer to the model's file from where the scenario goes. Raises CliError."""
    from ggmltool.sources.llama.capture import add_weights
    from ggmltool.sources.llama.errors import CaptureError

    try:
        add_weights(captured.scenario, model, output.path.parent if output.path is not None else Path.cwd())
    except CaptureError as error:
        raise CliError(str(error)) from None


def _file(scenario: dict[str, Any], path: Path | None) -> bytes:
    """The scenario as JSON, one line per tensor, packed where the file's name says so."""
    import gzip

    from ggmltool.sources.llama.text import scenario_text

    data = scenario_text(scenario).encode()
    return gzip.compress(data, mtime=0) if path is not None and path.suffix == ".gz" else data


def _summary(captured: Captured, file: Path | None) -> str:
    """What was captured, and what to do with it."""
    from ggmltool.sources.llama.text import context_sizes

    facts, graphs = captured.facts, captured.scenario["graphs"]
    memory = ", ".join(f"{name} {size(n)}" for name, n in context_sizes(captured.scenario).items() if name in _LASTING)
    lines = [
        f"{facts['architecture']}, {count(facts['n_layer'], 'layer')}",
        f"{count(facts['n_tokens'], 'token')} in a context of {facts['n_ctx']}, {memory}",
        *(f"graph {name}: {_parts(graph)}" for name, graph in graphs.items()),
        f"Look at it with: ggmltool plan --step reserve {file}",
    ]
    return "\n".join(lines)


def _parts(graph: dict[str, Any]) -> str:
    nodes = len(graph["nodes"])
    return f"{count(nodes, 'node')}, {count(len(graph['expand']) - nodes, 'leaf')}"

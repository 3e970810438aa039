"""`ggmltool capture`: the graph that llama.cpp builds for a model, as a scenario."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ggmltool.cli.command import Command
from ggmltool.cli.errors import CliError
from ggmltool.cli.models import ModelOptions, model_options
from ggmltool.cli.options import output_to
from ggmltool.cli.output import Output, log_lines, note
from ggmltool.cli.progress import progress
from ggmltool.inspect.opened import answers_for
from ggmltool.show.text import count, size

if TYPE_CHECKING:
    from ggmltool.sources.llama.capture.capture import Captured

_LASTING = ("weights", "kv")
_NUMBER = click.IntRange(1)
AUTO = " (without -np llama-server has 4: -np auto)"
_MAX_TOKEN = (1 << 31) - 1


def _token_list(ctx: click.Context, option: click.Parameter, value: str | None) -> tuple[int, ...]:
    """Numbers between commas or blanks, in a file where the text is @FILE."""
    if value is None:
        return ()
    text = value
    if value.startswith("@"):
        try:
            text = Path(value[1:]).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "this is not text"
            raise click.BadParameter(f"{value[1:]}: {reason}", ctx, option) from None
    words = text.replace(",", " ").split()
    wrong = next((w for w in words if not (w.isascii() and w.isdecimal()) or int(w[:11]) > _MAX_TOKEN), None)
    if wrong is not None or not words:
        found = f"{wrong[:20]!r} is not a token id" if wrong is not None else "there are no tokens"
        raise click.BadParameter(f"{found}; for example 2,818,5279", ctx, option)
    return tuple(map(int, words))


@click.command(cls=Command)
@click.argument("model", metavar="MODEL.gguf", type=click.Path(path_type=Path))
@model_options()
@click.option(
    "-nkvo", "--no-kv-offload", is_flag=True, help="Keep the KV cache on the CPU when the scenario is placed."
)
@click.option("--embeddings", is_flag=True, help="Capture a context that returns embeddings.")
@click.option(
    "--phase", type=click.Choice(["prompt", "token", "both"]), default="prompt", show_default=True,
    help="A whole ubatch of a prompt, one token of each sequence, or a graph of each (`prompt` and `token`).",
)  # fmt: skip
@click.option("--n-tokens", type=_NUMBER, metavar="N", help="Tokens of the graph, overriding --phase.")
@click.option("--n-seqs", type=_NUMBER, metavar="N", help="Sequences of the graph (default: all of the context).")
@click.option(
    "--prompt",
    metavar="TEXT",
    help="Capture the graph that decodes this text, with its inputs, so that `run` can compute it.",
)
@click.option(
    "--tokens", metavar="LIST", callback=_token_list,
    help="The same for token ids: 2,818,5279, or @FILE to read them from a file.",
)  # fmt: skip
@click.option(
    "--next-tokens", metavar="LIST", callback=_token_list,
    help="Decode these tokens after the prompt, one at a time, on the same KV cache.",
)  # fmt: skip
@click.option(
    "--weights/--no-weights", default=False, show_default=True,
    help="Record where the weights' values are, so that `run` can compute (always on with --prompt and --tokens).",
)  # fmt: skip
@output_to(".json", ".yaml", ".yml")
@click.pass_context
def capture(
    ctx: click.Context,
    model: Path,
    wanted: ModelOptions,
    no_kv_offload: bool,
    embeddings: bool,
    phase: Any,
    n_tokens: int | None,
    n_seqs: int | None,
    prompt: str | None,
    tokens: tuple[int, ...],
    next_tokens: tuple[int, ...],
    weights: bool,
    output: Output,
) -> int:
    """Write the graph that llama.cpp builds for a model as a scenario, everything on the CPU.

    Only names and shapes of the weights are read, and no memory is allocated for them: a model of 400 GB takes no
    longer than a small one, and its first megabytes are enough (curl -r 0-16777215). For a split model, name the first
    file (…-00001-of-0000N.gguf). A folder of safetensors with its config.json stands for the GGUF file that llama.cpp's
    converter would make of it. The scenario is JSON, compressed if the file's name ends in .gz; on a terminal it goes
    to MODEL.json.gz in the current folder, unless -o names a file. Needs the extra llama.

    With --prompt or --tokens the graphs are those that decode these tokens, with all inputs as llama.cpp sets them, and
    `run` computes the logits.

    \b
    Example:
      ggmltool capture gemma.gguf -c 8192 -ub 256 -o gemma.json.gz
      ggmltool plan --step reserve gemma.json.gz
      ggmltool capture gemma.gguf -c 8192 --as q4_K_M -o gemma-q4.json.gz
      ggmltool capture gemma.gguf -c 1024 --prompt "The capital of France is" --outputs 1 -o france.json.gz
      ggmltool run france.json.gz
    """
    from ggmltool.sources.llama.capture.capture import add_weights, scenario_text
    from ggmltool.sources.llama.capture.capture import capture as capture_model
    from ggmltool.sources.llama.errors import CaptureError
    from ggmltool.sources.llama.model_file import model_name

    unnamed = output.to_terminal and ctx.get_parameter_source("output") is click.core.ParameterSource.DEFAULT
    if unnamed:
        kind = (text.replace(":", "-") for text in wanted.quantization)
        output = Output(Path("-".join([model_name(model), *kind]) + ".json.gz"), output.force)
        output.check()
    _check_tokens(ctx, prompt, tokens, next_tokens)
    (asked,) = wanted.each()
    given = {
        "phase": phase, "n_tokens": n_tokens, "n_seqs": n_seqs, "offload_kqv": not no_kv_offload,
        "embeddings": embeddings, "tokens": tokens, "prompt": prompt or "", "next_tokens": next_tokens,
    }  # fmt: skip
    if weights and asked.quantization:
        raise CliError("--weights and --as exclude each other: the file with such weights is not made")
    try:
        with progress(f"capturing {model.name}"):
            captured = capture_model(model, replace(asked.options, **given), asked.quantization)
        log_lines(captured.log)
        if weights or tokens or prompt:
            add_weights(captured.scenario, model, output.path.parent if output.path is not None else Path.cwd())
    except CaptureError as error:
        raise CliError(str(error)) from None
    output.write(scenario_text(captured.scenario).encode())
    if unnamed:
        note(_summary(captured, output.path))
    if "note" in captured.facts:
        note(captured.facts["note"])
    if output.path is not None and (said := answers_for(captured.facts)):
        auto = "" if wanted.n_parallel or asked.options.program != "server" else AUTO
        note(f"{said}{auto}")
    return 0


def _check_tokens(
    ctx: click.Context, prompt: str | None, tokens: tuple[int, ...], next_tokens: tuple[int, ...]
) -> None:
    """Refuse options that tokens make senseless. Raises click.UsageError."""
    if prompt is not None and tokens:
        raise click.UsageError("--prompt and --tokens exclude each other: give one of them", ctx)
    if prompt == "":
        raise click.UsageError("--prompt is empty", ctx)
    if next_tokens and not tokens and not prompt:
        raise click.UsageError("--next-tokens needs --prompt or --tokens", ctx)
    for name in ("for", "phase", "n_tokens", "n_seqs") if tokens or prompt else ():
        if ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
            option = "--" + name.replace("_", "-")
            raise click.UsageError(f"{option} cannot be combined with --prompt or --tokens, which name all tokens", ctx)


def _summary(captured: Captured, file: Path | None) -> str:
    """What was captured, and what to do with it."""
    from ggmltool.sources.llama.capture.capture import context_sizes

    facts, graphs = captured.facts, captured.scenario["graphs"]
    memory = ", ".join(f"{name} {size(n)}" for name, n in context_sizes(captured.scenario).items() if name in _LASTING)
    look = f"Look at it with: ggmltool plan --step reserve {file}"
    lines = [
        f"{facts['architecture']}, {count(facts['n_layer'], 'layer')}, built by {facts['library']}",
        f"{count(facts['n_tokens'], 'token')} in a context of {facts['n_ctx']}, {memory}",
        *(f"graph {name}: {_parts(graph)}" for name, graph in graphs.items()),
        f"Compute it with: ggmltool run {file}" if facts["phase"] == "tokens" else look,
    ]
    return "\n".join(lines)


def _parts(graph: dict[str, Any]) -> str:
    nodes = len(graph["nodes"])
    return f"{count(nodes, 'node')}, {count(len(graph['expand']) - nodes, 'leaf')}"

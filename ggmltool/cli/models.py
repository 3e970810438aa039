"""Models on the command line: llama.cpp's options of a context, and the graphs that are captured with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import wraps
from itertools import groupby, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, cast

import click

from ggmltool.ask.sweep.record import SweptGraph
from ggmltool.cli.errors import CliError
from ggmltool.cli.numbers import NumberOrWord, SeveralNumbers, SeveralWords
from ggmltool.cli.progress import progress
from ggmltool.cli.scenario import open_scenario
from ggmltool.inspect.opened import Opened
from ggmltool.sources.llama.capture.options import (
    AUTO_PARALLEL,
    CACHE_TYPES,
    FLASH_ATTN,
    PROGRAMS,
    CaptureOptions,
    Program,
)
from ggmltool.sources.llama.errors import CaptureError

if TYPE_CHECKING:
    from ggmltool.sources.llama.capture.options import CaptureOptions

F = TypeVar("F", bound=Callable[..., Any])

_AUTO = -1
"""-np auto, as llama.cpp has it."""
_SERVER: Program = "server"


class Wanted(NamedTuple):
    """What to capture with, and the options that say so, by name; a flag has no value.

    `quantization` is the kind of file that the model is captured as ("": as it is).
    """

    options: CaptureOptions
    words: dict[str, str]
    quantization: str = ""


class ModelOptions(NamedTuple):
    """The values of each option; () if it is left out, which is llama.cpp's default."""

    ctx_size: tuple[int, ...]
    batch_size: tuple[int, ...]
    ubatch_size: tuple[int, ...]
    n_parallel: tuple[int, ...]
    flash_attn: tuple[Any, ...]
    cache_type_k: tuple[str, ...]
    cache_type_v: tuple[str, ...]
    outputs: tuple[int, ...]
    program: Any
    library: str | None
    swa_full: bool
    kv_unified: bool
    quantization: tuple[str, ...] = ()

    @staticmethod
    def lists() -> list[str]:
        """The fields of the options whose values `fit` searches."""
        return [name for name in FIELDS if name != "outputs"]

    @property
    def given(self) -> list[str]:
        """The names of the options that stand on the line."""
        fields = {name: getattr(self, field) for field, (name, _) in FIELDS.items()}
        values = {"--as": self.quantization, **fields, **self._flags()}
        return [name for name, value in values.items() if value]

    def _flags(self) -> dict[str, str]:
        program = "" if self.program is None else str(self.program)
        words = {"--for": program, "--library": self.library or ""}
        return {**words, "--swa-full": " " * self.swa_full, "-kvu": " " * self.kv_unified}

    def each(self) -> list[Wanted]:
        """Every combination of the values. Raises click.UsageError for -np auto of a program without, and CliError."""
        program: Program = self.program or _SERVER
        if _AUTO in self.n_parallel and program != _SERVER:
            raise click.UsageError(f"-np auto exists in llama-server only; give {program} a number of sequences")
        given = {field: values for field in FIELDS if (values := getattr(self, field))}
        flags = {name: value.strip() for name, value in self._flags().items() if value}
        base = CaptureOptions(
            program=program, swa_full=self.swa_full, kv_unified=self.kv_unified, library=self.library or ""
        )
        return [
            Wanted(_with(base, dict(zip(given, values, strict=True))), {**kind, **_words(given, values), **flags}, text)
            for text in self.quantization or ("",)
            for kind in ({"--as": text} if text else {},)
            for values in product(*given.values())
        ]


FIELDS: dict[str, tuple[str, str]] = {
    "ctx_size": ("-c", "n_ctx"),
    "batch_size": ("-b", "n_batch"),
    "ubatch_size": ("-ub", "n_ubatch"),
    "n_parallel": ("-np", "n_parallel"),
    "flash_attn": ("-fa", "flash_attn"),
    "cache_type_k": ("-ctk", "type_k"),
    "cache_type_v": ("-ctv", "type_v"),
    "outputs": ("--outputs", "n_outputs"),
}
"""The name of each option, and the field of CaptureOptions that it is."""


def _with(base: CaptureOptions, values: dict[str, Any]) -> CaptureOptions:
    fields = {FIELDS[field][1]: value for field, value in values.items()}
    if fields.get("n_parallel") == _AUTO:
        fields |= {"n_parallel": AUTO_PARALLEL, "kv_unified": True}
    try:
        return replace(base, **fields)
    except CaptureError as error:
        raise CliError(str(error)) from None


def _words(given: dict[str, tuple[Any, ...]], values: tuple[Any, ...]) -> dict[str, str]:
    return {
        FIELDS[field][0]: "auto" if value == _AUTO else str(value) for field, value in zip(given, values, strict=True)
    }


class _Kinds(SeveralWords):
    """Kinds of files that llama-quantize makes, as it writes them."""

    name = "kind"

    def __init__(self, several: bool) -> None:
        self.several = several

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """The kinds, each once. Raises click.BadParameter."""
        if isinstance(value, tuple):
            return value
        from ggmltool.sources.llama.header.quantization import read_quantization

        try:
            kinds = tuple(dict.fromkeys(str(read_quantization(part.strip())) for part in str(value).split(",")))
        except CaptureError as error:
            self.fail(str(error), param, ctx)
        if len(kinds) > 1 and not self.several:
            self.fail(f"{value} are several kinds of files; name one", param, ctx)
        return kinds


class _Sequences(click.Option):
    """-np, of which help shows the names that llama.cpp has."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Its names and its help."""
        record = super().get_help_record(ctx)
        return None if record is None else (record[0].replace("--n-parallel, ", ""), record[1])


def model_options(lists: bool = False, doubled: bool = False) -> Callable[[F], F]:
    """The options, together the parameter `wanted`, a ModelOptions.

    With `lists` each may have several values; with `doubled` a range of -c without a step has doublings.
    """

    def decorate(command: F) -> F:
        @wraps(command)
        def with_options(*args: object, **kwargs: Any) -> object:
            kwargs["program"] = kwargs.pop("for")
            kwargs["quantization"] = kwargs.pop("as") or ()
            values = {name: kwargs.pop(name) for name in ModelOptions._fields}
            for field in FIELDS:
                value = values[field]
                values[field] = () if value is None else value if isinstance(value, tuple) else (value,)
            return command(*args, wanted=ModelOptions(**values), **kwargs)

        wrapped = cast(F, with_options)
        for option in reversed(_options(lists, doubled)):
            wrapped = option(wrapped)
        return wrapped

    return decorate


_HELP = {
    "-c": (
        "Context size (default: the model's own).",
        "Context sizes: 32768, or a range, 8192..131072, whose doublings are tried. Default: 8192 to the model's.",
    ),
    "-ub": (
        "Physical batch, in tokens (default: 512).",
        "Sizes of the physical batch, in tokens (default: 512, 1024 and 2048).",
    ),
}
"""What is asked for, and what `fit` searches."""


def _options(lists: bool, doubled: bool) -> list[Callable[[F], F]]:
    def number(*names: str, least: int, help: str, doubled: bool = False) -> Callable[[F], F]:
        type = SeveralNumbers(least, doubled=doubled) if lists else click.IntRange(least)
        return click.option(*names, type=type, metavar="LIST" if lists else "N", help=help)

    def word(*names: str, choices: tuple[str, ...], help: str) -> Callable[[F], F]:
        one = click.Choice(choices)
        return click.option(
            *names, type=SeveralWords(one) if lists else one, metavar="LIST" if lists else None, help=help
        )

    sequences = SeveralNumbers(1, auto=_AUTO) if lists else NumberOrWord(1, auto=_AUTO)
    return [
        number("-c", "--ctx-size", least=0, help=_HELP["-c"][doubled], doubled=doubled),
        number("-b", "--batch-size", least=1, help="Logical batch, in tokens (default: 2048)."),
        number("-ub", "--ubatch-size", least=1, help=_HELP["-ub"][doubled]),
        click.option(
            "-np", "--n-parallel", "--parallel", "n_parallel", cls=_Sequences, type=sequences,
            metavar="LIST" if lists else "N|auto",
            help=f"Sequences of the context (default: 1). auto: {AUTO_PARALLEL} sequences that share one KV cache, as "
                 "in llama-server without -np.",
        ),
        word(
            "-fa", "--flash-attn", choices=tuple(FLASH_ATTN),
            help="Flash attention (default: auto, which is on here, as on every device that supports it).",
        ),
        word("-ctk", "--cache-type-k", choices=CACHE_TYPES, help="Data type of the K cache (default: f16)."),
        word("-ctv", "--cache-type-v", choices=CACHE_TYPES, help="Data type of the V cache (default: f16)."),
        click.option("--swa-full", is_flag=True, help="Give sliding-window layers a cache of the full context size."),
        click.option("-kvu", "--kv-unified", is_flag=True, help="One KV cache for all sequences."),
        click.option(
            "--for", type=click.Choice(PROGRAMS),
            help="Reserve memory as this program does: llama-server (default) and llama-cli for the logits of one "
                 "token of each sequence; a program on the library's defaults (llama-bench) for the logits of every "
                 "token.",
        ),
        number("--outputs", least=0, help="Tokens that have logits, overriding --for."),
        click.option(
            "--as", type=_Kinds(lists), metavar="LIST" if lists else "TYPE",
            help="The model as llama-quantize would make it of this file: q4_K_M, q8_0, iq4_xs:imatrix, …, without "
                 "making it (`help models`).",
        ),
        click.option(
            "--library", metavar="PACKAGE[==VERSION]",
            help="Capture with the llama.cpp of this package, installed or in GGMLTOOL_LIBRARIES (default: the first "
                 "that is installed; `help models`).",
        ),
    ]  # fmt: skip


MAX_CAPTURES = 64
Phase = Literal["prompt", "token", "both"]


def open_captures(names: Sequence[str | None], wanted: ModelOptions, phase: Phase = "prompt") -> list[SweptGraph]:
    """The scenarios that are named, or the default one; a GGUF file gives a capture of a phase for all that is wanted.

    Raises click.UsageError for options of a capture without a model to capture, and CliError.
    """
    from ggmltool.sources.llama.model_file import is_model

    models = [name for name in names if name is not None and is_model(Path(name))]
    if wanted.given and not models:
        raise CliError(f"{wanted.given[0]} changes the graph: name the model itself, MODEL.gguf, not its capture")
    each = wanted.each()
    n = len(models) * len(each)
    if n > MAX_CAPTURES:
        raise CliError(f"{n} graphs are too many to capture; the limit is {MAX_CAPTURES}")
    out = []
    with progress("capturing", n, "graphs") as done:
        for name in names or (None,):
            if name is None or name not in models:
                out.append(SweptGraph(open_scenario(name), {}))
                continue
            for graph in _capture(name, each, phase):
                out.append(graph)
                done()
    return out


def opener(name: str | None, wanted: ModelOptions) -> Callable[[int], SweptGraph]:
    """What gives the graphs of a prompt and a token with a context of so many tokens (0: as `wanted` says): a model is
    captured for each, what is a capture already has its own. Raises as `open_captures` does.
    """
    from ggmltool.sources.llama.model_file import is_model

    (first,) = open_captures([name], wanted, "both")
    (each,) = wanted.each()
    opened = {each.options.n_ctx: first}

    def open_for(n_ctx: int) -> SweptGraph:
        if n_ctx not in opened and (name is None or not is_model(Path(name))):
            return first
        if n_ctx not in opened:
            words = {**each.words, "-c": str(n_ctx)}
            same = next((g for g in opened.values() if g.opened.model.meta.get("n_ctx") == n_ctx), None)
            if same is None:
                wanted_here = each._replace(options=replace(each.options, n_ctx=n_ctx), words=words)
                (same,) = _capture(str(name), [wanted_here], "both")
            opened[n_ctx] = same._replace(words=words)
        return opened[n_ctx]

    return open_for


def _capture(name: str, each: Sequence[Wanted], phase: Phase) -> Iterator[SweptGraph]:
    """The graphs of a whole ubatch of a prompt, of a token or both, in batches that are no smaller. Raises CliError."""
    from ggmltool.scenario.load import load_spec
    from ggmltool.scenario.scenario import LoadedScenario
    from ggmltool.sources.llama.capture.capture import capture_many
    from ggmltool.sources.llama.errors import CaptureError

    try:
        for kind, group in groupby(each, lambda wanted: wanted.quantization):
            alike = list(group)
            captures = capture_many(Path(name), [_of_phase(wanted, phase) for wanted in alike], kind)
            for wanted, captured in zip(alike, captures, strict=True):
                if isinstance(captured, CaptureError):
                    raise captured
                yield SweptGraph(Opened(LoadedScenario(load_spec(captured.scenario)), name), wanted.words)
    except CaptureError as error:
        raise CliError(str(error)) from None


def _of_phase(wanted: Wanted, phase: Phase) -> CaptureOptions:
    options = replace(wanted.options, phase=phase)
    return options if "-b" in wanted.words else replace(options, n_batch=max(options.n_batch, options.n_ubatch))

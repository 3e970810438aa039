"""`ggmltool ops`: the ops of ggml, and one of them in full."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import click

from ggmltool.cli.command import Command
from ggmltool.cli.endings import format_of
from ggmltool.cli.errors import CliError
from ggmltool.cli.options import json_option, output_to
from ggmltool.cli.output import Output

if TYPE_CHECKING:
    from ggmltool.ggml.ops.registry import Constructor, Param
    from ggmltool.inspect.op_reference import OpFacts
    from ggmltool.views.reference.ops import FormInfo, OpInfo, ParamInfo

_KINDS = {"int": "integer", "float": "number", "bool": "true or false", "DType": "a type's name"}
_PREFIXES = ("ggml_op_", "ggml_unary_op_", "ggml_glu_op_", "ggml_")


def _complete_ops(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    from ggmltool.ggml.op import KEY_NAMES

    return [name for name in KEY_NAMES if name.startswith(incomplete.lower())]


@click.command(cls=Command)
@click.argument("name", required=False, metavar="[NAME]", shell_complete=_complete_ops)
@click.option("--example", is_flag=True, help="Print only the scenario that shows the op NAME.")
@json_option
@output_to(".yaml", ".yml")
def ops(name: str | None, example: bool, json: bool, output: Output) -> int:
    """List the ops of ggml, or show one in full: how it is written, its parameters, where it runs, an example.

    NAME is an op (rope, ROPE, GGML_OP_ROPE), a function of UNARY or GLU (silu, geglu), or a constructor of ggml's
    (rope_ext).

    \b
    Example:
      ggmltool ops
      ggmltool ops soft_max
      ggmltool ops --example rope | ggmltool plan -
    """
    if name is None and example:
        raise click.UsageError("--example needs the NAME of an op.")
    if json and example:
        raise click.UsageError("--example prints a scenario; it does not go with --json.")
    if not example and format_of(output.path) == "yaml":
        raise click.UsageError("a YAML file is for the scenario of --example; name a .txt or .json file.")
    from ggmltool.ggml.version import VERSION
    from ggmltool.inspect.op_reference import op_facts
    from ggmltool.views.json_text import json_text
    from ggmltool.views.reference.ops import op_json, op_view, ops_json, ops_view

    if name is None:
        infos = [_info(facts) for facts in op_facts()]
        output.write(json_text(ops_json(infos, VERSION)) if json else ops_view(infos, VERSION, output.style))
        return 0
    info = _info(_find(name))
    info = info._replace(result=_result(info))
    if example:
        if not info.example:
            raise CliError(f"there is no example of {info.name}: ggml itself refuses to build it.")
        output.write(info.example)
    elif json:
        output.write(json_text({"ggmltool": 1, "kind": "op", "ggml": VERSION, **op_json(info)}))
    else:
        output.write(op_view(info, output.style))
    return 0


def _find(name: str) -> OpFacts:
    """The op, function or constructor of this name. Raises CliError where there is none."""
    from ggmltool.ggml.ops.composites import COMPOSITES
    from ggmltool.inspect.op_reference import op_facts
    from ggmltool.scenario.errors import did_you_mean
    from ggmltool.scenario.params import signature

    asked = name.lower()
    for prefix in _PREFIXES:
        asked = asked.removeprefix(prefix)
    by_name = {facts.name.lower(): facts for facts in op_facts()}
    names = {c.name: f for f in op_facts() for c in f.constructors}
    names |= {other: f for f in op_facts() for group in f.other_names for other in group}
    for key in (asked, asked.removesuffix("_inplace")):
        found = by_name.get(key) or names.get(key)
        if found is not None:
            return found
    if asked in COMPOSITES:
        c = COMPOSITES[asked]
        raise CliError(f"{asked} is not an op: {signature(c)} builds several nodes, the last of them {c.op.name}.")
    hint = did_you_mean(asked, [*by_name, *names]) or "`ggmltool ops` lists them."
    raise CliError(f"no op is called {name!r}; {hint}")


def _info(facts: OpFacts) -> OpInfo:
    from ggmltool.scenario.op_examples import NOTES, op_example
    from ggmltool.views.reference.ops import OpInfo

    op = facts.name.lower()
    return OpInfo(
        facts.number,
        facts.name,
        facts.function_of.name if facts.function_of is not None else "",
        facts.symbol,
        facts.n_sources,
        tuple(_form(c, also, op) for c, also in zip(facts.constructors, facts.other_names, strict=True)),
        facts.is_view_op,
        facts.can_inplace,
        facts.computes,
        facts.cases,
        dict(facts.supports),
        facts.result_of,
        op_example(op) or "",
        NOTES.get(op, ""),
    )


def _result(info: OpInfo) -> str:
    """Type and extents of the node of an op's example, as `f32[64, 8, 4]`; "" without a node of that op."""
    from ggmltool import load
    from ggmltool.scenario.op_examples import RESULT
    from ggmltool.scenario.yaml_text import compose_yaml
    from ggmltool.views.text import dims

    document = compose_yaml(info.example) if info.example else None
    if not isinstance(document, dict):
        return ""
    nodes = load(document).plan().nodes
    found = next((n for n in nodes if n.id == RESULT and n.op in (info.name, info.function_of)), None)
    return f"{found.type}{dims(found.ne)}" if found is not None else ""


def _form(c: Constructor, also: tuple[str, ...], op: str) -> FormInfo:
    from ggmltool.ggml.ops.shape_rules import ShapeRule, shape_rules
    from ggmltool.views.reference.ops import FormInfo

    rule = shape_rules().get(c.name, ShapeRule((), ""))
    return FormInfo(
        c.name,
        also,
        c.shown_sources,
        c.n_required_sources,
        c.slots,
        c.inplace,
        tuple(_param(p, op) for p in c.params),
        inspect.cleandoc(c.build.__doc__ or ""),
        *rule,
    )


def _param(p: Param, op: str) -> ParamInfo:
    from ggmltool.scenario.param_meanings import param_meaning
    from ggmltool.views.reference.ops import ParamInfo

    kind = _KINDS.get(p.kind.split(" |", 1)[0], "list of integers")
    return ParamInfo(
        p.name, kind, None if p.required else _written(p), dict(p.choices or {}), param_meaning(op, p.name)
    )


def _written(p: Param) -> str:
    """A default as a scenario writes it; a word where the parameter has words."""
    value = p.default
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, int) and p.choices:
        return next((word for word, number in p.choices.items() if number == value), str(value))
    return str(list(value)) if isinstance(value, tuple) else str(value)

"""Types as `ptype` and `whatis` write them."""

from __future__ import annotations

from ggmltool.debugger.expressions.evaluate import Names, Place, value_of
from ggmltool.debugger.expressions.parser import TypeName, parse
from ggmltool.structs.layout import Layout
from ggmltool.structs.types import (
    CType,
    Enum,
    Language,
    Struct,
    Typedef,
    bare,
    base_name,
    innermost,
    type_name,
    with_innermost,
)  # fmt: skip


def type_text(text: str, scope: Place, whatis: bool = False) -> str:
    """`type = …` of an expression or a type, a struct with its fields; `whatis`: by its name alone.

    Raises ExpressionError.
    """
    return described(text, scope, scope.layout, whatis)


def described(text: str, names: Names, types: Layout, whatis: bool = False) -> str:
    """The same where names and types are known to others. Raises ExpressionError."""
    node = parse(text, types)
    named = isinstance(node, TypeName)
    type = node.type if isinstance(node, TypeName) else value_of(node, names).type
    if whatis:
        return f"type = {type_name(_one_level(type) if named else type, language=names.language)}"
    return f"type = {written_out(type, names.language)}"


def _one_level(type: CType) -> CType:
    """What `whatis` says of the name of a type: the type that it is another name of."""
    return type.to if isinstance(type, Typedef) else type


def written_out(type: CType, language: Language) -> str:
    """A type as `ptype` writes it behind `type = `."""
    type = bare(type) if innermost(bare(type)) is not innermost(type) else type
    inner = bare(innermost(type))
    while inner is not innermost(inner):
        type = with_innermost(type, inner)
        inner = bare(innermost(type))
    type = with_innermost(type, inner)
    head = base_name(inner, language)
    whole = type_name(type, language=language)
    before, _, after = whole.partition(head)
    return f"{before}{_body(inner, head, language)}{after}"


def _body(type: CType, head: str, language: Language) -> str:
    match type:
        case Struct(name=name, members=members):
            if members is None:
                return f"struct {name} {{\n    <incomplete type>\n}}"
            lines = [f"    {type_name(m.type, m.name, language)};" for m in members.values()]
            return "\n".join((f"struct {name} {{", *lines, "}"))
        case Enum(name=name, members=members):
            said, following = [], 0
            for member, value in members.items():
                said.append(member if value == following else f"{member} = {value}")
                following = value + 1
            colon = " : unsigned int" if language == "c++" else ""
            return f"enum {name}{colon} {{{', '.join(said)}}}"
        case _:
            return head

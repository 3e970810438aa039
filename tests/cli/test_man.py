"""The manual page: everything that the help says, in roff that the formatter takes without a warning."""

from __future__ import annotations

import re
import subprocess

import click
import pytest

from ggmltool.cli.main import COMMANDS, cli
from ggmltool.views.reference.man import CommandPage, Entry, Manual, man_page
from tests.cli.conftest import Call
from tests.needs import needs_groff


def test_the_page_has_every_command_every_option_and_its_variable(call: Call) -> None:
    page = call("man").out.replace("\\-", "-")
    for name in COMMANDS:
        assert re.search(rf"^\.SS ggmltool {name} ", page, re.MULTILINE)
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        for option in command.params:
            if isinstance(option, click.Option):
                assert option.opts[-1] in page
                variable = option.envvar or f"GGMLTOOL_{name.upper()}_{(option.name or '').upper()}"
                assert f".B {variable}\n" in page


def test_what_roff_would_take_for_a_request_is_text() -> None:
    page = man_page(
        Manual(
            "x",
            "1",
            "'about' \\n",
            "x [-a]",
            ".hidden words\n\n\b\n'kept\n  as is",
            [CommandPage("c", "x c", "does -a", [Entry("-a", ".5 is the default", "X_A")])],
            [],
        )
    )
    assert page == (
        '.TH X 1 "" "x 1" "User Commands"\n.SH NAME\nx \\- \\&\'about\' \\en\n.SH SYNOPSIS\n.B x [\\-a]\n'
        ".SH DESCRIPTION\n.PP\n\\&.hidden words\n.PP\n.nf\n\\&'kept\n  as is\n.fi\n.SH COMMANDS\n.SS x c\n.PP\n"
        "does \\-a\n.TP\n.B \\-a\n\\&.5 is the default\n.SH COMMON OPTIONS\n.SH ENVIRONMENT\n.TP\n.B X_A\nx c \\-a\n"
    )


@needs_groff
@pytest.mark.parametrize("columns", [40, 80, 200])
def test_groff_sets_the_page_without_a_warning(call: Call, columns: int) -> None:
    page = call("man").out
    set_ = subprocess.run(
        ["groff", "-k", "-Tutf8", "-man", "-ww", f"-rLL={columns}n"],
        input=page,
        capture_output=True,
        text=True,
        check=True,
    )
    errors = [line for line in set_.stderr.splitlines() if "break" not in line and "adjust" not in line]
    assert errors == []
    assert "ggmltool splits --format table model.yaml" in re.sub("\x1b\\[[0-9;]*m", "", set_.stdout)

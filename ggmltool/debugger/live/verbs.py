"""Who answers which `ggml …`."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from typing import IO, Any

from ggmltool.attach.gdb.link import LinkError, LinkLost
from ggmltool.debugger.errors import CommandError
from ggmltool.debugger.live import asking, looking, stopping
from ggmltool.debugger.live.desk import Asked, Desk, Visit
from ggmltool.ggml.errors import Error
from ggmltool.show.text import harmless
from ggmltool.structs.declarations import ExpressionError
from ggmltool.views.attach import live

Answer = Callable[[Visit, Asked], str]
MOST_COMPLETED = 1000


def _complete(visit: Visit, asked: Asked) -> str:
    begun = asked.argument.lstrip()
    before = asked.argument[: len(asked.argument) - len(begun)]
    names = (name for name in visit.tensors if name.startswith(begun) and name.isprintable())
    return "\n".join(before + name for name, _ in zip(names, range(MOST_COMPLETED), strict=False))


def _planned(verb: str) -> Answer:
    """A verb that plans the graph: the engine is imported when the first of them is asked."""

    def answer(visit: Visit, asked: Asked) -> str:
        from ggmltool.debugger.live.planning import save, verified, why

        return {"save": save, "why": why, "verify": verified}[verb](visit, asked)

    return answer


def answers() -> dict[str, Answer]:
    """By verb."""
    views = {
        "splits": live.splits_view, "allocs": live.allocs_view, "buffers": live.buffers_view, "graph": live.graph_view,
    }  # fmt: skip
    return {
        **{verb: looking.plain(view) for verb, view in views.items()},
        "hash": looking.hash_sets,
        "tensor": looking.tensor,
        "lifetime": looking.lifetime,
        **{verb: _planned(verb) for verb in ("save", "why", "verify")},
        "print": asking.printed,
        "ptype": asking.type_of,
        "x": asking.Examining(),
        "break": stopping.stop_at,
        "watch": stopping.watch,
        "use": stopping.use,
        "complete": _complete,
    }


class Clerk:
    """Answers commands: what is to be shown, and what went wrong, in a line."""

    def __init__(self, requests: IO[bytes], replies: IO[bytes]) -> None:
        self._desk = Desk(requests, replies)
        self._answers = answers()

    def answer(self, message: dict[str, Any]) -> tuple[str, str]:
        """What gdb shows, and the error ("": none). Raises LinkLost if gdb is gone."""
        asked = Asked.of(message)
        try:
            text = self._answers[asked.verb](self._desk.visit(asked), asked)
            return harmless(text, asked.color), ""
        except LinkLost:
            raise
        except (Error, CommandError, ExpressionError, LinkError) as error:
            return "", harmless(" ".join(str(error).split()))
        except Exception as error:
            if os.environ.get("GGMLTOOL_TRACEBACK"):
                return traceback.format_exc(), "this is a bug in ggmltool"
            return "", f"this is a bug in ggmltool: {type(error).__name__}: {harmless(str(error))}"

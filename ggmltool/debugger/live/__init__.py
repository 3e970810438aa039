"""A program that stands still in the user's gdb, asked through `ggml …` there. gdb starts the process that answers, and
is asked by it through its two streams."""

from __future__ import annotations

import json
import os
import sys


def serve() -> None:
    """Answer until gdb is gone. What anything here prints goes to standard error, which gdb keeps."""
    requests = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    answers = sys.stdin.buffer
    from ggmltool.attach.gdb.link import LinkLost
    from ggmltool.debugger.live.verbs import VerbHandler

    handler = VerbHandler(requests, answers)
    try:
        for line in iter(answers.readline, b""):
            end = ["end", *handler.answer(json.loads(line))]
            requests.write(json.dumps(end).encode() + b"\n")
            requests.flush()
    except (LinkLost, BrokenPipeError):
        pass

"""The process that loads llama.cpp: it captures one graph and writes what came of it as JSON.

It is a process of its own, so that an abort in the library ends it and not the command, and so that the library's
prints go nowhere.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, NoReturn

from ggmltool.sources.llama.errors import CaptureError
from ggmltool.sources.llama.graph import GraphWriter
from ggmltool.sources.llama.lib import ABORT_CALLBACK, Lib
from ggmltool.sources.llama.options import CaptureOptions
from ggmltool.sources.llama.session import Session

GRAPHS = {"prompt": {"main": "prompt"}, "token": {"main": "token"}, "both": {"prompt": "prompt", "token": "token"}}
"""The graphs of each choice of `phase`: their names, and the phase that each is of."""


STEPS = ["reserve prompt", "reserve token", "reserve prompt", "alloc prompt", "reset", "alloc token"]
"""What llama.cpp does with both: it reserves for each and for the larger one again, then comes what is computed."""


def capture(path: str, options: CaptureOptions) -> dict[str, Any]:
    """The scenario of a model's graph or graphs, and what the library logged. Raises CaptureError."""
    session = Session(options)
    session.load(path)
    writer = GraphWriter(session.lib)
    for name, phase in GRAPHS[options.phase].items():
        writer.add(name, session.reserve(phase))
    facts = session.facts(writer.has_op("flash_attn_ext"), options.phase, *session.batch(options.phase))
    scenario = session.scenario(path, facts, _batch(facts), writer.written())
    if options.phase == "both":
        scenario["steps"] = STEPS
    return {"scenario": scenario, "log": session.log.said()}


def _batch(facts: dict[str, Any]) -> str:
    """What the graphs are for, in words."""
    prompt = f"prompt of {facts['n_tokens']} tokens"
    token = "one token" if facts["n_seqs"] == 1 else f"one token of {facts['n_seqs']} sequences"
    return {"prompt": prompt, "token": token, "both": f"{prompt} and {token}"}[facts["phase"]]


def main() -> NoReturn:
    """Read {"path", "options"} from standard input; write the result or {"error"} to standard output."""
    out = os.dup(1)
    os.dup2(2, 1)

    def reply(value: dict[str, Any]) -> None:
        data = memoryview(json.dumps(value, separators=(",", ":")).encode())
        while data:
            data = data[os.write(out, data) :]

    def on_abort(message: bytes) -> None:
        reply({"abort": message.decode("utf-8", "replace")})
        os._exit(0)

    callback = ABORT_CALLBACK(on_abort)
    asked = json.load(sys.stdin)
    try:
        options = CaptureOptions(**asked["options"])
        Lib(options.library).ggml_set_abort_callback(callback)
        if options.tokens or options.prompt:
            from ggmltool.sources.llama.decode import capture_decoded

            reply(capture_decoded(asked["path"], options))
        else:
            reply(capture(asked["path"], options))
    except CaptureError as error:
        reply({"error": str(error)})
    # The library's threads and static destructors are no longer needed.
    os._exit(0)


if __name__ == "__main__":
    main()

"""The process that loads llama.cpp: it captures graphs of one model and writes what came of each as it is there.

It is a process of its own, so that an abort in the library ends it and not the command, and so that the library's
prints go nowhere. The model is loaded once, and every set of options gets a context of its own.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Iterator
from typing import Any, NoReturn

from ggmltool.sources.llama.capture.lib import ABORT_CALLBACK, LlamaLib
from ggmltool.sources.llama.capture.options import CaptureOptions, written
from ggmltool.sources.llama.capture.session import LlamaGraphWriter, Session
from ggmltool.sources.llama.errors import CaptureError

GRAPHS = {"prompt": {"main": "prompt"}, "token": {"main": "token"}, "both": {"prompt": "prompt", "token": "token"}}
"""The graphs of each choice of `phase`: their names, and the phase that each is of."""


STEPS = ["reserve prompt", "reserve token", "reserve prompt", "alloc prompt", "reset", "alloc token"]
"""What llama.cpp does with both: it reserves for each and for the larger one again, then comes what is computed."""


def captures(path: str, asked: list[CaptureOptions]) -> Iterator[dict[str, Any]]:
    """For each set of options the scenario of the model's graph or graphs, and what the library logged, or an error.

    Before the first one comes that the model is loaded. Raises CaptureError if it cannot be.
    """
    session = Session(asked[0])
    session.load_model(path)
    yield {"loaded": True}
    for options in asked:
        try:
            session.renew(options)
            yield _capture(session, path)
        except CaptureError as error:
            yield {"error": str(error)}


def _capture(session: Session, path: str) -> dict[str, Any]:
    """The scenario of the graph or graphs of a context, and what the library logged. Raises CaptureError."""
    options = session.options
    writer = LlamaGraphWriter(session.lib)
    for name, phase in GRAPHS[options.phase].items():
        writer.add(name, session.reserve(phase))
    facts = session.facts(writer.has_op("flash_attn_ext"), options.phase, *session.batch(options.phase))
    prompt = f"prompt of {facts['n_tokens']} tokens"
    token = "one token" if facts["n_seqs"] == 1 else f"one token of {facts['n_seqs']} sequences"
    batch = {"prompt": prompt, "token": token, "both": f"{prompt} and {token}"}[options.phase]
    scenario = session.scenario(path, facts, batch, writer.written())
    if options.phase == "both":
        scenario["steps"] = STEPS
    return {"scenario": scenario, "log": session.log.said()}


def main() -> NoReturn:
    """Read {"path", "options": [...]} from standard input; write a reply for each to standard output."""
    gc.disable()  # graphs are many objects and no cycles
    out = os.dup(1)
    os.dup2(2, 1)

    def reply(value: dict[str, Any]) -> None:
        data = memoryview(written(value))
        while data:
            data = data[os.write(out, data) :]

    def on_abort(message: bytes) -> None:
        reply({"abort": message.decode("utf-8", "replace")})
        os._exit(0)

    callback = ABORT_CALLBACK(on_abort)
    request = json.load(sys.stdin)
    try:
        asked = [CaptureOptions(**options) for options in request["options"]]
        LlamaLib(asked[0].library).ggml_set_abort_callback(callback)
        if asked[0].decodes:  # one set of options alone
            from ggmltool.sources.llama.capture.decode import capture_decoded

            reply(capture_decoded(request["path"], asked[0]))
        else:
            for value in captures(request["path"], asked):
                reply(value)
    except CaptureError as error:
        reply({"error": str(error)})
    # The library's threads and static destructors are no longer needed.
    os._exit(0)


if __name__ == "__main__":
    main()

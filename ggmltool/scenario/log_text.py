"""Logs that somebody gives in place of a scenario."""

from __future__ import annotations

import re

from ggmltool.scenario.errors import ScenarioError

_LOOKED_AT = 1 << 20
_GRAPH_LINE = re.compile(r"## SPLIT #\d{1,9}: |node # *\d{1,9} \(.{1,10}\): ")
_LOAD_LINE = re.compile(
    r"^.{0,100}?(?<!\w)(?:llama_\w{3,60}|llm_load_\w{3,40}|ggml_(?:cuda|metal|vulkan|vk|backend|gallocr|sycl)\w{0,60}"
    r"|common_\w{3,60}|load_tensors|print_info|sched_reserve|graph_reserve|load_backend|create_tensor): +\S"
    r"|GGML_ASSERT\(|GGML_ASSERT: |\.(?:c|cpp|cu|m|h):\d{1,6}: \S|(?:CUDA|ROCm|MUSA) error: ",
    re.MULTILINE,
)
"""A line of llama.cpp's while it loads a model, or of ggml's where it stops."""

_FORMAT_KEY = re.compile(r"^[\s{,]{0,200}[\"']?ggmltool[\"']?\s{0,20}:", re.MULTILINE)
_TAKES_LOGS = "`ggmltool import` shows what is in it, and `splits`, `plan` and `dot` take it too"
_HOW_TO_LOG = (
    "`ggmltool import` shows what is in it; for its graphs run the program with GGML_SCHED_DEBUG=2 in the environment, "
    "llama.cpp also with -v"
)


def is_scenario(text: str) -> bool:
    """Whether a text has the key `ggmltool` at the beginning of a line or object."""
    return _FORMAT_KEY.search(text) is not None


def no_log(text: str, source: str) -> None:
    """Raises ScenarioError for a text that is a log: of the scheduler's prints, or of a model that is loaded."""
    if _GRAPH_LINE.search(text):
        if not is_scenario(text):
            raise ScenarioError("this is a log of GGML_SCHED_DEBUG, not a scenario", source, expected=_TAKES_LOGS)
    elif not is_scenario(text) and _LOAD_LINE.search(text[:_LOOKED_AT]):
        raise ScenarioError("this is a log without graphs, not a scenario", source, expected=_HOW_TO_LOG)

"""What differs when the real library does the same: plans field by field, ggml's own debug print, values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from msgspec import UNSET, UnsetType

from ggmltool.ask.splits.sched_debug import sched_debug
from ggmltool.ggml.printable import printable
from ggmltool.ggml.tensor import nbytes_of
from ggmltool.inspect.built import output_ids
from ggmltool.inspect.use_after_free import FreedMemoryUse, uses_after_free
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.scenario.spec import Step
from ggmltool.scenario.steps import computed_by
from ggmltool.show.document import ReleaseDocument, Row
from ggmltool.state.errors import InspectError, WrongUse

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ggmltool.ask.compare.sides import OnVulkan
    from ggmltool.oracle import OracleRun
    from ggmltool.scenario.run.run import Run
    from ggmltool.scenario.spec import ScenarioSpec

PLANNING = ("reserve", "alloc", "reset")
NMSE_F32, NMSE_OTHER = 1e-7, 5e-4
"""How far values may be off (normalized mean squared error), as in ggml's own tests: f32 throughout, or not."""


NOT_IN_GGML = frozenset({"cause", "explanation", "function"})
"""Fields that a release build of ggml does not tell."""


class Difference(Row):
    """A step and a field that differ (`alloc main: nodes[3] (h).offset`): what we say, and what the real ggml says."""

    where: str
    ours: str
    ggml: str


def differences(step: str, ours: Mapping[str, Any], ggml: Mapping[str, Any]) -> Iterator[Difference]:
    """Every field of two plans that is not the same.

    Of a step that failed only the error counts; a crash of the library's is no judgement.
    """
    error = ggml.get("error")
    if isinstance(error, Mapping) and error.get("kind") == "crash":
        return
    if not ggml.get("ok") and not ours.get("ok"):
        fields = ("graph", "step", "error")
        ours, ggml = ({key: plan.get(key) for key in fields} for plan in (ours, ggml))
    yield from _fields(f"{step}: ", "", ours, ggml)


def _fields(prefix: str, path: str, ours: object, ggml: object) -> Iterator[Difference]:
    if isinstance(ours, Mapping) and isinstance(ggml, Mapping):
        for key in dict.fromkeys((*ours, *ggml)):
            if key not in NOT_IN_GGML and not (path == "error" and key not in ggml):
                inner = f"{path}.{key}" if path else str(key)
                yield from _fields(prefix, inner, ours.get(key, _NOTHING), ggml.get(key, _NOTHING))
    elif _rows(ours) and _rows(ggml) and isinstance(ours, Sequence) and isinstance(ggml, Sequence):
        if len(ours) != len(ggml):
            yield Difference(f"{prefix}{path}", f"{len(ours)} of them", f"{len(ggml)} of them")
        for i, (mine, theirs) in enumerate(zip(ours, ggml, strict=False)):
            label = mine.get("id", mine.get("name", ""))
            shown = f" ({label})" if isinstance(label, str) and label else ""
            yield from _fields(prefix, f"{path}[{i}]{shown}", mine, theirs)
    elif ours != ggml:
        yield Difference(f"{prefix}{path}", _show(ours), _show(ggml))


class _Nothing:
    def __repr__(self) -> str:
        return "(nothing)"


_NOTHING = _Nothing()


def _rows(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(item, Mapping) for item in value)


def _show(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 200 else text[:199] + "…"


class Verification(ReleaseDocument, kw_only=True):
    """`verify --json`: what the real library does otherwise; `compared` says how much was compared.

    `library` is what it says of itself: its version, the commit if it knows that, and the Vulkan device that answered.
    `use_after_free` is there where steps used freed memory: values that rest on it are not compared.
    """

    view = "verification"
    kind: Literal["verify"] = "verify"
    library: str
    same: bool
    compared: dict[str, int]
    differences: list[Difference]
    use_after_free: list[FreedMemoryUse] | UnsetType = UNSET


def verify(
    scenario: LoadedScenario,
    values: bool | None,
    doing: Callable[[str], AbstractContextManager[object]] = nullcontext,
    vulkan: bool = False,
) -> Verification:
    """Do the steps here and on the real library; `values` None: compute where every tensor of the contexts has data.

    `doing` shows what is under way. With `vulkan` this machine's Vulkan device answers for the scenario's in the real
    library, and the scenario's are on its hardware. Raises InspectError if the library is missing or cannot do it.
    """
    from ggmltool.ask.compare.sides import on_this_vulkan

    if scenario.model.scheduler.past is not None:
        raise WrongUse(
            "The scenario's scheduler has a past (scheduler: past), which a real library cannot be given. "
            "`ggmltool attach --verify` compares with the process that it is from; without `past` it is verified anew."
        )
    on_vulkan = on_this_vulkan(scenario.model) if vulkan else None
    model = scenario.model if on_vulkan is None else on_vulkan.model
    if values is None:
        values = _has_data(model)
    planning = [(number, step) for number, step in enumerate(model.steps, 1) if step.kind in PLANNING]
    numbered = list(_with_reads(scenario)) if values else planning
    steps = [step for _, step in numbered]
    with doing("running the real ggml"):
        library, real = _on_the_real_library(replace(model, steps=steps), on_vulkan)
    # The real library computes on the CPU: a GPU stands beside it only where the scenario asks for one.
    backends = [replace(b, engine="numpy") if b.engine == "auto" else b for b in model.backends]
    run = LoadedScenario(replace(model, backends=backends)).start(debug=True, values=values)
    with doing("computing here" if values else "planning here"):
        found, compared = _compare(run, numbered, real)
    return Verification(
        ggml=model.ggml,
        library=library,
        same=not found,
        compared=compared,
        differences=found,
        use_after_free=uses_after_free(run) or UNSET,
    )


def _has_data(model: ScenarioSpec) -> bool:
    """Whether every tensor that holds its own data is given some, by the contexts or by a step."""
    given = {name for step in model.steps for name, _ in step.data}
    return all(
        t.data is not None or t.id in given or t.view_src is not None or nbytes_of(t.type, t.ne, t.nb) == 0
        for t in model.tensors()
    )


def _with_reads(scenario: LoadedScenario) -> Iterator[tuple[int, Step]]:
    """The scenario's steps with their numbers, and after each that computes a graph one that reads its outputs."""
    for number, (step, computed) in enumerate(computed_by(scenario.model.steps, scenario.model.release), 1):
        yield number, step
        if computed is not None:
            yield number, Step("get", tensors=tuple(output_ids(scenario, computed)))


def _on_the_real_library(model: ScenarioSpec, on_vulkan: OnVulkan | None) -> tuple[str, OracleRun]:
    """Run it there; also what the library says of itself. Raises InspectError if it is missing or cannot do it."""
    from ggmltool import oracle

    try:
        said = oracle.load(model.release).said
        if on_vulkan is None:
            return said, oracle.run(model)
        return f"{said} with {on_vulkan.device}", oracle.run(model, answered=on_vulkan.answered)
    except oracle.OracleUnavailable as missing:
        raise InspectError(str(missing)) from None
    except oracle.ChildError as error:
        # The child's traceback is for --traceback; its last line says what happened.
        what = str(error).strip().splitlines()[-1]
        raise InspectError(f"the real library cannot run this scenario: {what}") from error


def _compare(run: Run, steps: list[tuple[int, Step]], real: OracleRun) -> tuple[list[Difference], dict[str, int]]:
    """All differences, and how much was compared."""
    read: list[dict[str, NDArray[Any]]] = []
    for number, step in steps:
        done = run.step(step, number)
        if isinstance(done, dict):
            read.append(done)
        if run.plans and not run.plans[-1].ok:
            break
    found: list[Difference] = []
    if len(run.plans) != len(real.plans):
        found.append(Difference("steps that planned or failed", str(len(run.plans)), str(len(real.plans))))
    for ours, theirs in zip(run.plans, real.plans, strict=False):
        found += differences(f"{ours.step} {ours.graph or ''}".rstrip(), ours.as_dict(), theirs)
    for record, text in zip(run.debug_records, real.debug, strict=False):
        # As a release build prints it.
        ours_text = sched_debug(record, 2, causes=False).encode("utf-8", "surrogateescape")
        if (different := first_line_that_differs(ours_text, text)) is not None:
            found.append(different)
    # f32 throughout is held to more than half precision and quantized types are.
    specs = [*run.model.tensors(), *(node for graph in run.model.graphs.values() for node in graph.nodes)]
    is_f32 = all(t.type.name in ("f32", "i8", "i16", "i32", "i64") for t in specs)
    tolerance, n_values = NMSE_F32 if is_f32 else NMSE_OTHER, 0
    for mine, real_values in zip(read, real.values, strict=False):
        for id, values in mine.items():
            n_values += 1
            found += _compare_values(id, values, real_values[id], tolerance)
    compared = {"plans": len(run.plans), "nodes": sum(len(p.nodes) for p in run.plans), "outputs": n_values}
    return found, compared


def _compare_values(id: str, ours: NDArray[Any], theirs: NDArray[Any], tolerance: float) -> Iterator[Difference]:
    import numpy as np

    if ours.dtype.kind != "f":
        if not np.array_equal(ours, theirs):
            yield Difference(f"values of {id}", f"{int((ours != theirs).sum())} of {ours.size} differ", "")
        return
    if not np.array_equal(np.isfinite(ours), np.isfinite(theirs)):
        yield Difference(f"values of {id}", "NaN or infinities in other places", "")
        return
    finite = np.isfinite(theirs)
    a, b = ours[finite].astype(np.float64), theirs[finite].astype(np.float64)
    error = float(((a - b) ** 2).sum()) / max(float((b**2).sum()), 1e-300)
    if error > tolerance:
        yield Difference(f"values of {id}", f"NMSE {error:.1e}", f"at most {tolerance:.0e}")


def first_line_that_differs(ours: bytes, ggml: bytes) -> Difference | None:
    """Where two debug prints part."""
    if ours == ggml:
        return None
    mine, theirs = ours.split(b"\n"), ggml.split(b"\n")
    for i, (a, b) in enumerate(zip(mine, theirs, strict=False)):
        if a != b:
            texts = (printable(line.decode("utf-8", "surrogateescape")) for line in (a, b))
            return Difference(f"GGML_SCHED_DEBUG line {i + 1}", *texts)
    return Difference("GGML_SCHED_DEBUG", f"{len(mine)} lines", f"{len(theirs)} lines")

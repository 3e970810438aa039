"""The double keeps to what cupy has: the data file is held against the real one, where it can be imported."""

from __future__ import annotations

import warnings
from importlib import import_module
from importlib.util import find_spec

import pytest

from tests.gpu.double import API, Array, Cuda, Cupy, Device, Event, MemoryPointer, Runtime, Stream
from tests.gpu.record import CLASSES, MODULES, both, parameters, present, read

real = find_spec("cupy") is not None
needs_cupy = pytest.mark.skipif(not real, reason="cupy is not installed; it can be imported without a GPU")


def importable() -> bool:
    """Whether the installed cupy can be imported here."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import_module("cupy")
    except Exception:
        return False
    return True


@needs_cupy
@pytest.mark.skipif(real and not importable(), reason="cupy is installed and cannot be imported")
@pytest.mark.parametrize("owner", [*MODULES, *CLASSES])
def test_every_recorded_name_is_one_of_cupys_with_these_parameters(owner: str) -> None:
    now, recorded = present()[owner], API[owner]
    assert recorded.keys() - now.keys() == set()
    common = both(recorded, now)
    assert {name: common[name] for name in recorded} == recorded


def test_two_versions_and_more_are_recorded() -> None:
    assert [v.split(".")[0] for v in read()["versions"]] == ["13", "14"]


@pytest.mark.parametrize(
    ("owner", "made"),
    [
        ("cupy.cuda.Device", Device),
        ("cupy.cuda.Event", Event),
        ("cupy.cuda.MemoryPointer", MemoryPointer),
        ("cupy.cuda.Stream", Stream),
        ("cupy.cuda", Cuda),
        ("cupy.cuda.runtime", Runtime),
    ],
)
def test_what_the_double_has_of_its_own_is_cupys(owner: str, made: type) -> None:
    own = {"wait", "memory_at", "current_device", "current_stream"} if made is Cuda else set()
    names = {n for n in vars(made) if not n.startswith("_")} - own
    assert names - API[owner].keys() == set()
    for name in names:
        recorded = API[owner][name]
        thing = getattr(made, name)
        if isinstance(recorded, list) and callable(thing) and not isinstance(thing, type):
            given = [p for p in parameters(thing) if p != "self"]
            assert set(given) <= {*recorded, "mem", "offset"}, name


def test_the_double_refuses_what_cupy_lacks() -> None:
    cupy = Cupy()
    a = cupy.asarray([[1.0, 2.0]])
    with pytest.raises(AttributeError, match="no vecdot_"):
        cupy.vecdot_(a, a)
    with pytest.raises(TypeError, match="has no argument initial"):
        a.max(axis=0, initial=0)
    with pytest.raises(TypeError, match="has no where"):
        cupy.add(a, a, where=True)
    with pytest.raises(AttributeError, match="no astype_"):
        a.astype_("f")


def test_the_double_refuses_arrays_of_the_host() -> None:
    import numpy as np

    cupy = Cupy()
    a, host = cupy.zeros((2, 3)), np.zeros((2, 3))
    for mix in (lambda: a + host, lambda: host + a, lambda: cupy.add(a, host), lambda: cupy.concatenate([a, host])):
        with pytest.raises(TypeError):
            mix()
    with pytest.raises(TypeError):
        a[...] = host
    with pytest.raises(TypeError):
        a[host.astype(int)]
    with pytest.raises(TypeError):
        np.sum(a)
    with pytest.raises(TypeError, match="Implicit conversion"):
        np.asarray(a)
    assert isinstance(np.float32(2) * a, Array)
    assert cupy.asnumpy(a + 1).tolist() == [[1, 1, 1], [1, 1, 1]]

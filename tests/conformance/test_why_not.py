"""The reasons for a no, on every captured graph and every kind of device."""

from __future__ import annotations

import ggmltool
from ggmltool.ggml.devices.profiles import make_buft, make_device
from ggmltool.ggml.releases.parts import profiles_of
from tests.conformance import captured
from tests.conformance.releases import in_turn


@in_turn("name", captured.names())
def test_a_reason_is_there_exactly_where_a_device_does_not_run_a_node(name: str, release: str) -> None:
    scenario = ggmltool.load(captured.read(name), ggml=release)
    run = scenario.start()
    graph = run.build(scenario.graph_name())
    buft = next(iter(run.bufts.values()))
    devices = [b.device for b in run.backends]
    devices += [
        make_device(p, "D", make_buft(p, "D", "D"), [buft]) for p in profiles_of(scenario.model.release).values()
    ]
    for device in devices:
        for n in graph.nodes:
            assert (device.why_not(n) is None) == device.supports_op(n)
        for other in run.bufts.values():
            assert (device.why_not_buft(other) is None) == device.supports_buft(other)

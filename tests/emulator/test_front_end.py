"""What a request pays before it is scheduled: of an emulated engine, of a simulated one and in the plan's forecast the same."""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.core.perf.frontend import FRONTEND_S
from fleetctl.core.static_policy import static
from fleetctl.load.trace import Arrival
from fleetctl.operations.simulation import paced
from fleetctl.sim.run import simulate
from fleetctl.sim.scenario import SimulationSpec
from tests.emulator.engine_process import chat_body, emitted, texts_of, until
from tests.sim.fleets import desired_for, offerings, three_lanes

if TYPE_CHECKING:
    from fleetctl.model.desired import Desired
    from tests.emulator.conftest import Start

SLOWNESS = 20  # times a real engine's: the front end takes 0.3 s, of which this process's own work is a small part


def test_an_emulated_engine_makes_a_request_wait_for_its_front_end_before_it_queues_it(start: Start) -> None:
    engine = start("--speed", str(1 / SLOWNESS))
    stream = engine.stream(max_tokens=2)
    stream.rest()
    stream.close()
    _, whole = engine.chat(max_tokens=1)
    assert whole["usage"]["completion_tokens"] == 1

    ttft_s, queued_s, prefill_s = (
        engine.metric(f"vllm:{name}_seconds_sum")
        for name in ("time_to_first_token", "request_queue_time", "request_prefill_time")
    )
    # Of two requests. What it has beyond that is how busy this machine is.
    assert ttft_s - queued_s - prefill_s >= 2 * FRONTEND_S * SLOWNESS
    assert queued_s < 2 * FRONTEND_S * SLOWNESS


def test_a_client_that_goes_away_meanwhile_leaves_nothing_behind(start: Start) -> None:
    engine = start("--speed", "0.001")  # its front end takes 15 s
    connection = socket.create_connection(("127.0.0.1", engine.port))
    body = json.dumps(chat_body("x", max_tokens=2)).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: e\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    until(lambda: engine.state()["in_flight"] == 1, "it is in the front end")
    assert engine.state()["waiting"] == engine.state()["running"] == 0
    connection.close()
    until(lambda: engine.state()["in_flight"] == 0, "it is gone", 10.0)


def test_an_engine_that_drains_serves_what_is_in_its_front_end(start: Start) -> None:
    engine = start("--speed", "0.02", "--shutdown-timeout-s", "30")  # its front end takes 0.75 s
    with ThreadPoolExecutor(1) as client:
        opening = client.submit(lambda: engine.stream(max_tokens=1))
        until(lambda: engine.state()["in_flight"] == 1, "it is in the front end")
        engine.send_signal()
        stream = opening.result()
    # It drains: what had come in is served to its end.
    assert texts_of(stream.rest()) == emitted(1)
    stream.close()
    assert engine.wait_end() == 0


def first_token_s(desired: Desired, spec: SimulationSpec) -> float:
    """The TTFT of one short request that finds its lane idle."""
    arrival = Arrival(at_s=5.0, prompt_tokens=64, output_tokens=4, stream=True)
    settled = {lane.name: 1 for lane in desired.profile.lanes}
    result = simulate(desired, [arrival], policy=static, spec=replace(spec, settled=settled), offerings=offerings())
    return result.lane("short").ttft.max_s


@pytest.mark.parametrize("speed", [1.0, 4.0])
def test_a_simulated_engine_pays_the_same_by_the_same_speed(speed: float) -> None:
    profile = three_lanes()
    lanes = tuple(
        replace(lane, engine="emulator", emulator=replace(lane.emulator, speed=speed)) for lane in profile.lanes
    )
    desired = desired_for(replace(profile, lanes=lanes))
    spec = paced(desired.profile, SimulationSpec())
    assert spec.frontend_s == FRONTEND_S
    paid_s = first_token_s(desired, spec) - first_token_s(desired, replace(spec, frontend_s=0.0))
    assert paid_s == pytest.approx(FRONTEND_S / speed, rel=0.02)  # quantiles come from sketches


def test_the_forecast_has_it_in_its_budget() -> None:
    for lane in desired_for(three_lanes()).plan.lanes:
        assert {item.component: item.seconds for item in lane.budget}["tokenization"] == FRONTEND_S

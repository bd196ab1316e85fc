"""Faults on request."""

from __future__ import annotations

import http.client
import json
import math

import pytest
from hypothesis import given, strategies as st

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import ConfigError
from fleetctl_emulator.faults import KINDS, InjectedFault, parse_fault
from tests.emulator.engine_process import EngineProcess, accepts, emitted, text_of, texts_of, until


@pytest.fixture
def engine(quick):
    yield quick
    quick.heal()


def test_every_kind_is_written_and_read_back():
    for name in KINDS:
        assert parse_fault(name).kind == name
    assert parse_fault("slow:2.5") == InjectedFault(kind="slow", value=2.5)
    assert parse_fault("crash:after_requests=3") == InjectedFault(kind="crash", value=3, spelling="after_requests")
    assert parse_fault("refuse:connect") == InjectedFault(kind="refuse", value=0, spelling="connect")
    for fault in map(parse_fault, ("slow:2", "hang", "crash:after_s=2", "refuse:connect", "refuse", "garbage-sse:4")):
        assert parse_fault(str(fault)) == fault


@pytest.mark.parametrize(
    "text", ["", "sloow:2", "slow:fast", "slow:-1", "slow:0", "hang:3", "crash:after_lunch=1", "slow:nan"]
)
def test_unreadable_faults_are_refused_with_advice(text):
    with pytest.raises(ConfigError) as caught:
        parse_fault(text)
    assert caught.value.hint or "needs a number" in caught.value.message


@given(st.text(max_size=30))
def test_any_text_is_a_fault_or_a_config_error(text):
    try:
        fault = parse_fault(text)
    except ConfigError:
        return
    assert parse_fault(str(fault)) == fault


def test_slow_steps_take_longer_until_healed(engine):
    def took_s() -> float:
        began_s = SYSTEM_CLOCK.monotonic_s()
        engine.chat(max_tokens=60, ignore_eos=True)
        return SYSTEM_CLOCK.monotonic_s() - began_s

    plain_s = took_s()
    engine.fault("slow:30")
    slow_s = took_s()
    engine.heal()
    assert slow_s > 3 * plain_s
    assert took_s() < slow_s / 2


def test_hanging_engine_accepts_and_answers_only_once_healed(start):
    engine: EngineProcess = start("--fault", "hang")
    assert accepts(engine.port)
    with pytest.raises(TimeoutError):
        _get_with_patience(engine, "/health", 0.5)
    engine.heal()
    assert engine.get("/health")[0] == 200


def _get_with_patience(engine: EngineProcess, path: str, seconds: float) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=seconds)
    try:
        connection.request("GET", path)
        connection.getresponse()
    finally:
        connection.close()


def test_engine_hanging_mid_stream_goes_on_when_healed(engine):
    engine.fault("hang-mid-stream:5")
    stream = engine.stream(max_tokens=20, ignore_eos=True)
    first = stream.first_text()
    until(lambda: engine.state()["is_stuck"], "it has stopped")
    assert engine.metric("vllm:num_requests_running") == 1
    assert engine.get("/health")[0] == 200
    steps = engine.state()["steps"]
    SYSTEM_CLOCK.sleep_blocking(0.3)
    assert engine.state()["steps"] == steps
    engine.heal()
    assert first + texts_of(stream.rest()) == emitted(20)
    stream.close()


@pytest.mark.parametrize("spec", ["crash:after_s=0.2", "crash:after_requests=2"])
def test_crash_ends_the_process_as_a_segmentation_fault_would(start, spec):
    engine: EngineProcess = start()
    engine.fault(spec)
    if "requests" in spec:
        assert engine.chat(max_tokens=2)[0] == 200
        with pytest.raises((OSError, http.client.HTTPException)):
            engine.chat(max_tokens=2)
    assert engine.wait_end() == 139


def test_nan_metrics_are_nan_everywhere_a_reader_looks(engine):
    engine.fault("nan-metrics")
    for name in ("vllm:num_requests_running", "vllm:kv_cache_usage_perc", "vllm:generation_tokens_total"):
        assert math.isnan(engine.metric(name))
    engine.heal()
    assert engine.metric("vllm:num_requests_running") == 0


def test_frozen_metrics_stay_as_they_were(engine):
    engine.fault("frozen-metrics")
    before = engine.get("/metrics")[1]
    engine.chat(max_tokens=4)
    assert engine.get("/metrics")[1] == before
    engine.heal()
    assert engine.get("/metrics")[1] != before


def test_refusing_engine_says_503_to_work_only(engine):
    engine.fault("refuse")
    assert engine.chat(max_tokens=2)[0] == 503
    assert engine.get("/health")[0] == 200
    engine.heal()
    assert engine.chat(max_tokens=2)[0] == 200


def test_poison_is_answered_500_and_nobody_else_is(engine):
    engine.fault("poison")
    assert engine.chat(max_tokens=2, user="poison")[0] == 500
    assert engine.stream(max_tokens=2, user="poison").status == 500
    assert engine.chat(max_tokens=2, user="somebody")[0] == 200
    engine.heal()
    assert engine.chat(max_tokens=2, user="poison")[0] == 200


def test_refused_connections(start):
    engine: EngineProcess = start()
    engine.fault("refuse:connect")
    until(lambda: not accepts(engine.port), "the port is closed")
    assert engine.is_alive


def test_unhealthy_engine_serves_on(engine):
    engine.fault("unhealthy")
    assert engine.get("/health")[0] == 503
    assert engine.chat(max_tokens=2)[0] == 200


def test_truncated_stream_has_no_end(engine):
    engine.fault("truncate-streams:3")
    stream = engine.stream(max_tokens=30, ignore_eos=True)
    events = stream.rest()
    stream.close()
    assert events[-1] == "CUT"
    assert "[DONE]" not in events
    assert texts_of(events) == emitted(2)
    assert engine.chat(max_tokens=9)[0] == 200, "only streams are cut"


def test_garbage_comes_in_the_middle_of_a_stream(engine):
    engine.fault("garbage-sse:3")
    stream = engine.stream(max_tokens=6, ignore_eos=True)
    events = stream.rest()
    stream.close()
    broken = [event for event in events if event.startswith('{"id": ')]
    assert len(broken) == 1
    with pytest.raises(json.JSONDecodeError):
        json.loads(broken[0])
    assert "".join(text_of(e) for e in events if e not in broken) == emitted(6)


def test_failed_generation_is_an_error_event_or_a_500(engine):
    engine.fault("fail-generation:3")
    stream = engine.stream(max_tokens=9, ignore_eos=True)
    events = stream.rest()
    stream.close()
    assert json.loads(events[-2])["error"]["code"] == 500
    assert events[-1] == "[DONE]"
    assert engine.chat(max_tokens=9)[0] == 500


def test_fault_reaches_streams_that_already_run(start):
    engine: EngineProcess = start()
    stream = engine.stream(max_tokens=4000, ignore_eos=True)
    stream.first_text()
    engine.fault("truncate-streams:1")
    assert stream.rest()[-1] == "CUT"
    stream.close()


def test_faults_are_listed_put_and_taken_away_one_by_one(engine):
    status, answer = engine.post("/emulator/faults", {"fault": ["slow:2", "unhealthy"]})
    assert status == 200
    assert answer["faults"] == ["slow:2", "unhealthy"]
    assert set(answer["known"]) == set(KINDS)
    assert json.loads(engine.send("DELETE", "/emulator/faults?kind=slow")[1])["faults"] == ["unhealthy"]
    for body in ({"fault": "gremlins"}, {"foult": "slow"}, {"fault": "never-ready"}, b"{"):
        status, answer = engine.post("/emulator/faults", body)
        assert status == 400
        assert answer["error"]
    assert engine.send("DELETE", "/emulator/faults?kind=gremlins")[0] == 400

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from fleetctl.core.engine_load import with_rates
from fleetctl.model.observation import EngineSignals
from fleetctl.model.slo import Validity
from fleetctl.plugins import load_engine
from fleetctl.telemetry.exposition import parse
from fleetctl.testing import samples

LLAMACPP_PAGE = (Path(__file__).parent / "pages" / "llamacpp-b11549.txt").read_text()
VLLM_PAGE = (Path(__file__).parent / "pages" / "vllm-0.32.txt").read_text()

OLD_VLLM = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="m"} 3.0
vllm:num_requests_waiting{model_name="m"} 5.0
vllm:gpu_cache_usage_perc{model_name="m"} 0.5
vllm:num_preemptions_total{model_name="m"} 2.0
vllm:prompt_tokens_total{model_name="m"} 100.0
vllm:generation_tokens_total{model_name="m"} 40.0
"""
TGI = """\
# TYPE tgi_batch_current_size gauge
tgi_batch_current_size 3
# TYPE tgi_queue_size gauge
tgi_queue_size 5
tgi_batch_current_max_tokens 4096
tgi_batch_max_total_tokens 8192
tgi_request_input_length_sum 100
tgi_request_input_length_count 2
tgi_request_generated_tokens_sum 40
"""
SGLANG = """\
sglang:num_running_reqs{engine_type="unified",model_name="m",tp_rank="0"} 3.0
sglang:num_queue_reqs{engine_type="unified",model_name="m",tp_rank="0"} 5.0
sglang:token_usage{engine_type="unified",model_name="m",tp_rank="0"} 0.5
sglang:num_retracted_reqs{model_name="m"} 2.0
sglang:prompt_tokens_total{model_name="m"} 100.0
sglang:generation_tokens_total{model_name="m"} 40.0
"""
PAGES = {"vllm": OLD_VLLM, "tgi": TGI, "sglang": SGLANG}


def expected(engine: str) -> EngineSignals:
    return EngineSignals(
        validity=Validity.OK,
        running=3,
        waiting=5,
        kv_usage=0.5,
        preemptions=0.0 if engine == "tgi" else 2.0,
        kv_tokens=8192.0 if engine == "tgi" else 0.0,
        prompt_tokens=100.0,
        output_tokens=40.0,
    )


@pytest.mark.parametrize("engine", PAGES)
def test_each_engines_own_names_are_read(engine: str) -> None:
    assert load_engine(engine).signals(PAGES[engine]) == expected(engine)


@pytest.mark.parametrize("engine", [*PAGES, "llamacpp"])
def test_the_gauges_that_an_autoscaler_adds_up_are_what_runs_and_waits(engine: str) -> None:
    text = PAGES.get(engine) or LLAMACPP_PAGE
    signals = load_engine(engine).signals(text)
    page = parse(text)
    added = [page.total(name) for name in load_engine(engine).request_gauges]
    assert (signals.running, signals.waiting) == (*added,)


@pytest.mark.parametrize("flavour", PAGES)
def test_an_emulated_engine_is_read_as_the_engine_it_plays(flavour: str) -> None:
    assert load_engine("emulator").signals(PAGES[flavour]) == expected(flavour)


def test_a_real_vllm_page_is_read() -> None:
    signals = load_engine("vllm").signals(VLLM_PAGE)
    assert signals == EngineSignals(
        validity=Validity.OK, prompt_tokens=210.0, output_tokens=508.0, kv_tokens=1024 * 128.0
    )


@pytest.mark.parametrize(
    ("engine", "series"),
    [
        ("tgi", 'tgi_batch_inference_count{method="decode"}'),
        ("sglang", 'sglang:inter_token_latency_seconds_count{model_name="m"}'),
    ],
)
def test_an_engine_that_counts_tokens_at_an_answers_end_is_seen_to_move_before(engine: str, series: str) -> None:
    pages = [f"{PAGES[engine]}{series} {count}\n" for count in (70, 90, 90)]
    first, second, third = (
        msgspec.structs.replace(load_engine(engine).signals(page), at=samples.EPOCH + timedelta(seconds=5 * number))
        for number, page in enumerate(pages)
    )
    moved = with_rates(first, second)
    assert moved.stalled_s == 0.0
    assert with_rates(moved, third).stalled_s == pytest.approx(5.0)


@pytest.mark.parametrize("engine", PAGES)
def test_without_any_one_of_its_series_a_page_is_invalid(engine: str) -> None:
    lines = PAGES[engine].splitlines(keepends=True)
    for index, line in enumerate(lines):
        if line.startswith("#") or "_count" in line:
            continue
        page = "".join(lines[:index] + lines[index + 1 :])
        assert load_engine(engine).signals(page).validity is Validity.INVALID, line


@pytest.mark.parametrize("value", ["NaN", "-1", "+Inf", "-Inf", "none"])
@pytest.mark.parametrize("engine", PAGES)
def test_an_impossible_figure_makes_the_page_invalid(engine: str, value: str) -> None:
    lines = PAGES[engine].splitlines()
    for index, line in enumerate(lines):
        if line.startswith("#") or "_count" in line:
            continue
        broken = [*lines[:index], line.rsplit(" ", 1)[0] + " " + value, *lines[index + 1 :]]
        assert load_engine(engine).signals("\n".join(broken) + "\n").validity is Validity.INVALID, line


def test_a_cache_more_than_full_is_invalid() -> None:
    page = OLD_VLLM.replace('perc{model_name="m"} 0.5', 'perc{model_name="m"} 50')
    assert load_engine("vllm").signals(page).validity is Validity.INVALID


def test_engine_cores_are_added_and_the_fullest_cache_counts() -> None:
    second = OLD_VLLM.replace('{model_name="m"}', '{engine="1",model_name="m"}').replace(" 0.5", " 0.9")
    signals = load_engine("vllm").signals(OLD_VLLM + second)
    assert (signals.running, signals.waiting, signals.kv_usage) == (6, 10, 0.9)
    assert (signals.prompt_tokens, signals.output_tokens, signals.preemptions) == (200.0, 80.0, 4.0)


@pytest.mark.parametrize("page", ["", "<html>502 Bad Gateway</html>", "process_cpu_seconds_total 1.0\n"])
@pytest.mark.parametrize("engine", ["vllm", "tgi", "sglang", "emulator"])
def test_a_page_without_the_engines_series_is_invalid(engine: str, page: str) -> None:
    # vLLM with --disable-log-stats answers 200 with just this: everything but its own series.
    assert load_engine(engine).signals(page).validity is Validity.INVALID

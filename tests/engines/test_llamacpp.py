"""llama.cpp as an engine: its command line, figures and last words, as two builds of its server have them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given, strategies as st

from fleetctl.engine_kit.flags import known_flags
from fleetctl.errors import ConfigError
from fleetctl.model.catalogue import Precision
from fleetctl.model.engine_fault import EngineFaultKind
from fleetctl.model.slo import Validity
from fleetctl.plugins import load_engine
from fleetctl.render.plan import render_plan
from fleetctl.testing import samples
from fleetctl_llamacpp.engine import LlamaCppEngine
from tests.render import fleets

HERE = Path(__file__).parent
PAGE = (HERE / "pages" / "llamacpp-b11549.txt").read_text()
DEATHS = {
    "no-file": (EngineFaultKind.MODEL, "failed to open GGUF file '/models/tiny.gguf' (No such file or directory)"),
    "no-gguf": (EngineFaultKind.MODEL, "invalid magic characters: 'garb', expected 'GGUF'"),
    "cut-off": (EngineFaultKind.MODEL, "model is corrupted or incomplete"),
    "unknown-architecture": (EngineFaultKind.MODEL, "unknown model architecture: 'gadget'"),
    "no-memory": (EngineFaultKind.MEMORY, "failed to initialize the context: std::bad_alloc"),
    "unknown-flag": (EngineFaultKind.ARGUMENTS, "invalid argument: --frobnicate"),
    "bad-value": (EngineFaultKind.ARGUMENTS, "Unsupported cache type: foo"),
    "port-taken": (EngineFaultKind.PORT, "couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 18941"),
}


def argv(program: str = "llama-server", **changes: object) -> tuple[str, ...]:
    lane_plan = samples.lane_plan("short")
    lane_plan = replace(lane_plan, launch=replace(lane_plan.launch, **changes))  # type: ignore[arg-type]  # by name
    lane = samples.profile().lane("short")
    engine = LlamaCppEngine(program)
    return engine.launch(plan=samples.plan(), lane=lane, lane_plan=lane_plan, host="127.0.0.1", port=8001).argv


def value(words: tuple[str, ...], flag: str) -> str:
    return words[words.index(flag) + 1]


@given(seqs=st.integers(1, 512), length=st.integers(1, 131072))
def test_every_slot_has_the_context_that_the_plan_promises(seqs: int, length: int) -> None:
    words = argv(max_num_seqs=seqs, max_model_len=length)
    assert int(value(words, "--ctx-size")) // int(value(words, "--parallel")) == length
    assert "--no-kv-unified" in words


@pytest.mark.parametrize("kv_cache", [None, *Precision])
def test_it_gives_only_flags_that_the_server_has(kv_cache: Precision | None) -> None:
    if kv_cache is Precision.FP8:
        with pytest.raises(ConfigError, match="has no fp8 KV cache"):
            argv(kv_cache=kv_cache)
        return
    words = argv(kv_cache=kv_cache, prefix_caching=False, tensor_parallel=2)
    assert {word for word in words if word.startswith("--")} <= known_flags("llamacpp")


def test_a_quantized_cache_has_the_kernel_that_reads_it() -> None:
    assert "--flash-attn" not in argv(kv_cache=Precision.FP16)
    words = argv(kv_cache=Precision.INT8)
    assert (value(words, "--cache-type-k"), value(words, "--cache-type-v")) == ("q8_0", "q8_0")
    assert value(words, "--flash-attn") == "on"


def test_what_the_user_gives_is_not_given_twice() -> None:
    words = argv(extra_args=("-c", "4096", "--kv-unified", "-ngl", "0"))
    assert "--ctx-size" not in words
    assert "--no-kv-unified" not in words
    assert "--n-gpu-layers" not in words


@pytest.mark.parametrize("program", ["python", "/opt/venv/bin/python3.12", "python3"])
def test_a_python_runs_the_launcher_of_xllamacpp(program: str) -> None:
    words = argv(program)
    assert words[0] == program
    assert (Path(words[1]) / "__main__.py").is_file()
    assert words[2:] == argv()[1:]


@pytest.mark.parametrize("program", ["llama-server", "/opt/venv/bin/python3"])
def test_a_container_runs_the_images_own_server_whatever_runs_here(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETCTL_LLAMACPP", program)
    planned = fleets.lane_plan("short", "llamacpp", model="/models/tiny.gguf", kv_cache=Precision.FP16)
    profile, plan = fleets.fleet((fleets.lane("short", "llamacpp"), planned))
    files = render_plan(profile, plan, load_engine)
    (compose,) = (text for path, text in files.items() if path.startswith("short/") and "compose" in path)
    words = yaml.safe_load(compose)["services"]["engine"]["command"]
    assert words[:2] == ["--model", "/models/tiny.gguf"]
    assert program in files["short/launch.sh"]


def test_a_name_that_the_server_would_split_is_refused() -> None:
    with pytest.raises(ConfigError, match="for the border of two names"):
        argv(served_name="tiny,small")


def test_no_sign_of_life_is_made_up_and_no_size_is_changed_behind_the_plan() -> None:
    lane_plan, lane = samples.lane_plan("short"), samples.profile().lane("short")
    env = LlamaCppEngine("s").launch(plan=samples.plan(), lane=lane, lane_plan=lane_plan, host="h", port=1).env
    assert env == {"LLAMA_ARG_FIT": "off", "LLAMA_ARG_SSE_PING_INTERVAL": "-1"}


def test_a_page_is_read_and_what_it_does_not_say_is_absent() -> None:
    signals = LlamaCppEngine().signals(PAGE)
    assert (signals.validity, signals.running, signals.waiting) == (Validity.OK, 2, 1)
    assert signals.kv_usage is None
    assert (signals.prompt_tokens, signals.output_tokens, signals.steps) == (41 + 29, 240, 2253)


def test_a_page_of_an_older_build_has_no_cached_tokens() -> None:
    older = "\n".join(line for line in PAGE.splitlines() if "cached" not in line)
    assert LlamaCppEngine().signals(older).prompt_tokens == 41


@pytest.mark.parametrize(
    "series", ["requests_processing", "requests_deferred", "prompt_tokens_total", "tokens_predicted_total"]
)
def test_a_page_that_lacks_a_figure_is_not_decided_on(series: str) -> None:
    without = "\n".join(line for line in PAGE.splitlines() if f"llamacpp:{series} " not in line)
    assert LlamaCppEngine().signals(without).validity is Validity.INVALID
    broken = "\n".join(
        f"llamacpp:{series} NaN" if line.startswith(f"llamacpp:{series} ") else line for line in PAGE.splitlines()
    )
    assert LlamaCppEngine().signals(broken).validity is Validity.INVALID


@pytest.mark.parametrize("death", sorted(DEATHS))
def test_the_cause_is_found_in_what_it_wrote(death: str) -> None:
    kind, words = DEATHS[death]
    fault = LlamaCppEngine().diagnose((HERE / "deaths" / "llamacpp" / f"{death}.txt").read_text())
    assert fault is not None
    assert (fault.kind, words in fault.line) == (kind, True), fault
    assert not fault.line.startswith("0."), "its clock is no part of it"


def test_every_death_on_file_is_known() -> None:
    assert {path.stem for path in (HERE / "deaths" / "llamacpp").glob("*.txt")} == set(DEATHS)


def test_a_start_that_still_runs_may_become_ready_whatever_it_wrote() -> None:
    assert LlamaCppEngine().diagnose_start((HERE / "deaths" / "llamacpp" / "no-file.txt").read_text(), ()) is None

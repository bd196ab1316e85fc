"""Engines that cannot start, as a user meets them: `up` ends with the cause, and whoever serves goes on serving."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from fleetctl.clock import SYSTEM_CLOCK
from tests.bench.engine_faults import FLEET, PROFILE
from tests.e2e.fleet import RUN_S, Home, Ran, lane_of
from tests.engines.environment import engine_env, offline, option_cache
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.model.status import FleetStatus

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

CANNOT_START = 15
ROLLED_BACK = 17
DEATHS = Path(__file__).parents[1] / "engines" / "deaths"
# Writes what a real vLLM wrote, and ends as it did.
ENDS = "#!/bin/sh\ncat {death} >&2\nexit 1\n"
# As vLLM where its server waits for an engine core that is dead.
WAITS = """\
#!{python}
import pathlib, shutil, subprocess, sys, time
core = pathlib.Path({directory!r}) / "VLLM::EngineCore"
core.write_text("#!/bin/sh\\nsleep 6\\necho 'EngineCore failed to start.' >&2\\n"
                "echo 'RuntimeError: Cannot find any model weights with `/m`' >&2\\nexit 1\\n")
core.chmod(0o755)
child = subprocess.Popen([str(core)])
while True:
    time.sleep(60)
"""
SHOWN_WITHIN_S = 6.0 + 45.0


@pytest.fixture(autouse=True)
def _down(home: Home) -> Iterator[None]:
    yield
    home.run("down", FLEET, "--yes")
    assert home.processes() == []


def engine(home: Home, text: str) -> dict[str, str]:
    """Return the variable that has this script run as vLLM."""
    path = home.root / "vllm"
    path.write_text(text)
    path.chmod(0o755)
    return {"FLEETCTL_VLLM": str(path)}


def model(home: Home) -> Path:
    directory = home.root / "model"
    directory.mkdir(exist_ok=True)
    shape = {"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
             "num_hidden_layers": 2, "num_key_value_heads": 2, "vocab_size": 384, "max_position_embeddings": 8192,
             "model_type": "llama", "torch_dtype": "bfloat16"}  # fmt: skip
    (directory / "config.json").write_text(json.dumps(shape))
    return directory


def up_on_vllm(home: Home, variables: dict[str, str], path: Path, arguments: list[str]) -> Ran:
    profile = home.root / "faulty.yaml"
    profile.write_text(
        PROFILE.format(
            fleet=FLEET, model=path, port=free_port(), arguments=json.dumps(arguments), max_model_len=2048,
            env=json.dumps(offline()),
        )
    )  # fmt: skip
    return Home(root=home.root, env=variables).run("up", str(profile), "--yes", "--timeout", f"{RUN_S - 30:.0f}s")


@pytest.mark.parametrize("death", ["unknown-flag", "too-long", "broken-config", "no-weights", "truncated-weights"])
def test_up_ends_with_what_the_engine_wrote(home, death):
    ran = up_on_vllm(home, engine(home, ENDS.format(death=DEATHS / f"{death}.txt")), model(home), [])
    assert ran.code == CANNOT_START, ran.err
    line = next(
        each for each in ran.err.splitlines() if each.startswith("error: lane short: the engine cannot start: ")
    )
    cause = line.removeprefix("error: lane short: the engine cannot start: ")
    assert cause.rstrip("…") in (DEATHS / f"{death}.txt").read_text()
    for view in (("status", FLEET), ("why", "lane/short", "-f", FLEET), ("events", FLEET), ("top", FLEET, "--once")):
        words = cause[: 40 if view[0] == "top" else 120]
        assert words in " ".join(home.run(*view).out.split()), view


def test_an_engine_whose_core_has_died_under_it_is_ended_with_the_cause(home):
    begun_s = SYSTEM_CLOCK.monotonic_s()
    ran = up_on_vllm(home, engine(home, WAITS.format(python=sys.executable, directory=str(home.root))), model(home), [])
    assert ran.code == CANNOT_START, ran.err
    assert SYSTEM_CLOCK.monotonic_s() - begun_s < SHOWN_WITHIN_S + 5.0  # planning and the controller's start
    assert "the engine cannot start: RuntimeError: Cannot find any model weights" in ran.err


@pytest.mark.engines
@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (["--stream-interval", "0"], "validation error for SchedulerConfig"),
        (["--max-logprobs", "-5"], "validation error for ModelConfig"),
    ],
)
def test_a_real_vllm_that_refuses_its_arguments_ends_up_with_its_words(home, arguments, cause):
    environment = engine_env()
    ran = up_on_vllm(
        home,
        {"FLEETCTL_VLLM": str(environment / "bin" / "vllm"), **option_cache()},
        environment / "models" / "tiny",
        arguments,
    )
    assert ran.code == CANNOT_START, ran.err
    assert cause in ran.err


LANES = """\
apiVersion: fleetctl/v1
name: {fleet}
model: {{id: meta-llama/Llama-3.1-8B-Instruct}}
engine: emulator
provider: local
workload:
  peak_rps: 1
  prompt_tokens: {{p50: 60, p99: 2000}}
  output_tokens: {{p50: 16, p99: 64}}
slo: {{objective: 99%, window: 7d}}
lanes:
  short:
    match: {{uncached_prompt_tokens: "< 512"}}
    slo: {{ttft: {{p99: 2s}}, itl: {{p99: 1s}}}}
    max_wait: 10s
    replicas: {short}
    launch: {{extra_args: {arguments}}}
  long:
    slo: {{ttft: {{p99: 5s}}, itl: {{p99: 1s}}}}
    max_wait: 10s
    replicas: 1
capacity: {{gpus: [L40S]}}
gateway: {{port: {port}}}
"""
BAD_VALUE = ("--seed", "seven")
COMPLAINT = "error: argument --seed: invalid int value: 'seven'"


def up_with_lanes(home: Home, port: int, *, short: int = 1, arguments: tuple[str, ...] = ()) -> Ran:
    profile = home.root / "lanes.yaml"
    text = LANES.format(fleet=FLEET, port=port, short=short, arguments=json.dumps(list(arguments)))
    profile.write_text(text)
    return home.run("up", str(profile), "--yes")


def answered(port: int, lane: str) -> Any:
    body = {
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 4,
    }
    with httpx.Client(trust_env=False, timeout=30.0) as client:
        url = f"http://127.0.0.1:{port}/v1/chat/completions"
        answer = client.post(url, json=body, headers={"x-fleetctl-lane": lane})
    return answer.status_code


def ready(home: Home, lane: str) -> int:
    seen: FleetStatus = home.status(FLEET)
    return lane_of(seen, lane).ready


def test_a_lane_that_cannot_start_takes_no_other_along(home):
    port = free_port()
    ran = up_with_lanes(home, port, arguments=BAD_VALUE)
    assert ran.code == CANNOT_START, ran.err
    assert "error: lane short: the engine cannot start: " in ran.err
    assert COMPLAINT in ran.err
    deadline_s = SYSTEM_CLOCK.monotonic_s() + 60.0
    while ready(home, "long") < 1:
        assert SYSTEM_CLOCK.monotonic_s() < deadline_s
        SYSTEM_CLOCK.sleep_blocking(0.5)
    assert answered(port, "long") == 200
    mended = up_with_lanes(home, port)
    assert mended.code == 0, mended.err
    assert answered(port, "short") == 200


def test_a_changed_profile_that_cannot_start_takes_nothing_out_of_a_living_fleet(home):
    port = free_port()
    assert up_with_lanes(home, port).code == 0
    serving = {replica.record.id for replica in home.status(FLEET).replicas}
    ran = up_with_lanes(home, port, short=2, arguments=BAD_VALUE)
    assert ran.code == ROLLED_BACK, ran.err
    assert COMPLAINT in ran.err
    for lane in ("short", "long"):
        assert ready(home, lane) == 1
        assert answered(port, lane) == 200
    assert COMPLAINT in home.run("status", FLEET).out
    again = up_with_lanes(home, port)
    assert again.code == 0, again.err
    seen = home.status(FLEET)
    assert {replica.record.id for replica in seen.replicas if replica.record.state.is_live} == serving
    assert [lane.engine_fault for lane in seen.lanes] == [None, None]
    assert home.query("status")["condition"]["type"] == "READY"


def test_a_followed_log_ends_with_its_reader_and_with_ctrl_c(home):
    assert up_with_lanes(home, free_port()).code == 0
    with home.start("logs", "gateway", "--follow", "--tail", "1", "--fleet", FLEET) as following:
        assert following.stdout is not None
        assert "serving" in following.stdout.readline()
        following.stdout.close()  # as `| head -1` does
        assert following.wait(timeout=20) in (0, 141)
    with home.start("logs", "gateway", "--follow", "--fleet", FLEET) as following:
        assert following.stdout is not None
        following.stdout.readline()
        following.send_signal(signal.SIGINT)
        _, err = following.communicate(timeout=20)
    assert following.returncode == 130
    assert "Traceback" not in err

"""Every `sglang.launch_server` line fleetctl writes, before SGLang's own parser: the Python of its wheel, without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.engine_kit.flags import known_flags
from fleetctl.model.catalogue import Precision
from fleetctl.model.serving import Speculation, SpeculationMethod
from fleetctl.plugins import load_engine
from fleetctl_sglang.launch import REASONING_PARSERS, TOOL_CALL_PARSERS
from tests.engines.environment import CHECKOUT, engine_env, offline
from tests.engines.rendered_profiles import profiles, rendered
from tests.engines.test_launch import launch

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.engines, pytest.mark.timeout(300)]
HEAD = Speculation(method=SpeculationMethod.EAGLE3, tokens=3, model="acme/head")


def parsed(question: list[list[str]] | None) -> Any:
    wheel = engine_env() / "sglang"
    assert wheel.is_dir(), f"no SGLang in {wheel}; make it: tests/engine_env/setup.sh {wheel.parent}"
    command = [
        str(engine_env() / "bin" / "python"),
        str(CHECKOUT / "tests" / "engine_env" / "check_sglang_arguments.py"),
    ]
    environment = {"PATH": os.environ["PATH"], "HOME": str(wheel), "PYTHONPATH": str(wheel), **offline()}
    done = subprocess.run(  # the checkout's own
        command, env=environment, input=json.dumps(question), capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def refused(argvs: dict[str, tuple[str, ...]]) -> dict[str, str]:
    assert all(argv[1:3] == ("-m", "sglang.launch_server") for argv in argvs.values())
    verdicts = parsed([list(argv[3:]) for argv in argvs.values()])
    return {name: verdict for name, verdict in zip(argvs, verdicts, strict=True) if verdict}


def test_every_lane_of_ten_profiles_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    argvs = rendered("sglang")
    assert len(profiles()) >= 10
    assert {name.partition("/")[0] for name in argvs} == profiles().keys()
    assert not refused(argvs)


def test_every_setting_is_taken() -> None:
    changes: list[dict[str, Any]] = [
        *({"tool_call_parser": dialect} for dialect in TOOL_CALL_PARSERS),
        *({"reasoning_parser": dialect} for dialect in REASONING_PARSERS),
        *({"kv_cache": precision} for precision in load_engine("sglang").capabilities.kv_cache_precisions),
        {"quantization": Precision.FP8, "prefix_caching": False, "priority_scheduling": True},
        {"stream_interval": 8, "max_queued_requests": 50, "expert_parallel": True, "tensor_parallel": 8},
        {"tensor_parallel": 2, "pipeline_parallel_local": 2, "data_parallel": 2},
        {"speculation": HEAD},
        {"speculation": Speculation(method=SpeculationMethod.NGRAM)},
    ]
    assert not refused({str(change): launch("sglang", **change).argv for change in changes})


def test_sglang_would_have_said_so_had_a_flag_been_wrong() -> None:
    wrong = {
        word: launch("sglang", extra_args=(word, "x")).argv
        for word in ("--frobnicate", "--stream-interval", "--tool-call-parser")
    }
    assert refused(wrong).keys() == wrong.keys()


def test_the_kept_list_of_flags_is_the_parsers_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert known_flags("sglang") == set(parsed(None))

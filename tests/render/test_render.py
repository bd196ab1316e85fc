from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from fleetctl.errors import ConfigError
from fleetctl.plugins import load_engine
from fleetctl.render.plan import render_plan
from tests.render import fleets, readers

if TYPE_CHECKING:
    from pathlib import Path

    from syrupy.assertion import SnapshotAssertion

    from fleetctl.ports.engine import Engine

# What tears files apart: quotes, line ends, comment signs, specifiers, variables, YAML's and the shell's own characters.
NASTY = """ab \"'`\\%$%i${HOME}$(id);&|<>#:{}[],*!?~=-\n\r\t\x1b\x7f\x85\u2028é漢😀"""
WORDS = st.text(NASTY, max_size=20) | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@pytest.fixture(autouse=True)
def _only_shipped_templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for variable in ("FLEETCTL_VLLM", "FLEETCTL_TGI", "FLEETCTL_SGLANG_PYTHON"):
        monkeypatch.delenv(variable, raising=False)


def test_every_lane_of_every_engine_renders_as_agreed(snapshot: SnapshotAssertion) -> None:
    files = render_plan(*fleets.one_of_each(), load_engine)
    assert "\n".join(f"===== {path}\n{text}" for path, text in files.items()) == snapshot


def test_the_same_plan_always_gives_the_same_bytes() -> None:
    first, second = (list(render_plan(*fleets.one_of_each(), load_engine).items()) for _ in range(2))
    assert first == second


def test_each_file_names_lane_model_quantization_and_gpu_type() -> None:
    files = render_plan(*fleets.one_of_each(), load_engine)
    for path, text in files.items():
        for tag in (path.split("/")[0], fleets.MODEL, "fp8", "H100"):
            assert tag in text, f"{path} does not say {tag}"


def test_compose_and_json_carry_the_tags_for_programs() -> None:
    files = render_plan(*fleets.one_of_each(), load_engine)
    tags = {
        "fleet": "support-chat", "lane": "short", "engine": "vllm", "model": fleets.MODEL, "quantization": "fp8",
        "gpu_type": "H100",
    }  # fmt: skip
    assert json.loads(files["short/launch.json"])["tags"] == tags
    labels = readers.compose(files["short/compose.yaml"])["labels"]
    assert labels == {f"fleetctl.{key}": value for key, value in tags.items()}


def test_a_unit_has_ended_before_a_spot_notice_runs_out() -> None:
    files = render_plan(*fleets.one_of_each(), load_engine)
    for lane in ("short", "long", "panel", "batch"):
        unit = readers.unit_settings(files[f"{lane}/fleetctl-support-chat-{lane}.service"])
        assert unit["Service.KillMode"] == ["mixed"]
        assert int(unit["Service.TimeoutStopSec"][0]) < 120
        assert unit["Service.Restart"] == ["always"]
        service = readers.compose(files[f"{lane}/compose.yaml"])
        assert service["stop_grace_period"] == f"{unit['Service.TimeoutStopSec'][0]}s"


def test_containers_get_the_gpus_of_the_plan_and_are_reached_on_loopback_only() -> None:
    files = render_plan(*fleets.one_of_each(), load_engine)
    service = readers.compose(files["short/compose.yaml"])
    assert service["deploy"] == {
        "resources": {"reservations": {"devices": [{"driver": "nvidia", "count": 2, "capabilities": ["gpu"]}]}}
    }
    assert service["ports"] == [{"target": 8001, "published": "8001", "host_ip": "127.0.0.1"}]


def test_containers_get_amds_gpus_by_their_device_files() -> None:
    spec, plan = fleets.lane("short", "vllm"), replace(fleets.lane_plan("short", "vllm"), gpu="MI300X")
    service: dict[str, Any] = readers.compose(
        render_plan(*fleets.fleet((spec, plan)), load_engine)["short/compose.yaml"]
    )
    assert (service["devices"], service["group_add"]) == (["/dev/kfd", "/dev/dri"], ["video"])
    assert service["environment"]["HIP_VISIBLE_DEVICES"] == "0,1"
    assert "deploy" not in service
    launch = replace(plan.launch, env={**plan.launch.env, "ROCR_VISIBLE_DEVICES": "4,5"})
    given = render_plan(*fleets.fleet((spec, replace(plan, launch=launch))), load_engine)["short/compose.yaml"]
    assert "HIP_VISIBLE_DEVICES:" not in given


def test_a_model_in_a_directory_is_mounted() -> None:
    service = readers.compose(render_plan(*fleets.one_of_each(), load_engine)["long/compose.yaml"])
    assert service["volumes"] == [
        {"type": "bind", "source": "/models/llama 70b", "target": "/models/llama 70b", "read_only": True}
    ]


def test_an_emulated_lane_renders_the_engine_it_stands_for_without_the_emulators_own_arguments() -> None:
    files = render_plan(*fleets.one_of_each(), load_engine)
    launch = json.loads(files["batch/launch.json"])
    assert launch["emulated"] is True
    assert launch["argv"][0] == "text-generation-launcher"
    assert "--fault" not in launch["argv"]
    assert "emulates this lane" in files["batch/launch.sh"]


def test_one_engine_can_be_asked_for_everywhere() -> None:
    files = render_plan(*fleets.one_of_each(), load_engine, override="sglang")
    for lane in ("short", "long", "panel", "batch"):
        assert json.loads(files[f"{lane}/launch.json"])["argv"][:3] == ["python3", "-m", "sglang.launch_server"]


def test_secrets_are_only_referred_to() -> None:
    files = render_plan(*fleets.one_of_each(), load_engine)
    assert json.loads(files["short/launch.json"])["env_from"] == {
        "HF_TOKEN": "env:HUB_TOKEN", "LICENCE_PASSWORD": "file:/run/secrets/licence",
        "S3_KEY": "keyring:s3/me", "VLLM_API_KEY": "env:VLLM_API_KEY",
    }  # fmt: skip
    assert "env:" not in files["short/engine.env"]
    unit = readers.unit_settings(files["short/fleetctl-support-chat-short.service"])
    assert unit["Service.EnvironmentFile"] == ["/etc/fleetctl/support-chat/secrets.env"]
    environment = readers.compose(files["short/compose.yaml"])["environment"]
    assert isinstance(environment, dict)
    assert environment.items() >= {("HF_TOKEN", "<HUB_TOKEN>"), ("S3_KEY", "<S3_KEY>")}


def test_a_secret_written_out_in_a_profile_is_not_rendered() -> None:
    profile, plan = fleets.fleet(
        (fleets.lane("short", "vllm"), fleets.lane_plan("short", "vllm", env={"HF_TOKEN": "hf_x"}))
    )
    with pytest.raises(ConfigError, match="HF_TOKEN") as refused:
        render_plan(profile, plan, load_engine)
    assert "env:HF_TOKEN" in refused.value.hint


def test_a_launch_script_hands_the_engine_its_secrets_and_stops_without_them(tmp_path: Path) -> None:
    licence = tmp_path / "licence file"
    licence.write_text("$ecret\n")
    env = {"HF_TOKEN": "env:HUB_TOKEN", "LICENCE_PASSWORD": f"file:{licence}"}
    script = write_lane(tmp_path / "out", env=env)
    path = f"{readers.fake_engine(tmp_path / 'bin', 'vllm')}:/usr/bin:/bin"

    _, environment = readers.run_script(script, {"PATH": path, "HUB_TOKEN": "hf$x", "VLLM_API_KEY": "k"})
    assert environment.items() >= {("HF_TOKEN", "hf$x"), ("LICENCE_PASSWORD", "$ecret"), ("VLLM_API_KEY", "k")}

    with pytest.raises(subprocess.CalledProcessError) as stopped:
        readers.run_script(script, {"PATH": path, "VLLM_API_KEY": "k"})
    assert "HUB_TOKEN: set it before starting this engine" in stopped.value.stderr


def write_lane(directory: Path, *, model: str = fleets.MODEL, env: dict[str, str], extra: tuple[str, ...] = ()) -> Path:
    """Write the files of a one-lane vLLM fleet; return its launch script."""
    lane_plan = fleets.lane_plan("short", "vllm", env=env, extra_args=extra)
    profile, plan = fleets.fleet((fleets.lane("short", "vllm"), lane_plan), model=model)
    for path, text in render_plan(profile, plan, load_engine).items():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, newline="")
    return directory / "short" / "launch.sh"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(model=WORDS, served=WORDS, extra=st.lists(WORDS, max_size=4), value=WORDS)
@pytest.mark.parametrize("kind", ["vllm", "tgi", "sglang"])
def test_every_file_gives_back_exactly_the_arguments_and_variables_it_was_made_of(
    kind: str, model: str, served: str, extra: list[str], value: str
) -> None:
    value = "=" + value  # so that it is never a reference, which is another test's matter
    lane_plan = fleets.lane_plan(
        "short", kind, model=model, served_name=served, extra_args=tuple(extra), env={"NAME": value}
    )
    profile, plan = fleets.fleet((fleets.lane("short", kind), lane_plan), model=model)
    engine = load_engine(kind)
    command = engine.launch(plan=plan, lane=profile.lanes[0], lane_plan=lane_plan, host="127.0.0.1", port=8001)
    inside = engine.launch(plan=plan, lane=profile.lanes[0], lane_plan=lane_plan, host="0.0.0.0", port=8001)  # noqa: S104

    files = render_plan(profile, plan, load_engine)

    launch = json.loads(files["short/launch.json"])
    assert (launch["argv"], launch["env"]["NAME"]) == ([*command.argv], value)

    unit = readers.unit_settings(files["short/fleetctl-support-chat-short.service"])
    assert set(unit) <= UNIT_SETTINGS
    assert readers.systemd_command(unit["Service.ExecStart"][0]) == ["/usr/bin/env", *command.argv]
    assert f"NAME={value}" in [readers.systemd_words(raw)[0] for raw in unit["Service.Environment"]]
    assert readers.systemd_words(unit["X-Fleetctl.model"][0]) == [model]

    service = readers.compose(files["short/compose.yaml"])
    container = engine.container
    assert container is not None
    assert service["command"] == [*inside.argv[container.replaces :]]
    assert service.get("entrypoint", []) == [*container.entrypoint]
    environment, labels = service["environment"], service["labels"]
    assert isinstance(environment, dict)
    assert isinstance(labels, dict)
    assert (environment["NAME"], labels["fleetctl.model"]) == (value, model)


UNIT_SETTINGS = {
    *(f"Unit.{key}" for key in ("Description", "Wants", "After", "StartLimitIntervalSec", "StartLimitBurst")),
    *(
        f"Service.{key}"
        for key in (
            "Type", "CacheDirectory", "Environment", "EnvironmentFile", "DynamicUser", "ExecStart", "KillMode",
            "KillSignal", "TimeoutStopSec", "Restart", "RestartSec", "LimitNOFILE", "LimitMEMLOCK", "NoNewPrivileges",
        )
    ),
    "Install.WantedBy",
    *(f"X-Fleetctl.{key}" for key in ("fleet", "lane", "engine", "model", "quantization", "gpu_type")),
}  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(model=WORDS, extra=st.lists(WORDS, max_size=4), value=WORDS)
def test_a_shell_runs_exactly_the_arguments_and_variables_of_the_launch_script(
    tmp_path_factory: pytest.TempPathFactory, model: str, extra: list[str], value: str
) -> None:
    directory = tmp_path_factory.mktemp("launch")
    script = write_lane(directory / "out", model=model, env={"NAME": "=" + value}, extra=tuple(extra))
    path = f"{readers.fake_engine(directory / 'bin', 'vllm')}:/usr/bin:/bin"

    argv, environment = readers.run_script(script, {"PATH": path, "VLLM_API_KEY": "k"})

    launch = json.loads((script.parent / "launch.json").read_text())
    assert ["vllm", *argv] == launch["argv"]
    assert environment["NAME"] == "=" + value
    shutil.rmtree(directory)


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        assert os.environ.get("CI") != "true", "install.sh installs systemd-analyze where there is apt"
        pytest.skip("systemd-analyze is not installed")
    nasty = 'model %i $HOME "quoted" \\ end'
    write_lane(tmp_path, model=nasty, env={"A": nasty}, extra=(nasty, ";"))
    unit = tmp_path / "short" / "fleetctl-support-chat-short.service"
    done = subprocess.run(
        [analyze, "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=30, check=False
    )
    assert unit.name not in done.stderr, done.stderr  # it also complains of other units of the machine


@pytest.mark.parametrize("bad", ["a\0b", "half \ud83d"])
def test_what_no_command_line_can_carry_is_refused(bad: str) -> None:
    profile, plan = fleets.fleet((fleets.lane("short", "vllm"), fleets.lane_plan("short", "vllm", extra_args=(bad,))))
    with pytest.raises(ConfigError, match="NUL"):
        render_plan(profile, plan, load_engine)


@pytest.mark.parametrize("name", ["../escape", "a/b", "", ".", "a b", "a\nb"])
def test_a_lane_whose_name_cannot_name_files_is_refused(name: str) -> None:
    profile, plan = fleets.fleet((fleets.lane(name, "vllm"), fleets.lane_plan(name, "vllm")))
    with pytest.raises(ConfigError, match="cannot name files"):
        render_plan(profile, plan, load_engine)


@pytest.mark.parametrize("name", ["1A", "A B", "A;rm", "A=B", ""])
def test_what_is_no_variable_is_refused(name: str) -> None:
    lane_plan = fleets.lane_plan("short", "vllm", env={name: "x"})
    profile, plan = fleets.fleet((fleets.lane("short", "vllm"), lane_plan))
    with pytest.raises(ConfigError, match="not an environment variable's name"):
        render_plan(profile, plan, load_engine)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ lane.model }}", "without a quoting filter"),
        ("{{ lane.colour|comment }}", "colour"),
        ("{{ lane.model|shout }}", "shout"),
        ("{% if %}", "Expected an expression"),
    ],
)
def test_a_users_own_template_comes_first_and_a_wrong_one_is_named(tmp_path: Path, template: str, message: str) -> None:
    own = tmp_path / "config" / "fleetctl" / "templates" / "env"
    own.mkdir(parents=True)
    (own / "engine.env.j2").write_text("MODEL={{ lane.model|env_value }}\n")
    files = render_plan(*fleets.one_of_each(), load_engine)
    assert files["short/engine.env"] == f'MODEL="{fleets.MODEL}"\n'
    assert "VLLM_API_KEY" in files["short/launch.sh"]

    (own / "engine.env.j2").write_text(template)
    with pytest.raises(ConfigError, match=message):
        render_plan(*fleets.one_of_each(), load_engine)


def test_a_program_with_an_equals_sign_is_refused_for_systemd() -> None:
    from fleetctl_vllm.engine import VllmEngine

    def engines(name: str) -> Engine:
        return VllmEngine("/opt/a=b/vllm") if name == "vllm" else load_engine(name)

    with pytest.raises(ConfigError, match="assignment"):
        render_plan(*fleets.one_of_each(), engines)


def test_lanes_of_one_machine_do_not_share_a_port() -> None:
    profile, plan = fleets.one_of_each()
    ports = [
        json.loads(text)["port"]
        for path, text in render_plan(profile, replace(plan), load_engine).items()
        if path.endswith("launch.json")
    ]
    assert sorted(ports) == [8001, 8002, 8003, 8004]


def test_a_plan_of_another_profile_is_refused() -> None:
    profile, plan = fleets.one_of_each()
    with pytest.raises(ConfigError, match="batch"):
        render_plan(replace(profile, lanes=profile.lanes[:3]), plan, load_engine)

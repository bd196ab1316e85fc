"""Weights in S3: what an engine's command and container make of them once a node has fetched them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleetctl.catalogue.known import load_catalogue, resolve_model
from fleetctl.engine_kit.containers import container_launch, local_command
from fleetctl.errors import ConfigError
from fleetctl.model.engine_fault import EngineFaultKind
from fleetctl.model.node import Mount
from fleetctl.model.profile import ModelSpec
from fleetctl.model.remote_weights import remote_weights
from fleetctl.plugins import load_engine
from fleetctl.render.lane import gather
from tests.render import fleets

SOURCE = "s3://fleetctl-team-weights/llama/Llama-3.1-8B-FP8"


@pytest.mark.parametrize(("name", "flag"), [("vllm", "serve"), ("sglang", "--model-path"), ("tgi", "--model-id")])
def test_an_engine_loads_the_fetched_directory_and_is_called_as_before(name: str, flag: str) -> None:
    profile, plan = fleets.fleet((fleets.lane("short", name), fleets.lane_plan("short", name)))
    found = remote_weights(SOURCE)
    assert found is not None
    directory = found.directory
    lane, planned = profile.lane("short"), plan.lane("short")
    planned = replace(planned, launch=replace(planned.launch, model=SOURCE))
    plan = replace(plan, lanes=(planned,))
    engine = load_engine(name)
    launched = engine.launch(plan=plan, lane=lane, lane_plan=planned, host="0.0.0.0", port=8000)  # noqa: S104  # of a container
    command = local_command(launched, model=SOURCE)
    assert command.argv[command.argv.index(flag) + 1] == directory
    # TGI takes a request whatever model it names.
    assert name == "tgi" or planned.launch.served_name in command.argv
    container = container_launch(engine, command, lane, planned.launch)
    assert container is not None
    assert directory in container.args
    assert SOURCE not in (*command.argv, *container.args)
    assert container.mounts == (Mount(source=directory, target=directory, read_only=True),)
    with pytest.raises(ConfigError, match="nothing in these files would fetch them"):
        gather(profile, plan, 0, engine, emulated=False)


def test_weights_from_elsewhere_are_in_another_directory_whose_name_still_tells_their_format() -> None:
    one, other, same = (remote_weights(each) for each in (SOURCE, SOURCE.replace("team", "mine"), f"{SOURCE}/"))
    assert one is not None
    assert other is not None
    assert one == same
    assert one.directory != other.directory
    assert one.directory.endswith("/Llama-3.1-8B-FP8")
    assert (one.bucket, one.prefix) == ("fleetctl-team-weights", "llama/Llama-3.1-8B-FP8/")


def test_their_figures_are_the_catalogues() -> None:
    catalogue = load_catalogue()
    known = "meta-llama/Llama-3.1-8B-Instruct"
    assert resolve_model(ModelSpec(id=known, path=SOURCE), catalogue) == catalogue.models[known]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("AccessDenied", EngineFaultKind.HUB_ACCESS),
        ("NoSuchBucket", EngineFaultKind.HUB_ACCESS),
        ("no files", EngineFaultKind.HUB_ACCESS),
        ("disk full", EngineFaultKind.STORAGE),
        ("no aws", EngineFaultKind.PROGRAM),
        ("not fetched", EngineFaultKind.UNKNOWN),
    ],
)
@pytest.mark.parametrize("engine", ["vllm", "sglang", "tgi", "llamacpp", "emulator"])
def test_why_they_were_not_fetched_is_a_fault_of_its_kind_whatever_engine_waits(
    engine: str, name: str, kind: EngineFaultKind
) -> None:
    line = f"weights at {SOURCE}/ were not fetched: {name} (fatal error: it was)"
    fault = load_engine(engine).diagnose(line)
    assert fault is not None
    assert (fault.kind, fault.line) == (kind, line)

"""Gathers what the templates say about one lane."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.catalogue.known import load_catalogue
from fleetctl.errors import ConfigError
from fleetctl.model.catalogue import GpuVendor
from fleetctl.model.node import Mount
from fleetctl.model.remote_weights import is_remote
from fleetctl.model.serving import HUB_CACHE_ENV
from fleetctl.ports.engine import visible_engine
from fleetctl.render.quoting import name, variable, writable
from fleetctl.secret_shapes import names_a_secret

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fleetctl.model.plan import LanePlan, LaunchSettings, Plan
    from fleetctl.model.profile import LaneSpec, Profile
    from fleetctl.ports.engine import Engine

LOOPBACK = "127.0.0.1"
PORT_FIRST = 8001  # lanes listen from here on, so that several fit one machine

_REFERENCE = re.compile(r"(?P<kind>env|file|keyring):(?P<where>.+)", re.DOTALL)
# A spot notice is 120 s, best effort: everything must have ended before it runs out.
_STOP_S_MAX = 119
_STOP_MARGIN_S = 10
_AMD_VISIBLE = frozenset(
    ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
)  # ROCm reads all three


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """A variable whose value is never written: only where it comes from."""

    name: str
    kind: str  # "env", "file" or "keyring"
    where: str

    @property
    def variable(self) -> str:
        """The variable that whoever starts the engine sets; only `env` names another than the engine's own."""
        return self.where if self.kind == "env" else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneFiles:
    """Everything the templates may name, unquoted."""

    fleet: str
    lane: str
    engine: str
    emulated: bool  # the profile emulates this lane; the files are for the engine it stands for
    profile_hash: str
    model: str
    model_directory: str  # empty: the engine fetches the model from the hub
    hub_cache: str  # the machine's directory of what was fetched; empty: the engine's own
    mounts: tuple[Mount, ...]
    gpu_type: str
    gpu_vendor: GpuVendor  # NVIDIA where no catalogue has the GPU
    gpu_count: int
    replicas: int
    host: str
    port: int
    health_path: str
    argv: tuple[str, ...]
    env: dict[str, str]
    secrets: tuple[Secret, ...]
    tags: dict[str, str]
    image: str  # empty: the engine has none
    image_models: str  # the directory in the image that models are fetched into
    entrypoint: tuple[str, ...]
    container_argv: tuple[str, ...]
    start_timeout_s: int
    stop_timeout_s: int

    @property
    def volume_names(self) -> tuple[str, ...]:
        """The volumes a compose file declares; the image's own for models is there where no directory has them."""
        own = () if self.model_directory or self.hub_cache else ("models",)
        return tuple(dict.fromkeys((*own, *(mount.source for mount in self.mounts if not mount.is_path))))

    @property
    def is_amd(self) -> bool:
        """Whether its GPU is one of AMD's, which container runtimes give by device files."""
        return self.gpu_vendor is GpuVendor.AMD

    @property
    def amd_devices(self) -> str:
        """Which of a machine's AMD GPUs its engine has: "0,1"; empty where they are none, or the profile says which."""
        return ",".join(map(str, range(self.gpu_count))) if self.is_amd and not set(self.env) & _AMD_VISIBLE else ""

    @property
    def secret_names(self) -> str:
        """The variables somebody else must set, for people to read."""
        return ", ".join(secret.name for secret in self.secrets)

    @property
    def manifest(self) -> dict[str, object]:
        """Everything, for programs to read."""
        return {
            "written_by": "fleetctl render",
            "profile": self.profile_hash,
            "emulated": self.emulated,
            "tags": self.tags,
            "replicas": self.replicas,
            "gpu_count": self.gpu_count,
            "host": self.host,
            "port": self.port,
            "health_path": self.health_path,
            "argv": self.argv,
            "env": self.env,
            "volumes": [f"{m.source}:{m.target}:{'ro' if m.read_only else 'rw'}" for m in self.mounts],
            "image": self.image,
            "env_from": {secret.name: f"{secret.kind}:{secret.where}" for secret in self.secrets},
        }


def rendered_engine(engine_of: Callable[[str], Engine], lane: LaneSpec, override: str) -> Engine:
    """Return the engine to render for: the one asked for, else the lane's own, else the one its emulator plays.

    Raises NotFoundError, and ConfigError when an emulator is asked for: what it plays is to be run, not itself.
    """
    if not override:
        return visible_engine(engine_of, lane)
    engine = engine_of(override)
    if engine.emulation(lane) is not None:
        raise ConfigError(f"cannot render for {override!r}", hint="name a real engine, such as the one it plays")
    return engine


def gather(profile: Profile, plan: Plan, index: int, engine: Engine, *, emulated: bool) -> LaneFiles:
    """Return what the templates need for the plan's lane at `index`; `emulated`: its profile only plays the engine.

    Raises ConfigError for what cannot be written.
    """
    lane = profile.lane(plan.lanes[index].lane)
    if plan.lanes[index].node_count > 1:
        raise ConfigError(
            f"lane {lane.name}: a replica spans {plan.lanes[index].node_count} machines, and files are written for one",
            hint="`fleetctl up` gives each machine its command; leave launch.pipeline_parallel out to render",
        )
    launch = plan.lanes[index].launch
    if is_remote(launch.model):
        raise ConfigError(
            f"lane {lane.name}: its weights are at {launch.model}, and nothing in these files would fetch them",
            hint="`fleetctl up` has instances on AWS fetch them; to render, give a directory that the machines have",
        )
    _check_parallel(lane.name, launch, engine)
    if engine.name not in (lane.engine, lane.emulator.flavour if emulated else ""):
        # They are another engine's.
        lane = replace(lane, engine_version="", engine_executable="", launch=replace(lane.launch, image=""))
    lane_plan = _for_engine(plan.lanes[index], keep_extras=engine.name == lane.engine)
    port = PORT_FIRST + index
    command = engine.launch(plan=plan, lane=lane, lane_plan=lane_plan, host=LOOPBACK, port=port)
    # Inside a container loopback is the container's own; compose publishes the port on the host's.
    inside = engine.launch(plan=plan, lane=lane, lane_plan=lane_plan, host="0.0.0.0", port=port)  # noqa: S104
    plain, secrets = _split(command.env, engine.api_key_env)
    container = engine.container
    launch = lane_plan.launch
    return LaneFiles(
        fleet=str(name(plan.fleet)),
        lane=str(name(lane.name)),
        engine=engine.name,
        emulated=emulated,
        profile_hash=plan.profile_hash,
        model=profile.model.id,
        model_directory=launch.model if launch.model.startswith("/") else "",
        hub_cache=launch.env.get(HUB_CACHE_ENV, ""),
        mounts=tuple(Mount.parse(writable(volume, what="volume")) for volume in lane.launch.volumes),
        gpu_type=lane_plan.gpu,
        gpu_vendor=_vendor_of(lane_plan.gpu),
        gpu_count=lane_plan.gpus_each_node,
        replicas=lane_plan.replicas,
        host=LOOPBACK,
        port=port,
        health_path=engine.health_path,
        argv=tuple(writable(word, what="argument") for word in command.argv),
        env=plain,
        secrets=secrets,
        tags=_tags(profile, lane_plan, engine.name),
        image=lane.launch.image or container.at(lane.engine_version) if container else "",
        image_models=container.models if container else "",
        entrypoint=container.entrypoint if container else (),
        container_argv=inside.argv[container.replaces + inside.host_words :] if container else (),
        start_timeout_s=math.ceil(profile.control.start_timeout_s),
        stop_timeout_s=min(_STOP_S_MAX, math.ceil(launch.shutdown_timeout_s) + _STOP_MARGIN_S),
    )


def _check_parallel(lane: str, launch: LaunchSettings, engine: Engine) -> None:
    """Raise ConfigError for a way to be parallel that the engine has no setting for."""
    has = engine.capabilities
    for key, can in (("pipeline_parallel_local", has.local_stages), ("data_parallel", has.data_parallel)):
        if getattr(launch, key) > 1 and not can:
            raise ConfigError(
                f"lane {lane}: is planned with {key} {getattr(launch, key)}, and {engine.name} has no such setting",
                hint=f"pin launch.{key} to 1, or set engine: {engine.name} in the profile and plan again",
            )


def _vendor_of(gpu: str) -> GpuVendor:
    known = load_catalogue().gpus.get(gpu)
    return known.vendor if known is not None else GpuVendor.NVIDIA


def _for_engine(lane_plan: LanePlan, *, keep_extras: bool) -> LanePlan:
    """Return the plan without the arguments and variables its profile gives to another engine, or to the emulator."""
    if keep_extras:
        return lane_plan
    env = {name: value for name, value in lane_plan.launch.env.items() if name == HUB_CACHE_ENV}  # any engine's
    return replace(lane_plan, launch=replace(lane_plan.launch, extra_args=(), env=env))


def _tags(profile: Profile, lane_plan: LanePlan, engine: str) -> dict[str, str]:
    tags = {
        "fleet": profile.name,
        "lane": lane_plan.lane,
        "engine": engine,
        "model": profile.model.id,
        "quantization": lane_plan.launch.quantization.value,
        "gpu_type": lane_plan.gpu,
    }
    return {key: writable(value, what=key) for key, value in tags.items()}


def _split(env: Mapping[str, str], api_key_env: str) -> tuple[dict[str, str], tuple[Secret, ...]]:
    """Return plain variables, and those that are only referred to; the engine's key is always of the latter."""
    secrets = {api_key_env: Secret(name=api_key_env, kind="env", where=api_key_env)} if api_key_env else {}
    plain: dict[str, str] = {}
    for key, value in sorted(env.items()):
        match = _REFERENCE.fullmatch(writable(value, what=f"variable {variable(key)}"))
        if match is not None:
            secrets[key] = Secret(name=key, kind=match["kind"], where=match["where"])
        elif names_a_secret(key):
            raise ConfigError(
                f"{key} is written out in the profile, and files would carry it around",
                hint=f"refer to it instead: {key}: env:{key}, or file:PATH",
            )
        else:
            plain[key] = value
    return plain, tuple(secrets[key] for key in sorted(secrets))

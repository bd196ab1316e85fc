"""What fleetctl needs to know of an engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from fleetctl.model.catalogue import Precision
from fleetctl.model.cpu_share import CpuUse
from fleetctl.model.request_form import RequestForm
from fleetctl.model.serving import SpeculationMethod

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.model.engine_fault import EngineFault
    from fleetctl.model.node import NodeProcess
    from fleetctl.model.observation import EngineSignals
    from fleetctl.model.plan import LanePlan, LaunchSettings, Plan
    from fleetctl.model.profile import LaneSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCommand:
    """A process to start. Secrets are only ever in `env`, and only as references until the last moment."""

    argv: tuple[str, ...]
    env: dict[str, str]
    member_argv: tuple[str, ...] = ()  # of each further machine; may name LEADER_HOST and NODE_RANK of `model.node`
    uses_gpus: bool = True  # False: the provider pins none to it
    host_words: int = 0  # of argv behind the program, that only this machine has use for: none is in a container's


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerImage:
    """How an engine is run from its publisher's image: the first `replaces` words of its argv become `entrypoint`."""

    image: str
    entrypoint: tuple[str, ...]  # empty: the image's own
    replaces: int
    models: str = "/root/.cache/huggingface"  # where the image keeps what it fetches

    @property
    def version(self) -> str:
        """The engine's version in it, by its tag."""
        return self.image.rpartition(":")[2].removeprefix("v")

    def at(self, version: str) -> str:
        """Return the image of another version, its tag spelt as this one's; empty: this one."""
        name, _, tag = self.image.rpartition(":")
        spelt = "v" if tag.startswith("v") else ""
        return f"{name}:{spelt}{version.removeprefix('v')}" if version else self.image


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionSource:
    """Where an engine's version is learned: of a running one by its route, of an installed one without starting it."""

    path: str  # answers with a JSON object that has `version`
    distribution: str = ""  # the Python distribution its program comes from; empty: `PROGRAM --version` is asked


class PriorityOrder(Enum):
    """Which waiting request an engine serves first when it is told to look at priorities."""

    NONE = 0  # it has no priorities: by arrival
    LOW_FIRST = 1
    HIGH_FIRST = -1


class WeightsFormat(Enum):
    """What an engine loads a model from."""

    CHECKPOINT = "a hub id, or a directory with a config.json and safetensors"
    GGUF = "a GGUF file"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownBehaviour:
    """What an engine does on SIGTERM. `drain_s` is its own default; None: no deadline; 0: what runs is aborted."""

    drain_s: float | None
    refuses_new: bool  # new requests are answered with an error while it drains
    keeps_listening: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCapabilities:
    """What an engine can do, where engines differ and somebody decides on it."""

    continues_streams: (
        bool  # goes on from a last message of the assistant (`continue_final_message`), another replica's text
    )
    priority_order: PriorityOrder
    reserves_output: bool  # a request holds KV blocks for all it may generate from the start, and is never preempted
    shutdown: ShutdownBehaviour
    kv_cache_precisions: frozenset[Precision]
    multi_node: bool = False  # one replica over several machines: `launch` returns `member_argv`
    local_stages: bool = False  # several pipeline stages on one machine (`pipeline_parallel_local`)
    data_parallel: bool = False  # several copies of the model in one replica, on one machine
    load_time_precisions: frozenset[Precision]  # that it makes out of a 16-bit checkpoint while loading it
    # With which it is told, or not, to look at priorities; in a lane's `extra_args` they are left as they are.
    priority_flags: frozenset[str] = frozenset()
    # That are fleetctl's alone, each with what to do instead; a lane's `extra_args` may have none of them.
    reserved_flags: Mapping[str, str] = field(default_factory=dict)
    # A file with a function `own_parser`, run in the Python that has the engine: what its parser takes. None: it has none.
    own_parser: Path | None = None
    # In which the plan's sizes are given, each with the profile's key that pins it; a lane's `extra_args` may have none.
    planned_flags: Mapping[str, str] = field(default_factory=dict)
    # That change what a replica makes of its GPUs, each with what to do instead; where it has none they are the user's.
    gpu_flags: Mapping[str, str] = field(default_factory=dict)
    # Which of these `LaunchSettings` its command line has: a profile that pins another is refused.
    launch_keys: frozenset[str] = frozenset()
    tool_call_parsers: Mapping[str, str] = field(default_factory=dict)  # its names, by those of `engine_kit.dialects`
    reasoning_parsers: Mapping[str, str] = field(default_factory=dict)
    # By `tool_call_parser` and `reasoning_parser`: every name its known release has. Empty: they are not known.
    parser_names: Mapping[str, frozenset[str]] = field(default_factory=dict)
    # That choose the format of weights and computation: the profile's `model.quantization` does where those are of 16 bits.
    format_flags: frozenset[str] = frozenset()
    speculation_methods: frozenset[SpeculationMethod] = frozenset()
    weights_format: WeightsFormat = WeightsFormat.CHECKPOINT
    cpu: CpuUse | None = None  # how it runs on a machine without GPUs; None: not known to
    serves_adapters: bool = False  # LoRA adapters, by the name that a request gives as its model
    checks_requests: bool = True  # what OpenAI's API does not allow, it refuses, and nothing else
    # What of a request it serves only where it is started with one of these flags: "tools", "image_url", "input_audio".
    needs_flags: Mapping[str, frozenset[str]] = field(default_factory=dict)
    # What of OpenAI's API it does not do, or does otherwise, each with what it does: by the names of gateway/request_checks.
    lacks: Mapping[str, str] = field(default_factory=dict)
    request_form: RequestForm | None = None  # None: it takes whatever spelling OpenAI's API allows
    reserves_context: bool = False  # each of its `max_num_seqs` seats holds KV for `max_model_len` tokens, used or not


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulation:
    """What a lane's replicas pretend to be: the engine by its name, and how many times faster than modelled."""

    engine: str
    speed: float


class Engine(Protocol):
    """An engine: found by the entry point group `fleetctl.engine`, made without arguments. Pure: text in, text out."""

    name: str  # that of its entry point
    health_path: str
    metrics_path: str
    metrics_prefix: str  # what the names of its own series begin with
    request_gauges: tuple[str, ...]  # series whose sum is what runs and waits in it; empty: it has none
    program: str  # what has to be on this machine to run it here; empty: it comes with its package
    program_env: str  # the variable that names another program
    api_key_env: str  # the variable it reads the key from that its clients must send; empty: it takes none this way
    capabilities: EngineCapabilities

    @property
    def version(self) -> VersionSource | None:
        """Where its version is learned; None: it does not say, and no profile can ask for one."""
        ...

    @property
    def container(self) -> ContainerImage | None:
        """The publisher's image; None: there is none, and no container files are rendered."""
        ...

    def launch(self, *, plan: Plan, lane: LaneSpec, lane_plan: LanePlan, host: str, port: int) -> LaunchCommand:
        """Return how this lane's replicas are started, listening on host:port."""
        ...

    def queue_limit(self, settings: LaunchSettings) -> int | None:
        """Return the limit of its queue as its own flag counts it: running requests included or not; None: no limit."""
        ...

    def signals(self, exposition: str) -> EngineSignals:
        """Read a /metrics page; NaN and absent series make the result INVALID, never a guess. `at` is left None."""
        ...

    def diagnose(self, log_tail: str) -> EngineFault | None:
        """Return what the end of the log of one that ended says went wrong; None: nothing. It knows its own messages."""
        ...

    def diagnose_start(self, log_tail: str, ended: tuple[NodeProcess, ...]) -> EngineFault | None:
        """Return why one that still runs will never be ready, by its log and its processes that ended; None: it may be.

        It names only what no start survives: one that is slow, or whose workers of a while have done their work, is none.
        """
        ...

    def warm_body(self, *, served_name: str) -> tuple[str, bytes]:
        """Return the path and JSON body of a small real completion."""
        ...

    def emulation(self, lane: LaneSpec) -> Emulation | None:
        """Return what a lane's replicas pretend to be; None: they are the engine itself."""
        ...


def visible_engine(engine_of: Callable[[str], Engine], lane: LaneSpec) -> Engine:
    """Return the engine that a lane's replicas are from outside: its own, or the one an emulator plays."""
    engine = engine_of(lane.engine)
    emulation = engine.emulation(lane)
    return engine_of(emulation.engine) if emulation else engine

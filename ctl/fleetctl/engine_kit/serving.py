"""Decides how a lane's engines serve, beyond their sizes: parsers by the model, events and kernels by the promise, each with its reason."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.core.perf.kv import adapter_bytes
from fleetctl.core.plan.layouts import EXPERT_GPUS_MIN
from fleetctl.engine_kit.dialects import reasoning_dialect, tool_call_dialect
from fleetctl.engine_kit.flags import plain
from fleetctl.errors import ConfigError
from fleetctl.model.serving import PerformanceMode, SpeculationMethod
from fleetctl.model.slo import Metric
from fleetctl.ports.engine import visible_engine
from fleetctl.spelling import suggest
from fleetctl.units import format_bytes, format_count, format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from fleetctl.model.plan import LanePlan, LaunchSettings, Plan
    from fleetctl.model.profile import LaneSpec, Profile
    from fleetctl.ports.engine import Engine, EngineCapabilities

# Of which streams' clients see every event; a lane that promises none of it streams for nobody's eyes.
_OF_STREAMS = frozenset(
    {Metric.TTFT, Metric.ITL, Metric.STREAM_GAP, Metric.STALL_RATE, Metric.TOKENS_PER_CHUNK, Metric.QUEUE_WAIT}
)
_UNSEEN_STREAM_INTERVAL = 8  # events an engine then writes an eighth of, each of which costs its API process some 50 us
# Below these a step is so short that launching its kernels counts, and a batch so small that large graphs are never full.
_QUICK_ITL_S, _QUICK_TTFT_S = 0.03, 0.3
_SETTINGS = (
    "tool_call_parser", "reasoning_parser", "stream_interval", "performance_mode", "long_prefill_tokens",
    "max_queued_requests", "expert_parallel", "speculation",
)  # fmt: skip
_Decision = tuple[object, str]  # what is set, and why


def with_serving(plan: Plan, profile: Profile, engine_of: Callable[[str], Engine]) -> Plan:
    """Return the plan with every such setting that a lane's engine has decided, and the reason among the lane's own.

    What the profile pins is as it says. Of an emulated lane the engine that is played decides.
    """
    lanes = tuple(_decided(planned, plan, profile, engine_of) for planned in plan.lanes)
    return replace(plan, lanes=lanes)


def serving_errors(
    lane: LaneSpec, engine_of: Callable[[str], Engine], *, is_consulted: bool = False
) -> Iterator[ConfigError]:
    """Yield the settings that a lane pins and its engine has not; `is_consulted`: its own parser says which parsers it has."""
    engine = visible_engine(engine_of, lane)
    has = engine.capabilities
    for name in _SETTINGS:
        pinned = getattr(lane.launch, name)
        if pinned is not None and name not in has.launch_keys:
            yield _refusal(lane, name, f"{engine.name} has no {name}")
    for name, registered in () if is_consulted else has.parser_names.items():
        pinned = getattr(lane.launch, name)
        plugin = any(plain(word).endswith("-parser-plugin") for word in lane.launch.extra_args)
        dialects = has.tool_call_parsers if name == "tool_call_parser" else has.reasoning_parsers
        names = registered | dialects.keys() | {"none"}
        if pinned and pinned not in names and not plugin:
            yield ConfigError(
                f"lane {lane.name}: {engine.name} has no {name} {pinned!r}{suggest(pinned, names)}",
                hint=f"it has {', '.join(sorted(registered))}; none for none",
                key=("lanes", lane.name, "launch", name),
            )
    guess = lane.launch.speculation
    if guess is not None and "speculation" in has.launch_keys and not _can_guess(guess.method, has):
        known = ", ".join(sorted(has.speculation_methods))
        yield _refusal(lane, "speculation", f"{engine.name} does not guess by {guess.method}; it knows: {known}")


def _can_guess(method: SpeculationMethod, has: EngineCapabilities) -> bool:
    return method is SpeculationMethod.NONE or method in has.speculation_methods


def _refusal(lane: LaneSpec, name: str, why: str) -> ConfigError:
    return ConfigError(f"lane {lane.name}: {why}", hint="leave it out", key=("lanes", lane.name, "launch", name))


def _decided(planned: LanePlan, plan: Plan, profile: Profile, engine_of: Callable[[str], Engine]) -> LanePlan:
    lane = profile.lane(planned.lane)
    has, model = visible_engine(engine_of, lane).capabilities, profile.model_of(lane)
    found = {
        "tool_call_parser": _parser(tool_call_dialect(model.id), model.id, has.tool_call_parsers),
        "reasoning_parser": _parser(reasoning_dialect(model.id), model.id, has.reasoning_parsers),
        "stream_interval": _stream_interval(lane),
        "performance_mode": _performance_mode(lane),
        "long_prefill_tokens": (None, "none: a long prompt takes whole steps, as its TTFT is forecast"),
        "max_queued_requests": (None, f"none: what waits is in the gateway's queue ({lane.queue_max} at most)"),
        "expert_parallel": _expert_parallel(planned, plan),
        "speculation": (None, "none: what it gains depends on the text, and no forecast may count on it"),
    }
    given = {name for name in _SETTINGS if getattr(lane.launch, name) is not None}
    chosen = {name: decision for name, decision in found.items() if name in has.launch_keys and name not in given}
    reasons = [_reason(name, decision) for name, decision in chosen.items()]
    reasons += [f"{name} {_spelled(getattr(planned.launch, name))}: pinned by the profile" for name in sorted(given)]
    reasons += _adapter_reasons(planned, plan)
    values = {name: value for name, (value, _) in chosen.items()}
    launch: LaunchSettings = replace(planned.launch, **values)  # type: ignore[arg-type]  # each of its own field's type
    return replace(planned, launch=launch, reasons=(*planned.reasons, *reasons))


def _adapter_reasons(planned: LanePlan, plan: Plan) -> Iterator[str]:
    """Yield what a lane's adapters take of each of its GPUs."""
    launch, card = planned.launch, plan.card_of(planned)
    if launch.adapters and card is not None:
        taken = format_bytes(adapter_bytes(card, planned.tensor_parallel))
        yield (
            f"adapters: room for rank {launch.adapter_rank}, {launch.adapter_slots} of {len(launch.adapters)} in one batch: {taken} of each "
            "GPU that its KV cache has not"
        )


def _reason(name: str, decision: _Decision) -> str:
    value, why = decision
    # A decision for nothing says in its reason what that is.
    return f"{name} {why}" if value in {None, ""} else f"{name} {_spelled(value)}: {why}"


def _spelled(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(getattr(value, "method", value)) or "none"


def _parser(dialect: str, model_id: str, known: Mapping[str, str]) -> _Decision:
    if not dialect:
        return "", f"none: no notation of {model_id} is known"
    if dialect not in known:
        return "", f"none: this engine does not read {dialect}"
    return dialect, f"what {model_id.rsplit('/', 1)[-1]} writes"


def _stream_interval(lane: LaneSpec) -> _Decision:
    if any(target.metric in _OF_STREAMS for target in lane.slo.targets):
        return 1, "every token leaves at once, for what is promised of streams"
    return _UNSEEN_STREAM_INTERVAL, "nothing is promised of streams, and fewer events cost the engine less"


def _performance_mode(lane: LaneSpec) -> _Decision:
    itl, ttft = lane.slo.strictest(Metric.ITL), lane.slo.strictest(Metric.TTFT)
    if itl is None and ttft is None:
        return PerformanceMode.THROUGHPUT, "neither TTFT nor ITL is promised"
    if itl is not None and itl.limit_s <= _QUICK_ITL_S:
        return PerformanceMode.INTERACTIVITY, f"an ITL of {format_duration(itl.limit_s)} is promised"
    if ttft is not None and ttft.limit_s <= _QUICK_TTFT_S:
        return PerformanceMode.INTERACTIVITY, f"a TTFT of {format_duration(ttft.limit_s)} is promised"
    return PerformanceMode.BALANCED, "the promises leave room for it"


def _expert_parallel(planned: LanePlan, plan: Plan) -> _Decision:
    card = plan.card_of(planned)
    if card is None or card.active_params == card.params:
        return False, "the model has no experts"
    gpus = planned.tensor_parallel * planned.ranks  # of one stage, whose experts they share
    if gpus < EXPERT_GPUS_MIN:
        return False, f"slices of experts are thick enough over {format_count(gpus, 'GPU')}"
    return True, f"over {gpus} GPUs each keeps its experts whole: a {gpus}th of every one is too thin for the kernels"

"""What engines of this machine will have to fetch from the Hugging Face hub before they start, and may not be let to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.core.perf.kv import weight_bytes
from fleetctl.model.preflight import Finding, Verdict
from fleetctl.ports.engine import WeightsFormat
from fleetctl.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fleetctl.model.plan import LanePlan, Plan
    from fleetctl.model.profile import Profile
    from fleetctl.operations.site import Site

_NAME = "weights"
# Whose every model asks for its licence to be accepted (November 2026); others may ask for it too.
_GATED = ("meta-llama/", "google/gemma")


def is_gated(model_id: str) -> bool:
    """Whether a model's publisher is known to ask for its licence to be accepted before it is fetched."""
    return model_id.startswith(_GATED)


def cached_file(model_id: str, name: str, environment: Mapping[str, str]) -> Path | None:
    """Return a file of a model that some engine or `hf download` has fetched to this machine; None: it is not there."""
    found = sorted(_snapshots(model_id, environment).glob(f"*/{name}"), key=lambda path: path.stat().st_mtime)
    return found[-1] if found else None


def weights_findings(site: Site, profile: Profile, plan: Plan) -> Iterator[Finding]:
    """Yield what is to be known of each model that is not on this machine yet, where engines start on it."""
    if not site.providers(profile.provider).capabilities.runs_here:
        return
    for planned in {lane.launch.model: lane for lane in plan.lanes}.values():
        lane = profile.lane(planned.lane)
        engine = site.engines(planned.engine)
        loads_checkpoints = engine.capabilities.weights_format is WeightsFormat.CHECKPOINT
        environment = {**os.environ, **planned.launch.env}
        is_absent = cached_file(planned.launch.model, "*.safetensors", environment) is None
        if (
            engine.emulation(lane) is None
            and loads_checkpoints
            and not Path(planned.launch.model).exists()
            and is_absent
        ):
            yield _absent(planned, plan, environment, has_token="HF_TOKEN" in lane.launch.env)


def _absent(planned: LanePlan, plan: Plan, environment: Mapping[str, str], *, has_token: bool) -> Finding:
    model, card = planned.launch.model, plan.card_of(planned)
    # What has 16 bits on the hub is fetched so, whatever the engine makes of it.
    size = f", {format_bytes(weight_bytes(card, card.native_precision))} by its card" if card is not None else ""
    where = _snapshots(model, environment).parent.parent
    detail = f"{model} is not in {where}: its engines fetch it before they are ready{size}"
    hint = f"fetch it beforehand (hf download {model}), or give it time: control.start_timeout"
    if is_gated(model) and not has_token and not (_home(environment) / "token").is_file():
        detail += "; it is gated, and no token is given"
        hint = (
            f"accept its licence at https://huggingface.co/{model}, then `hf auth login`, or in each lane "
            "launch: {env: {HF_TOKEN: env:HF_TOKEN}}; " + hint
        )
    return Finding(name=_NAME, verdict=Verdict.WARN, detail=detail, hint=hint)


def _snapshots(model_id: str, environment: Mapping[str, str]) -> Path:
    hub = Path(environment.get("HF_HUB_CACHE") or _home(environment) / "hub")
    return hub / f"models--{model_id.replace('/', '--')}" / "snapshots"


def _home(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("HF_HOME") or Path.home() / ".cache" / "huggingface")

"""What engines of this machine will have to fetch from the Hugging Face hub before they start, and may not be let to."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from typing import TYPE_CHECKING

from fleetctl.engine_kit.hub_cache import absent_weights, hub_home
from fleetctl.model.preflight import Finding, Verdict
from fleetctl.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from fleetctl.engine_kit.hub_cache import AbsentWeights
    from fleetctl.model.plan import Plan
    from fleetctl.model.profile import Profile
    from fleetctl.operations.site import Site

_NAME = "weights"
# Whose every model asks for its licence to be accepted (November 2026); others may ask for it too.
_GATED = ("meta-llama/", "google/gemma")
_SPARE_BYTES = 2**30  # of the disk: tokenizers, compiled kernels, logs


def is_gated(model_id: str) -> bool:
    """Whether a model's publisher is known to ask for its licence to be accepted before it is fetched."""
    return model_id.startswith(_GATED)


def weights_findings(site: Site, profile: Profile, plan: Plan) -> Iterator[Finding]:
    """Yield what is to be known of each model that is not on this machine yet, where engines start on it."""
    if not site.provider_of(profile).capabilities.runs_here:
        return
    needed: Counter[int] = Counter()  # bytes, by the disk
    for planned in {lane.launch.model: lane for lane in plan.lanes}.values():
        lane, engine = profile.lane(planned.lane), site.engines(planned.engine)
        environment = {**os.environ, **planned.launch.env}
        absent = absent_weights(engine, lane, planned, plan.card_of(planned), environment=environment)
        if absent is not None:
            there = next(path for path in (absent.cache, *absent.cache.parents) if path.exists())
            needed[there.stat().st_dev] += absent.left_bytes
            has_token = "HF_TOKEN" in lane.launch.env
            yield _too_large(absent, there, needed[there.stat().st_dev]) or _absent(
                absent, environment, has_token=has_token
            )


def _too_large(absent: AbsentWeights, there: Path, needed_bytes: int) -> Finding | None:
    """Return that a model does not fit on the disk of the cache, beside those that come before it; None: it does."""
    left = shutil.disk_usage(there).free
    if needed_bytes + _SPARE_BYTES <= left:
        return None
    fetched = f", {format_bytes(absent.fetched_bytes)} of them there" if absent.fetched_bytes else ""
    beside = "" if needed_bytes == absent.left_bytes else f" ({format_bytes(needed_bytes)} with the models before it)"
    return Finding(
        name=_NAME,
        verdict=Verdict.FAIL,
        detail=f"{absent.model} takes {format_bytes(absent.total_bytes or 0)}{fetched}{beside}, and {format_bytes(left)} "
        f"are left for it at {absent.cache}",
        hint="free some, or have it kept on a larger disk: lanes.NAME.launch.hub_cache",
    )


def _absent(absent: AbsentWeights, environment: Mapping[str, str], *, has_token: bool) -> Finding:
    model = absent.model
    size = f", {format_bytes(absent.total_bytes)} by its card" if absent.total_bytes is not None else ""
    fetched = f"; {format_bytes(absent.fetched_bytes)} of it are there" if absent.fetched_bytes else ""
    detail = f"{model} is not in {absent.cache}: its engines fetch it before they are ready{size}{fetched}"
    hint = f"fetch it beforehand (hf download {model}), or give it time: control.start_timeout"
    if is_gated(model) and not has_token and not (hub_home(environment) / "token").is_file():
        detail += "; it is gated, and no token is given"
        hint = (
            f"accept its licence at https://huggingface.co/{model}, then `hf auth login`, or in each lane "
            "launch: {env: {HF_TOKEN: env:HF_TOKEN}}; " + hint
        )
    return Finding(name=_NAME, verdict=Verdict.WARN, detail=detail, hint=hint)

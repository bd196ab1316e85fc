"""Checkpoints that bring Python code of their own, and whether a lane's engines run it.

transformers' Auto classes, which vLLM and SGLang load a checkpoint's configuration by, take their own class where they know
the model's family and `auto_map` code is not trusted; with `--trust-remote-code` the checkpoint's code goes first.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.catalogue.model_card import is_counted
from fleetctl.engine_kit.hub_cache import cached_file
from fleetctl.model.preflight import Finding, Verdict
from fleetctl.ports.engine import WeightsFormat

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fleetctl.model.plan import Plan
    from fleetctl.model.profile import Profile
    from fleetctl.operations.site import Site

_NAME = "code of the checkpoint"
_CONSENT = "--trust-remote-code"
_CONFIG = "config.json"
_FILES = (_CONFIG, "tokenizer_config.json")
_SHOWN_MAX = 3


def code_findings(site: Site, profile: Profile, plan: Plan) -> Iterator[Finding]:
    """Yield, of each checkpoint that is read here and has code of its own, whether it is run and who decides that."""
    lanes: dict[tuple[str, bool], list[str]] = {}
    for planned in plan.lanes:
        engine = site.engines(planned.engine)
        if engine.emulation(profile.lane(planned.lane)) is None and (
            engine.capabilities.weights_format is WeightsFormat.CHECKPOINT
        ):
            is_run = any(arg.replace("_", "-") == _CONSENT for arg in planned.launch.extra_args)
            lanes.setdefault((planned.launch.model, is_run), []).append(planned.lane)
    environments = {each.launch.model: {**os.environ, **each.launch.env} for each in plan.lanes}
    for (model, is_run), names in lanes.items():
        configs = _configs(model, environments[model])
        if code := sorted({file for config in configs.values() for file in _code(config)}):
            family = str(configs.get(_CONFIG, {}).get("model_type"))
            yield _finding(model, code, ", ".join(names), family, is_run=is_run)


def _finding(model: str, code: list[str], lanes: str, family: str, *, is_run: bool) -> Finding:
    shown = ", ".join(code[:_SHOWN_MAX]) + (f" and {len(code) - _SHOWN_MAX} more" if len(code) > _SHOWN_MAX else "")
    brings = f"{model} brings Python code of its own ({shown})"
    if is_run:
        return Finding(
            name=_NAME,
            verdict=Verdict.WARN,
            detail=f"{brings}, and the engines of {lanes} run it: extra_args has {_CONSENT}",
            hint="read it first, and pin the revision that was read; without the flag an engine takes its own class where it has one",
        )
    if is_counted(family):
        return Finding(
            name=_NAME, verdict=Verdict.OK, detail=f"{brings}; it is not run: engines have {family} themselves"
        )
    return Finding(
        name=_NAME,
        verdict=Verdict.WARN,
        detail=f"{brings}, and nothing is known here of an engine's own class for {family}: one that has none ends at its start",
        hint=f"where you trust the code, let {lanes} run it: launch: {{extra_args: [{_CONSENT}]}}",
    )


def _configs(model: str, environment: Mapping[str, str]) -> dict[str, dict[str, object]]:
    """Return those files of a model that may name code, as far as they are on this machine and can be read."""
    directory = Path(model)
    found = {}
    for name in _FILES:
        path = directory / name if directory.is_dir() else cached_file(model, name, environment)
        if path is not None and (read := _read(path)) is not None:
            found[name] = read
    return found


def _read(path: Path) -> dict[str, object] | None:
    """Return a file's section; None: there is none. What cannot be read is its engine's, or `plan`'s, to refuse."""
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return read if isinstance(read, dict) else None


def _code(config: dict[str, object]) -> Iterator[str]:
    """Yield the files that an `auto_map` names: "module.Class", "repository--module.Class", or several of them."""
    named = config.get("auto_map")
    for entry in named.values() if isinstance(named, dict) else ():
        for each in entry if isinstance(entry, list) else (entry,):
            if isinstance(each, str):
                repository, _, reference = each.rpartition("--")
                module = reference.rpartition(".")[0] or reference
                yield f"{repository}: {module}.py" if repository else f"{module}.py"

"""Renders a plan into launch configurations: values and templates in, text out."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError

from fleetctl import resources
from fleetctl.errors import ConfigError
from fleetctl.render import quoting
from fleetctl.render.lane import gather, rendered_engine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fleetctl.model.plan import Plan
    from fleetctl.model.profile import Profile
    from fleetctl.ports.engine import Engine

# Template -> file. A user's own directory of templates may replace any of them by its name.
FILES = {
    "argv/launch.sh.j2": "{lane}/launch.sh",
    "argv/launch.json.j2": "{lane}/launch.json",
    "env/engine.env.j2": "{lane}/engine.env",
    "systemd/engine.service.j2": "{lane}/fleetctl-{fleet}-{lane}.service",
    "compose/compose.yaml.j2": "{lane}/compose.yaml",
}
CONTAINER_FILES = frozenset({"compose/compose.yaml.j2"})  # for engines that come as an image
_FILTERS = {
    "comment": quoting.comment,
    "compose": quoting.compose_string,
    "compose_required": quoting.compose_required,
    "env_value": quoting.env_value,
    "json": quoting.json_value,
    "name": quoting.name,
    "sh": quoting.sh,
    "sh_command": quoting.sh_command,
    "sh_required": quoting.sh_required,
    "systemd": quoting.systemd_word,
    "systemd_command": quoting.systemd_command,
    "variable": quoting.variable,
    "yaml": quoting.yaml_string,
}


def render_plan(
    profile: Profile,
    plan: Plan,
    engine_of: Callable[[str], Engine],
    *,
    override: str = "",
    template_roots: tuple[Path, ...] | None = None,
) -> dict[str, str]:
    """Return every file of every lane by its relative path; the same values always give the same bytes.

    A lane that is emulated gets the files of the engine it plays. `override` names one engine for all lanes. Raises ConfigError for a value that cannot be
    written or a template that is wrong.
    """
    refuse_strangers(profile, plan)
    roots = template_roots or tuple(resources.roots("templates"))
    files: dict[str, str] = {}
    for index, lane_plan in enumerate(plan.lanes):
        spec = profile.lane(lane_plan.lane)
        lane = gather(
            profile,
            plan,
            index,
            rendered_engine(engine_of, spec, override),
            emulated=engine_of(spec.engine).emulation(spec) is not None,
        )
        for template, path in FILES.items():
            if not lane.image and template in CONTAINER_FILES:
                continue
            files[path.format(fleet=lane.fleet, lane=lane.lane)] = render_template(template, roots, lane=lane)
    return dict(sorted(files.items()))


def refuse_strangers(profile: Profile, plan: Plan) -> None:
    """Raise ConfigError where a plan has lanes that its profile has not."""
    strangers = {lane.lane for lane in plan.lanes} - {lane.name for lane in profile.lanes}
    if strangers:
        raise ConfigError(
            f"the plan has lanes that the profile has not: {', '.join(sorted(strangers))}",
            hint="make the plan anew: fleetctl plan PROFILE --out FILE",
        )


def render_template(name: str, roots: tuple[Path, ...], **values: object) -> str:
    """Return a template's text with these values. Raises ConfigError naming a template that is wrong."""
    try:
        return _environment(roots).get_template(name).render(values)
    except TemplateError as exc:
        where = getattr(exc, "filename", None) or name
        raise ConfigError(f"template {where}: {exc}", hint="mend it, or remove it to use the one shipped") from exc


# Compiled templates are kept with it; the loader sees by their times which have been changed.
@functools.lru_cache(maxsize=8)
def _environment(roots: tuple[Path, ...]) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(roots),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701  # no HTML here; `finalize` refuses whatever was not quoted for its file
        finalize=_only_quoted,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(_FILTERS)
    return environment


def _only_quoted(value: object) -> object:
    if isinstance(value, quoting.Quoted | int | StrictUndefined):
        return value  # StrictUndefined raises when printed, and names what is missing
    raise ConfigError(
        f"a template prints {value!r} without a quoting filter",
        hint=f"filters: {', '.join(sorted(_FILTERS))}",
    )

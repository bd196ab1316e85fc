"""What an instance does at its boot: the cloud-config of an order, without anything secret in it."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl import resources
from fleetctl.errors import ConfigError, ProviderError
from fleetctl_aws import tags
from fleetctl_aws.network import NOTICE_PORT
from fleetctl_aws.settings import IMAGE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fleetctl.model.node import NodeRequest
    from fleetctl_aws.settings import AwsSettings

SECRETS_FILE = "/run/fleetctl/secrets.env"
BYTES_MAX = 16 * 1024  # EC2's, before it is encoded
_SCRIPTS = ("expire", "given-up", "pull-image", "start-engine", "tell-notices")
_UNITS = (
    "fleetctl-engine@.service", "fleetctl-given-up@.service", "fleetctl-expiry.service", "fleetctl-expiry.timer",
    "fleetctl-notices.service",
)  # fmt: skip
# Of an instance that several replicas share.
_SHARED_SCRIPTS, _SHARED_UNITS = ("follow-tags",), ("fleetctl-slots.service", "fleetctl-slots.timer")


@dataclass(frozen=True, slots=True, kw_only=True)
class BootFile:
    """One file that cloud-init writes."""

    path: str
    permissions: str
    content: str


def cloud_config(request: NodeRequest, settings: AwsSettings, *, region: str, secrets_path: str) -> str:
    """Return a request's user data. `secrets_path` is where in Parameter Store its secrets are; empty: it has none.

    The same lane gives the same text whatever the replica: what is one instance's own stands in its tags. Raises
    ConfigError where it is more than EC2 takes, ProviderError without an image.
    """
    files = boot_files(request, settings, region=region, secrets_path=secrets_path)
    text = rendered(
        "cloud-config.yaml", fleet=request.fleet, lane=request.lane, expiry_s=f"{settings.expiry_s:.0f}s", files=files,
        is_shared=bool(request.gpu_indices),
    )  # fmt: skip
    if len(text.encode()) > BYTES_MAX:
        raise ConfigError(
            f"the user data of lane {request.lane} has {len(text.encode())} bytes, and EC2 takes {BYTES_MAX}",
            hint="give fewer or shorter launch.extra_args, or put them into an image of your own",
        )
    return text


def boot_files(request: NodeRequest, settings: AwsSettings, *, region: str, secrets_path: str) -> tuple[BootFile, ...]:
    """Return the scripts and units of an instance."""
    image, parts = _command(request, settings.image)
    values: dict[str, object] = {
        "fleet": request.fleet,
        "lane": request.lane,
        "image": image,
        "docker": [*_docker_options(request, has_secrets=bool(secrets_path)), *parts],
        "gpu_count": request.gpu_count,
        "port": request.port,
        "notice_port": NOTICE_PORT,
        "expires_tag": tags.EXPIRES,
        "intent_tag": tags.INTENT,
        "stopped_tag": tags.STOPPED,
        "expiry_s": f"{settings.expiry_s:.0f}",
        "region": region,
        "secrets_path": secrets_path,
    }
    is_shared = bool(request.gpu_indices)
    checks = ("check-gpus",) if request.gpu_count else ()
    scripts = (
        *_SCRIPTS,
        *checks,
        *(("read-secrets",) if secrets_path else ()),
        *(_SHARED_SCRIPTS if is_shared else ()),
    )
    units = (*_UNITS, *(_SHARED_UNITS if is_shared else ()))
    found = [
        BootFile(path=f"/opt/fleetctl/{name}", permissions="0755", content=rendered(name, **values))
        for name in scripts
    ]  # fmt: skip
    found += [
        BootFile(path=f"/etc/systemd/system/{name}", permissions="0644", content=rendered(name, **values))
        for name in units
    ]
    return tuple(found)


def secret_names(request: NodeRequest) -> tuple[str, ...]:
    """Return the variables of a request that are references to secrets (env:NAME, file:PATH)."""
    return tuple(sorted(name for name, value in request.env.items() if value.startswith(("env:", "file:"))))


def _docker_options(request: NodeRequest, *, has_secrets: bool) -> Iterator[str]:
    """Yield the options of `docker run`."""
    yield "--rm"
    # Engines over several GPUs exchange through shared memory, of which a container has 64 MB by default.
    yield from ("--ipc", "host", "--ulimit", "memlock=-1")
    if has_secrets:
        yield from ("--env-file", SECRETS_FILE)
    secret = set(secret_names(request))
    for name, value in sorted(request.env.items()):
        if name not in secret:
            yield from ("--env", f"{name}={value}")
    for mount in request.container.mounts if request.container else ():
        yield from ("--volume", f"{mount.source}:{mount.target}:{'ro' if mount.read_only else 'rw'}")


def _command(request: NodeRequest, image: str) -> tuple[str, tuple[str, ...]]:
    """Return the image, and the parts from --entrypoint on: in a publisher's image those behind its entry point."""
    container = request.container
    if container is not None:
        program, *before = container.entrypoint or ("",)
        entrypoint = ("--entrypoint", program) if program else ()
        return container.image, (*entrypoint, container.image, *before, *container.args)
    if not image:
        raise ProviderError(
            f"{request.replica_id}: its engine names no container image", hint=f"set {IMAGE} to one that holds it"
        )
    program, *arguments = request.argv
    # An engine of this interpreter's packages is started by the image's interpreter.
    program = "python3" if program == sys.executable else program
    return image, ("--entrypoint", program, image, *arguments)


def rendered(name: str, **values: object) -> str:
    """Return a template of templates/aws with these values. Raises ConfigError."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError

    path = resources.find("templates", f"aws/{name}.j2")
    environment = Environment(
        loader=FileSystemLoader(path.parent), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True, autoescape=False,  # noqa: S701  # shell, units and YAML: every value is quoted by its filter
    )  # fmt: skip
    environment.filters |= {
        "sh": shlex.quote,
        "sh_command": _command_lines,
        "comment": _comment,
        "json_word": _json_word,
    }
    try:
        return environment.get_template(path.name).render(**values)
    except TemplateError as exc:
        raise ConfigError(f"{path}: {exc}", hint="mend it, or remove it to have the packaged one") from exc


def _command_lines(parts: Iterable[str]) -> str:
    return " \\\n    ".join(shlex.quote(word) for word in parts)


def _json_word(text: str) -> str:
    """Return a string of JSON, which is one of YAML too."""
    return json.dumps(text)


def _comment(text: str) -> str:
    return "".join(character for character in text if character.isprintable() and character not in "%\\")

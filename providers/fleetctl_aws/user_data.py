"""What an instance does at its boot: the cloud-config of an order, without anything secret in it."""

from __future__ import annotations

import base64
import gzip
import io
import json
import re
import shlex
import sys
import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleetctl import resources
from fleetctl.errors import ConfigError, ProviderError
from fleetctl.model.node import Mount
from fleetctl_aws import tags
from fleetctl_aws.network import NOTICE_PORT
from fleetctl_aws.settings import IMAGE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fleetctl.model.node import NodeRequest
    from fleetctl_aws.settings import AwsSettings

SECRETS_FILE = "/run/fleetctl/secrets.env"
BYTES_MAX = 16 * 1024  # EC2's, before it is encoded
_LONG_CHARS = 1_000
# A terabyte at 300 MB/s; control.start_timeout gives up a start before.
_WEIGHTS_DEADLINE_S = 3600
_SCRIPTS = ("clear-slot", "expire", "given-up", "note-end", "pull-image", "start-engine", "tell-notices")
_UNITS = (
    "fleetctl-engine@.service", "fleetctl-given-up@.service", "fleetctl-expiry.service", "fleetctl-expiry.timer",
    "fleetctl-notices.service",
)  # fmt: skip
# Of an instance that several replicas share.
_SHARED_SCRIPTS, _SHARED_UNITS = ("follow-tags",), ("fleetctl-slots.service", "fleetctl-slots.timer")


_BEGIN, _ARCHIVE = "/opt/fleetctl/begin", "/opt/fleetctl/files.tar"
_LOG_UNIT = "fleetctl-logs.service"
_COMMENT_LINES = re.compile(r"^[ \t]*#(?!!).*\n", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class BootFile:
    """One file that cloud-init writes."""

    path: str
    permissions: str
    content: str

    @property
    def packed(self) -> str:
        """Return its content compressed and in base64, where it is long; empty: it is written as it is."""
        if len(self.content) < _LONG_CHARS:
            return ""
        # Without a time in it: the same order is the same text.
        return base64.b64encode(gzip.compress(self.content.encode(), mtime=0)).decode()


def cloud_config(request: NodeRequest, settings: AwsSettings, *, region: str, secrets_path: str) -> str:
    """Return a request's user data. `secrets_path` is where in Parameter Store its secrets are; empty: it has none.

    The same lane gives the same text whatever the replica: what is one instance's own stands in its tags. Raises
    ConfigError where it is more than EC2 takes, ProviderError without an image.
    """
    files = boot_files(request, settings, region=region, secrets_path=secrets_path)
    is_shared, ships_logs = bool(request.gpu_indices), bool(settings.logs)

    def text_of(parts: tuple[BootFile, ...], commands: Iterable[tuple[str, ...]]) -> str:
        return rendered(
            "cloud-config.yaml", fleet=request.fleet, lane=request.lane, expiry_s=f"{settings.expiry_s:.0f}s", files=parts,
            commands=commands,
        )  # fmt: skip

    text = text_of(files, _commands(is_shared=is_shared, ships_logs=ships_logs))
    if len(text.encode()) > BYTES_MAX:
        # As one file without comments they compress to half of it; who reads it has less to see.
        bare = boot_files(request, settings, region=region, secrets_path=secrets_path, is_bare=True)
        whole = (*bare, begin_file(is_shared=is_shared, ships_logs=ships_logs))
        packed = BootFile(path=_ARCHIVE, permissions="0644", content=tar_of(whole).decode())
        text = text_of((packed,), (("tar", "-xf", _ARCHIVE, "-C", "/", "--no-same-owner"), (_BEGIN,)))
    if len(text.encode()) > BYTES_MAX:
        raise ConfigError(
            f"the user data of lane {request.lane} has {len(text.encode())} bytes, and EC2 takes {BYTES_MAX}",
            hint="give fewer or shorter launch.extra_args, or put them into an image of your own",
        )
    return text


def boot_files(
    request: NodeRequest, settings: AwsSettings, *, region: str, secrets_path: str, is_bare: bool = False
) -> tuple[BootFile, ...]:
    """Return the scripts and units of an instance; bare ones have no comments."""
    image, parts = _command(request, request.image or settings.image)
    logs_bucket, logs_prefix = logs_place(settings, request.owner, request.fleet)
    values: dict[str, Any] = {
        "is_bare": is_bare,
        "fleet": request.fleet,
        "lane": request.lane,
        "image": image,
        "docker": [*_docker_options(request, has_secrets=bool(secrets_path)), *parts],
        "gpu_count": request.gpu_count,
        "port": request.port,
        "notice_port": NOTICE_PORT,
        "health_path": request.health_path,
        "expires_tag": tags.EXPIRES,
        "intent_tag": tags.INTENT,
        "stopped_tag": tags.STOPPED,
        "replica_tag": tags.REPLICA,
        "expiry_s": f"{settings.expiry_s:.0f}",
        "region": region,
        "secrets_path": secrets_path,
        "weights": request.weights,
        "weights_deadline_s": _WEIGHTS_DEADLINE_S,
        "logs_bucket": logs_bucket,
        "logs_prefix": logs_prefix,
    }
    is_shared = bool(request.gpu_indices)
    checks = ("check-gpus",) if request.gpu_count else ()
    scripts = (
        *_SCRIPTS,
        *checks,
        *(("read-secrets",) if secrets_path else ()),
        *(("fetch-weights",) if request.weights else ()),
        *(_SHARED_SCRIPTS if is_shared else ()),
        *(("ship-logs",) if logs_bucket else ()),
    )
    units = (*_UNITS, *(_SHARED_UNITS if is_shared else ()), *((_LOG_UNIT,) if logs_bucket else ()))
    found = [
        BootFile(path=f"/opt/fleetctl/{name}", permissions="0755", content=rendered(name, **values))
        for name in scripts
    ]  # fmt: skip
    found += [
        BootFile(path=f"/etc/systemd/system/{name}", permissions="0644", content=rendered(name, **values))
        for name in units
    ]
    return tuple(found)


def begin_file(*, is_shared: bool, ships_logs: bool) -> BootFile:
    """Return the script that does what cloud-init does after it has written an instance's files."""
    text = rendered("begin", commands=_commands(is_shared=is_shared, ships_logs=ships_logs))
    return BootFile(path=_BEGIN, permissions="0755", content=text)


def tar_of(files: Iterable[BootFile]) -> bytes:
    """Return a tar of files; the same files give the same bytes."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for file in files:
            content = file.content.encode()
            entry = tarfile.TarInfo(file.path.lstrip("/"))
            entry.size, entry.mode = len(content), int(file.permissions, 8)
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def logs_place(settings: AwsSettings, owner: str, fleet: str) -> tuple[str, str]:
    """Return the bucket that a fleet's logs are shipped to, and how their keys begin; both empty: none are."""
    if not settings.logs:
        return "", ""
    bucket, _, prefix = settings.logs.removeprefix("s3://").partition("/")
    return bucket, "/".join((*filter(None, prefix.split("/")), tags.fleet_name(owner, fleet), ""))


def _commands(*, is_shared: bool, ships_logs: bool) -> Iterator[tuple[str, ...]]:
    """Yield what an instance does once its files are there."""
    yield ("systemctl", "daemon-reload")
    yield ("systemctl", "enable", "--now", "fleetctl-expiry.timer")
    logs = (_LOG_UNIT,) if ships_logs else ()
    for name in ("fleetctl-notices.service", "fleetctl-engine@0.service", *logs):
        yield ("systemctl", "enable", "--now", "--no-block", name)
    if is_shared:
        yield ("systemctl", "enable", "--now", "fleetctl-slots.timer")


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
    mounts = request.container.mounts if request.container else ()
    if request.container is None and request.weights is not None:
        directory = request.weights.directory
        mounts = (Mount(source=directory, target=directory, read_only=True),)
    for mount in mounts:
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


def rendered(name: str, *, is_bare: bool = False, **values: object) -> str:
    """Return a template of templates/aws with these values; a bare one without the template's lines of comment. Raises ConfigError."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined, TemplateError

    path = resources.find("templates", f"aws/{name}.j2")

    def load(name: str) -> str:
        # Of the template alone: a value may have lines that look like comments.
        text = (path.parent / name).read_text(encoding="utf-8")
        return _COMMENT_LINES.sub("", text) if is_bare else text

    environment = Environment(
        loader=FunctionLoader(load), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
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

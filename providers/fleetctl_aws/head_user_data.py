"""What a head does at its boot: its settings, units and sshd, without anything secret in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fleetctl.environment import ON_HEAD, STATE_URL
from fleetctl.errors import ConfigError
from fleetctl.model.head import SSH_PORT
from fleetctl_aws.settings import SOURCE
from fleetctl_aws.user_data import BYTES_MAX, BootFile, rendered

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.model.head import HeadRecord

HOME = "/opt/fleetctl"
HOST_KEY = "/etc/fleetctl/ssh_host_ed25519_key"
# A package index that is slow and a Python that has to be installed first take minutes.
_BACKSTOP_S = 1800
_READ_LOG = f"XDG_STATE_HOME=/var/lib {HOME}/venv/bin/python -m fleetctl_host_node.on_head.read_log"
_BOOT = Path(__file__).parent / "on_head" / "boot.py"


def head_user_data(
    order: HeadRecord, *, region: str, group: str, named_profile: str, endpoints: Mapping[str, str]
) -> str:
    """Return a head's cloud-config. `endpoints` are AWS's own where they are not the usual ones. Raises ConfigError."""
    bucket, prefix = state_place(order.state_url)
    settings = {
        "owner": order.owner, "fleet": order.fleet, "number": order.number, "program": order.program,
        "bucket": bucket, "key": program_key(prefix, order), "region": region, "named_profile": named_profile,
        "s3_endpoint": endpoints.get("AWS_ENDPOINT_URL_S3") or endpoints.get("AWS_ENDPOINT_URL", ""),
        "home": HOME, "host_key": HOST_KEY,
        "environment": {
            "HOME": "/var/lib/fleetctl", "XDG_STATE_HOME": "/var/lib", STATE_URL: order.state_url, ON_HEAD: "1",
            "AWS_REGION": region, "AWS_DEFAULT_REGION": region, SOURCE: group, **endpoints,
        },
    }  # fmt: skip
    text = rendered("head-cloud-config.yaml", fleet=order.fleet, backstop_s=_BACKSTOP_S, files=_files(order, settings))
    if len(text.encode()) > BYTES_MAX:
        raise ConfigError(
            f"the user data of {order.fleet}'s head has {len(text.encode())} bytes, and EC2 takes {BYTES_MAX}",
            hint="this is a bug in fleetctl; please report it",
        )
    return text


def state_place(url: str) -> tuple[str, str]:
    """Return bucket and prefix of a state's URL. Raises ConfigError for one that is not on S3."""
    parts = urlsplit(url)
    if parts.scheme != "s3" or not parts.netloc:
        raise ConfigError(
            f"the state is at {url or 'this machine'}, where no head reads it",
            hint=f"export {STATE_URL}=s3://BUCKET/PREFIX (docs/shared-state.md)",
        )
    return parts.netloc, parts.path.strip("/")


def program_key(prefix: str, order: HeadRecord) -> str:
    """Return where an order's archive lies in its bucket."""
    return f"{programs_prefix(prefix, order.fleet)}{order.program}.zip"


def programs_prefix(prefix: str, fleet: str) -> str:
    """Return where a fleet's archives lie."""
    return f"{prefix}/heads/{fleet}/".lstrip("/")


def _files(order: HeadRecord, settings: Mapping[str, object]) -> list[BootFile]:
    values: dict[str, Any] = {"fleet": order.fleet, "port": SSH_PORT, "host_key": HOST_KEY}
    # `restrict` allows nothing; forwarding alone is allowed again.
    key = f'restrict,port-forwarding,command="{_READ_LOG}" {order.public_key}\n'
    found = [
        BootFile(path=f"{HOME}/boot.py", permissions="0644", content=_BOOT.read_text()),
        BootFile(path="/etc/fleetctl/head.json", permissions="0644", content=json.dumps(settings)),
        BootFile(path="/etc/fleetctl/authorized_keys", permissions="0600", content=key),
        BootFile(path="/etc/fleetctl/sshd_config", permissions="0600", content=rendered("sshd_config", **values)),
    ]
    found += [
        BootFile(path=f"/etc/systemd/system/{name}", permissions="0644", content=rendered(name, **values))
        for name in ("fleetctl-head.service", "fleetctl-sshd.service")
    ]
    return found

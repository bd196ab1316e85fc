"""What a profile says to its head, as this provider takes it."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.model.provider_setting import SettingValue

DEFAULT_TYPE = "t3.small"
# Canonical publishes the newest one's id here.
DEFAULT_AMI = "ssm:/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"


def is_public(settings: Mapping[str, SettingValue]) -> bool:
    """Whether a head is to be reached from addresses beyond private networks."""
    return any(ipaddress.ip_network(each, strict=False).is_global for each in open_to(settings))


def open_to(settings: Mapping[str, SettingValue]) -> tuple[str, ...]:
    """Return the addresses that may reach a head beside its VPC's."""
    given = settings.get("open_to", ())
    return given if isinstance(given, tuple) else tuple(str(given).split())

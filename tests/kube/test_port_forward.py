"""A port-forward that leads nowhere."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from fleetctl.errors import UnavailableError
from fleetctl_kubernetes.connection import ApiTarget, ClusterConnection
from fleetctl_kubernetes.port_forward import PortForward

NOBODY = ApiTarget(url="http://127.0.0.1:1", headers={}, tls=None, server_name=None, proxy=None)


def test_one_that_failed_is_closed_at_whatever_moment_its_thread_ends() -> None:
    connection = cast("ClusterConnection", SimpleNamespace(target=lambda: NOBODY))
    for _ in range(100):  # one in six met a loop that had just been closed
        forward = PortForward(connection, "there", "pod", 80)
        with pytest.raises(UnavailableError, match="no port-forward"):
            forward.__enter__()
        forward.__exit__()

"""A user's home with a cloud's account, whose instances boot: engines are reached from this machine."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.aws.cloud.client import running_cloud
from tests.e2e.fleet import Home
from tests.living_profiles import placed_profile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.aws.cloud.client import Cloud


def shared_instance_profile(name: str, *, replicas: str = "min: 2, max: 2", cap_usd: int = 60) -> str:
    """Return a profile whose replicas of two H100s share instances that have eight, all of them spot; PORT is its gateway's."""
    return placed_profile(
        name,
        provider="aws",
        lane="chat",
        replicas=replicas,
        ttft="2s",
        output_tokens="p50: 32, p99: 100",
        keys=f"""\
    spot: all
    launch: {{tensor_parallel: 2}}
capacity: {{gpus: [H100], max_nodes: 2, max_cost_per_hour: ${cap_usd}}}
gateway: {{host: 127.0.0.1, port: PORT}}
""",
    )


@contextmanager
def cloud_of_shared_instances() -> Iterator[Cloud]:
    """Give a cloud whose instances boot, with spot instances of eight H100s at $20 an hour."""
    with running_cloud("--boot") as running:
        running.price("p5.48xlarge", "spot", 20.0)
        yield running


@contextmanager
def booted_home(cloud: Cloud, fleet: str) -> Iterator[Home]:
    """Give one; at the end its fleet is taken down, and no process of it may be left."""
    root = Path(tempfile.mkdtemp(prefix="fc-"))
    variables = {
        **cloud.environment,
        # By its digest: no registry is asked.
        "FLEETCTL_AWS_IMAGE": f"example.com/emulator@sha256:{'e' * 64}",
        "FLEETCTL_AWS_GATEWAY_SOURCE": f"{cloud.facts['host']}/32",
    }
    home = Home(root=root, env=variables)
    yield home
    home.run("down", fleet, "--yes")
    left = home.kill_everything()
    shutil.rmtree(root, ignore_errors=True)
    assert left == []

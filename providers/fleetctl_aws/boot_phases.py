"""What is usual of an instance's start, and where to look when a phase takes longer."""

from __future__ import annotations

from typing import Final

from fleetctl.model.boot import WEIGHTS, BootPhase
from fleetctl_aws.network import NOTICE_PORT

_CONSOLE = "aws ec2 get-console-output --latest --output text --instance-id {node}"
# An instance is running within some 30 s; cloud-init, docker and the NVIDIA driver of the deep learning images take two
# minutes on large ones. Never measured by us on AWS: once replicas of a lane have started, theirs are what is usual.
BOOT_PHASES: Final = (
    BootPhase(name="launching", usual_s=120.0, look="aws ec2 describe-instance-status --include-all-instances --instance-ids {node}"),
    BootPhase(
        name="user-data", usual_s=300.0,
        look=f"{_CONSOLE}; and whether this controller reaches the instance's port {NOTICE_PORT} through its security group",
    ),
    BootPhase(name="image", usual_s=600.0, look=f"the registry's rate limits and the subnet's way out (NAT, endpoints); {_CONSOLE}"),
    BootPhase(
        name=WEIGHTS, usual_s=900.0,
        look=f"the instance's network and its way to the hub or to S3 (NAT, endpoints): fleetctl logs {{replica}} --fleet {{fleet}}; {_CONSOLE}",
    ),
    BootPhase(name="gpu-check", usual_s=180.0, look=f"whether CUDA works there (driver, Xid errors): {_CONSOLE}"),
)  # fmt: skip

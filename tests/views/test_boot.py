"""How far a start has come, in words."""

from __future__ import annotations

import pytest

from fleetctl.model.node import BootProgress
from fleetctl.views.boot import boot_text, coarse_boot_text

GIB = 2**30


@pytest.mark.parametrize(
    ("boot", "text", "coarse"),
    [
        (BootProgress(phase="image"), "image", "image"),
        (BootProgress(phase="image", fraction=0.4), "image 40 %", "image 40 %"),
        (BootProgress(phase="weights", done_bytes=3 * GIB), "weights 3GiB", "weights"),
        (
            BootProgress(
                phase="weights", fraction=0.25, done_bytes=4 * GIB, total_bytes=16 * GIB, bytes_per_s=0.1 * GIB
            ),
            "weights 4GiB of 16GiB, 102MiB/s, 2m left",
            "weights 20 % of 16GiB",
        ),
    ],
)
def test_a_download_has_its_size_its_rate_and_what_is_left(boot: BootProgress, text: str, coarse: str) -> None:
    assert boot_text(boot) == text
    assert coarse_boot_text(boot) == coarse

"""What is shown of a fleet's head: which machine, from which image, with which fleetctl."""

from __future__ import annotations

import json

from fleetctl.cli.fleet_views import status_view
from fleetctl.cli.output import Format, text_of
from fleetctl.model.head import HeadStatus
from fleetctl.model.pinned_image import PinnedImage
from fleetctl.testing import samples
from fleetctl.tui.header_view import Freshness, header_lines
from fleetctl.views.canvas import PLAIN, Canvas
from tests.tui.fleets import busy

HEAD = HeadStatus(
    number=2,
    image=PinnedImage(source="ssm:/a/parameter", id="ami-0a1b"),
    machine_id="i-0a1b",
    address="10.0.0.4",
    version="0.1.0",
    up_at=samples.EPOCH,
)
LINE = "i-0a1b at 10.0.0.4, number 2, fleetctl 0.1.0, from ami-0a1b (ssm:/a/parameter)"


def test_text_json_and_the_live_view_name_the_head_with_its_image_and_version() -> None:
    status = busy(head=HEAD, reason="", lanes=(), replicas=())
    view = status_view(status)
    assert f"Head     {LINE}\n" in text_of(view, Format.TABLE)
    found = json.loads(text_of(view, Format.JSON))["head"]
    assert (found["number"], found["machine_id"], found["version"]) == (2, "i-0a1b", "0.1.0")
    assert found["image"] == {"source": "ssm:/a/parameter", "id": "ami-0a1b"}
    lines = header_lines(status, Canvas(width=240, marks=PLAIN), now=status.at, freshness=Freshness(is_live=True))
    assert LINE in "".join(text for text, _ in lines[1])


def test_of_a_fleet_without_a_head_nothing_is_said() -> None:
    assert "\nHead" not in text_of(status_view(busy()), Format.TABLE)

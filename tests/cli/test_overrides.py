"""`scale`, `shed`, `drain` and `interrupt`, on fakes."""

from __future__ import annotations

import pytest

from fleetctl.cli.main import main
from fleetctl.testing import samples
from tests.sites import FakeSite


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (("scale", "short=3"), 0, "demo/short: replicas automatic -> 3\n"),
        (
            ("scale", "short", "3", "--dry-run"),
            0,
            "demo/short: replicas automatic -> 3 (dry run, nothing was changed)\n",
        ),
        (("scale", "short", "auto"), 0, "demo/short: replicas automatic, unchanged\n"),
        (("scale", "short"), 3, "is not a number of replicas"),
        (("scale", "short=3", "long=3"), 3, "'long=3' is too much; nothing was changed"),
        (("scale", "short=3", "4"), 3, "one lane at a time: fleetctl scale short=3"),
        (("scale", "short=99"), 3, "takes 1 to 8 replicas"),
        (("shed", "long", "--step", "cap-tokens"), 0, "demo/long: ladder step automatic -> cap-tokens\n"),
        (("shed", "long"), 2, "pass --yes"),
        (("shed", "long", "--yes"), 0, "demo/long: ladder step automatic -> shed\n"),
        (("shed", "long", "--step", "half"), 3, "steps: normal, pause-batch"),
        (("drain", "nobody"), 8, "no live replica or node 'nobody'"),
        (("interrupt", "nobody", "--notice", "soon"), 3, "is not a duration"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_the_command_line_overrides(argv, code, message, capsys):
    fakes = FakeSite()
    fakes.store.put_fleet(samples.profile(), samples.plan(), now=samples.EPOCH)
    assert main(argv, site=fakes.site) == code
    captured = capsys.readouterr()
    assert message in (captured.out if code == 0 else captured.err)


def test_a_question_off_a_terminal_is_wrong_usage(fleetctl, dead_fleet):
    ran = fleetctl("drain", "r1")
    assert (ran.code, "pass --yes" in ran.err) == (2, True)

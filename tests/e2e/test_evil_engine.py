"""A whole fleet beside an engine that breaks every rule: others are served, memory stays, and no face shows its escapes."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from tests.e2e.evil_fleet import FORBIDDEN, EvilFleet, Received, devils

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SEED = 20261122
GROWTH_KIB_MAX = 100 * 1024
MUCH = 32 * 1024 * 1024
# Those that take the stall limit to end are left to the bench, but one.
CHATS = (
    "endless-headers", "endless-status", "endless-body", "endless-plain-body", "endless-error", "endless-trailers",
    "interim-flood", "poison-header", "poison-error", "poison-raw-error", "poison-refusal", "poison-reason", "poison-event",
    "short-length", "long-length", "two-lengths", "slow-body", "redirect", "gzip-bomb", "http2", "huge-usage",
    "huge-whole-usage", "deep", "model-name", "nothing", "forged-headers", "log-line",
)  # fmt: skip


@pytest.fixture(scope="module")
def evil() -> Iterator[EvilFleet]:
    with devils(much=MUCH) as fleet:
        yield fleet


def test_everybody_else_is_served_and_memory_stays(evil: EvilFleet) -> None:
    healthy, wrong_keys = Received(), Received()
    with evil.watched_memory() as grown, evil.healthy_clients(healthy), evil.wrong_keys(wrong_keys):
        received = evil.campaign(random.Random(SEED), list(CHATS))
    assert healthy.wrong == []
    assert healthy.counts["right"] > 50
    assert wrong_keys.wrong == []
    assert wrong_keys.counts["401"] > 10
    assert max(grown.values()) < GROWTH_KIB_MAX, grown
    assert evil.visits == 0, "a redirect was followed"
    refused = [what for what in received.counts if re.match("(redirect|gzip-bomb|http2|two-lengths) 200", what)]
    assert refused == []
    done = evil.done()
    assert len([name for name in CHATS if done[f"chat {name}"]]) > len(CHATS) * 0.8, done


def test_no_face_shows_a_byte_that_moves_a_terminal(evil: EvilFleet) -> None:
    evil.send_chat("evil:die", "evil")
    deadline_s = SYSTEM_CLOCK.monotonic_s() + 20
    while "died" not in evil.home.run("events").out and SYSTEM_CLOCK.monotonic_s() < deadline_s:
        SYSTEM_CLOCK.sleep_blocking(0.5)
    shown = evil.shown()
    assert {name: FORBIDDEN.findall(text)[:5] for name, text in shown.items() if FORBIDDEN.search(text)} == {}
    assert any("pwned" in text for text in shown.values()), "nothing of the engine's was shown at all"
    logs = evil.on_a_terminal("logs", "r1", seconds=3.0)
    assert FORBIDDEN.findall(logs.replace("\r\n", "\n")) == []
    top = evil.on_a_terminal("top", begins_with="devils")
    assert "devils" in top
    assert "\x1b]0;pwned" not in top
    assert re.findall("[\x00\x80-\x9f\u202e\u2028\u2066]", top) == []

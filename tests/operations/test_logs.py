"""What is read of a log, and of whose."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace

import pytest

from fleetctl.errors import ConfigError, EngineStartError, NotFoundError
from fleetctl.model.engine_fault import EngineFault, EngineFaultKind
from fleetctl.model.log import LogChunk
from fleetctl.operations import logs
from fleetctl.operations.readiness import failed_starts, refuse_final
from fleetctl.ports.provider import ProviderCapabilities
from fleetctl.testing import samples


def test_the_last_lines_are_shown_and_then_what_comes(site, fleet, host):
    host.written[fleet, "gateway"] = "one\ntwo\nthree\n"
    read = logs.log_of(site, fleet, "gateway")
    text, end = logs.last_lines(read, 2)
    assert text == "two\nthree\n"
    host.written[fleet, "gateway"] += "four\n"
    assert next(logs.follow(site, read, end)) == "four\n"


def local(at: datetime, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    return at.astimezone().strftime(form)


def test_only_what_was_written_since_an_instant_is_left_with_what_belongs_to_it():
    old, new = samples.EPOCH - timedelta(minutes=5), samples.EPOCH
    text = (
        f"{local(old)},319 INFO fleetctl.controller one\n  more of it\n"
        f"INFO {local(new, '%m-%d %H:%M:%S')} [core.py:12] two\nTraceback\n"
    )
    kept, has_times = logs.lines_since(text, samples.EPOCH - timedelta(minutes=1))
    assert (kept.splitlines()[1], kept.count("\n"), has_times) == ("Traceback", 2, True)
    assert logs.lines_since(text, samples.EPOCH - timedelta(hours=1))[0] == text
    assert logs.lines_since(text, samples.EPOCH + timedelta(seconds=1)) == ("", True)


def test_a_log_without_times_is_left_whole_and_said_to_be():
    text = "ready on 99-99 12:30:00\nshard 11/22\n"
    assert logs.lines_since(text, samples.EPOCH) == (text, False)


def test_an_unknown_name_is_answered_with_those_there_are(site, fleet, store):
    store.begin_replica(samples.replica("r7"), samples.node_request(), now=samples.EPOCH)
    with pytest.raises(NotFoundError, match="no replica 'gatewy' \\(did you mean 'gateway'") as caught:
        logs.log_of(site, fleet, "gatewy")
    assert caught.value.hint == "known: r7, gateway, controller"


def test_a_provider_without_logs_says_so(site, fleet, store):
    store.begin_replica(samples.replica("r7"), samples.node_request(), now=samples.EPOCH)
    with pytest.raises(ConfigError, match="keeps no logs"):
        logs.log_of(site, fleet, "r7")


class CountedLogs:
    """Logs of which each reading costs a command on a machine."""

    def __init__(self) -> None:
        self.readings = 0

    async def read_log(self, *, owner, fleet, replica_id, after, bytes_max):
        self.readings += 1
        return LogChunk(text="one\n" if replica_id != "r9" else "", end=4)


def test_one_look_at_a_replica_on_record_is_one_reading(site, fleet, store):
    store.begin_replica(samples.replica("r7"), samples.node_request(), now=samples.EPOCH)
    counted = CountedLogs()
    kept = replace(
        site, providers=lambda _: SimpleNamespace(name="local", capabilities=ProviderCapabilities(logs=counted))
    )
    assert logs.last_lines(logs.log_of(kept, fleet, "r7"), 10) == ("one\n", 4)
    assert counted.readings == 1
    assert logs.last_lines(logs.log_of(kept, fleet, "r8"), 10) == ("one\n", 4)
    with pytest.raises(NotFoundError):
        logs.log_of(kept, fleet, "r9")


def test_an_engine_that_cannot_start_ends_the_wait_with_its_words(fakes, fleet):
    fakes.start_controller(fleet)
    seen = fakes.ready_status(fleet)
    fault = EngineFault(kind=EngineFaultKind.ARGUMENTS, line="error: unrecognized arguments: --x")
    stuck = replace(seen, lanes=(replace(seen.lanes[0], ready=0, engine_fault=fault, cannot_start=True),))
    refuse_final(seen, generation=1)
    unknown = EngineFault(kind=EngineFaultKind.UNKNOWN, line="it broke")
    for failed, ends in ((2, False), (3, True)):
        retried = replace(seen, lanes=(replace(seen.lanes[0], ready=0, engine_fault=unknown, failed_starts=failed),))
        if ends:
            with pytest.raises(EngineStartError, match=r"lane short: 3 starts in a row failed and none .*: it broke"):
                refuse_final(retried, generation=1)
        else:
            refuse_final(retried, generation=1)
    # The provider's refusals are not the engine's failures.
    refuse_final(replace(seen, lanes=(replace(seen.lanes[0], ready=0, failed_starts=9),)), generation=1)
    refuse_final(stuck, generation=2)  # that is of an older record
    with pytest.raises(EngineStartError, match="lane short: the engine cannot start: error: unrecognized arguments"):
        refuse_final(stuck, generation=1)


def test_starts_that_fail_and_are_tried_again_are_told_with_their_number(fakes, fleet):
    fakes.start_controller(fleet)
    seen = fakes.ready_status(fleet)
    fault = EngineFault(kind=EngineFaultKind.KILLED, line="its process was killed by signal 9 (SIGKILL)")
    trying = replace(seen, lanes=(replace(seen.lanes[0], ready=0, engine_fault=fault, failed_starts=2),))
    assert failed_starts(seen, generation=1) == []
    assert failed_starts(trying, generation=2) == []  # that is of an older record
    assert failed_starts(trying, generation=1) == [
        "lane short: 2 starts in a row failed: its process was killed by signal 9 (SIGKILL)"
    ]

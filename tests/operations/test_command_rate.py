from __future__ import annotations

import pytest

from fleetctl.errors import DisruptionLimitError
from fleetctl.operations import replicas
from fleetctl.operations.command_rate import COMMANDS_MAX
from fleetctl.testing import samples


def test_a_loop_that_drains_is_stopped_until_a_minute_has_passed_or_it_is_forced(controlled, site, store, clock):
    for number in range(COMMANDS_MAX + 3):
        store.put_replica(samples.replica(f"r{number}", lane="short"))
    for number in range(COMMANDS_MAX):
        replicas.drain(site, "demo", f"r{number}")
    with pytest.raises(DisruptionLimitError, match="10 times within 60s"):
        replicas.drain(site, "demo", f"r{COMMANDS_MAX}")
    assert replicas.drain(site, "demo", f"r{COMMANDS_MAX}", dry_run=True).id == f"r{COMMANDS_MAX}"
    replicas.drain(site, "demo", f"r{COMMANDS_MAX}", force=True)
    clock.sleep_blocking(61.0)
    replicas.drain(site, "demo", f"r{COMMANDS_MAX + 1}")

"""A proof is the same by whatever number of processes, and they end with the command."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from fleetctl import os_signals
from fleetctl.operations.breaking_burst import with_breaking_bursts
from fleetctl.operations.planning import NO_PROOF, plan_profile
from fleetctl.operations.proving import Laboratory, prove
from fleetctl.testing import samples
from tests.operations.test_proving import bursty_rows, searched

if TYPE_CHECKING:
    from fleetctl.operations.proof_figures import SimulatedEvidence
    from fleetctl.operations.site import Site


def test_the_same_plan_comes_of_one_process_and_of_several() -> None:
    rows = bursty_rows(seconds=900.0)
    found = searched(rps=12, rows=rows)
    plans = []
    for processes in (1, 2, 5):
        plan = prove(found, rows, requests=2200, processes=processes)
        plans.append(with_breaking_bursts(plan, found.profile, rows, {}, requests=1500, processes=processes))
    proof = plans[0].lanes[0].proof
    assert proof is not None
    assert proof.burst is not None
    assert "windows" in plans[0].proof
    assert plans[0] == plans[1] == plans[2]


def test_ctrl_c_ends_a_simulation_where_it_is(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(NO_PROOF)
    simulate, gone_on = Laboratory.simulated, []

    def interrupted(self: Laboratory, counts: dict[str, int], slow: dict[str, float]) -> dict[str, SimulatedEvidence]:
        os.kill(os.getpid(), signal.SIGINT)
        gone_on.append(self)
        return simulate(self, counts, slow)

    monkeypatch.setattr(Laboratory, "simulated", interrupted)
    with pytest.raises(KeyboardInterrupt), os_signals.installed():
        os_signals.run(plan_profile(site, samples.profile(), proves=True, names_burst=True))
    assert not gone_on

"""The codec under several threads at once, in a process of its own: what is wrong there ends the interpreter."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """\
import sys, threading
sys.setswitchinterval(1e-7)
import msgspec
from fleetctl import codec
from fleetctl.model.desired import Desired
from fleetctl.model.plan import Plan
from fleetctl.model.replica import Replica
from fleetctl.model.status import FleetStatus

KINDS = (FleetStatus, Desired, Replica, Plan)
TREE = {"fleet": "x", "replicas": [{}], "lanes": [{}], "profile": {"lanes": [{}]}, "plan": {"lanes": [{}]}}
together = threading.Barrier(6)

def decode(kinds):
    together.wait()
    for kind in kinds:
        for read in (lambda: codec.decode(kind, msgspec.json.encode(TREE)), lambda: codec.from_plain(kind, TREE)):
            try:
                read()
            except msgspec.ValidationError:
                pass

threads = [threading.Thread(target=decode, args=(KINDS[::1 if n % 2 else -1],)) for n in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.parametrize("turn", range(3))
def test_threads_that_meet_a_kind_for_the_first_time_together_all_decode_it(turn):
    del turn  # one process in ten came through before kinds were learned one at a time
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=30, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")

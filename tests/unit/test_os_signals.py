"""Ctrl-C in the places where Python loses it: in finalizers, callbacks and event loops, at any instant."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

# Each says what it is that ends it; one that outlives its signal says "lost", a minute later at the latest.
CASES = """
import asyncio, io, os, random, signal, sys, threading, time, weakref
from fleetctl import os_signals

INT = lambda: signal.raise_signal(signal.SIGINT)

def wait():
    end = time.monotonic() + 60
    while time.monotonic() < end:
        time.sleep(0.01)
    return "lost"

class Finalized:
    def __del__(self): INT()

class Freed(io.RawIOBase):
    def close(self):
        INT()
        super().close()

def finalizer():
    Finalized()
    return wait()

def freed_file():  # as http.client's answers are: closed by Python code as they are freed
    Freed()
    return wait()

def weak_reference():
    class Thing: pass
    thing = Thing()
    seen = weakref.ref(thing, lambda _: INT())
    del thing
    return wait()

def terminated_in_a_finalizer():
    with os_signals.taking({signal.SIGTERM: SystemExit}):
        class Ended:
            def __del__(self): signal.raise_signal(signal.SIGTERM)
        Ended()
        return wait()

def last_act():
    Finalized()
    return "lost"

def swallowed_by_a_coroutine():
    async def deaf():
        try:
            INT()
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "lost"
    os_signals.run(deaf())
    return "lost"

def while_a_loop_closes():
    class Closed:
        async def items(self):
            try:
                yield 1
            finally:
                INT()
    async def leaves_one_open():
        opened = Closed().items()
        await anext(opened)
        asyncio.current_task().opened = opened
        return "lost"
    return os_signals.run(leaves_one_open())

def before_a_coroutine_begins():
    async def never(): return "lost"
    with os_signals.held():
        INT()
        os_signals.run(never())
    return "lost"

def stopped():
    async def until(stop):
        INT()
        await stop.wait()
        return 7
    report, was_stopped = os_signals.run_until_stopped(until)
    return f"stopped with {report}" if was_stopped else "lost"

def stopped_at_its_end():
    async def ends(stop):
        INT()
        return 7
    report, was_stopped = os_signals.run_until_stopped(ends)
    return f"stopped with {report}" if was_stopped else "lost"

def not_stopped():
    async def ends(stop): return 7
    report, was_stopped = os_signals.run_until_stopped(ends)
    return "stopped" if was_stopped else f"ended with {report}"

def held():
    done = []
    try:
        with os_signals.held():
            INT()
            done.append("all of it")
        done.append("and more")
    except KeyboardInterrupt as exc:
        os_signals.accept(exc)
        return f"interrupted after {' '.join(done)}"
    return "lost"

def held_twice():
    with os_signals.held():
        INT()
        INT()
        return wait()

def held_until_let_through():
    with os_signals.held():
        INT()
        with os_signals.let_through():
            return "lost"

def let_through():
    with os_signals.held():
        with os_signals.let_through():
            INT()
            return wait()

def held_again():
    done = []
    try:
        with os_signals.held():
            with os_signals.let_through():
                done.append("nothing came,")
            INT()
            done.append("all of it")
    except KeyboardInterrupt as exc:
        os_signals.accept(exc)
        return f"interrupted after {' '.join(done)}"
    return "lost"

def accepted():
    try:
        INT()
    except KeyboardInterrupt as exc:
        os_signals.accept(exc)
    time.sleep(0.2)
    return "went on"

def at_any_instant():
    caught, rng = 0, random.Random(11)
    class Answer(io.RawIOBase):
        def close(self):
            for _ in range(20): pass
            super().close()
    def send(delay):
        time.sleep(delay)
        os.kill(os.getpid(), signal.SIGINT)
    for _ in range(150):
        sender = threading.Thread(target=send, args=(rng.uniform(0.0, 0.003),))
        end = time.monotonic() + 60
        try:
            sender.start()
            while time.monotonic() < end:
                Answer()
        except KeyboardInterrupt as exc:
            os_signals.accept(exc)
            caught += 1
        sender.join()
    return f"caught {caught}"

try:
    with os_signals.installed():
        said = globals()[sys.argv[1]]()
except KeyboardInterrupt:
    said = "interrupted"
except SystemExit as exc:
    said = f"exit {exc.code}"
print(said)
"""

ENDS = {
    "finalizer": "interrupted",
    "freed_file": "interrupted",
    "weak_reference": "interrupted",
    "terminated_in_a_finalizer": f"exit {128 + signal.SIGTERM}",
    "last_act": "interrupted",
    "swallowed_by_a_coroutine": "interrupted",
    "while_a_loop_closes": "interrupted",
    "before_a_coroutine_begins": "interrupted",
    "stopped": "stopped with 7",
    "stopped_at_its_end": "stopped with 7",
    "not_stopped": "ended with 7",
    "held": "interrupted after all of it",
    "held_twice": "interrupted",
    "held_until_let_through": "interrupted",
    "let_through": "interrupted",
    "held_again": "interrupted after nothing came, all of it",
    "accepted": "went on",
    "at_any_instant": "caught 150",
}


@pytest.mark.parametrize("case", ENDS)
def test_a_signal_is_never_lost(case):
    ran = subprocess.run(
        [sys.executable, "-c", CASES, case],
        capture_output=True, text=True, timeout=55, check=False,
    )  # fmt: skip
    assert ran.stdout.strip() == ENDS[case], ran.stderr
    assert ran.stderr == ""

"""What engines have alike that are a program of this machine: where it lies, how its log reads, how it is warmed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.engine_kit import warming
from fleetctl.engine_kit.last_words import LastWords, last_words
from fleetctl.engine_kit.start_faults import StartFailures, start_fault

if TYPE_CHECKING:
    from fleetctl.model.engine_fault import EngineFault
    from fleetctl.model.node import NodeProcess
    from fleetctl.model.plan import LaunchSettings
    from fleetctl.model.profile import LaneSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMessages:
    """How an engine's log says why it does not start: its own faults, lines that only repeat one, what no start survives."""

    patterns: tuple[LastWords, ...]
    echoes: str
    failures: StartFailures


class EngineProgram:
    """The part of the port `Engine` that real engines share; each adds its names, capabilities, `launch` and `signals`."""

    program_env: str  # the variable that names another program
    default_program: str  # looked for on the PATH
    messages: EngineMessages

    def __init__(self, program: str = "") -> None:
        self.program = program or os.environ.get(self.program_env, "") or self.default_program

    def queue_limit(self, settings: LaunchSettings) -> int | None:
        """Return None: the gateway queues, so the engine's own bound stays unset."""
        del settings
        return None

    def diagnose(self, log_tail: str) -> EngineFault | None:
        """Return what the end of its log says went wrong."""
        return last_words(log_tail, self.messages.patterns, echoes=self.messages.echoes)

    def diagnose_start(self, log_tail: str, ended: tuple[NodeProcess, ...]) -> EngineFault | None:
        """Return why one that still runs will never be ready; None: it may be."""
        found = self.messages
        return start_fault(log_tail, ended, found.failures, patterns=found.patterns, echoes=found.echoes)

    def warm_body(self, *, served_name: str) -> tuple[str, bytes]:
        """Return the path and JSON body of a small real completion."""
        return warming.warm_body(served_name=served_name)

    def emulation(self, lane: LaneSpec) -> None:
        """Return None: it is what it is."""
        del lane

"""How SGLang says why it does not start."""

from __future__ import annotations

from fleetctl.engine_kit.last_words import LastWords
from fleetctl.engine_kit.program import EngineMessages
from fleetctl.engine_kit.start_faults import StartFailures
from fleetctl.model.engine_fault import EngineFaultKind

_WORDS = (
    LastWords(EngineFaultKind.MODEL, r"Cannot find any model weights|SafetensorError|are not supported for now"),
    LastWords(EngineFaultKind.MEMORY, r"Not enough memory\. Please try to increase --mem-fraction-static"),
    LastWords(EngineFaultKind.ARGUMENTS, r"must be divisible by tp_size"),
)
_ECHOES = r"Received sigquit from a child process|Scheduler hit an exception"
_FAILURES = StartFailures(
    lines=r"Scheduler hit an exception|Received sigquit from a child process|scheduler is dead", processes=r"sglang::"
)
MESSAGES = EngineMessages(patterns=_WORDS, echoes=_ECHOES, failures=_FAILURES)

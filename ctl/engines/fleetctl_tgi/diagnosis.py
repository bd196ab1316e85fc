"""How TGI's launcher says why it does not start."""

from __future__ import annotations

from fleetctl.engine_kit.last_words import LastWords
from fleetctl.engine_kit.program import EngineMessages
from fleetctl.engine_kit.start_faults import StartFailures
from fleetctl.model.engine_fault import EngineFaultKind

_WORDS = (
    LastWords(EngineFaultKind.ARGUMENTS, r"error: (?:unexpected argument|invalid value|a value is required)"),
    LastWords(EngineFaultKind.ARGUMENTS, r"ArgumentValidation"),
    LastWords(EngineFaultKind.MODEL, r"weight files found|Unsupported model type"),
    LastWords(EngineFaultKind.MEMORY, r"Not enough memory to handle"),
)
_ECHOES = r"Shard \d+ failed to start|ShardCannotStart|DownloadError"
# No name is vital: its download of the weights is a process like its shards, and ends when it is done.
_FAILURES = StartFailures(lines=r"Shard \d+ failed to start|ShardCannotStart")
MESSAGES = EngineMessages(patterns=_WORDS, echoes=_ECHOES, failures=_FAILURES)

"""How TGI's launcher says why it does not start."""

from __future__ import annotations

from fleetctl.engine_kit.last_words import LastWords
from fleetctl.model.engine_fault import EngineFaultKind

WORDS = (
    LastWords(EngineFaultKind.ARGUMENTS, r"error: (?:unexpected argument|invalid value|a value is required)"),
    LastWords(EngineFaultKind.ARGUMENTS, r"ArgumentValidation"),
    LastWords(EngineFaultKind.MODEL, r"weight files found|Unsupported model type"),
    LastWords(EngineFaultKind.MEMORY, r"Not enough memory to handle"),
)
ECHOES = r"Shard \d+ failed to start|ShardCannotStart|DownloadError"

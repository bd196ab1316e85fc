"""How vLLM says why it does not start; measured on 0.32."""

from __future__ import annotations

from fleetctl.engine_kit.last_words import LastWords
from fleetctl.model.engine_fault import EngineFaultKind

WORDS = (
    LastWords(EngineFaultKind.MODEL, r"Cannot find any model weights"),
    LastWords(EngineFaultKind.MODEL, r"SafetensorError|Error while deserializing header|EntryNotFoundError"),
    LastWords(EngineFaultKind.MODEL, r"are not supported for now|Model architectures .* failed to be inspected"),
    LastWords(EngineFaultKind.MODEL, r"is not a valid JSON file|Transformers does not recognize this architecture"),
    LastWords(
        EngineFaultKind.MEMORY, r"No available memory for the cache blocks|is less than desired GPU memory utilization"
    ),
    LastWords(EngineFaultKind.MEMORY, r"larger than the available KV cache memory|not enough memory"),
    LastWords(EngineFaultKind.ARGUMENTS, r"^Value error, "),
    LastWords(EngineFaultKind.ARGUMENTS, r"must be divisible by tensor parallel size|validation errors? for \w+Config"),
    LastWords(
        EngineFaultKind.ACCELERATOR, r"Failed to infer device type|World size \(\d+\) is larger than the number of"
    ),
)
ECHOES = r"Engine core initialization failed|See root cause above|WorkerProc initialization failed"

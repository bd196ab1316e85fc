"""Where the emulator answers otherwise than the vLLM it plays, each with its reason; nothing else may differ."""

from __future__ import annotations

# It refuses, and says that this is not emulated: by a 400 that names the field, or a 501 for a whole route.
NOT_EMULATED = (
    "JSON by a schema", "JSON, any", "JSON, any, completion", "a pattern", "a choice", "logprobs", "logprobs, the top",
    "logprobs, completion", "logprobs of the prompt", "echo", "echo, streamed", "echo of a chat", "beams", "seventeen choices",
    "stop with its text", "a prompt cut to its end", "token ids returned", "token ids returned, streamed",
    "documentation", "detokenize", "responses", "responses, one", "responses, cancel one", "messages", "count tokens of messages",
    "chats in a batch", "invocations", "scale elastic",
)  # fmt: skip
TRIFLES = {
    "a prompt over the context": "the tiny model's tokens are so short that vLLM counts letters first; of a usual model it counts tokens, as here",
    "completion, over the context": "as above",
    "structured outputs of the wrong type": "vLLM fails at it (500)",
    "ping, HEAD": "FastAPI names the methods of a path's first route in Allow, aiohttp those of all",
    "metrics, with a slash": "vLLM mounts the page below /metrics/; here that is redirected to the page",
    "metrics, HEAD": "the mount sends no length",
    "metrics, POST": "the mount looks at no method",
    "HTTP/1.0": "uvicorn says that it closes, aiohttp just does",
    "HTTP/1.0, a stream": "as above",
    "no HTTP": "as above",
    "a length that is none": "as above",
}
DIFFERENT = {**dict.fromkeys(NOT_EMULATED, "not emulated"), **TRIFLES}

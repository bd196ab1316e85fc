"""The emulator's tokenizer and its texts: every token is four bytes, so text and token counts convert both ways.

A prompt's tokens are its UTF-8 bytes in fours (the last one padded). An answer's tokens are three letters and a space,
a fixed sequence per seed: token k depends on (seed, k) alone. So an answer sent back as a prompt has exactly the tokens
that were generated, words and tokens count alike, the prefix cache finds earlier turns, and a continuation is checkable.

Chat template, as Llama 3's: one token before the first message; four before each message (start, role, end, newlines)
and one after it; four to open the answer. A final message that is to be continued has nothing after it.
"""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

TOKEN_BYTES = 4

_CONSONANTS = "bdfghjklmnprstvz"
VOCABULARY = tuple(f"{a}{v}{b} ".encode() for a in _CONSONANTS for v in "aeiou" for b in _CONSONANTS)

# 0xff never occurs in UTF-8, so no text can look like the template.
_PAD = b"\xff"
_BEGIN = b"\xffBOS"
_MESSAGE_START = b"\xffSTA"
_MESSAGE_NAMED = b"\xffEND\xffNL2"
_MESSAGE_END = b"\xffEOT"

_BLOCK = 1024  # tokens of an answer made at once


def token_count(byte_count: int) -> int:
    """Return how many tokens so many bytes of text are."""
    return -(-byte_count // TOKEN_BYTES)


def token_ids(content: bytes, vocabulary: int) -> list[int]:
    """Return ids below `vocabulary` for whole tokens: like tokens have like ids, and unlike ones mostly others."""
    return [zlib.crc32(content[at : at + TOKEN_BYTES]) % vocabulary for at in range(0, len(content), TOKEN_BYTES)]


class AnswerText:
    """The endless answer of one seed, generated as far as it is read."""

    __slots__ = ("_made", "seed")

    def __init__(self, seed: str) -> None:
        self.seed = seed
        self._made = bytearray()

    def tokens(self, start: int, stop: int) -> bytes:
        """Return tokens [start, stop) as text."""
        while len(self._made) < stop * TOKEN_BYTES:
            block = len(self._made) // (_BLOCK * TOKEN_BYTES)
            self._made += b"".join(random.Random(f"{self.seed}/{block}").choices(VOCABULARY, k=_BLOCK))
        return bytes(self._made[start * TOKEN_BYTES : stop * TOKEN_BYTES])

    def emitted_at_end(self, text: bytes) -> int:
        """Return how many bytes at the end of `text` are this answer from its first token on; 0 if it does not end so.

        A last space that a client stripped is forgiven.
        """
        first = self.tokens(0, 1)
        at = text.find(first)
        while at >= 0:
            length = len(text) - at
            if length % TOKEN_BYTES in (0, TOKEN_BYTES - 1) and self._is_tail(text, at):
                return length
            at = text.find(first, at + 1)
        return 0

    def _is_tail(self, text: bytes, at: int) -> bool:
        # The second token rules most places out before the whole tail is compared.
        if not self.tokens(1, 2).startswith(text[at + TOKEN_BYTES : at + 2 * TOKEN_BYTES]):
            return False
        return self.tokens(0, token_count(len(text) - at)).startswith(text[at:])


class AnswerTexts:
    """Keeps the answers of the seeds used lately."""

    def __init__(self, kept_max: int = 16) -> None:
        self._texts: dict[str, AnswerText] = {}
        self._kept_max = kept_max

    def of(self, seed: str) -> AnswerText:
        """Return a seed's answer."""
        text = self._texts.pop(seed, None) or AnswerText(seed)
        self._texts[seed] = text
        if len(self._texts) > self._kept_max:
            del self._texts[next(iter(self._texts))]
        return text


@dataclass(frozen=True, slots=True)
class Prompt:
    """Tokens to process, and how many of the last ones are an answer to be continued."""

    content: bytes  # whole tokens
    resumed_tokens: int = 0

    @property
    def tokens(self) -> int:
        """Return the prompt's length."""
        return len(self.content) // TOKEN_BYTES

    @property
    def question(self) -> bytes:
        """Return the prompt without what is to be continued: the same before and after an interruption."""
        return self.content[: len(self.content) - self.resumed_tokens * TOKEN_BYTES]


def render_chat(messages: Sequence[tuple[str, bytes]], *, opens_answer: bool, continues_final: bool) -> Prompt:
    """Return the prompt of (role, text) messages."""
    parts = [_BEGIN]
    for role, text in messages:
        parts += [_MESSAGE_START, _role_token(role), _MESSAGE_NAMED, _whole(text), _MESSAGE_END]
    if continues_final:
        parts.pop()
        return Prompt(b"".join(parts), token_count(len(messages[-1][1])))
    if opens_answer:
        parts += [_MESSAGE_START, _role_token("assistant"), _MESSAGE_NAMED]
    return Prompt(b"".join(parts))


def render_text(text: bytes, answer: AnswerText) -> Prompt:
    """Return the prompt of plain text; when it ends in the answer's own first tokens, they are continued."""
    emitted = answer.emitted_at_end(text)
    question, tail = text[: len(text) - emitted], text[len(text) - emitted :]
    return Prompt(_whole(question) + _whole(tail), token_count(emitted))


def _role_token(role: str) -> bytes:
    return (_PAD + role.encode()[:3]).ljust(TOKEN_BYTES, _PAD)


def _whole(text: bytes) -> bytes:
    return text + _PAD * (-len(text) % TOKEN_BYTES)

"""How often a unit of text may rightfully repeat: prose and code do not, tables, arrays, grids and encoded bytes may."""

from __future__ import annotations

import re

# Of exact repetition. The longest refrains and templates that answers are known to repeat stay below.
LOOP_TOKENS = 160
# A line of dashes or dots as wide as a page, where each of them is a token.
RULE_TOKENS = 180
# A matrix of zeros, an empty table, an image in base64: a page or two of it.
RIGHTFUL_TOKENS = 4000
# An object's values that are alike are short; those with a sentence in them differ somewhere.
_VALUE_BLANKS_MAX = 4
# A row of a grid, and no list marker or fence.
_ROW_CHARACTERS_MIN = 5
_ENCODED_LINE_MIN = 32
# Brackets too many in two rounds or three, when each round has one too many.
_ROUNDS_CUT = 2

_RULE = frozenset("-=_*#~.─━═·…—")
_KEY = re.compile(r'"\s*:')
_STRING = re.compile(r'"([^"]*)"')
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
# What stands for no word where a sample is cut out: the rest of a tag, the beginning of one; a named character.
_MARKUP = re.compile(r"^[^<>\s]*>|</?[A-Za-z][^<>]*(?:>|$)|<$|&\w{2,8};|&\w*$|^\w*;")
_LITERALS = re.compile(r"(?i:null|none|nil|true|false|nan|na|inf|undefined|([a-f])\1)")
# Letters that stand alone, not cut off where the sample begins or ends: 0xff and f32 are numbers. Of scripts that put no
# blanks between words a letter is enough.
_WORD = re.compile(r"(?<=\W)[^\W\d_]{2,}(?=\W)|[^\W\d_\x00-\x7f]")
_ENCODED = re.compile(r"[A-Za-z0-9+/=_-]*[A-Z0-9+/][A-Za-z0-9+/=_-]*")
# What separates values, figures, and the letters that boards, sequences and patterns are written in.
_DATA = frozenset(",;&|[](){}<>" + "0123456789" + "ABCDEFGHIJKLMNOPQRSTUVWXYZxo")
_SEPARATORS = frozenset(",;|:")
_BETWEEN = re.compile(r"[\s,;|:()\[\]{}\\\d.+-]*")
_QUOTES_MIN = 4  # two strings
_PAIRS = ("()", "[]", "{}")


def tokens_needed(rounds: str) -> int:
    """Return from how many tokens on the repetition of this unit is a loop. `rounds`: it, at least twice in a row."""
    if len(set(rounds)) == 1:
        return _run_tokens(rounds[0])
    return RIGHTFUL_TOKENS if _is_data(rounds) else LOOP_TOKENS


def _is_data(rounds: str) -> bool:
    seen = set(rounds)
    if "\n|" in rounds or _is_encoded(rounds):  # rows of a table; base64
        return True
    # One word or letter after the other; what opens or closes more with each round.
    if rounds.isspace() or rounds.isalpha() or not _is_balanced(rounds):
        return False
    if "{" in seen and _KEY.search(rounds):
        return all(value.count(" ") <= _VALUE_BLANKS_MAX for value in _STRING.findall(rounds, rounds.index("{")))
    text = _MARKUP.sub(" ", rounds) if "<" in seen else rounds
    if _lists_values(text):
        return True
    if any(not _LITERALS.fullmatch(word) for word in _WORD.findall(text)):
        return False
    return not seen.isdisjoint(_DATA) or _has_rows(rounds)


def _lists_values(text: str) -> bool:
    """Whether it is short strings in quotes, and between them separators, brackets and figures alone: an array, tuples."""
    pieces = text.split('"' if '"' in text else "'")
    if len(pieces) <= _QUOTES_MIN:
        return False
    # Every other piece is a string, but the sample may begin within one.
    for first in (0, 1):
        between, values = pieces[first::2], pieces[1 - first :: 2]
        if (
            all(_BETWEEN.fullmatch(each) for each in between)
            and sum(not _SEPARATORS.isdisjoint(each) for each in between) >= len(between) - 2  # the outer ones are cut
            and all(value.count(" ") <= _VALUE_BLANKS_MAX for value in values)
        ):
            return True
    return False


def _run_tokens(character: str) -> int:
    """Return it for one character over and over."""
    if character in _RULE:
        return RULE_TOKENS
    return RIGHTFUL_TOKENS if _ENCODED.fullmatch(character) else LOOP_TOKENS


def _is_encoded(rounds: str) -> bool:
    """Whether it is letters and figures without a blank, in lines as long as encoders write them, or in one."""
    lines = rounds.split("\n")
    is_wrapped = all(len(line) >= _ENCODED_LINE_MIN for line in lines[1:-1])
    return is_wrapped and _ENCODED.fullmatch("".join(lines)) is not None


def _is_balanced(rounds: str) -> bool:
    """Whether a round closes what it opens; the first may have been cut, so one too many says nothing."""
    pairs = (rounds.count(pair[0]) - rounds.count(pair[1]) for pair in _PAIRS)
    tags = _TAG.findall(rounds)
    closed = sum(tag.startswith("</") for tag in tags)
    opened = len(tags) - closed - sum(tag.endswith("/>") for tag in tags)
    return all(abs(surplus) < _ROUNDS_CUT for surplus in (*pairs, opened - closed))


def _has_rows(rounds: str) -> bool:
    """Whether there are lines as long as rows of a grid; the outer ones may have been cut."""
    lines = rounds.split("\n")[1:-1]
    return any(sum(not character.isspace() for character in line) >= _ROW_CHARACTERS_MIN for line in lines)

"""Seeded answers of many kinds, in tokens: some repeat rightfully, some end in a loop.

Tokens are cut as byte-pair vocabularies cut them: words with the blank before, long ones in pieces, digits by up to
three, punctuation, indentation and runs of one character together, one or two characters of CJK. Code and documents
are real: the standard library's sources and this project's own pages.
"""

from __future__ import annotations

import base64
import json
import re
import sysconfig
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

_TOKEN = re.compile(
    r" ?[A-Za-z]{1,7}| ?\d{1,3}|\n[ \t]*|[ \t]{1,16}|([-=_*#~.!])\1{0,15}|[^\W\d_]{1,2}"
    r"| ?[^\w\s]{1,3}|[\ud800-\udfff]|.", re.DOTALL,
)  # fmt: skip
ROOT = Path(__file__).resolve().parents[2]
WORDS = [
    "the",
    "a",
    "model",
    "of",
    "and",
    "answer",
    "request",
    "to",
    "lane",
    "replica",
    "in",
    "that",
    "is",
    "for",
    "it",
    "was",
    "on",
    "are",
    "with",
    "latency",
    "they",
    "be",
    "at",
    "one",
    "have",
    "this",
    "from",
    "or",
    "had",
    "by",
    "but",
    "what",
    "some",
    "we",
    "can",
    "out",
    "other",
    "were",
    "all",
    "there",
    "when",
    "up",
    "use",
    "your",
    "how",
    "said",
    "an",
    "each",
    "she",
    "which",
    "do",
    "their",
    "time",
    "if",
    "will",
    "way",
    "about",
    "many",
    "then",
    "them",
    "would",
    "write",
    "like",
    "so",
    "these",
    "her",
    "long",
    "make",
    "thing",
    "see",
    "him",
    "two",
    "has",
    "look",
    "more",
    "day",
    "could",
    "go",
    "come",
    "did",
    "number",
    "sound",
    "no",
    "most",
    "people",
    "my",
    "over",
    "know",
    "water",
    "than",
    "call",
    "first",
    "who",
    "may",
    "down",
    "side",
    "been",
    "now",
    "find",
    "any",
    "new",
    "work",
    "part",
    "take",
    "get",
    "place",
    "made",
    "live",
    "where",
    "after",
    "back",
    "little",
    "only",
    "round",
    "man",
    "year",
    "came",
    "show",
    "every",
    "good",
    "me",
    "give",
    "our",
    "under",
]
CHARACTERS = "的一是不了人我在有他这为之大来以个中上们到说国和地也子时道出而要于就下得可你年生自会那后能对着事其里所去行过家十用发天如然作方成者多日都三小军二无同么经法当起与好看学进种将还分此心前面又定见只主没公从"
KANA = "あいうえおかきくけこさしすせそたちつてとなにぬねのはひふへほまみむめもやゆよらりるれろわをん"


def tokens(text: str, rng: random.Random) -> list[str]:
    """Return a text's tokens. Now and then an engine cuts where another one would not."""
    cut = [match[0] for match in _TOKEN.finditer(text)]
    if rng.random() < 0.2:  # a vocabulary of small pieces
        return [piece for token in cut for piece in (token[:3], token[3:]) if piece]
    return cut


def words(rng: random.Random, count: int) -> str:
    return " ".join(rng.choices(WORDS, k=count))


def sentence(rng: random.Random) -> str:
    return words(rng, rng.randint(4, 18)).capitalize() + rng.choice(".....!?")


def prose(rng: random.Random, sentences: int | None = None) -> str:
    found = []
    for _ in range(sentences or rng.randint(5, 60)):
        found.append(sentence(rng))
        if rng.random() < 0.15:
            found.append("\n\n")
    return " ".join(found)


def cjk(rng: random.Random, count: int | None = None) -> str:
    alphabet = CHARACTERS if rng.random() < 0.6 else KANA
    found = rng.choices(alphabet, k=count or rng.randint(100, 900))
    return "".join(each + (rng.choice("\uff0c\u3002\u3001\uff01") if rng.random() < 0.1 else "") for each in found)


def number(rng: random.Random) -> str:
    return str(rng.choice([0, 1, rng.randint(0, 9), rng.randint(10, 9999), round(rng.random() * 100, 2)]))


def table(rng: random.Random) -> str:
    columns, rows = rng.randint(2, 9), rng.randint(5, 70)
    cells = rng.choice([("",), ("-",), ("0",), ("yes", "no"), ("x", ""), ("N/A",), tuple(WORDS), ("✓", "✗"), ("TODO",)])
    head = "| " + " | ".join(rng.choices(WORDS, k=columns)) + " |\n|" + "---|" * columns + "\n"
    return head + "".join("| " + " | ".join(rng.choices(cells, k=columns)) + " |\n" for _ in range(rows))


def json_objects(rng: random.Random) -> str:
    keys = rng.sample(WORDS, rng.randint(1, 5))
    values: tuple[object, ...] = rng.choice(
        [(0,), (None,), ("",), (True, False), (1, 2, 3), tuple(WORDS), ([],), ({},)]
    )
    objects = [{key: rng.choice(values) for key in keys} for _ in range(rng.randint(8, 90))]
    if rng.random() < 0.5:
        objects = [{"id": place, **each} for place, each in enumerate(objects)]
    return json.dumps(objects, indent=rng.choice([None, None, 2]))


def json_numbers(rng: random.Random) -> str:
    values: tuple[object, ...] = rng.choice([(0,), (0.0,), (0, 1), (None,), (False,), tuple(range(255)), (1.5, 2.5)])
    rows = [[rng.choice(values) for _ in range(rng.randint(3, 20))] for _ in range(rng.randint(3, 40))]
    return json.dumps(rows if rng.random() < 0.6 else [each for row in rows for each in row])


def matrix(rng: random.Random) -> str:
    size, value = rng.randint(8, 26), rng.choice(["0", "0.0", "1", "0x00", "NULL", "nan", "."])
    separator, (opens, closes) = rng.choice([", ", " ", ",", " & "]), rng.choice([("[", "],"), ("", ""), ("{", "},")])
    row = opens + separator.join([value] * size) + closes
    return "M = [\n" + "\n".join([row] * size) + "\n]"


def csv(rng: random.Random) -> str:
    columns, cells = rng.randint(2, 10), rng.choice([("0",), ("", "0"), ("0", "1"), ("NA",), tuple(WORDS)])
    return "".join(
        f"{place}," * (rng.random() < 0.9) + ",".join(rng.choices(cells, k=columns)) + "\n"
        for place in range(rng.randint(10, 90))
    )


def encoded(rng: random.Random) -> str:
    kind, size = rng.random(), rng.randint(200, 3000)
    raw = bytes(size) if kind < 0.3 else rng.randbytes(6) * (size // 6) if kind < 0.5 else rng.randbytes(size)
    text = base64.b64encode(raw).decode()
    if rng.random() < 0.4:
        text = "\n".join(text[at : at + 76] for at in range(0, len(text), 76))
    return f"```\ndata:image/png;base64,{text}\n```"


def hex_dump(rng: random.Random) -> str:
    zeros, rows = rng.random() < 0.5, rng.randint(5, 40)
    lines = []
    for place in range(rows):
        row = bytes(16) if zeros else rng.randbytes(16)
        lines.append(f"{place * 16:08x}  {row.hex(' ')}  |{'.' * 16}|")
    c_array = ", ".join("0x00" if zeros else f"0x{each:02x}" for each in rng.randbytes(rng.randint(40, 300)))
    return "\n".join(lines) if rng.random() < 0.6 else f"uint8_t buffer[] = {{{c_array}}};"


@cache
def _sources() -> list[str]:
    library = Path(sysconfig.get_paths()["stdlib"])
    return [path.read_text(errors="replace") for path in sorted(library.glob("*.py")) if path.stat().st_size > 4000]


@cache
def _pages() -> list[str]:
    paths = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("profiles/**/*.yaml"), *ROOT.glob("docs/*.svg")]
    return [path.read_text() for path in sorted(paths)]


def _slice(rng: random.Random, texts: list[str]) -> str:
    text = rng.choice(texts)
    at = rng.randrange(max(1, len(text) - 2000))
    return text[at : at + rng.randint(1000, 8000)]


def code(rng: random.Random) -> str:
    return _slice(rng, _sources())


def document(rng: random.Random) -> str:
    return _slice(rng, _pages())


def items(rng: random.Random) -> str:
    marker = rng.choice(["- ", "* ", "{}. ", "- [ ] ", "• ", "{}) **", "Step {}: "])
    same = words(rng, rng.randint(1, 4))
    return "\n".join(
        marker.format(place) + (same + " " * (rng.random() < 0.5)) + words(rng, rng.randint(1, 8))
        for place in range(1, rng.randint(10, 90))
    )


def counted(rng: random.Random) -> str:
    """Lines that are alike but for a figure: they are no loop."""
    line = rng.choice(
        ["Step {}: " + words(rng, 6), "{} x 7 = {}", "Day {}: rest.", "INSERT INTO t VALUES ({}, 0, 0, NULL, '');"]
    )
    return "\n".join(line.format(place, 7 * place) for place in range(1, rng.randint(20, 120)))


def lyrics(rng: random.Random) -> str:
    refrain = "\n".join(words(rng, rng.randint(4, 8)) for _ in range(rng.randint(2, 4)))
    verses = [f"{words(rng, 6)}\n{words(rng, 6)}\n" for _ in range(4)]
    return "\n\n".join(f"{verse}\n\n" + "\n".join([refrain] * rng.randint(1, 2)) for verse in verses)


def markup(rng: random.Random) -> str:
    cell = rng.choice(["", "&nbsp;", "0", words(rng, 1)]) if rng.random() < 0.7 else None
    columns, rows = rng.randint(2, 10), rng.randint(3, 30)
    body = ""
    for place in range(rows):
        cells = "".join(f"<td>{cell if cell in ('', '&nbsp;', '0') else place}</td>" for _ in range(columns))
        body += f"  <tr>{cells}</tr>\n"
    return f"<table>\n{body}</table>"


def grid(rng: random.Random) -> str:
    width, height, empty = rng.randint(8, 40), rng.randint(6, 30), rng.choice(".#·░⬜🟩-+0 ")
    rows = [empty * width if rng.random() < 0.8 else rng.choice("x#") + empty * (width - 1) for _ in range(height)]
    return "```\n" + "\n".join(rows) + "\n```"


def rules(rng: random.Random) -> str:
    """Sections under lines, a table of contents, a form to be filled in."""
    line = rng.choice("-=_*.─") * rng.randint(20, 100)
    return "\n".join(
        f"{words(rng, 3)} {line[: rng.randint(10, 100)]} {place}\n{line}" for place in range(rng.randint(3, 25))
    )


def manifest(rng: random.Random) -> str:
    port = "      - containerPort: {}\n        protocol: TCP\n        name: {}\n"
    ports = "".join(port.format(rng.randint(1, 65535), rng.choice(WORDS)) for _ in range(rng.randint(3, 30)))
    return f"apiVersion: v1\nkind: Pod\nspec:\n  containers:\n    ports:\n{ports}"


def log(rng: random.Random) -> str:
    message = words(rng, 7)
    return "".join(
        f"2026-01-01T00:{place // 60:02}:{place % 60:02}Z INFO {message}\n" for place in range(rng.randint(10, 90))
    )


def assembly(rng: random.Random) -> str:
    lines = [f"    fmadd.s f{place}, f{place}, f{rng.randint(0, 31)}" for place in range(rng.randint(8, 40))]
    return "kernel:\n" + "\n".join(lines) + "\n    nop" * rng.randint(1, 16) + "\n    ret\n"


def chatter(rng: random.Random) -> str:
    """What people are amused by: much of a character or of a word, within reason."""
    return f"{prose(rng, 4)} {rng.choice(['ha', 'no ', 'na na ', 'very ', '!', '😂', '。', 'wow ', '.'])}" + (
        rng.choice(["ha", "no ", "na ", "very ", "!", "😂", "?", "wow "]) * rng.randint(3, 70) + prose(rng, 4)
    )


RIGHTFUL: dict[str, Callable[[random.Random], str]] = {
    each.__name__: each
    for each in (
        prose, cjk, table, json_objects, json_numbers, matrix, csv, encoded, hex_dump, code, document, items, counted, lyrics,
        markup, grid, rules, manifest, log, assembly, chatter,
    )
}  # fmt: skip


# What loops: a unit that its generator makes of up to so many tokens.


def _sentences(rng: random.Random) -> str:
    return " " + prose(rng, rng.randint(1, 3))


def _phrase(rng: random.Random) -> str:
    return " " + words(rng, rng.randint(1, 9)) + rng.choice(["", ",", ".", " and"])


def _line_of_code(rng: random.Random) -> str:
    names = rng.choices(WORDS, k=4)
    forms = (
        "    {}.{}({}, {})\n",
        "    if {} is {}:\n        return {}.{}\n",
        "import {}.{}\nfrom {} import {}\n",
        "{}->{} = {}[{}];\n",
    )
    return rng.choice(forms).format(*names)


def _item(rng: random.Random) -> str:
    return rng.choice(["- ", "* ", "1. ", "\n\n### "]) + words(rng, rng.randint(1, 12)) + "\n"


def _turn(rng: random.Random) -> str:
    return f"\n\nUser: {sentence(rng)}\n\nAssistant: {sentence(rng)}"


def _blank(rng: random.Random) -> str:
    return rng.choice(["\n", " ", "\n\n", "\t", " \n", "\u200b", "\n    "])


def _one_token(rng: random.Random) -> str:
    return rng.choice(
        [
            " " + rng.choice(WORDS),
            rng.choice(WORDS),
            "!",
            "?",
            ".",
            " 好",
            "的",
            "���",
            "😂",
            "```\n",
            "</div>\n",
            "}\n",
            ")",
        ]
    )


def _cjk_unit(rng: random.Random) -> str:
    return cjk(rng, rng.randint(2, 40))


def _reasoning(rng: random.Random) -> str:
    return f"Wait, {words(rng, rng.randint(3, 20))}.\n\nBut {words(rng, rng.randint(3, 15))}?\n\n"


def _object_of_prose(rng: random.Random) -> str:
    return json.dumps({"role": "user", "content": words(rng, rng.randint(25, 35))}) + ", "


LOOPS: dict[str, Callable[[random.Random], str]] = {
    each.__name__.removeprefix("_"): each
    for each in (
        _sentences, _phrase, _line_of_code, _item, _turn, _blank, _one_token, _cjk_unit, _reasoning, _object_of_prose,
    )
}  # fmt: skip


def _row(rng: random.Random) -> str:
    return "| " + " | ".join(rng.choices(WORDS, k=rng.randint(2, 6))) + " |\n"


def _zeros(rng: random.Random) -> str:
    return rng.choice(["0, ", "0 ", "[0, 0, 0],\n", "AAAA", "null, ", "0.0, "])


def _small_object(rng: random.Random) -> str:
    return json.dumps({rng.choice(WORDS): 0, rng.choice(WORDS): ""}) + ", "


# Loops that cannot be told from data but by their length.
LOOPS_OF_DATA: dict[str, Callable[[random.Random], str]] = {"row": _row, "zeros": _zeros, "small_object": _small_object}


def rightful(kind: str, rng: random.Random) -> list[str]:
    """Return the tokens of an answer without a loop."""
    text = RIGHTFUL[kind](rng)
    if rng.random() < 0.3:
        text = f"{prose(rng, 3)}\n\n{text}\n\n{prose(rng, 3)}"
    return tokens(text, rng)


def looping(kind: str, rng: random.Random, *, tokens_repeated: int = 400) -> tuple[list[str], int, int]:
    """Return the tokens of an answer that ends in a loop, how many come before it, and those of one round."""
    make = LOOPS.get(kind) or LOOPS_OF_DATA[kind]
    for _ in range(1000):
        unit = tokens(make(rng), rng)
        if len(unit) <= 64:
            break
    else:
        raise AssertionError(f"no unit of {kind} is short enough")
    lead = tokens(rightful_lead(rng), rng)
    rounds = -(-tokens_repeated // len(unit))
    return lead + unit * rounds, len(lead), len(unit)


def rightful_lead(rng: random.Random) -> str:
    """Return what an answer begins with before it loops; sometimes nothing."""
    kind = rng.choice(["prose", "code", "items", "cjk", "document", ""])
    return RIGHTFUL[kind](rng)[: rng.randint(1, 3000)] + "\n" if kind else ""

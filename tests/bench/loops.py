"""Prints how loops are told from rightful repetition: python -m tests.bench.loops [--answers 21000] [--loops 10000] [--seed 1] [--files DIR ...]

Seeded answers, token by token, as tests/repetition/texts.py makes them: how many rightful ones were taken for a loop, and
after how many tokens from its first one a loop was found. A chunk has one token; with --chunk N it has N and the detector
is given the count, as an engine with usage in each event gives it.
With --files every text file under these directories is taken for answers of 8,000 characters as well.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from pathlib import Path

from fleetctl.core.repetition.units import RIGHTFUL_TOKENS
from tests.repetition.texts import LOOPS, LOOPS_OF_DATA, RIGHTFUL, looping, rightful, tokens
from tests.repetition.watching import found_in

SUFFIXES = frozenset(
    [
        ".c",
        ".cpp",
        ".css",
        ".csv",
        ".h",
        ".hpp",
        ".html",
        ".js",
        ".json",
        ".md",
        ".pl",
        ".py",
        ".pyi",
        ".rst",
        ".sh",
        ".svg",
        ".toml",
        ".tsv",
        ".txt",
        ".xml",
        ".yaml",
    ]
)
ANSWER_CHARACTERS, FILE_CHARACTERS_MAX = 8_000, 80_000


def false_stops(answers: int, seed: int, chunk: int) -> None:
    kinds = sorted(RIGHTFUL)
    found: Counter[str] = Counter()
    count = 0
    for place in range(answers):
        kind = kinds[place % len(kinds)]
        answer = rightful(kind, random.Random(f"{seed}/{place}"))
        count += len(answer)
        if (loop := found_in(answer, chunk=chunk)) is not None:
            found[kind] += 1
            print(f"  false: {kind}, seed {seed}/{place}: {loop}")
    print(
        f"rightful answers: {answers} of {len(kinds)} kinds, {count:,} tokens; taken for loops: {found.total()} {dict(found) or ''}"
    )


def found_in_files(directories: list[Path], seed: int, chunk: int) -> None:
    """Take what people and programs have written for answers; each that is found is shown, to be judged by its reader."""
    rng = random.Random(seed)
    slices = found = files = 0
    for path in sorted(path for directory in directories for path in directory.rglob("*")):
        if path.suffix not in SUFFIXES or path.is_symlink() or not path.is_file():
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        files += 1
        for at in range(0, min(len(text), FILE_CHARACTERS_MAX), ANSWER_CHARACTERS):
            answer = tokens(text[at : at + ANSWER_CHARACTERS], rng)
            slices += 1
            if (loop := found_in(answer, chunk=chunk)) is not None:
                found += 1
                unit = "".join(answer[loop.found_token - loop.period_tokens : loop.found_token])
                print(f"  {path} at {at}: {loop} {unit!r:.100}")
    print(f"slices of files: {slices} of {files} files; taken for loops: {found}")


def true_loops(kinds: list[str], loops: int, seed: int, chunk: int, *, repeated: int, within: int) -> None:
    delays: dict[str, list[int]] = {kind: [] for kind in kinds}
    missed: Counter[str] = Counter()
    for place in range(loops):
        kind = kinds[place % len(kinds)]
        answer, lead, unit = looping(kind, random.Random(f"{seed}/{place}"), tokens_repeated=repeated)
        loop = found_in(answer, chunk=chunk)
        if loop is None or loop.found_token <= lead:
            missed[kind] += 1
        else:
            delays[kind].append(loop.found_token - lead)
            if loop.found_token - lead > within:
                print(f"  late: {kind}, seed {seed}/{place}: {loop} lead {lead} unit {unit}")
    print(f"{'kind':18}{'loops':>8}{'missed':>8}{'P50':>7}{'P99':>7}{'max':>7}   within {within} tokens")
    for kind in [*kinds, "all"]:
        these = sorted(delays[kind]) if kind != "all" else sorted(delay for each in delays.values() for delay in each)
        lost = missed[kind] if kind != "all" else missed.total()
        count = len(these) + lost
        at = [these[min(len(these) - 1, int(len(these) * q))] if these else 0 for q in (0.5, 0.99, 1.0)]
        timely = sum(delay <= within for delay in these)
        print(
            f"{kind:18}{count:8}{lost:8}{at[0]:7}{at[1]:7}{at[2]:7}   {timely} of {count} ({100 * timely / count:.2f} %)"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, default=21_000)
    parser.add_argument("--loops", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--chunk", type=int, default=1, help="tokens a chunk")
    parser.add_argument("--files", type=Path, nargs="*", default=[], help="directories of files to take for answers")
    arguments = parser.parse_args()
    seed, chunk = arguments.seed, arguments.chunk
    if arguments.files:
        found_in_files(arguments.files, seed, chunk)
        return
    false_stops(arguments.answers, seed, chunk)
    true_loops(sorted(LOOPS), arguments.loops, seed, chunk, repeated=400, within=200)
    print(f"of data, which may repeat for {RIGHTFUL_TOKENS} tokens:")
    true_loops(
        sorted(LOOPS_OF_DATA),
        arguments.loops // 20,
        seed,
        chunk,
        repeated=RIGHTFUL_TOKENS + 500,
        within=RIGHTFUL_TOKENS + 200,
    )


if __name__ == "__main__":
    main()

"""Reads rendered files back by their readers' own rules: what a shell, systemd, compose or a JSON parser would run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from pathlib import Path

# Prints what it was started with, one JSON array: stands for the engine at the end of a launch script.
ECHO = "import json, os, sys; json.dump([sys.argv[1:], dict(os.environ)], sys.stdout)"

_SYSTEMD_WORD = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[^\s"\\]+)', re.DOTALL)
_C_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_C_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'", "s": " "}


def run_script(script: Path, env: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """Run a launch script whose engine is `fake-engine` on the PATH; return its arguments and environment."""
    done = subprocess.run(["/bin/sh", str(script)], env=env, capture_output=True, text=True, timeout=30, check=True)
    argv, environment = json.loads(done.stdout)
    return argv, environment


def fake_engine(directory: Path, name: str) -> Path:
    """Put an executable called `name` into a new directory that prints its arguments and environment."""
    directory.mkdir()
    path = directory / name
    path.write_text(f"#!{sys.executable} -I\n{ECHO}\n")
    path.chmod(0o755)
    return directory


def unit_settings(text: str) -> dict[str, list[str]]:
    """Return a unit's settings by section.key, raw, in order; comment lines and continuations as systemd.syntax(7)."""
    found: dict[str, list[str]] = {}
    section = ""
    lines = iter(text.split("\n"))
    for line in lines:
        if not line or line.startswith(("#", ";")):
            continue
        whole = line
        while whole.endswith("\\"):
            whole = whole[:-1] + " " + next(lines)
        if whole.startswith("["):
            section = whole.strip("[]")
            continue
        key, _, value = whole.partition("=")
        found.setdefault(f"{section}.{key}", []).append(value)
    return found


def systemd_words(raw: str) -> list[str]:
    """Split a setting into words: quotes, C escapes, then specifiers, of which only %% may appear (systemd.service(5))."""
    words = []
    position = 0
    while raw[position:].strip():
        match = _SYSTEMD_WORD.match(raw, position)
        assert match, f"cannot read {raw[position:]!r}"
        word = match[1]
        if word.startswith('"'):
            word = _C_ESCAPE.sub(_unescape, word[1:-1])
        specifiers = re.findall("%(.)", word, re.DOTALL)
        assert set(specifiers) <= {"%", "C"}, f"specifier in {word!r}"
        words.append(re.sub("%%", "%", word))
        position = match.end()
    return words


def systemd_command(raw: str) -> list[str]:
    """Return what ExecStart= runs: words, and then variables, of which there must be none."""
    words = systemd_words(raw)
    for word in words:
        assert not re.search(r"(?<!\$)(?:\$\$)*\$(?!\$)", word), f"variable in {word!r}"
    return [word.replace("$$", "$") for word in words]


def compose(text: str) -> dict[str, object]:
    """Return the only service of a compose file, variables put in; `:?` variables become their own names in <>."""
    service = yaml.safe_load(text)["services"]["engine"]
    filled: dict[str, object] = _interpolate(service)
    return filled


def _interpolate(value: object) -> dict[str, object]:
    def fill(node: object) -> object:
        if isinstance(node, dict):
            return {key: fill(child) for key, child in node.items()}
        if isinstance(node, list):
            return [fill(child) for child in node]
        return re.sub(r"\$(?:\$|\{(\w+):\?[^}]*\})", _variable, node) if isinstance(node, str) else node

    filled = fill(value)
    assert isinstance(filled, dict)
    return filled


def _variable(match: re.Match[str]) -> str:
    return f"<{match[1]}>" if match[1] else "$"


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code[1:], 16)) if code.startswith("x") and len(code) == 3 else _C_LETTERS[code]

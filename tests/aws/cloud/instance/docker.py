"""docker of an instance: a container is a process of the instance, its image's programs are those of the tests' environment."""

import os
import sys
from pathlib import Path

_WITH_VALUE = {
    "--name", "--publish", "-p", "--ipc", "--ulimit", "--gpus", "--env-file", "--env", "-e", "--volume", "-v", "--network",
    "--entrypoint", "--shm-size", "--runtime", "--log-driver", "--log-opt", "--user", "--stop-timeout", "--mount", "--memory",
}  # fmt: skip
_MARK = "FLEETCTL_TESTS_INSTANCE"  # by which the reaper finds it
_INTERPRETERS = {"python", "python3"}


def main() -> int:
    """Run one docker command; `run` becomes the container's own process."""
    images, address, *command = sys.argv[1:]
    match command:
        case ["run", *words]:
            _become(words, address)
        case ["pull", image]:
            Path(images).mkdir(parents=True, exist_ok=True)
            (Path(images) / image.replace("/", "_")).touch()
        case ["image", "inspect", image]:
            return 0 if (Path(images) / image.replace("/", "_")).exists() else 1
        case ["rm" | "stop" | "kill", *_]:
            return 1  # a container ends with its process: there is none to find
        case _:
            sys.stderr.write(f"docker {' '.join(command)}: not played by the tests' instances\n")
            return 125
    return 0


def _become(words: list[str], address: str) -> None:
    options: list[tuple[str, str]] = []
    while words and words[0].startswith("-"):
        name, equals, value = words.pop(0).partition("=")
        if not equals and name in _WITH_VALUE:
            value = words.pop(0)
        options.append((name, value))
    entry = [value for name, value in options if name == "--entrypoint"]
    argv = [*entry, *words[1:]]
    if not entry:
        sys.stderr.write(f"image {words[0]} has an entry point of its own, which the tests' instances do not play\n")
        sys.exit(125)
    if argv[0] in _INTERPRETERS:
        argv[0] = sys.executable
    for published in (value for name, value in options if name in ("--publish", "-p")):
        outside, _, inside = published.partition(":")
        if outside != inside:
            # A container has a network of its own, and its port is forwarded: here the engine listens on the outer one.
            argv = [outside if word == inside else word for word in argv]
    if address:
        argv = [address if word == "0.0.0.0" else word for word in argv]  # noqa: S104  # what is replaced
    os.execvpe(argv[0], argv, _environment(options))  # noqa: S606  # no shell is what a container has


def _environment(options: list[tuple[str, str]]) -> dict[str, str]:
    found = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", _MARK) if name in os.environ}
    for name, value in options:
        lines = Path(value).read_text().splitlines() if name == "--env-file" else []
        lines += [value] if name in ("--env", "-e") else []
        for line in lines:
            key, equals, text = line.partition("=")
            if equals:
                found[key] = text
    return found


if __name__ == "__main__":
    sys.exit(main())

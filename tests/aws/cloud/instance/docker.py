"""docker of an instance: a container is a process of the instance, its image's programs are those of the tests' environment."""

import os
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

_WITH_VALUE = {
    "--name", "--publish", "-p", "--ipc", "--ulimit", "--gpus", "--env-file", "--env", "-e", "--volume", "-v", "--network",
    "--entrypoint", "--shm-size", "--runtime", "--log-driver", "--log-opt", "--user", "--stop-timeout", "--mount", "--memory",
}  # fmt: skip
_MARK = "FLEETCTL_TESTS_INSTANCE"  # by which the reaper finds it
_INTERPRETERS = {"python", "python3"}


def main() -> int:  # noqa: PLR0911  # a command each
    """Run one docker command; `run` becomes the container's own process."""
    images, address, *command = sys.argv[1:]
    match command:
        case ["run", *words]:
            _become(words, address, Path(images).parent / "containers")
        case ["pull", image]:
            Path(images).mkdir(parents=True, exist_ok=True)
            (Path(images) / image.replace("/", "_")).touch()
        case ["image", "inspect", image]:
            return 0 if (Path(images) / image.replace("/", "_")).exists() else 1
        case ["inspect", "-f", "{{.State.StartedAt}}", name]:
            return _started_at(Path(images).parent / "containers" / name)
        case ["stop", "-t", grace, name]:
            return _stop(Path(images).parent / "containers" / name, float(grace))
        case ["rm", "--force", name]:
            return _stop(Path(images).parent / "containers" / name, 0.0)
        case ["container", "inspect", name]:
            return 0 if _living(Path(images).parent / "containers" / name) else 1
        case _:
            sys.stderr.write(f"docker {' '.join(command)}: not played by the tests' instances\n")
            return 125
    return 0


def _stop(container: Path, grace_s: float) -> int:
    """Send SIGTERM, and SIGKILL after the grace; return once it has ended. A container ends with its process."""
    identity = _living(container)
    if not identity:
        sys.stderr.write(f"Error response from daemon: No such container: {container.name}\n")
        return 1
    pid, until_s = int(identity.split()[0]), time.monotonic() + grace_s  # noqa: TID251  # the same
    os.kill(pid, signal.SIGTERM if grace_s else signal.SIGKILL)
    while _identity(pid) == identity:
        if time.monotonic() >= until_s:  # noqa: TID251  # a program of the instance, where the product is not
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)  # noqa: TID251  # the same
    return 0


def _started_at(container: Path) -> int:
    if not container.exists():
        sys.stderr.write(f"Error: No such object: {container.name}\n")
        return 1
    sys.stdout.write(datetime.fromtimestamp(container.stat().st_mtime, UTC).isoformat() + "\n")
    return 0


def _living(container: Path) -> str:
    """Return who is the container; empty: it has ended, and it was removed by that."""
    identity = container.read_text() if container.exists() else ""
    return identity if identity and _identity(int(identity.split()[0])) == identity else ""


def _identity(pid: int) -> str:
    """Return a process and when it began; empty: it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else f"{pid} {fields[19]}"


def _become(words: list[str], address: str, containers: Path) -> None:
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
    for name in (value for option, value in options if option == "--name"):
        broken = containers.with_name("broken") / name
        if broken.exists():  # a test has it end at once, with these words
            sys.stderr.write(broken.read_text())
            sys.exit(1)
        containers.mkdir(parents=True, exist_ok=True)
        (containers / name).write_text(_identity(os.getpid()))
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

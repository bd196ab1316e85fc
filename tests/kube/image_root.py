"""Containers of fleetctl's own image, where it is unpacked: below its root, as the pod's user, with what their pod mounts.

`FLEETCTL_TEST_IMAGE_ROOT` names the unpacked image (docs/kubernetes.md); without it they run from this environment.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fleetctl.catalogue.kubernetes_parts import USER
from tests.packaging.containerfile import read_containerfile

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.kube.api import Object

_VARIABLE = "FLEETCTL_TEST_IMAGE_ROOT"
_IMAGE = "tests/fleetctl:1"
# The directory for what a runtime keeps of the container, the image, whether the root is read-only, whether another process is
# the first of the pod's; then pairs of directory and path of what is mounted, "--", and the command.
_CONTAINED = """\
kept=$1 image=$2 readonly=$3 shared=$4; shift 4
rm -rf "$kept"; mkdir -p "$kept/upper" "$kept/work" "$kept/root"; root=$kept/root
mount -t overlay overlay -o "lowerdir=$image,upperdir=$kept/upper,workdir=$kept/work" "$root" || exit
mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" || exit
while [ "$1" != -- ]; do
    at=$(/usr/sbin/chroot "$root" /bin/sh -c 'mkdir -p "$1" && readlink -f "$1"' sh "$2")
    mount --bind "$1" "$root$at" || exit
    shift 2
done
shift
[ "$readonly" = no ] || mount -o remount,ro "$root" || exit
set -- /usr/sbin/chroot "$root" /usr/bin/setpriv --reuid USER --regid USER --groups USER --bounding-set=-all --no-new-privs -- "$@"
[ "$shared" = yes ] || exec "$@"
trap : TERM
"$@" & child=$!
while kill -0 $child 2>/dev/null; do wait $child; code=$?; done
exit "$code"
""".replace("USER", str(USER))


def image_root(container: Object) -> str:
    """Return where the image of a container is unpacked; empty: it is played by this environment."""
    return os.environ.get(_VARIABLE, "") if container["image"] == _IMAGE else ""


def image_environment() -> Mapping[str, str]:
    """Return what the image gives every process."""
    return read_containerfile().environment


def contained(pod: Object, container: Object, words: list[str], mounts: Mapping[str, Path], kept: Path) -> list[str]:
    """Return the words that start a container below the image's root, in a process namespace of its own."""
    context = container.get("securityContext", {})
    for at in mounts.values():
        _hand_over(at)
    return [
        "/usr/bin/unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child",
        "/bin/sh", "-c", _CONTAINED, "sh", str(kept), image_root(container),
        "yes" if context.get("readOnlyRootFilesystem", False) else "no",
        "yes" if pod["spec"].get("shareProcessNamespace", False) else "no",
        *(word for path, at in mounts.items() for word in (str(at), path)), "--", *words,
    ]  # fmt: skip


def _hand_over(at: Path) -> None:
    """Give a volume to the pod's group as kubelet does (fsGroup): files for it to read, directories to write."""
    os.chown(at, 0, USER)
    at.chmod(0o2775)
    for file in at.iterdir():
        if file.is_file():
            os.chown(file, 0, USER)
            file.chmod(0o440)

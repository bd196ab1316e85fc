#!/usr/bin/env bash
# Installs fleetctl, shows it off, or sets up and runs its tests. `./install.sh --help` explains.
set -euo pipefail
FLEETCTL_TESTS_BEGAN=$(date +%s)

usage() {
    cat <<'EOF'
usage: ./install.sh [--compiled]    install fleetctl for this user, then run `fleetctl doctor`;
                                    --compiled: with its core and simulator compiled (a minute, and a C compiler)
       ./install.sh demo            bring up the quickstart fleet in this checkout and watch it under load
       ./install.sh test [--engines] [PYTEST ARGS...]
                                    set up everything the tests need, and run the gate and the tests
       ./install.sh uninstall [--force]
                                    remove what the plain install made (fleets and their state stay);
                                    refused while fleets are up, since nothing would be left to take them down
       ./install.sh --help

Needs Python 3.11 or newer and bash, nothing else. uv is used if it is on PATH, else venv and pip.

environment:
  PYTHON                 the interpreter to use (default: the newest python3.x on PATH that is 3.11+)
  FLEETCTL_HOME          where the plain install lives     (default: $XDG_DATA_HOME/fleetctl or ~/.local/share/fleetctl)
  FLEETCTL_BIN           where the command is linked       (default: ~/.local/bin)
  FLEETCTL_COMPLETION    yes | no: answer the completion question beforehand
  FLEETCTL_TEST_MINUTES  for how long `test` begins whole fleets and real engines, its set-up included
                         (default: 70; 0: until all are done); it counts what is left
  CI=true                as `test --engines`; a missing tool is a failure, not a skip
EOF
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
say() { printf '==> %s\n' "$*" >&2; }
die() {
    printf 'error: %s\n' "$1" >&2
    [ -z "${2:-}" ] || printf 'hint: %s\n' "$2" >&2
    exit 1
}

is_new_enough() { "$1" -c 'import sys; raise SystemExit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3.14 python3.13 python3.12 python3.11 python3 python; do
        if command -v "$candidate" >/dev/null 2>&1 && is_new_enough "$candidate"; then
            command -v "$candidate"
            return
        fi
        [ "$candidate" != "${PYTHON:-}" ] || die "PYTHON=$PYTHON is not Python 3.11 or newer"
    done
    die "no Python 3.11 or newer on PATH" "install python3.11 (apt install python3.11, brew install python@3.11, uv python install 3.11)"
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1; then
        sudo "$@"
    else
        return 1
    fi
}

# Debian packages, by the command each brings: `apt_install tmux=tmux procps=ps`.
apt_install() {
    local pair missing=()
    for pair in "$@"; do
        command -v "${pair#*=}" >/dev/null 2>&1 || missing+=("${pair%%=*}")
    done
    [ ${#missing[@]} -eq 0 ] || apt_get_install "${missing[@]}"
}

apt_get_install() { # PACKAGE...
    command -v apt-get >/dev/null 2>&1 || die "these are missing: $*" "install them with your package manager and run this again"
    say "installing system packages: $*"
    as_root apt-get update -qq >/dev/null || die "apt-get update failed" "run it by hand to see why, then run this again"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null ||
        die "apt-get could not install $*" "install them by hand and run this again"
}

make_venv() { # DIR
    local python
    python=$(find_python)
    if command -v uv >/dev/null 2>&1; then
        uv venv --quiet --python "$python" "$1"
        return
    fi
    ensure_venv_module "$python"
    "$python" -m venv "$1"
}

# Debian splits ensurepip out of Python.
ensure_venv_module() { # PYTHON
    "$1" -c 'import ensurepip, venv' 2>/dev/null && return
    local version
    version=$("$1" -c 'import sys; print(f"{sys.version_info[0]}.{sys.version_info[1]}")')
    apt_get_install "python$version-venv"
}

# What an environment is made from: a changed lock is noticed, and a second run is quick.
lock_mark() { cat "$here/pyproject.toml" "$here/requirements.lock" | { cat; printf '%s\n' "$here"; } | cksum; }

install_into() { # DIR SPEC...
    local venv=$1
    shift
    if command -v uv >/dev/null 2>&1; then
        uv pip install --quiet --python "$venv/bin/python" --constraint "$here/requirements.lock" "$@"
    else
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --constraint "$here/requirements.lock" "$@"
    fi
}

ensure_env() { # DIR LABEL SPEC...
    local venv=$1 label=$2 marks=$1/.fleetctl-installed
    shift 2
    # First line: the lock; then one line for each set of packages installed under it (the demo's, the tests').
    if [ ! -x "$venv/bin/fleetctl" ] || [ "$(head -n 1 "$marks" 2>/dev/null)" != "$(lock_mark)" ]; then
        rm -f "$marks"
    elif grep -qxF -- "$*" "$marks"; then
        return
    fi
    say "making the $label environment in $venv"
    [ -x "$venv/bin/python" ] && is_new_enough "$venv/bin/python" || { rm -rf "$venv"; make_venv "$venv"; }
    install_into "$venv" "$@" || die "the packages could not be installed" "see the message above; PyPI or a mirror of it is needed once"
    [ -s "$marks" ] || lock_mark >"$marks"
    printf '%s\n' "$*" >>"$marks"
}

offer_completion() { # FLEETCTL
    local shell answer=${FLEETCTL_COMPLETION:-}
    shell=$(basename "${SHELL:-}")
    case "$shell" in bash | zsh | fish) ;; *) return 0 ;; esac
    if [ -z "$answer" ] && [ -t 0 ] && [ -t 2 ]; then
        read -r -p "Install $shell completion? [y/N] " answer || answer=no
    fi
    case "$answer" in
    y | Y | yes) "$1" completion "$shell" --install >&2 || say "completion was not installed; try: fleetctl completion $shell" ;;
    *) say "shell completion: fleetctl completion $shell --install" ;;
    esac
}

# What compiling needs besides Python: its headers and a C compiler.
ensure_compiler() {
    local python headers
    python=$(find_python)
    headers=$("$python" -c 'import os, sysconfig; print(os.path.join(sysconfig.get_path("include"), "Python.h"))')
    if [ ! -e "$headers" ]; then
        apt_get_install "python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-dev"
    fi
    if ! command -v cc >/dev/null 2>&1; then
        apt_get_install gcc libc6-dev
    fi
}

user_home() { printf '%s\n' "${FLEETCTL_HOME:-${XDG_DATA_HOME:-$HOME/.local/share}/fleetctl}"; }
user_bin() { printf '%s\n' "${FLEETCTL_BIN:-$HOME/.local/bin}"; }

do_install() {
    local home bin
    home=$(user_home)
    bin=$(user_bin)
    mkdir -p "$home" "$bin"
    # A source tree that has changed without its version must still be installed again.
    local tree
    tree=$(cd "$here" && find ctl providers templates profiles -type f -not -name '*.pyc' -exec cksum {} + | sort | cksum)
    if [ "${1:-}" = --compiled ]; then
        ensure_compiler
        export HATCH_BUILD_HOOK_ENABLE_CUSTOM=1
        tree="$tree compiled"
        say "compiling takes a minute or two"
    fi
    if [ "$(cat "$home/tree" 2>/dev/null)" != "$tree" ]; then
        rm -f "$home/venv/.fleetctl-installed"
    fi
    ensure_env "$home/venv" "fleetctl" --upgrade "$here"
    printf '%s\n' "$tree" >"$home/tree"
    if [ -e "$bin/fleetctl" ] && [ ! -L "$bin/fleetctl" ]; then
        die "$bin/fleetctl exists and is not ours" "move it away, or set FLEETCTL_BIN"
    fi
    ln -sfn "$home/venv/bin/fleetctl" "$bin/fleetctl"
    say "installed $("$bin/fleetctl" version 2>/dev/null | head -n 1) at $bin/fleetctl"
    case ":$PATH:" in *":$bin:"*) ;; *) say "$bin is not on PATH; add: export PATH=\"$bin:\$PATH\"" ;; esac
    offer_completion "$bin/fleetctl"
    "$bin/fleetctl" doctor
}

do_uninstall() { # [--force]
    local home bin
    home=$(user_home)
    bin=$(user_bin)
    [ "${1:-}" = --force ] || refuse_living "$home/venv"
    remove_completion "$home/venv/bin/fleetctl"
    if [ -L "$bin/fleetctl" ] && [ "$(readlink "$bin/fleetctl")" = "$home/venv/bin/fleetctl" ]; then
        rm -f "$bin/fleetctl"
    fi
    rm -rf "$home/venv" "$home/tree"
    rmdir "$home" 2>/dev/null || true
    local state="${XDG_STATE_HOME:-$HOME/.local/state}/fleetctl"
    if [ -e "$state" ]; then
        say "removed; fleets' records and journals stay in $state"
    else
        say "removed"
    fi
}

# What runs is asked of the processes too: a fleet may live under another state directory, or without its state.
refuse_living() { # VENV
    local fleets=() running=() line
    local take_down="take each down first: fleetctl down FLEET; or: ./install.sh uninstall --force"
    if [ -x "$1/bin/fleetctl" ]; then
        line=$("$1/bin/fleetctl" ls -o name 2>/dev/null) ||
            die "whether fleets are up cannot be seen" "see why: fleetctl ls; or: ./install.sh uninstall --force"
        [ -z "$line" ] || mapfile -t fleets <<<"$line"
    fi
    [ ${#fleets[@]} -eq 0 ] || die "fleets are up: ${fleets[*]}" "$take_down"
    while read -r line; do
        running+=("$line")
    done < <(ps -ww -eo pid=,args= | awk -v own="$1/bin/python" '$2 == own && $3 == "-m" { print $1 " (" $4 " " $5 ")" }')
    [ ${#running[@]} -eq 0 ] || die "fleets run on this installation: ${running[*]}" "$take_down"
}

# Only files that this program wrote: each names it.
remove_completion() { # FLEETCTL
    local shell
    for shell in bash zsh fish; do
        "$1" completion "$shell" --uninstall >/dev/null 2>&1 || true
    done
}

do_demo() {
    ensure_env "$here/.venv" "fleetctl" --editable "$here"
    exec "$here/.venv/bin/fleetctl" demo "$@"
}

# One test has a real cron daemon work on a live fleet. Where none can be had it is skipped, in CI it fails.
install_cron() {
    command -v apt-get >/dev/null 2>&1 || return 0
    (PATH=$PATH:/usr/sbin apt_install cron=cron) || say "no cron daemon: the test that needs one is skipped"
}

# Rendered rules are put before Prometheus' own promtool, and rendered monitors' targets scraped by Prometheus itself, both taken out
# of its package: no service is installed.
install_prometheus() { # VENV
    local unpacked
    [ -x "$1/bin/promtool" ] && [ -x "$1/bin/prometheus" ] && return 0
    command -v apt-get >/dev/null 2>&1 && command -v dpkg-deb >/dev/null 2>&1 || return 0
    say "fetching prometheus and promtool out of Debian's prometheus"
    unpacked=$(mktemp -d)
    if (cd "$unpacked" && as_root apt-get update -qq && apt-get download -qq prometheus && dpkg-deb -x prometheus_*.deb .) >/dev/null 2>&1; then
        cp "$unpacked/usr/bin/promtool" "$unpacked/usr/bin/prometheus" "$1/bin/"
    else
        say "no prometheus: the tests that need it are skipped"
    fi
    rm -rf "$unpacked"
}

# Rendered user data is put before cloud-init's own schema tool, taken out of its packages: its services are not installed.
install_cloud_init() { # VENV
    local unpacked package
    [ -x "$1/share/cloud-init/usr/bin/cloud-init" ] && return 0
    command -v apt-get >/dev/null 2>&1 && command -v dpkg-deb >/dev/null 2>&1 || return 0
    say "fetching cloud-init's schema tool out of Debian's packages"
    unpacked=$(mktemp -d)
    if (
        cd "$unpacked" && as_root apt-get update -qq &&
            apt-get download -qq cloud-init python3-configobj python3-jsonpatch python3-json-pointer python3-serial &&
            for package in *.deb; do dpkg-deb -x "$package" .; done && rm -- *.deb
    ) >/dev/null 2>&1; then
        mkdir -p "$1/share"
        rm -rf "$1/share/cloud-init"
        cp -r "$unpacked" "$1/share/cloud-init"
    else
        say "no cloud-init: the tests that need it are skipped"
    fi
    rm -rf "$unpacked"
}

do_test() {
    local engines=${CI:-false}
    if [ "${1:-}" = --engines ]; then
        engines=true
        shift
    fi
    apt_install git=git
    # Machines to log in to, each in a network namespace of its own.
    (PATH=$PATH:/usr/sbin:/sbin apt_install openssh-server=sshd openssh-client=ssh iproute2=ip) ||
        say "no sshd: the tests that log in to machines are skipped"
    # Where there is a systemd to be had, rendered units are put before its own parser.
    ! command -v apt-get >/dev/null 2>&1 || apt_install systemd=systemd-analyze
    # Where there is a Kubernetes control plane to be had, the tests' pods get certificates and addresses of their own.
    [ -z "${KUBEBUILDER_ASSETS:-}" ] || ! command -v apt-get >/dev/null 2>&1 || apt_install iproute2=ip openssl=openssl
    # The tests' AWS instances boot: network namespaces with addresses of their own, in which rendered scripts call curl.
    ! command -v apt-get >/dev/null 2>&1 || apt_install iproute2=ip curl=curl util-linux=unshare mount=mount
    install_cron
    # A test builds the compiled wheel and holds its decisions beside the sources'.
    ! command -v apt-get >/dev/null 2>&1 || ensure_compiler
    ensure_env "$here/.venv" "test" --editable "$here[dev]"
    install_prometheus "$here/.venv"
    install_cloud_init "$here/.venv"
    if [ "$engines" = true ]; then
        local python
        python=$(find_python)
        ensure_venv_module "$python"
        # vLLM's CPU kernels link to it; a library has no command to look for.
        "$python" -c 'import ctypes; ctypes.CDLL("libnuma.so.1")' 2>/dev/null || apt_get_install libnuma1
        PYTHON=$python "$here/tests/engine_env/setup.sh" "$here/.venv-engines"
        export FLEETCTL_ENGINE_ENV="$here/.venv-engines"
    fi
    export PATH="$here/.venv/bin:$PATH"
    cd "$here"
    if [ $# -gt 0 ]; then
        exec python -m pytest "$@"
    fi
    FLEETCTL_TESTS_BEGAN=$FLEETCTL_TESTS_BEGAN tests/gate.sh "$engines"
}

case "${1:-}" in
"" | --compiled) do_install "$@" ;;
demo) shift && do_demo "$@" ;;
test) shift && do_test "$@" ;;
uninstall) shift && do_uninstall "$@" ;;
-h | --help | help) usage ;;
*)
    usage >&2
    exit 2
    ;;
esac

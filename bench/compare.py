"""The rows of bench/compare.sh: what is run, and which of its numbers counts."""
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time

DEW = "build/release/dew"
PEERS = pathlib.Path(os.environ["PEERS"])
scratch = pathlib.Path(tempfile.mkdtemp(prefix="dew-compare-"))


def output(words, **more):
    done = subprocess.run(words, capture_output=True, text=True, timeout=900, **more)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr[-500:]}")
    return done.stdout


def train(config, *overrides):
    """Runs dew train in a directory of its own; the last line of its metrics, and its wall time."""
    run = scratch / "run"
    shutil.rmtree(run, ignore_errors=True)
    begin = time.perf_counter()
    output([DEW, "train", f"examples/{config}.toml", f"run.dir={run}", "run.checkpoint_every=0",
            *overrides])
    wall = time.perf_counter() - begin
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "step_ms" in line][-1], wall


def dew_step_ms(config, *overrides):
    return lambda: train(config, *overrides)[0]["step_ms"]


def dew_first_step(config, *overrides):
    return lambda: train(config, "run.steps=1", *overrides)[1]


def dew_decode(dtype):
    def run():
        wanted = f"decode<gpt2_124m>/64/{int(dtype == 'bf16')}"
        report = output(["build/release/bench/generate", f"--benchmark_filter={wanted}",
                         "--benchmark_format=json"])
        rows = json.loads(report)["benchmarks"]
        return 1e3 / rows[0]["real_time"]  # it is in ms a token
    return run


def peer(kind, script, *arguments, key, scale=1, processes=1):
    """One of the peers' scripts; the number `key` of its line of JSON, times `scale`."""
    python = os.environ.get(kind.upper())
    if not python:
        return None
    words = [python]
    if processes > 1:
        words += ["-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    words += [str(PEERS / kind / script), *arguments]

    def run():
        environment = dict(os.environ, T0=repr(time.time()), PYTHONDONTWRITEBYTECODE="1",
                           OMP_NUM_THREADS=str(os.cpu_count()))
        text = output(words, env=environment).strip().splitlines()[-1]
        return json.loads(text)[key] * scale
    return run


def notebook(*mesh):
    return dew_step_ms("notebook", "run.steps=300", "run.log_every=250", *mesh)


MESH256 = ("devices.spec=cpu:256", "mesh.fsdp=16", "mesh.tensor=16", "layout.min_shard=1",
           "model.num_heads=16", "model.num_kv_heads=8", "model.head_dim=16")

# name: (what, unit, is more better, ours, JAX's, PyTorch's)
ROWS = {
    "start": ("notebook's model: process start to the end of the first step", "s", False,
              dew_first_step("notebook"),
              peer("jax", "notebook.py", "--devices", "1", "--layout", "dp", "--steps", "20",
                   key="first_step_at_s"),
              peer("torch", "notebook.py", "--more", "1", key="start_to_first_step_s")),
    "notebook": ("the same: a step", "ms", False, notebook(),
                 peer("jax", "notebook.py", "--devices", "1", "--layout", "dp", "--steps", "200",
                      "--np-init", key="ms_step_median"),
                 peer("torch", "notebook.py", key="ms_per_step")),
    "compiled": ("the same, PyTorch compiled", "ms", False, notebook(), None,
                 peer("torch", "notebook.py", "--compile", "1", key="ms_per_step")),
    "data8": ("the same on 8 devices, data", "ms", False, notebook("devices.spec=cpu:8"),
              peer("jax", "notebook.py", "--devices", "8", "--layout", "dp", "--steps", "200",
                   "--np-init", key="ms_step_median"),
              peer("torch", "notebook.py", "--mode", "ddp", key="ms_per_step", processes=8)),
    "fsdp8": ("the same on 8 devices, fsdp", "ms", False,
              notebook("devices.spec=cpu:8", "mesh.fsdp=8"),
              peer("jax", "notebook.py", "--devices", "8", "--layout", "fsdp", "--steps", "200",
                   "--np-init", key="ms_step_median"),
              peer("torch", "notebook.py", "--mode", "fsdp", key="ms_per_step", processes=8)),
    "mesh256": ("the same on 256 devices, fsdp 16 x tensor 16, 16 heads", "ms", False,
                notebook(*MESH256),
                peer("jax", "notebook.py", "--devices", "256", "--layout", "fsdp_tp", "--steps",
                     "20", "--heads", "16", "--kv-heads", "8", "--batch", "16", "--np-init",
                     key="ms_step_median"), None),
    "gpt2": ("GPT-2 124M, 4 x 256 tokens, f32: a step", "ms", False,
             dew_step_ms("gpt2_124m", "run.steps=6", "run.log_every=3"),
             peer("jax", "gpt2.py", "--dtype", "f32", "--batch", "4", "--seq", "256", "--steps",
                  "5", "--budget", "80", key="step_s", scale=1e3),
             peer("torch", "gpt2.py", "--dtype", "f32", key="step_s", scale=1e3)),
    "gpt2_bf16": ("the same in bf16 over f32 parameters", "ms", False,
                  dew_step_ms("gpt2_124m", "run.steps=6", "run.log_every=3",
                              "precision.compute=bf16"),
                  peer("jax", "gpt2.py", "--dtype", "bf16", "--batch", "4", "--seq", "256",
                       "--steps", "5", "--budget", "80", key="step_s", scale=1e3),
                  peer("torch", "gpt2.py", "--dtype", "bf16", key="step_s", scale=1e3)),
    "gpt2_start": ("GPT-2 124M: process start to the end of the first step", "s", False,
                   dew_first_step("gpt2_124m"), None,
                   peer("torch", "gpt2.py", "--dtype", "f32", key="start_to_first_step_s")),
    "decode": ("GPT-2 124M, decoding, batch 1, f32", "tokens/s", True, dew_decode("f32"),
               peer("jax", "decode.py", "--loop", "scan", key="best_tok_s"),
               peer("torch", "gpt2.py", "--decode", "1", "--dtype", "f32", key="decode_tok_s")),
}


def processor():
    text = pathlib.Path("/proc/cpuinfo").read_text()
    name = re.search(r"model name\s*:\s*(.*)", text)
    return (name.group(1) if name else platform.machine()) + f", {os.cpu_count()} cores"


def best(values, more):
    values = [v for v in values if v is not None]
    return None if not values else (max if more else min)(values)


def cell(ours, theirs, more):
    if theirs is None:
        return "-"
    ratio = ours / theirs if more else theirs / ours
    return f"{theirs:.3g} ({ratio:.2f}x)"


def measure(run, failures):
    if run is None:
        return None
    try:
        return float(run())
    except (RuntimeError, subprocess.TimeoutExpired, KeyError, ValueError, OSError) as e:
        failures.append(str(e).strip().splitlines()[-1][:300])
        return None


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    names = sys.argv[2:] or list(ROWS)
    unknown = [n for n in names if n not in ROWS]
    if unknown:
        sys.exit(f"compare: there is no row {unknown[0]}; there are: {', '.join(ROWS)}")
    failures = []
    print(f"{processor()}; best of {rounds}; in brackets how many times faster dew is\n")
    print("| work | unit | dew | JAX | PyTorch |\n|---|---|---:|---:|---:|", flush=True)
    for name in names:
        what, unit, more, *runs = ROWS[name]
        samples = [[], [], []]
        for _ in range(rounds):
            for i, run in enumerate(runs):
                samples[i].append(measure(run, failures))
        ours, jax, torch = (best(s, more) for s in samples)
        if ours is None:
            print(f"| {what} | {unit} | failed | - | - |", flush=True)
            continue
        print(f"| {what} | {unit} | {ours:.3g} | {cell(ours, jax, more)} | "
              f"{cell(ours, torch, more)} |", flush=True)
    for failure in failures:
        print(f"failed: {failure}", file=sys.stderr)


try:
    main()
finally:
    shutil.rmtree(scratch, ignore_errors=True)

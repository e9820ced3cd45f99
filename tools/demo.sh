#!/usr/bin/env bash
# make demo: a transformer learns the King James Bible, byte by byte, on this machine's cores.
set -euo pipefail
cd "$(dirname "$0")/.."
dew=build/release/dew
work=build/demo
mkdir -p "$work"

if [ ! -s "$work/kjv.txt" ]; then
  bible -f Gen1:1-Rev22:21 > "$work/kjv.txt.part"
  mv "$work/kjv.txt.part" "$work/kjv.txt"
fi
[ -f "$work/tokens/meta.json" ] || $dew tokenize "$work/kjv.txt" --out "$work/tokens"

rm -rf "$work/run"  # each demo learns from the beginning
$dew train examples/demo.toml data.path="$work/tokens" run.dir="$work/run"
$dew eval "$work/run" --data "$work/tokens" --json > "$work/eval.json"

loss=$(sed -n 's/.*"loss": *\([-0-9.e]*\).*/\1/p' "$work/eval.json" | head -1)
awk -v loss="$loss" 'BEGIN { printf "validation: %.4f nats, %.4f bits per byte\n", loss, loss / log(2) }'

#!/usr/bin/env bash
# make demo: a transformer learns the King James Bible, byte by byte, on this machine's cores.
# usage: demo.sh [KEY=VALUE]...   (on top of examples/demo.toml)
set -euo pipefail
cd "$(dirname "$0")/.."
dew=${DEW_PROGRAM:-build/release/dew}
work=${DEW_DEMO_DIR:-build/demo}
mkdir -p "$work"

if [ ! -s "$work/kjv.txt" ]; then
  bible -f Gen1:1-Rev22:21 > "$work/kjv.txt.part"
  mv "$work/kjv.txt.part" "$work/kjv.txt"
fi
if [ ! -f "$work/tokens/meta.json" ]; then
  "$dew" tokenize "$work/kjv.txt" --out "$work/tokens" --val-fraction 0.02
fi

rm -rf "$work/run"  # each demo learns from the beginning
"$dew" train examples/demo.toml data.path="$work/tokens" run.dir="$work/run" "$@"
echo
echo "On the first 2 % of the text, which it has not seen:"
"$dew" eval "$work/run" --data "$work/tokens"
echo
echo "What it makes of a beginning:"
echo
printf 'In the beginning'
"$dew" generate "$work/run" --prompt "In the beginning" --tokens 400 --temperature 0.7 --seed 1

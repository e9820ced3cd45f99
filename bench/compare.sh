#!/usr/bin/env bash
# The same work in dew and in JAX and PyTorch, in turn on this machine, as one Markdown table.
#
#   PEERS=DIR JAX=PYTHON TORCH=PYTHON bench/compare.sh [ROUNDS] [ROW...]
#
# DIR has the scripts of the peers (jax/notebook.py, jax/gpt2.py, jax/decode.py, torch/notebook.py,
# torch/gpt2.py: each prints one line of JSON). JAX and TORCH are interpreters that have the
# packages; a peer without one is left out of the table. Every row is run ROUNDS times (2), the
# programs in turn, and the best time of each counts. bench/compare.py names the rows.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -d "${PEERS:-}" ] || { echo "compare: PEERS must be the folder with the peers' scripts" >&2; exit 2; }
make --no-print-directory build
cmake --preset release > /dev/null
cmake --build build/release --target bench_generate > /dev/null
# Settings for an older OpenBLAS would slow the peers.
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE
exec python3 bench/compare.py "$@"

#!/usr/bin/env bash
# The batch that other systems refuse: 256 devices as fsdp = 16 x tensor = 16, four in each of 64
# processes, and a global batch of 16, 128, 17 and 1 rows (or those given). Each run is made in one
# process too, and the losses must be equal. On two cores it takes some minutes; processes that wait
# sleep.
#
#   examples/small_batch.sh [ROWS...]        DEW: the program; STEPS, PROCESSES: of the runs
set -euo pipefail
cd "$(dirname "$0")/.."
dew=${DEW:-build/release/dew} steps=${STEPS:-3} processes=${PROCESSES:-64}
[ $# -gt 0 ] || set -- 16 128 17 1
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT
launch=(mpirun --oversubscribe -n "$processes")
[ "$(id -u)" -ne 0 ] || launch=(mpirun --allow-run-as-root --oversubscribe -n "$processes")

# train DIRECTORY ROWS COMMAND...
train() {
  local run=$1 rows=$2
  shift 2
  "$@" train examples/small_batch.toml "run.dir=$run" "run.steps=$steps" "data.global_batch=$rows" \
    2> "$run.log" || { cat "$run.log" >&2; exit 1; }
}
# value NAME DIRECTORY: of each line of the run's metrics
value() { sed -n "s/.*\"$1\":\([-0-9.e+]*\).*/\1/p" "$2/metrics.jsonl"; }
# What a process reads of a batch.
rows_of() { awk -v p="$1" 'split($1, r, "-") && r[1] <= p && p <= (r[2] == "" ? r[1] : r[2]) {
                             sub(/^[^ ]+ +[^ ]+ +/, ""); print; exit }' <<< "$plan"; }

echo "| processes x devices | rows | pads | process 0; 1; $((processes - 1)) read | loss of step $steps | apart from one process | s a step |"
echo "|---|---|---|---|---|---|---|"
for rows; do
  train "$runs/one$rows" "$rows" "$dew"
  train "$runs/all$rows" "$rows" "${launch[@]}" "$dew"
  plan=$("$dew" dispatch --mesh fsdp=16,tensor=16 --global-batch "$rows" --seq-len 32 \
    --per-process $((256 / processes)) 2> /dev/null)
  pads=$(sed -n 's/.*, \([0-9]*\) pads\{0,1\} (.*/\1/p' <<< "$plan" | head -1)
  plan=$(sed '1,/^process/d' <<< "$plan")
  paste <(value loss "$runs/one$rows") <(value loss "$runs/all$rows") \
        <(value step_ms "$runs/all$rows") |
    awk -v what="$processes x $((256 / processes)) | $rows | $pads | $(rows_of 0); $(rows_of 1); $(rows_of $((processes - 1)))" '
      { apart = ($2 - $1) / $1; if (apart < 0) apart = -apart
        if (apart > worst) worst = apart
        loss = $2; s = $3 / 1000; if (fastest == 0 || s < fastest) fastest = s }
      END { printf "| %s | %.4f | %.1e | %.2f |\n", what, loss, worst, fastest
            if (NR == 0 || worst > 1e-5) { print "the losses differ" > "/dev/stderr"; exit 1 } }'
done

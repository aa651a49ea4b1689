#!/usr/bin/env bash
# Tables of the paper on one GPU that many processes share, in pieces that can be continued.
#
#   scripts/reproduce_gpu.sh [-j JOBS] [-s SECONDS] [-o DIR] TABLE... [-- OPTIONS of gsparc reproduce]
#
#   -j  processes; default: one a core
#   -s  stop after so many seconds, as Ctrl-C would: finished cells are kept, and the same command goes on from them
#   -o  folder of the results; default: reproduced
#
# Without NVIDIA's MPS processes take turns on a GPU; with it they compute side by side. Where it is installed it is
# started here, for these processes alone, and ended with them. The leak test (audit, or all) needs no GPU: beside tables
# it runs on cores that these leave idle while they wait for the GPU, by a quarter as many processes of one thread, and
# writes to DIR/audit.log. Wall-clock seconds of every call are added to DIR/seconds.txt. PYTHON names the interpreter;
# default: python3.
set -euo pipefail

usage() { sed -n '2,15s/^# \{0,1\}//p' "$0" >&2; exit 2; }
jobs=$(nproc) seconds="" folder=reproduced
while getopts "j:s:o:" option; do
  case $option in
    j) jobs=$OPTARG ;;
    s) seconds=$OPTARG ;;
    o) folder=$OPTARG ;;
    *) usage ;;
  esac
done
shift $((OPTIND - 1))
tables=()
while (($#)) && [[ $1 != -- ]]; do tables+=("$1"); shift; done
(($#)) && shift
((${#tables[@]})) || usage
mkdir -p "$folder"

if command -v nvidia-cuda-mps-control >/dev/null; then
  place=$(mktemp -d)
  export CUDA_MPS_PIPE_DIRECTORY=$place/pipe CUDA_MPS_LOG_DIRECTORY=$place/log
  mkdir "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
  nvidia-cuda-mps-control -d
  trap 'echo quit | timeout 20 nvidia-cuda-mps-control >/dev/null 2>&1; rm -rf "$place"' EXIT
else
  echo "note: no nvidia-cuda-mps-control here; on a GPU the processes will take turns." >&2
fi

command_ending_by() {  # sets command: what runs gsparc reproduce, and when time is up ends it by this signal
  command=("${PYTHON:-python3}" -m gsparc reproduce --resume -o "$folder")
  [[ -z $seconds ]] || command=(timeout --signal="$1" --kill-after=60 "$seconds" "${command[@]}")
}
stopped() { (($1 == 130 || $1 == 124 || $1 == 143)); }

# What is named, without the leak test, and the options that it shares with tables.
own=() beside="" shared=() start=$SECONDS status=0 leaks=0
for table in "${tables[@]}"; do
  case $table in
    all) beside=yes; own+=(neighbourhood classification clustering links minibatch cold-share laplacians) ;;
    audit) beside=yes ;;
    *) own+=("$table") ;;
  esac
done
((${#own[@]})) || { beside="" own=(audit); }
options=("$@")
for ((i = 0; i < $#; i++)); do
  case ${options[i]} in
    --datasets | --data-dir) shared+=("${options[i]}" "${options[i + 1]:-}") ;;
    --datasets=* | --data-dir=* | --smoke) shared+=("${options[i]}") ;;
  esac
done

if [[ $beside ]]; then  # in the background an interrupt is not heard: it is ended otherwise, and keeps its fits, too
  command_ending_by TERM
  OMP_NUM_THREADS=1 "${command[@]}" audit "${shared[@]}" --jobs $(((jobs + 3) / 4)) >"$folder/audit.log" 2>&1 &
  audit=$!
fi
command_ending_by INT
"${command[@]}" "${own[@]}" --jobs "$jobs" "$@" || status=$?
if [[ $beside ]]; then
  ! stopped "$status" || kill "$audit" 2>/dev/null || true
  wait "$audit" || leaks=$?
  ((leaks == 0)) || stopped "$leaks" || { echo "the leak test ended with status $leaks:" >&2; tail -n 5 "$folder/audit.log" >&2; }
  ((status != 0)) || status=$leaks
fi
! stopped "$status" || status=130
echo "$(date -u +%Y-%m-%dT%H:%M:%SZ) ${tables[*]}: $((SECONDS - start)) s, status $status" | tee -a "$folder/seconds.txt" >&2
((status != 130)) || echo "stopped; the same command goes on from here." >&2
exit "$status"

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
# started here, for these processes alone, and ended with them. Wall-clock seconds of every call are added to
# DIR/seconds.txt. PYTHON names the interpreter; default: python3.
set -euo pipefail

jobs=$(nproc) seconds="" folder=reproduced
while getopts "j:s:o:" option; do
  case $option in
    j) jobs=$OPTARG ;;
    s) seconds=$OPTARG ;;
    o) folder=$OPTARG ;;
    *) sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
done
shift $((OPTIND - 1))
tables=()
while (($#)) && [[ $1 != -- ]]; do tables+=("$1"); shift; done
(($#)) && shift
((${#tables[@]})) || { sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2; }
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

limit=()
[[ -z $seconds ]] || limit=(timeout --signal=INT --kill-after=60 "$seconds")
start=$SECONDS status=0
"${limit[@]}" "${PYTHON:-python3}" -m gsparc reproduce "${tables[@]}" --jobs "$jobs" --resume -o "$folder" "$@" || status=$?
echo "$(date -u +%Y-%m-%dT%H:%M:%SZ) ${tables[*]}: $((SECONDS - start)) s, status $status" | tee -a "$folder/seconds.txt" >&2
((status != 130 && status != 124)) || { echo "stopped; the same command goes on from here." >&2; exit 130; }
exit "$status"

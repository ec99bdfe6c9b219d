#!/usr/bin/env bash
# Builds, checks, times and captures a set of pairs on one GPU, in about four minutes: `run_unseen.sh unseen2 OUT`.
#
# Needs nvcc (or PAIRS, the program built elsewhere), PyTorch and Nsight Compute (NCU names another than the newest). Leaves in OUT one packed report of the CUDA
# faults and its details page, one of each PyTorch fault, times.json, verify.txt and machine.txt.
set -u
out=$(realpath -m "$2"); mkdir -p "$out"
cd "$(dirname "$0")/$1" || exit
raw=$(mktemp -d); export PYTHONUNBUFFERED=1 PYTHONWARNINGS=ignore
export PYTHONPATH=${SOURCES:-$PWD/../../../src}${PYTHONPATH:+:$PYTHONPATH}
ncu=${NCU:-$(command -v ncu || ls /opt/nvidia/nsight-compute/*/ncu 2>/dev/null | tail -1)}
said() { echo "== $*, after $SECONDS s"; }

capture() {  # capture NAME PROGRAM...: one packed report, without libraries' code and host names
  local name=$1; shift
  timeout 150 "$ncu" --set full --import-source off --clock-control none --profile-from-start off --launch-count 40 \
    ${filter:+-k "$filter"} -f -o "$raw/$name" "$@" >"$raw/$name.log" 2>&1 || { said "$name failed"; tail -5 "$raw/$name.log"; }
  [[ -e "$raw/$name.ncu-rep" ]] || return
  python3 ../known_shapes/trim.py "$raw/$name.ncu-rep" "$raw/$name.small" && python3 - "$raw/$name.small" "$raw/small_$name.ncu-rep" <<'PY'
import sys
from pathlib import Path
from timesink.capture.redaction import redact
print(redact(Path(sys.argv[1]), Path(sys.argv[2])).removed)
PY
  xz -9e -c "$raw/small_$name.ncu-rep" >"$out/$name.ncu-rep.xz"
}

said build; if [[ -n ${PAIRS:-} ]]; then cp "$PAIRS" "$raw/pairs"; else bash ../build.sh "$raw" sm_90a "$PWD/pairs"; fi || exit
{ nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.max.sm,clocks.mem,temperature.gpu --format=csv
  "$ncu" --version | tail -1; nvcc --version | tail -2
  python3 -c 'import torch; print("PyTorch", torch.__version__)'; } >"$out/machine.txt" 2>&1
said verify; timeout 60 "$raw/pairs" --verify 2>&1 | tee "$out/verify.txt"
said time; timeout 60 "$raw/pairs" --time "$raw/cuda.json"; timeout 180 python3 torch_pairs.py time "$raw/torch.json" | tee -a "$out/verify.txt"
python3 -c 'import json, sys; print(json.dumps({k: v for f in sys.argv[1:] for k, v in json.load(open(f)).items()}, indent=1))' \
  "$raw/cuda.json" "$raw/torch.json" >"$out/times.json"
said capture; filter='regex:_fault$' ONE_LAUNCH=1 capture cuda "$raw/pairs" --capture unseen
"$ncu" --import "$raw/cuda.ncu-rep" --page details --csv | xz -9e >"$out/cuda.details.csv.xz"
if grep -q '^import triton' torch_pairs.py; then filter='regex:_fault$' capture triton python3 torch_pairs.py capture every
else for pair in $(sed -n 's/^    main(\(.*\))/\1/p' torch_pairs.py | tr -d ,); do
  said "$pair"; filter='' capture "$pair" python3 torch_pairs.py capture "$pair"
done; fi
tail -qn 2 "$raw"/*.log | cut -c1-300; ls -la "$raw" "$out"; said done

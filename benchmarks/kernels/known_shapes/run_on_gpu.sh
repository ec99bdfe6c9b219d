#!/usr/bin/env bash
# Records the products and attentions of this folder on one GPU, in about three minutes: `run_on_gpu.sh OUT`.
#
# Needs PyTorch and Nsight Compute (NCU names another than the newest). Leaves in OUT shapes.json (what was multiplied, and how
# long it takes unprofiled), a report of each set and the pages ncu prints of it, all packed.
set -u
out=$(realpath -m "$1"); mkdir -p "$out"
cd "$(dirname "$0")" || exit
raw=$(mktemp -d); export PYTHONUNBUFFERED=1 PYTHONWARNINGS=ignore
export PYTHONPATH=$PWD/../../../src${PYTHONPATH:+:$PYTHONPATH}
ncu=${NCU:-$(command -v ncu || ls /opt/nvidia/nsight-compute/*/ncu 2>/dev/null | tail -1)}
said() { echo "== $*, after $SECONDS s"; }

said truth; timeout 120 python3 record.py truth "$out" || exit
for set in detailed full; do
  said "ncu --set $set"
  timeout 200 "$ncu" --set $set --import-source off --clock-control none --nvtx --profile-from-start off --launch-count 40 \
    -f -o "$raw/$set" python3 record.py ncu "$raw" >"$raw/$set.log" 2>&1 || { said "$set failed"; tail -5 "$raw/$set.log"; }
  [[ -e "$raw/$set.ncu-rep" ]] || continue
  python3 trim.py "$raw/$set.ncu-rep" "$raw/$set.small" && python3 - "$raw/$set.small" "$raw/small_$set.ncu-rep" <<'PY'
import sys
from pathlib import Path
from timesink.capture.redaction.cleaner import Cleaner
from timesink.capture.redaction.binary_files import redact_ncu
print(redact_ncu(Path(sys.argv[1]), Path(sys.argv[2]), Cleaner()))
PY
  xz -9e -T4 -c "$raw/small_$set.ncu-rep" >"$out/$set.ncu-rep.xz"
  "$ncu" --import "$raw/$set.ncu-rep" --page details --csv 2>&1 | xz -9e >"$out/$set.details.csv.xz"
done
"$ncu" --import "$raw/detailed.ncu-rep" --page raw --csv 2>&1 | xz -9e >"$out/detailed.raw.csv.xz"
tail -3 "$raw"/*.log | cut -c1-300; ls -la "$raw" "$out"; said done

#!/usr/bin/env bash
# Records everything of this folder on one GPU, in about a minute: `run_on_gpu.sh OUT`.
#
# Needs PyTorch and Nsight Systems (the nsys inside Nsight Compute will do; DEBS: a folder with libdw1 and libelf1, where
# the machine lacks them). Leaves archives of what the tools wrote in OUT; `TRUTH=1` measures unprofiled steps first.
set -u
out=$(realpath -m "$1"); mkdir -p "$out"; debs=${DEBS:+$(realpath "$DEBS")}
cd "$(dirname "$0")" || exit
raw=$(mktemp -d); export PYTHONUNBUFFERED=1 PYTHONWARNINGS=ignore
[ -e call_lines.py ] || cp ../../src/timesink/capture/agent/call_lines.py "$raw/"
export PYTHONPATH=$raw${PYTHONPATH:+:$PYTHONPATH}
if [[ -n "$debs" ]]; then
  libraries=$(mktemp -d); for package in "$debs"/*.deb; do dpkg -x "$package" "$libraries"; done
  LD_LIBRARY_PATH=$(find "$libraries" -name '*.so.*' -printf '%h\n' | sort -u | paste -sd:)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  export LD_LIBRARY_PATH
fi
nsys=${NSYS:-$(command -v nsys || true)}
ncu=$(command -v ncu || ls /opt/nvidia/nsight-compute/*/ncu 2>/dev/null | tail -1)
if [[ -z "$nsys" ]]; then
  for host in /opt/nvidia/nsight-compute/*/host; do
    [[ -e "$host/host-linux-x64" ]] || ln -sfn linux-desktop-glibc_2_11_3-x64 "$host/host-linux-x64"
    nsys="$host/target-linux-x64/nsys"
  done
fi
said() { echo "== $*, after $SECONDS s"; }
pack() { (cd "$raw" && tar cf - $2 | xz -2 -T4) >"$out/$1.tar.xz"; }

if [[ -n "${TRUTH:-}" ]]; then said truth; python3 record.py truth "$out"; fi
said torch
python3 record.py torch "$raw" >"$raw/torch.log" 2>&1 || tail -5 "$raw/torch.log"
python3 record.py small "$raw" >"$raw/small.log" 2>&1 || tail -5 "$raw/small.log"
pack torch "$(cd "$raw" && ls ./*.json)" &

record() { # verb, name, options...
  local verb=$1 name=$2; shift 2
  timeout 40 "$nsys" profile -t cuda,nvtx,osrt -c cudaProfilerApi --capture-range-end=stop --resolve-symbols=false \
    -f true "$@" -o "$raw/$verb-$name" python3 record.py "$verb" "$name" "$raw" >"$raw/$verb-$name.log" 2>&1 \
    || { said "$verb $name failed"; tail -5 "$raw/$verb-$name.log"; }
}
exported() {
  timeout 40 "$nsys" export --type sqlite --include-json=true -f true -q true -o "$raw/$1.sqlite" "$raw/$1.nsys-rep" \
    2>&1 | tail -2
}
said metrics
for kind in low_activity memory_bound products; do
  record metrics $kind --sample=none --cpuctxsw=none --gpu-metrics-devices=all --gpu-metrics-frequency=10000
  { exported metrics-$kind; pack metrics-$kind metrics-$kind.sqlite; } &
done
said nsys with Python stacks
for name in item_every_row python_metric batch_on_host copy_pageable scan_of_few_rows; do
  { record nsys $name --sample=process-tree --cpuctxsw=none --cudabacktrace=kernel:0,memory:0,sync:0 \
      --python-backtrace=cuda --python-sampling=true --python-sampling-frequency=1000; exported nsys-$name; } &
done
wait
pack nsys "$(cd "$raw" && ls nsys-*.sqlite)"
said ncu
timeout 25 "$ncu" --profile-from-start off --clock-control none --csv --page raw --metrics \
  sm__cycles_active.avg.pct_of_peak_sustained_elapsed,dram__bytes_read.sum.pct_of_peak_sustained_elapsed,dram__bytes_write.sum.pct_of_peak_sustained_elapsed,gpu__time_duration.sum \
  python3 record.py ncu "$raw" >"$raw/ncu.csv" 2>&1; tail -3 "$raw/ncu.csv" | cut -c1-300
"$nsys" export --help >"$raw/export_help.log" 2>&1
pack logs "$(cd "$raw" && ls ./*.csv ./*.log)"
ls -la "$raw" "$out"; said done

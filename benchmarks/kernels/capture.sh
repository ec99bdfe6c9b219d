#!/usr/bin/env bash
# Build, check, time and capture the suite on this machine's GPU: capture.sh OUTDIR
# Leaves OUTDIR/kernels.tar: times.json, verify.txt, machine.txt, one report per group (xz, or gzip) and its exports.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: capture.sh OUTDIR}
work=$(mktemp -d)
mkdir -p "$out" "$work/results"
results=$work/results
bash "$here/build.sh" "$work" || exit 1
{ nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.max.sm,clocks.mem,temperature.gpu --format=csv
  ncu --version | tail -1
  nvcc --version | tail -2; } > "$results/machine.txt" 2>&1
"$work/pairs" --verify 2>&1 | tee "$results/verify.txt" || echo "not every pair agrees: see verify.txt"
"$work/pairs" --time "$results/times.json" || echo "timing failed"
groups=$("$work/pairs" --list | cut -d' ' -f1 | sort -u)
for group in $groups; do
  timeout 60 ncu --set full --import-source off --clock-control none --profile-from-start off -f \
    -o "$results/$group" "$work/pairs" --capture "$group" > "$work/$group.log" 2>&1 || tail -5 "$work/$group.log"
done
# Exports of one report, as the reader's counterpart: every page and spelling that ncu writes.
one=$results/atomics.ncu-rep
if [ -f "$one" ]; then
  ncu --import "$one" --page raw --csv > "$results/atomics.raw_auto.csv"
  ncu --import "$one" --page raw --csv --print-units base > "$results/atomics.raw_base.csv"
  ncu --import "$one" --page details --csv > "$results/atomics.details_label.csv"
  ncu --import "$one" --page details --csv --print-metric-name name > "$results/atomics.details_name.csv"
fi
ls -l "$results"
if command -v xz > /dev/null; then find "$results" -size +20k -exec xz -6 -T 0 {} +
else find "$results" -size +20k -exec gzip -9 {} +; fi
tar -C "$results" -cf "$out/kernels.tar" .
ls -l "$results" "$out/kernels.tar"
rm -r "$work"

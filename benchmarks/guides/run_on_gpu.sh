#!/usr/bin/env bash
# run_on_gpu.sh OUT one|two: what guides ask for on one GPU (about 170 s), or on two (about 130 s), by the commands of the guides as timesink spells them.
#
# Needs PyTorch with Triton, Nsight Compute and an nsys (the one inside Nsight Compute will do). Leaves in OUT guides-one.tar.xz or guides-two.tar.xz (redacted
# exports, traces, manifests, logs; kept reports are weighed and deleted) and guides-*.log. TRIAL=1: only says what it would run. PYTHON, SECONDS_MAX.
set -u
out=$(realpath -m "$1"); part=$2; mkdir -p "$out"
cd "$(dirname "$0")" || exit
python=${PYTHON:-python3}; limit=${SECONDS_MAX:-230}; raw=$(mktemp -d); log=$out/guides-$part.log; : >"$log"
export PYTHONUNBUFFERED=1 PYTHONWARNINGS=ignore NO_COLOR=1
export PYTHONPATH=${SOURCES:-$PWD/../../src}${PYTHONPATH:+:$PYTHONPATH}
for host in /opt/nvidia/nsight-compute/*/host; do
  [[ -d "$host" && ! -e "$host/host-linux-x64" ]] && ln -sfn linux-desktop-glibc_2_11_3-x64 "$host/host-linux-x64"
done

run() { # run NAME WORDS...: one command, its words and seconds in the log; nothing begins when time is short
  local name=$1 begun=$SECONDS; shift
  if ((SECONDS > limit - 15)); then echo "== $name: no time left" | tee -a "$log"; return; fi
  if [[ -n ${TRIAL:-} ]]; then echo "== $name: $*" | tee -a "$log"; return; fi
  timeout $((limit - SECONDS)) "$@" >"$raw/$name.txt" 2>&1; local status=$?
  echo "== $name: status $status, $((SECONDS - begun)) s: $*" | tee -a "$log"
  tail -8 "$raw/$name.txt" | cut -c1-300 | tee -a "$log"
}
capture() { # capture NAME TOOL WORDS...
  local name=$1; shift
  run "$name" "$python" -m timesink capture "$1" -q -o "$raw/$name" "${@:2}"
}
ncu() { local name=$1; shift; capture "$name" ncu --whole "$@"; }

{ nvidia-smi --query-gpu=name,driver_version,clocks.max.sm --format=csv,noheader; "$python" --version
  "$python" -c 'import torch, triton; print("PyTorch", torch.__version__, "Triton", triton.__version__)'; } >>"$log" 2>&1
"$python" -m timesink doctor 2>&1 | cut -c1-200 >>"$log"

torchrun=("$python" -m torch.distributed.run --nproc-per-node=2 programs.py tensor_parallel)
if [[ $part == one ]]; then
  # the lab: phases, samples of the CPU, the report kept; then its fix
  capture lab_before nsys --trace cuda,nvtx,osrt --cpu-samples --keep-report --steps 8 -- "$python" programs.py training
  capture lab_after nsys --trace cuda,nvtx,osrt --keep-report --steps 8 -- "$python" programs.py training workers=4
  # a server, after its start
  capture server nsys --trace cuda,nvtx --delay 5 --duration 10 -- "$python" programs.py server
  # one launch of one kernel; the roofline's set; the program replayed
  ncu one_launch --kernels rmsnorm_fwd --set full --launch-skip 50 --launch-count 1 -- "$python" programs.py bench
  ncu roofline --kernels '.*(gemm|nvjet).*' --set roofline --launch-skip 25 --launch-count 5 -- "$python" programs.py layer count=8
  ncu replayed --kernels rmsnorm_fwd --replay application --launch-count 1 --metrics \
    gpu__time_duration.sum,sm__throughput.avg.pct_of_peak_sustained_elapsed,dram__throughput.avg.pct_of_peak_sustained_elapsed -- "$python" programs.py bench count=4
  # the post's script: ncu from Python, figures into a file
  run automated "$python" automated.py "$raw/automated" "$raw/current.json"
  # the post's layer, and eight of them, under both timeline tools
  run layer_alone "$python" programs.py layer
  capture layer_nsys nsys --trace cuda,nvtx --whole -- "$python" programs.py layer count=12
  capture layer_torch torch --whole -- "$python" programs.py layer count=12
  capture layers_torch torch --whole -- "$python" programs.py layer count=4 layers=8
else
  exchange=("$python" -m torch.distributed.run --nproc-per-node=2 programs.py exchange)
  capture nccl nsys --trace cuda,nvtx,osrt,nccl --steps 2 -- "${exchange[@]}" steps=12
  capture nvlink nsys --trace cuda,nvtx --gpu-metrics --steps 3 -- "${exchange[@]}" megabytes=256 steps=14
  for mode in eager compiled broken; do
    capture "tp_$mode" torch --steps 4 --timed 100 --fact mode=$mode -- "${torchrun[@]}" mode=$mode
  done
  capture tp_blocks torch --steps 4 --fact mode=eager -- "${torchrun[@]}" mode=eager wait=1
  for mode in compiled broken; do
    run "breaks_$mode" env TORCH_LOGS=graph_breaks "${torchrun[@]}" mode=$mode steps=3
  done
fi
cd "$raw" || exit
find . -name '*.nsys-rep' -printf 'kept report %p: %s bytes\n' | tee -a "$log"
find . -name '*.nsys-rep' -delete
find . -type f -printf '%s %p\n' | sort -n >>"$log"
tar cf - . | xz -6 -T0 >"$out/guides-$part.tar.xz"
ls -l "$out" | tee -a "$log"; echo "== done after $SECONDS s" | tee -a "$log"

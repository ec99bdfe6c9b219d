#!/usr/bin/env bash
# Pipelines of two GPUs at depth 1, 2 and 4, schedules, and collectives, in about four minutes: `run_on_gpu.sh OUT`.
# Needs PyTorch; where NCCL_TESTS names a built nccl-tests, its figures too.
set -u
out=$(realpath -m "$1"); mkdir -p "$out"
cd "$(dirname "$0")" || exit
export PYTHONPATH=$PWD/../../src${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 PYTHONWARNINGS=ignore CUDA_MODULE_LOADING=EAGER
export NCCL_NVLS_ENABLE=0 OMP_NUM_THREADS=4 TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING=false
run() { timeout 100 python3 -m torch.distributed.run --nproc-per-node 2 "$@" 2>&1 | grep -v Warning | tee -a "$out/said.txt"; }
traces() {  # traces NAME: trims and packs what lies in $out/NAME
  for trace in "$out/$1"/*.rank?.json; do python3 trim.py "$trace" "$trace.small" && mv "$trace.small" "$trace"; done
  rm -f "$out/$1"/cost*; (cd "$out/$1" && tar cf - ./* | xz -9 -T0) >"$out/$1.tar.xz"; rm -r "${out:?}/$1"
}
mkdir -p "$out"/{plain,few_channels,long_transform,long_encode,schedules}
run program.py "$out/plain" 1 2 4 --cost
NCCL_MAX_P2P_NCHANNELS=2 NCCL_MIN_P2P_NCHANNELS=2 run program.py "$out/few_channels" 1 2 4
WORK=6,18,7 run program.py "$out/long_transform" 1 2 4
WORK=11,9,5 run program.py "$out/long_encode" 1 2 4
run schedules.py "$out/schedules" serial:1 1f1b:4 1f1b:8 1f1b:16 gpipe:4 gpipe:8 gpipe:16 interleaved:4
for name in plain few_channels long_transform long_encode schedules; do traces $name; done
python3 -c 'import json, sys
sizes = [4096 * 4**power for power in range(9)]
json.dump({"calls": [[kind, size] for kind in ("allreduce", "allgather", "reducescatter", "sendrecv") for size in sizes]}, open(sys.argv[1], "w"))' "$out/plan.json"
run ../../src/timesink/capture/nccl_bench.py "$out/plan.json" "$out/collectives.json"
for test in ${NCCL_TESTS:+all_reduce all_gather reduce_scatter sendrecv}; do
  NCCL_GRAPH_REGISTER=0 "$NCCL_TESTS/${test}_perf" -g 2 -b 4K -e 256M -f 4 -c 0 -n 100 -w 10 -G 5 -d bfloat16 >"$out/$test.txt"
done
nvidia-smi topo -m | head -4; ls -la "$out"

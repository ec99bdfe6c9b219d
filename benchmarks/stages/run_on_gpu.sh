#!/usr/bin/env bash
# Logs and traces a pipeline of two GPUs at depth 1, 2 and 4, in about a minute: `run_on_gpu.sh OUT`. Needs PyTorch.
set -u
out=$(realpath -m "$1"); mkdir -p "$out/raw"
cd "$(dirname "$0")" || exit
export PYTHONPATH=$PWD/../../src${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 CUDA_MODULE_LOADING=EAGER
NCCL_NVLS_ENABLE=0 timeout 100 python3 -m torch.distributed.run --nproc-per-node 2 program.py "$out/raw" 2>&1 | grep -v Warning | tee "$out/said.txt"
rm -f "$out/raw/cost.rank0.jsonl"
(cd "$out/raw" && tar cf - ./*.json ./*.jsonl | xz -6 -T4) >"$out/stages.tar.xz"
ls -la "$out" "$out/raw"
nvidia-smi topo -m | head -4
rm -r "$out/raw"

#!/usr/bin/env bash
# All servers on one GPU, in about five minutes: `run_on_gpu.sh OUT`; with `exchange` before OUT, the experts on two GPUs, in one.
# Needs PyTorch with CUDA, and nsys for servers. DEBS: a folder of Debian packages with libdw1 and libelf1, where nsys needs them.
set -uo pipefail
cd "$(dirname "$0")/../.."
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 PYTHONWARNINGS=ignore OMP_NUM_THREADS=4
scratch=$(mktemp -d)
if [[ $1 == exchange ]]; then
    out=$(realpath -m "$2"); mkdir -p "$out"
    NCCL_NVLS_ENABLE=0 CUDA_MODULE_LOADING=EAGER timeout 150 python3 -m torch.distributed.run --nproc-per-node 2 \
        -m benchmarks.serving.exchange "$scratch" 2>&1 | grep -v Warning | tail -30
    cp "$scratch/exchange.json" "$out"
    for trace in "$scratch"/*.rank?.json; do
        python3 -m benchmarks.faults.trim torch "$trace" "$trace.small" --steps 999 && mv "$trace.small" "$trace"
    done
    (cd "$scratch" && tar cf - ./*.rank?.json | xz -6 -T0) >"$out/exchange.tar.xz"
    exit
fi
out=$(realpath -m "$1"); mkdir -p "$out"
if [[ -n "${DEBS:-}" ]]; then
    libraries=$(mktemp -d)
    for package in "$DEBS"/*.deb; do dpkg -x "$package" "$libraries"; done
    LD_LIBRARY_PATH=$(find "$libraries" -name '*.so.*' -printf '%h\n' | sort -u | paste -sd:)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export LD_LIBRARY_PATH
fi
NSYS=${NSYS:-$(command -v nsys)}
for host in /opt/nvidia/nsight-compute/*/host; do  # Nsight Compute ships an nsys whose importer lies beside it under another name
    if [[ -z "$NSYS" && -x "$host/target-linux-x64/nsys" ]]; then
        [[ -e "$host/host-linux-x64" ]] || ln -sfn linux-desktop-glibc_2_11_3-x64 "$host/host-linux-x64"
        NSYS="$host/target-linux-x64/nsys"
    fi
done
timeout "${MEASURE_S:-330}" python3 -m benchmarks.serving.run measure "$scratch" --seconds "${MEASURE_S:-300}" 2>&1 | grep -v USDT
cp "$scratch/measured.json" "$out"
mkdir "$scratch/torch" "$scratch/nsys"
for trace in "$scratch"/*.torch.json; do
    name=$(basename "$trace" .torch.json)
    python3 -m benchmarks.faults.trim torch "$trace" "$scratch/torch/$name.json" --steps 999 &
done
wait
(cd "$scratch/torch" && tar cf - ./*.json | xz -6 -T0) >"$out/torch.tar.xz"
timeout 200 "$NSYS" profile -t cuda,nvtx,osrt -c cudaProfilerApi --capture-range-end=stop --sample=none --cpuctxsw=none \
    --resolve-symbols=false --cuda-graph-trace=node --force-overwrite=true -o "$scratch/all" \
    python3 -m benchmarks.serving.run nsys "$scratch" 2>&1 | tail -15
timeout 60 "$NSYS" export --type sqlite --force-overwrite=true -o "$scratch/all.sqlite" "$scratch/all.nsys-rep" 2>&1 | tail -3
ls -la "$scratch"/all*
python3 -m benchmarks.faults.trim nsys "$scratch/all.sqlite" "$scratch/nsys"
(cd "$scratch/nsys" && tar cf - ./*.sqlite | xz -3 -T0) >"$out/nsys.tar.xz"
ls -la "$out"

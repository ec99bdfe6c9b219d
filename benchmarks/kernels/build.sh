#!/usr/bin/env bash
# Build the suite: build.sh OUTDIR [ARCH [FOLDER OF PAIRS]]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: build.sh OUTDIR [ARCH [FOLDER OF PAIRS]]}
arch=${2:-sm_90}
pairs=${3:-$here/pairs}
mkdir -p "$out/objects"
compile() { nvcc -std=c++17 -O3 -gencode="$target" -c "$1" -o "$out/objects/$(basename "$1" .cu).o"; }
export -f compile
target=arch=compute_${arch#sm_},code=$arch  # sm_90a has wgmma
export out target
printf '%s\0' "$here"/main.cu "$pairs"/*.cu | xargs -0 -n 1 -P "$(nproc)" bash -c 'compile "$0"'
nvcc -gencode="$target" "$out"/objects/*.o -o "$out/pairs"
rm -r "$out/objects"

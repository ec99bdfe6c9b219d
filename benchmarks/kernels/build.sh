#!/usr/bin/env bash
# Build the suite: build.sh OUTDIR [ARCH [FOLDER OF PAIRS]]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: build.sh OUTDIR [ARCH [FOLDER OF PAIRS]]}
arch=${2:-sm_90}
pairs=${3:-$here/pairs}
mkdir -p "$out/objects"
compile() { nvcc -std=c++17 -O3 -arch="$arch" -c "$1" -o "$out/objects/$(basename "$1" .cu).o"; }
export -f compile
export out arch
printf '%s\0' "$here"/main.cu "$pairs"/*.cu | xargs -0 -n 1 -P "$(nproc)" bash -c 'compile "$0"'
nvcc -arch="$arch" "$out"/objects/*.o -o "$out/pairs"
rm -r "$out/objects"

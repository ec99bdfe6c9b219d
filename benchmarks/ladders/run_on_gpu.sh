#!/usr/bin/env bash
# The whole suite on one GPU, in about nine minutes: `run_on_gpu.sh OUT [--seconds 540]`; then `python -m benchmarks.ladders adopt OUT`.
# Needs PyTorch with CUDA and Triton, and nsys. DEBS: a folder of Debian packages with libdw1 and libelf1, where nsys needs them.
set -uo pipefail
cd "$(dirname "$0")/../.."
if [[ -n "${DEBS:-}" ]]; then
    libraries=$(mktemp -d)
    for package in "$DEBS"/*.deb; do dpkg -x "$package" "$libraries"; done
    LD_LIBRARY_PATH=$(find "$libraries" -name '*.so.*' -printf '%h\n' | sort -u | paste -sd:)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export LD_LIBRARY_PATH
fi
if [[ -z "${NSYS:-}" ]] && ! command -v nsys >/dev/null; then
    # Nsight Compute ships an nsys whose importer lies beside it under another name: give it the name it looks for.
    for host in /opt/nvidia/nsight-compute/*/host; do
        if [[ -x "$host/target-linux-x64/nsys" ]]; then
            [[ -e "$host/host-linux-x64" ]] || ln -sfn linux-desktop-glibc_2_11_3-x64 "$host/host-linux-x64"
            export NSYS="$host/target-linux-x64/nsys"
        fi
    done
fi
exec python3 -m benchmarks.ladders.run "$@"

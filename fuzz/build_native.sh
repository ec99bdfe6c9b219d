#!/usr/bin/env bash
# Build the libFuzzer targets, with AddressSanitizer and UndefinedBehaviorSanitizer, into build/fuzz. Needs clang and its
# sanitizers: apt-get install clang libclang-rt-dev.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build/fuzz
flags=(-std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -Wall -Wextra)
clang++ "${flags[@]}" fuzz/native/decode.cpp native/{columns,crew,decode,event,join,order,rows,scan,texts}.cpp -o build/fuzz/decode
clang++ "${flags[@]}" fuzz/native/sqlite.cpp native/{columns,scan,sqlite,texts}.cpp -o build/fuzz/sqlite
clang++ "${flags[@]}" fuzz/native/replay.cpp native/{replay,nesting}.cpp -o build/fuzz/replay

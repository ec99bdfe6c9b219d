#!/usr/bin/env bash
# Verifies changes of training scripts that know nothing of timesink, on a GPU. All parts take about ten minutes.
#
#     bash benchmarks/verify_example/run_on_gpu.sh [OUTDIR]
#
# Needs Python 3.11 or newer with PyTorch, NumPy, SciPy, Rich and Typer, and one GPU; timesink runs from its sources.
# WHEELS: a folder of wheels to install first where one of them is missing or old. Parts are left out once LIMIT_S
# seconds (500) have gone by; ONLY: a pattern for the names of parts. Leaves verdicts as JSON, and captures, in OUTDIR.
set -u
cd "$(dirname "$0")/../.."
out=${1:-verify-example}; mkdir -p "$out"; out=$(cd "$out" && pwd)
limit_s=${LIMIT_S:-500}; only=${ONLY:-*}; python=${PYTHON:-python3}; here=benchmarks/verify_example
if [ -n "${WHEELS:-}" ]; then
  "$python" -m pip install -q --no-index --no-deps --no-compile --target "$out/.site" "$WHEELS"/*.whl || exit 1
fi
export PYTHONPATH="$PWD/src${WHEELS:+:$out/.site}" PYTHONUNBUFFERED=1
timesink() { "$python" -m timesink "$@"; }
failed=0

part() { # expected exit code, name, command...
  local expected=$1 name=$2; shift 2
  # shellcheck disable=SC2053
  [[ $name == $only ]] || return
  if [ "$SECONDS" -gt "$limit_s" ]; then echo "== $name: left out, $SECONDS s have gone by"; return; fi
  echo "== $name"
  "$@" >"$out/$name.out" 2>"$out/$name.err"; local code=$?
  if [ "$code" -eq "$expected" ]; then echo "ok: exit code $code after $SECONDS s in all"; else
    echo "WRONG: exit code $code, not $expected"; failed=1; tail -20 "$out/$name.err"; fi
  if [[ $name == verify* ]]; then "$python" - "$out/$name.out" <<'PY'
import json, sys
try:
    told = json.load(open(sys.argv[1]))
except ValueError:
    sys.exit(print(open(sys.argv[1]).read()[-2000:]))
print(told.get("headline") or told)
for run in told.get("runs", ()):
    print(f"  run {run['number']:2} {run['side']:6} mean {run['mean_s']*1e3:8.3f} ms  median {run['median_s']*1e3:8.3f} ms"
          f"  {run['steps']} steps, {run['mark']}, loss {run['check']}")
print("\n".join(f"  note: {note}" for note in told.get("notes", ())))
PY
  else tail -12 "$out/$name.out"; fi
}

loss=(--check-pattern 'loss (\S+)' --check-tolerance 5%)
run="$python $here"
# The README's line, on scripts without edits: the verdict must be "faster", and prove a fifth more steps in the same time.
part 0 verify-old-new timesink verify --before "$run/old.py" --after "$run/new.py" --pairs 4,8 "${loss[@]}" \
  --at-least 1.2 -f json
# Steps that a CUDA graph holds end where it is replayed.
part 0 verify-graph timesink verify --before "$run/launches.py" --after "$run/launches.py --graph" --pairs 3,6 \
  --check-pattern 'loss (\S+)' --check-tolerance 5% -f json
# Every pair of the options that change what torch.profiler records.
for pair in "--stacks --auto-ranges" "--stacks --memory" "--memory --auto-ranges"; do
  name=capture$(tr -d ' ' <<<"$pair")
  # shellcheck disable=SC2086
  part 0 "$name" timesink capture torch $pair -o "$out/$name.d" -- "$python" $here/old.py
done
part 0 capture-graph timesink capture torch --stacks --auto-ranges -o "$out/capture-graph.d" -- "$python" \
  $here/launches.py --graph
# A program against itself must never be called slower or faster.
part 0 verify-same timesink verify --before "$run/new.py" --after "$run/new.py" --pairs 4 "${loss[@]}" -f json
# A change that is no tenth faster fails the gate.
part 1 verify-short timesink verify --before "$run/new.py" --after "$run/new.py" --pairs 2 --at-least 1.1 -f json
exit $failed

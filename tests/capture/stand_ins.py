"""Texts of stand-in tools and of small programs. The tools know options of the real ones and do as they are told."""

NSYS_HELP = (
    "--output= --force-overwrite= --trace= --sample= --cpuctxsw= --resolve-symbols= --cuda-graph-trace= "
    "--capture-range= --capture-range-end= --gpu-metrics-device= --cuda-memory-usage= --delay= --duration= "
    "Possible values are 'cuda', 'nvtx', 'osrt', 'cublas', 'cudnn', 'mpi'."
)
NCU_HELP = (
    "--export --force-overwrite --kernel-name --set --metrics --import-source --graph-profiling --nvtx-include "
    "--filter-mode"
)


def tool(name: str, helping: str, version: str, run: str) -> str:
    """A stand-in that answers --version and --help, and otherwise runs the shell lines `run`."""
    return f"""#!/bin/sh
case "$*" in
  --version) echo "{name} version {version}"; exit 0;;
  --help|"profile --help") echo "{helping}"; exit 0;;
esac
{run}
"""


LOOP = """
import sys, torch
model = torch.nn.Linear(32, 32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 200):
    optimizer.zero_grad()
    model(torch.randn(4, 32)).sum().backward()
    optimizer.step()
print("the program went on to its end")
"""

# ruff: noqa: E501 (rows of what is planted)
"""Further files that lie beside captures, as their tools write them, without a secret."""

from typing import Final

FILES: Final[dict[str, str]] = {
    "job.sbatch.log": """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
#SBATCH --time=01:00:00
module load cuda/12.4
export NCCL_DEBUG=INFO
srun --ntasks-per-node=1 torchrun --nnodes=2 train.py --lr 3e-4
echo done
""",
    "pip.txt": """torch==2.13.0
numpy>=2.0
transformers[torch]==4.44.0
-e ./src
# from the lock file
triton==3.1.0 ; platform_system == "Linux"
""",
    "smi.txt": """==============NVSMI LOG==============
Timestamp                                 : Mon Jan 13 10:11:12 2025
Driver Version                            : 550.54.15
Attached GPUs                             : 8
GPU 00000000:01:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Persistence Mode                      : Enabled
    Clocks
        SM                                : 1980 MHz
    Power Readings
        Power Draw                        : 412.31 W
    Processes
        Process ID                        : 4242
            Name                          : python
            Used GPU Memory               : 512 MiB
""",
    "hydra.yaml": """defaults:
  - model: gpt
  - _self_
hydra:
  run:
    dir: outputs/run
  job:
    name: train
trainer:
  max_steps: 100
  precision: bf16-mixed
  callbacks:
    - class_path: ModelCheckpoint
      init_args: {monitor: loss, mode: min}
logger: |
  level=info
  file=train.log
anchors: &base
  lr: 0.0003
other:
  <<: *base
""",
    "compose.yml": """services:
  train:
    image: pytorch/pytorch:2.5.0
    command: ["python", "train.py"]
    environment:
      NCCL_DEBUG: INFO
    deploy:
      resources:
        reservations:
          devices:
            - driver: nvidia
              count: 8
""",
    "pyproject.toml": """[project]
name = "train"
version = "0.1"
description = "a run"
[project.scripts]
train = "train:main"
[[tool.runs]]
gpu = "H100"
steps = 12
[tool.paths]
data = 'data'
text = \"\"\"
first line
second line
\"\"\"
""",
    "setup.cfg": """[run]
epochs: 3
names =
    first
    second
[paths]
out = results
""",
    "trainer_state.json": """{"best_metric": null, "epoch": 1.5, "global_step": 300, "is_world_process_zero": true,
"log_history": [{"epoch": 0.1, "learning_rate": 0.0003, "loss": 2.31, "step": 20, "note": "warm"}],
"trial_name": null, "trial_params": {"optimizer": "adamw"}, "run_name": "base"}""",
    "speedscope.json": """{"$schema": "https://www.speedscope.app/file-format-schema.json", "name": "profile",
"exporter": "py-spy", "activeProfileIndex": 0, "shared": {"frames": [{"name": "forward", "file": "model.py", "line": 3}]},
"profiles": [{"type": "sampled", "name": "main", "unit": "seconds", "startValue": 0, "endValue": 1,
"samples": [[0]], "weights": [0.01]}]}""",
    "run.sarif": """{"version": "2.1.0", "runs": [{"tool": {"driver": {"name": "timesink", "rules": [{"id": "IDL102",
"shortDescription": {"text": "host sync"}}]}}, "results": [{"ruleId": "IDL102", "level": "warning",
"message": {"text": "a copy waits"}, "locations": [{"physicalLocation": {"artifactLocation": {"uri": "train.py"},
"region": {"startLine": 12}}}]}]}]}""",
    "events.jsonl": """{"step": 1, "name": "start", "time": 0.5}
{"step": 2, "name": "loss", "value": 2.31, "tags": ["train"], "where": {"rank": 0}}
{"level": "INFO", "msg": "saved", "file": "model.pt"}
""",
    "stacks.collapsed": """main;train.py:main;forward;aten::mm 12
main;train.py:main;backward;aten::mul 7
main;loader;read 3
""",
    "metrics.prom.txt": """# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",device="nvidia0",modelName="NVIDIA H100"} 98
process_cpu_seconds_total 12.5
""",
    "nccl.log": """NCCL version 2.21.5+cuda12.4
node:4242:4242 [0] NCCL INFO Bootstrap : Using eth0
node:4242:4300 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB
node:4242:4300 [0] NCCL INFO comm 0x55d0 rank 0 nranks 8 cudaDev 0 busId 1000 - Init COMPLETE
node:4242:4300 [0] misc/socket.cc:47 NCCL WARN socket closed by remote peer
[rank0]:[E113 10:11:12.123 ProcessGroupNCCL.cpp:616] Watchdog caught collective operation timeout
""",
    "report.md": """## Diagnosis

First: `host-sync`, 12 % of the step ([page](page.html)).

1. move the copy
2. batch the launches

| kernel | ms |
|:--|--:|
| gemm | 3.1 |

```python
loss.item()
```
![timeline](timeline.svg)
<!-- made by a script -->
""",
    "kernels.csv": """name,count,total_ms,device,comment
gemm,12,3.1,0,
softmax,24,1.2,0,"fused, mostly"
""",
    "gpus.tsv.txt": """index\tname\tdriver\tnote
0\tNVIDIA H100\t550.54\tok
1\tNVIDIA H100\t550.54\tok
""",
    "page.html": """<!doctype html><html lang="en"><head><title>run</title><meta name="author" content="a"></head>
<body><h1 id="top">Steps</h1><p class="note">the step takes 34 ms</p><a href="trace.json">trace</a>
<table><tr><td>gemm</td><td data-sort="3">3 ms</td></tr></table><img alt="timeline" src="a.png">
<svg><text x="1" y="2">kernel</text><title>idle</title></svg><pre>loss 2.31</pre><details><summary>more</summary>text</details>
<form action="x"><input name="q" value="v" placeholder="search"><option value="a">first</option></form></body></html>
""",
}

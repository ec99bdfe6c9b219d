"""Files that lie beside captures: settings, notes, logs of launchers, as their tools write them, without a secret."""

from typing import Final

FILES: Final[dict[str, str]] = {
    "accelerate.yaml": """compute_environment: LOCAL_MACHINE
distributed_type: FSDP
downcast_bf16: 'no'
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer
machine_rank: 0
main_process_ip: 0.0.0.0
main_process_port: 29500
mixed_precision: bf16
num_processes: 8
tpu_env: []
use_cpu: false
""",
    "pod.yaml": """apiVersion: v1
kind: Pod
metadata:
  name: train
  labels:
    app: trainer
spec:
  containers:
    - name: main
      image: pytorch
      args: ["--epochs", "3"]
      env:
        - name: NCCL_DEBUG
          value: INFO
      resources:
        limits:
          nvidia.com/gpu: 8
      volumeMounts:
        - mountPath: /data
  restartPolicy: Never
""",
    "run.toml": """title = "run"
[model]
name = "llama"
layers = 32
dtype = "bf16"
[data]
files = ["train.bin"]
[optimizer]
lr = 0.0003
betas = [0.9, 0.95]
""",
    "job.env": """MASTER_PORT=29500
WORLD_SIZE=8
NCCL_DEBUG=INFO
CUDA_VISIBLE_DEVICES=0,1,2,3
OMP_NUM_THREADS=8
export TORCH_LOGS=recompiles
""",
    "job.ini": """[run]
epochs = 3
; a note
[log]
level = info
file = train.log
""",
    "all.ranks": """rank0.json
rank1.json
""",
    "notes.md": """# What was measured

The step takes 34 ms, of which 12 ms are attention.

- batch 16
- [trace](rank0.json)

| run | ms |
|---|---|
| base | 34.2 |

    python train.py

> as said
""",
    "train.out": """INFO:root:loading the model
[rank0]:W0912 10:11:12.123456 4242 torch/distributed/run.py:793] warning
2025-01-13 10:11:12,345 - INFO - step 10 loss 2.31
{"step": 10, "loss": 2.31, "note": "ok"}
Epoch 1:  40%|####      | 4/10 [00:03<00:04,  1.25it/s, loss=2.3]
Traceback (most recent call last):
  File "train.py", line 12, in main
    loss.backward()
RuntimeError: CUDA out of memory.
NCCL INFO Channel 00 : 0[0] -> 1[1] via P2P
srun: job 12 started
+ python train.py
Mon Jan 13 10:11:12 2025
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:01:00.0 Off |                    0 |
|    0   N/A  N/A      4242      C   python      512MiB |
torch==2.13.0
warning: unused option
""",
    "metrics.csv": """step,loss,note
1,2.31,warm
2,2.30,steady
""",
    "deepspeed.json": """{"train_batch_size": 16, "fp16": {"enabled": true}, "zero_optimization": {"stage": 3,
"offload_param": {"device": "cpu", "nvme_path": "x"}}, "wandb": {"group": "g"}, "tags": ["a"], "comment": "none"}""",
    "capture.json": """{"tool": "torch", "command": ["python", "train.py"], "files": ["rank0.json"], "steps": 12,
"environment": {"NCCL_DEBUG": "INFO"}, "gpus": [{"name": "NVIDIA H100", "memory": 85}], "started": "now",
"software": {"torch": "2.13.0"}, "git": {"dirty": false}, "messages": ["done"]}""",
    "model.json": """{"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "rope_scaling": null,
"torch_dtype": "bfloat16", "vocab_size": 32000, "generation": {"eos": [1, 2]}}""",
}

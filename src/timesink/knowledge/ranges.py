"""What ranges are called: by PyTorch, by other frameworks and engines, and by people who annotate their programs.

Frameworks put ranges and operators of their own into traces; what people write stands beside them. A range may be a
step, a part of one (loading, forward, backward, optimizer), or host work that is neither (compiling, logging).
"""

from __future__ import annotations

from typing import Final

from timesink.knowledge.pattern import Pattern

NUMBER: Final = Pattern(
    r"\d+", "what tells the range of one step, or one message, from the next of its kind", "batch 17", "batch", "people"
)
# --- steps
PROFILER_STEP: Final = Pattern(
    r"^ProfilerStep#\d+$", "a step marked by prof.step()", "ProfilerStep#12", "ProfilerStep*", "torch.profiler"
)
STEP: Final = Pattern(
    r"(?i)(^|[^a-z])(step|iter|iteration|batch|execute_model)[^a-z]*( to[^a-z]*)?$",
    "a range that lasts a step", ("train step 12", "train_iteration", "execute_model", "Step 3 to 4"),
    ("optimizer stepping stone", "batch_norm"), "people; vLLM",
)  # fmt: skip
NUMBERED_STEP: Final = Pattern(
    r"(?i)^(ProfilerStep|step|iteration|iter)[\s#_:]*\d+$",
    "a step by its number and nothing else: as a place in the program it says nothing", ("ProfilerStep#12", "iter_3"),
    ("train step 12", "step"),
)  # fmt: skip
PART_OF_STEP: Final = Pattern(
    r"(?i)optim|sched|load|fetch|next|zero|copy|log|micro|^\[pl\]|::|engine\.|(^|[^a-z])(hook|callback)",
    "named like a step, and a part of one",
    ("load batch", "micro_batch", "[pl][profile]run_training_batch"),
    "forward",
)
LAYER: Final = Pattern(
    r"(?i)((?:layer|block)s?[\W_]*\d+)",
    "one layer of a model by its number: what comes back with another number is not a step",
    ("TransformerLayer_2", "layer_0_forward", "blocks.3"), ("layer_norm", "token_1_processing", "block"), "people",
)  # fmt: skip
VLLM_STEP: Final = Pattern(
    r"^execute\w*?_context_(?P<context>\d+)\((?P<tokens>[^)]*)\)_generation_(?P<generation>\d+)\(",
    "an engine step, with its requests in prefill (context) and in decode (generation)",
    "execute_context_2(512)_generation_7(7)", "execute_model", "vLLM",
)  # fmt: skip
SGLANG_STEP: Final = Pattern(
    r"^step\[(?P<mode>\w+)(?: bs=(?P<requests>\d+))?(?: toks=(?P<tokens>\d+))?",
    "an engine step, with its mode, requests and tokens",
    ("step[EXTEND bs=4 toks=512]", "step[IDLE]"), "step 12", "SGLang",
)  # fmt: skip
TRTLLM_STEP: Final = Pattern(
    r"^\[Executor\] _forward_step[ \d]*: (?P<context>\d+) ctx reqs,(?: (?P<tokens>\d+) ctx tokens,)?"
    r" (?P<generation>\d+) gen reqs",
    "an engine step, with its requests in prefill and in decode",
    ("[Executor] _forward_step 812: 1 ctx reqs, 31 gen reqs", "[Executor] _forward_step: 0 ctx reqs, 8 gen reqs"),
    "_forward_step", "TensorRT-LLM",
)  # fmt: skip
ENGINE_STEP: Final = Pattern(
    f"{VLLM_STEP}|{SGLANG_STEP}|{TRTLLM_STEP}".replace("?P<context>", "").replace("?P<generation>", "")
    .replace("?P<mode>", "").replace("?P<requests>", "").replace("?P<tokens>", ""),
    "one step of a serving engine", ("execute_context_2(512)_generation_7(7)", "step[DECODE bs=32]"), "step 12",
    "vLLM, SGLang, TensorRT-LLM",
)  # fmt: skip
EXECUTE_MODEL: Final = Pattern(
    r"^execute_model$", "an engine runs its model once", "execute_model", "sample_tokens", "vLLM"
)
STATED_SIZE: Final = Pattern(
    r"^(?:execute_|step\[\w+ bs=)(\d+)[_ \]]", "an engine step that says of how many tokens, or requests, it is",
    ("execute_32_context_0(0)_generation_32(32)", "step[DECODE bs=32]"), "execute_context_2(512)_generation_7(7)",
    "vLLM, SGLang",
)  # fmt: skip
CAPTURED_SIZE: Final = Pattern(
    r"^capture_(\d+)_", "an engine captures the graph of that many tokens, or requests",
    ("capture_32_FULL", "capture_32_DECODE"), "capture_model", "vLLM, SGLang",
)  # fmt: skip
EXCHANGE: Final = Pattern(
    r"(?i)(^|[^a-z])(ep_?)?(dispatch|combine|all_?(to_?all|2_?all|gather|reduce)|reduce_?scatter)([^a-z]|$)",
    "tokens or gradients are exchanged with other GPUs", ("dispatch(B)", "combine(F)", "moe_all2all"),
    ("dispatcher", "attn(B)", "recombine"), "people; DualPipe",
)  # fmt: skip
STAGE: Final = Pattern(
    r"(?i)^(?:nvtx:)?(?:pp[:._ ]|pipeline[:._ ])?stage[ _:#]?(?P<stage>\d+)[ _:./-]*(?P<part>[a-z].*?)?$",
    "a part of the work of one stage of a pipeline; its number is its name",
    ("nvtx:pp:stage0:A_build_envelope", "pp:stage1:B", "stage 0 forward", "stage_3"),
    ("stage_params", "multistage 2 step", "stage"), "people",
)  # fmt: skip
SCHEDULED: Final = Pattern(
    r"^PP:(?P<stage>\d+)(?P<action>[FBIW])(?P<item>\d+)$", "one micro-batch of one stage, forward or backward",
    ("PP:2F3", "PP:0B11"), ("PP:2SEND_F3", "PP:0RECV_B1"), "torch.distributed.pipelining",
)  # fmt: skip
OPERATOR: Final = Pattern(
    r"^[A-Za-z_]\w*::|, (seq|op_id) = ", "an operator of a framework, which neither is a step nor loads data",
    ("aten::mm", "MmBackward0, seq = 12"), "step 3", "torch.autograd.profiler.emit_nvtx, FSDP",
)  # fmt: skip
LIBRARY: Final = Pattern(
    r"(?i)^(p?nccl|rccl|hccl|cublas|cudnn|cufft|cusparse|cusolver|cutlass|cub|thrust|mpi_|gloo|ucc|nvshmem)"
    r"|^\[pl\]|FullyShardedDataParallel|DistributedDataParallel|transformer_?engine|megatron|deepspeed",
    "a call of a library, or a unit that a framework cuts a step into",
    ("ncclAllGather", "cublasGemmEx", "cub::DeviceReduce::Sum", "FullyShardedDataParallel.forward"),
    ("step 3", "forward"), "NVIDIA's libraries, MPI, FSDP, DDP, Lightning, Transformer Engine",
)  # fmt: skip
ONE_PASS: Final = Pattern(
    r"(?i)^nn\.Module: |^(Distributed|FullySharded)DataParallel\.forward$|^\W*(forward|backward)\W*$"
    r"|^ProfilerStep#|^Torch-Compiled Region|^## Call CompiledFxGraph",
    "what is called once in a step, or more often: what comes back within it is a layer",
    ("nn.Module: GPT_0", "## forward ##", "ProfilerStep#3"), ("nn.ModuleList", "forward_loop"), "PyTorch; people",
)  # fmt: skip
DISPATCHED: Final = Pattern(
    r"^(aten|autograd|torch|prims|c10d)::", "an operator of PyTorch", "aten::mm", "FSDP::all_gather", "PyTorch"
)

# --- parts of a step
TORCH_OPTIMIZER_STEP: Final = Pattern(
    r"^Optimizer\.step#", "torch.optim wraps every step", "Optimizer.step#AdamW.step",
    "Optimizer.zero_grad#AdamW.zero_grad", "PyTorch",
)  # fmt: skip
TORCH_ZERO_GRAD: Final = Pattern(
    r"^Optimizer\.zero_grad#", "torch.optim wraps every zero_grad", "Optimizer.zero_grad#AdamW.zero_grad",
    "Optimizer.step#AdamW.step", "PyTorch",
)  # fmt: skip
OPTIMIZER_STEP: Final = Pattern(
    r"^Optimizer\.step#|^(?i:optimi[sz]er)([._ ]?step)?$", "an optimizer's step",
    ("Optimizer.step#AdamW.step", "optimizer_step"), "optimizer state saved", "PyTorch; people, Megatron's timers",
)  # fmt: skip
OPTIMIZER_WORK: Final = Pattern(
    r"(?i)^Optimizer\.(step|zero_grad)#|torch/optim/|(^|[^a-z])optim(izer)?([^a-z]|$|_step)|zero_grad",
    "CPU work of an optimizer: a range or a frame",
    ("Optimizer.step#SGD.step", "torch/optim/adamw.py(220): step", "optim"), "optimum",
)  # fmt: skip
LOSS: Final = Pattern(
    r"^aten::(cross_entropy_loss|nll_loss(2d|_nd)?|mse_loss|l1_loss|(smooth_l1|huber)_loss"
    r"|binary_cross_entropy(_with_logits)?|kl_div|ctc_loss|_ctc_loss)$", "a loss is taken",
    ("aten::nll_loss", "aten::mse_loss"), "aten::nll_loss_backward", "PyTorch",
)  # fmt: skip
LOOK_UP: Final = Pattern(
    r"^aten::embedding(_bag)?$", "tokens or ids are looked up, once in a pass of a model", "aten::embedding",
    "aten::embedding_dense_backward", "PyTorch",
)  # fmt: skip
BACKWARD_PASS: Final = Pattern(
    r"(?i)^\W*(loss)?[._ ]?backward([-._ ]?(pass|compute))?\W*\d*\W*$", "one backward pass",
    ("## backward ##", "loss.backward", "backward-compute", "backward 3"),
    ("MmBackward0", "triton_poi_fused_native_layer_norm_backward_3"), "people; Megatron's timers",
)  # fmt: skip
AUTOGRAD_OPERATOR: Final = Pattern(
    r"^autograd::engine|Backward\d*(,|$)", "an operator that autograd runs",
    ("autograd::engine::evaluate_function: MmBackward0", "MmBackward0, seq = 7", "CompiledFunctionBackward"),
    "backward", "PyTorch; torch.autograd.profiler.emit_nvtx",
)  # fmt: skip
AUTOGRAD: Final = Pattern(
    r"^autograd::engine::evaluate_function|^CompiledFunctionBackward",
    "what autograd runs on a thread of its own, while its caller waits",
    "autograd::engine::evaluate_function: MmBackward0", "MmBackward0", "PyTorch",
)  # fmt: skip
DDP_FORWARD: Final = Pattern(
    r"^DistributedDataParallel\.forward$", "the forward pass of a replicated module",
    "DistributedDataParallel.forward", "DistributedDataParallel.reduce", "PyTorch",
)  # fmt: skip
WORKERS_NEXT_BATCH: Final = Pattern(
    r"_MultiProcessingDataLoaderIter\.__next__", "the main process takes a batch that another process makes",
    "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
    "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "PyTorch",
)  # fmt: skip
TORCH_NEXT_BATCH: Final = Pattern(
    r"enumerate\(DataLoader\)#.*__next__", "the main process waits for a batch of torch.utils.data",
    "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "data_time", "PyTorch",
)  # fmt: skip
NEXT_BATCH: Final = Pattern(
    r"(?i)enumerate\(DataLoader\)#.*__next__|^data(loading|_time)?$|data_?load", "the main process waits for a batch",
    ("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "data_time"), "metadata", "PyTorch; people",
)  # fmt: skip
LOADING: Final = Pattern(
    r"(?i)enumerate\(DataLoader\)|DataLoaderIter|data_?loader"
    r"|(^|[^a-z])(data|batch|sample)s?[ _.-]?(load|fetch|prep|prefetch|wait|decode|collate|augment|ingest)"
    r"|(^|[^a-z])(load|fetch|next|get|read|prepare|prep|wait_?for)[ _.:-]?(next[ _.:-]?)?(a[ _])?"
    r"(data|batch|sample)([^a-z]|s|$|loading)"
    r"|dataset[ _.:-]?(next|get)|input[ _-]?pipeline|(^|[^a-z])dataload|^(data|dataloading|data_time|input)$",
    "any work that makes a batch, in the main process or in a worker",
    ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "fetch_next_batch", "dataset_next"),
    ("database", "metadata", "batch_norm", "FusionExecutorCache::prepareInputs", "gpu_model_runner: _prepare_inputs"),
    "PyTorch, DALI, tf.data; people",
)  # fmt: skip

# --- compiling
_COMPILED_ONCE = r"_compile\.compile_inner|entire_frame_compile"
COMPILED_REGION: Final = Pattern(
    r"^Torch-Compiled Region", "a region of a compiled program runs", "Torch-Compiled Region: 0/1",
    "## Call CompiledFxGraph fabc ##", "torch.compile",
)  # fmt: skip
GRAPH_CALL: Final = Pattern(
    r"^## Call CompiledFxGraph", "the graph of a compiled region is called", "## Call CompiledFxGraph fabc ##",
    "Torch-Compiled Region: 0/1", "torch.compile",
)  # fmt: skip
COMPILED_GRAPH: Final = Pattern(
    r"\bf[a-z2-7]{51}\b", "key of a compiled graph in the cache",
    "## Call CompiledFxGraph fq2qocr2katu3xr5mwv7qvrpa3sk6jzudnk27ctfg25gox7ohmtp ##", "## Call CompiledFxGraph ##",
    "torch.compile",
)  # fmt: skip
COMPILED_CALL: Final = Pattern(
    r"^(Torch-Compiled Region|## Call CompiledFxGraph)", "either", "Torch-Compiled Region: 0/1",
    "Call CompiledFxGraph",
)  # fmt: skip
COMPILED_ONCE: Final = Pattern(
    _COMPILED_ONCE, "one per compilation", "_compile.compile_inner (dynamo_timed)", "inductor_compile (dynamo_timed)",
    "torch.compile",
)  # fmt: skip
COMPILING: Final = Pattern(
    r"\(dynamo_timed\)|" + _COMPILED_ONCE, "time in the compiler, of any phase",
    ("inductor_compile (dynamo_timed)", "entire_frame_compile"), "Torch-Compiled Region: 0/1", "torch.compile",
)  # fmt: skip
DATA_PARALLEL: Final = Pattern(
    r"^(?:Broadcast|ReduceAddCoalesced)(?:Backward)?(?:$|,)|^DataParallel\.forward|\bnn\.Module: DataParallel(?:_\d+)?$"
    r"|torch/nn/parallel/(?:data_parallel|replicate|parallel_apply)\.py",
    "one process copies a model to all its GPUs in each step",
    ("Broadcast", "BroadcastBackward", "DataParallel.forward", "torch/nn/parallel/replicate.py(92): replicate"),
    ("DistributedDataParallel.forward", "c10d::broadcast_", "nccl:broadcast", "nn.Module: DistributedDataParallel_0",
     "torch/nn/parallel/distributed.py(1500): forward"),
    "torch.nn.DataParallel",
)  # fmt: skip
SETTING_UP: Final = Pattern(
    r"\(dynamo_timed\)|(?i)autotun|cudnn.*benchmark|ncclCommInit|init_process_group",
    "work of the first steps: compiling, tuning, connecting",
    ("inductor_compile (dynamo_timed)", "triton autotune", "ncclCommInitRank"), "forward",
)  # fmt: skip
COMPILE_WORK: Final = Pattern(
    r"(?i)dynamo_timed|\bautotun|compile_fx|_compile_inner|inductor_compile|triton.*compile"
    r"|async_compile|TorchDynamo Start|entire_frame_compile|backend_compile|cudagraph.*(record|warmup)",
    "CPU work of a compiler: a range or a frame",
    ("backend_compile (dynamo_timed)", "torch/_inductor/compile_fx.py(900): compile_fx"), "Torch-Compiled Region: 0/1",
)  # fmt: skip
OWN_RANGES: Final = Pattern(
    r"^ProfilerStep#|^Torch-Compiled Region|^Optimizer\.|^## Call CompiledFxGraph",
    "put around work by profilers and compilers: nobody times these", "ProfilerStep#1", "layer 3 attention",
)  # fmt: skip

GENERATED: Final = Pattern(
    r"^## Call |CompiledFxGraph|CompiledFunction|Torch-Compiled Region|^TorchDynamo|^Pregraph bytecode"
    r"|^(nccl|gloo|ucc|mpi|xccl):|^record_param_comms|\(dynamo_timed\)",
    "named by a compiler or a library: no phase of anybody's program",
    ("## Call CompiledFxGraph fabc ##", "Torch-Compiled Region: 0/1", "nccl:all_reduce"),
    "## backward ##", "torch.compile, c10d",
)  # fmt: skip

# --- other host work
GARBAGE_COLLECTION: Final = Pattern(
    r"(?i)Python GC|garbage.?collect|^gc[._:]|(^|[.\s/])gc\.py|<built-in method collect of", "Python collects garbage",
    ("Python GC", "gc.collect", "<built-in method collect of module gc>"), "gcd",
)  # fmt: skip
CHECKPOINTING: Final = Pattern(
    r"(?i)torch/serialization\.py|save_checkpoint|checkpoint.*sav|state_dict.*sav|torch\.save",
    "a checkpoint is written", ("torch/serialization.py(900): save", "save_checkpoint"), "torch/utils/checkpoint.py",
)  # fmt: skip
LOGGING: Final = Pattern(
    r"(?i)tensorboard|SummaryWriter|wandb|(^|/)logging/__init__\.py|<built-in function print>"
    r"|(^|[^a-z])log(ging|ger)?[_ .:-]?(step|loss|metrics?)|tqdm",
    "figures are written for people", ("wandb/sdk/wandb_run.py(1700): log", "log_metrics"), "log_softmax",
)  # fmt: skip
PYTHON_LOCK: Final = Pattern(
    r"^(?:Holding|Waiting for) GIL", "a thread's state as to Python's lock, recorded as a range", "Holding GIL", "GIL",
    "nsys --trace=python-gil",
)  # fmt: skip
NVTX_FILE: Final = Pattern(
    r"(^|[/\\])nvtx(\.py|[/\\]nvtx\.py)$", "source of the NVTX functions of PyTorch and of the package nvtx",
    ("torch/cuda/nvtx.py", "/usr/lib/python3/site-packages/nvtx/nvtx.py", r"C:\env\nvtx\nvtx.py"), "my_nvtx.py",
)  # fmt: skip
NVTX_OPENS: Final = Pattern(
    r"(range_push|push_range|range_start|start_range|__enter__)$", "functions that open a range",
    ("range_push", "__enter__"), ("range_pop", "__exit__"),
)  # fmt: skip
MARKS: Final = Pattern(
    r"""\b(?:range_push|push_range|start_range|range_start|annotate|record_function)\((?:\s*f?["']([^"']+)["'])?""",
    "a call in Python that opens a range, with the range's name where it is written there",
    ('nvtx.range_push("forward")', "with record_function('data_load'):", '@nvtx.annotate(f"L{self.layer}_mlp")'),
    ("nvtx.range_pop()", "def annotated(name):"), "source text",
)  # fmt: skip

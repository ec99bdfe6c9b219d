"""What ranges are called: by PyTorch, by other frameworks and engines, and by people who annotate their programs.

Frameworks put ranges and operators of their own into traces; what people write stands beside them. A range may be a
step, a part of one (loading, forward, backward, optimizer), or host work that is neither (compiling, logging).
"""

import re
from typing import Final

from timesink.knowledge import Pattern

# Of each pattern its meaning, then names that show it, then near misses.
# fmt: off
NUMBER: Final = Pattern(
    r"\d+", "what tells the range of one step, or one message, from the next of its kind (people)",
    "batch 17", "batch",
)

# Steps
PROFILER_STEP: Final = Pattern(
    r"^ProfilerStep#\d+$", "a step marked by prof.step() (torch.profiler)",
    "ProfilerStep#12", "ProfilerStep*",
)
STEP: Final = Pattern(
    "(?i)(^|[^a-z])(step|iter|iteration|batch|execute_model)[^a-z]*( to[^a-z]*)?$",
    "a range that lasts a step (people; vLLM)",
    ("train step 12", "train_iteration", "execute_model", "Step 3 to 4"), ("optimizer stepping stone", "batch_norm"),
)
NUMBERED_STEP: Final = Pattern(
    r"(?i)^(ProfilerStep|step|iteration|iter)[\s#_:]*\d+$",
    "a step by its number and nothing else: as a place in the program it says nothing",
    ("ProfilerStep#12", "iter_3"), ("train step 12", "step"),
)
PART_OF_STEP: Final = Pattern(
    r"(?i)optim|sched|load|fetch|next|zero|copy|log|micro|^\[pl\]|::|engine\.|(^|[^a-z])(hook|callback)",
    "named like a step, and a part of one",
    ("load batch", "micro_batch", "[pl][profile]run_training_batch"), "forward",
)
LAYER: Final = Pattern(
    r"(?i)((?:layer|block)s?[\W_]*\d+)",
    "one layer of a model by its number: what comes back with another number is not a step (people)",
    ("TransformerLayer_2", "layer_0_forward", "blocks.3"), ("layer_norm", "token_1_processing", "block"),
)
VLLM_STEP: Final = Pattern(
    r"^execute\w*?_context_(?P<context>\d+)\((?P<tokens>[^)]*)\)_generation_(?P<generation>\d+)\(",
    "an engine step, with its requests in prefill (context) and in decode (generation) (vLLM)",
    "execute_context_2(512)_generation_7(7)", "execute_model",
)
SGLANG_STEP: Final = Pattern(
    r"^step\[(?P<mode>\w+)(?: bs=(?P<requests>\d+))?(?: toks=(?P<tokens>\d+))?",
    "an engine step, with its mode, requests and tokens (SGLang)",
    ("step[EXTEND bs=4 toks=512]", "step[IDLE]"), "step 12",
)
TRTLLM_STEP: Final = Pattern(
    r"^\[Executor\] _forward_step[ \d]*: (?P<context>\d+) ctx reqs,(?: (?P<tokens>\d+) ctx tokens,)? "
    r"(?P<generation>\d+) gen reqs",
    "an engine step, with its requests in prefill and in decode (TensorRT-LLM)",
    ("[Executor] _forward_step 812: 1 ctx reqs, 31 gen reqs", "[Executor] _forward_step: 0 ctx reqs, 8 gen reqs"),
    "_forward_step",
)
ENGINE_STEP: Final = Pattern(
    re.sub(r"\?P<\w+>", "", f"{VLLM_STEP}|{SGLANG_STEP}|{TRTLLM_STEP}"),
    "one step of a serving engine (vLLM, SGLang, TensorRT-LLM)",
    ("execute_context_2(512)_generation_7(7)", "step[DECODE bs=32]"), "step 12",
)
EXECUTE_MODEL: Final = Pattern(
    "^execute_model$", "an engine runs its model once (vLLM)",
    "execute_model", "sample_tokens",
)
STATED_SIZE: Final = Pattern(
    r"^(?:execute_|step\[\w+ bs=)(\d+)[_ \]]",
    "an engine step that says of how many tokens, or requests, it is (vLLM, SGLang)",
    ("execute_32_context_0(0)_generation_32(32)", "step[DECODE bs=32]"), "execute_context_2(512)_generation_7(7)",
)
CAPTURED_SIZE: Final = Pattern(
    r"^capture_(\d+)_", "an engine captures the graph of that many tokens, or requests (vLLM, SGLang)",
    ("capture_32_FULL", "capture_32_DECODE"), "capture_model",
)
EXCHANGE: Final = Pattern(
    "(?i)(^|[^a-z])(ep_?)?(dispatch|combine|all_?(to_?all|2_?all|gather|reduce)|reduce_?scatter)([^a-z]|$)",
    "tokens or gradients are exchanged with other GPUs (people; DualPipe)",
    ("dispatch(B)", "combine(F)", "moe_all2all"), ("dispatcher", "attn(B)", "recombine"),
)
STAGE: Final = Pattern(
    r"(?i)^(?:nvtx:)?(?:pp[:._ ]|pipeline[:._ ])?stage[ _:#]?(?P<stage>\d+)[ _:./-]*(?P<part>[a-z].*?)?$",
    "a part of the work of one stage of a pipeline; its number is its name (people)",
    ("nvtx:pp:stage0:A_build_envelope", "pp:stage1:B", "stage 0 forward", "stage_3"),
    ("stage_params", "multistage 2 step", "stage"),
)
SCHEDULED: Final = Pattern(
    r"^PP:(?P<stage>\d+)(?P<action>[FBIW])(?P<item>\d+)$",
    "one micro-batch of one stage, forward or backward (torch.distributed.pipelining)",
    ("PP:2F3", "PP:0B11"), ("PP:2SEND_F3", "PP:0RECV_B1"),
)
OPERATOR: Final = Pattern(
    r"^[A-Za-z_]\w*::|, (seq|op_id) = ",
    "an operator of a framework, which neither is a step nor loads data (torch.autograd.profiler.emit_nvtx, FSDP)",
    ("aten::mm", "MmBackward0, seq = 12"), "step 3",
)
LIBRARY: Final = Pattern(
    r"(?i)^(p?nccl|rccl|hccl|cublas|cudnn|cufft|cusparse|cusolver|cutlass|cub|thrust|mpi_|gloo|ucc|nvshmem)|^\[pl\]"
    r"|FullyShardedDataParallel|DistributedDataParallel|transformer_?engine|megatron|deepspeed",
    "a call of a library, or a unit that a framework cuts a step into (NVIDIA's libraries, MPI, FSDP, DDP, "
    "Lightning, Transformer Engine)",
    ("ncclAllGather", "cublasGemmEx", "cub::DeviceReduce::Sum", "FullyShardedDataParallel.forward"),
    ("step 3", "forward"),
)
ONE_PASS: Final = Pattern(
    r"(?i)^nn\.Module: |^(Distributed|FullySharded)DataParallel\.forward$|^\W*(forward|backward)\W*$|^ProfilerStep#"
    r"|^Torch-Compiled Region|^## Call CompiledFxGraph",
    "what is called once in a step, or more often: what comes back within it is a layer (PyTorch; people)",
    ("nn.Module: GPT_0", "## forward ##", "ProfilerStep#3"), ("nn.ModuleList", "forward_loop"),
)
DISPATCHED: Final = Pattern(
    "^(aten|autograd|torch|prims|c10d)::", "an operator of PyTorch (PyTorch)",
    "aten::mm", "FSDP::all_gather",
)
COMPUTES: Final = Pattern(
    "^(aten|prims)::", "an operator of PyTorch on tensors, which waits for no other process (PyTorch)",
    "aten::lerp_", "c10d::barrier",
)
CONVOLVES: Final = Pattern(
    r"^aten::(?:\w+_)?convolution",
    "a convolution, forward or backward, for which cuDNN or MIOpen may search an algorithm (PyTorch)",
    ("aten::cudnn_convolution", "aten::convolution_backward"), "aten::conv2d",
)

# Parts of a step
TORCH_OPTIMIZER_STEP: Final = Pattern(
    r"^Optimizer\.step#", "torch.optim wraps every step (PyTorch)",
    "Optimizer.step#AdamW.step", "Optimizer.zero_grad#AdamW.zero_grad",
)
TAKES_FUSED: Final = Pattern(
    r"^Optimizer\.step#(?:Adam|AdamW|SGD|Adagrad)\.step",
    "steps of those optimizers of torch.optim that take fused=True (PyTorch)",
    "Optimizer.step#AdamW.step", ("Optimizer.step#Shampoo.step", "Optimizer.step#AdamWScheduleFree.step"),
)
TORCH_ZERO_GRAD: Final = Pattern(
    r"^Optimizer\.zero_grad#", "torch.optim wraps every zero_grad (PyTorch)",
    "Optimizer.zero_grad#AdamW.zero_grad", "Optimizer.step#AdamW.step",
)
OPTIMIZER_STEP: Final = Pattern(
    r"^Optimizer\.step#|^(?i:optimi[sz]er)([._ ]?step)?$", "an optimizer's step (PyTorch; people, Megatron's timers)",
    ("Optimizer.step#AdamW.step", "optimizer_step"), "optimizer state saved",
)
OPTIMIZER_WORK: Final = Pattern(
    r"(?i)^Optimizer\.(step|zero_grad)#|torch/optim/|(^|[^a-z])optim(izer)?([^a-z]|$|_step)|zero_grad",
    "CPU work of an optimizer: a range or a frame",
    ("Optimizer.step#SGD.step", "torch/optim/adamw.py(220): step", "optim"), "optimum",
)
LOSS: Final = Pattern(
    "^aten::(cross_entropy_loss|nll_loss(2d|_nd)?|mse_loss|l1_loss|(smooth_l1|huber)_loss"
    "|binary_cross_entropy(_with_logits)?|kl_div|ctc_loss|_ctc_loss)$",
    "a loss is taken (PyTorch)",
    ("aten::nll_loss", "aten::mse_loss"), "aten::nll_loss_backward",
)
LOOK_UP: Final = Pattern(
    "^aten::embedding(_bag)?$", "tokens or ids are looked up, once in a pass of a model (PyTorch)",
    "aten::embedding", "aten::embedding_dense_backward",
)
BACKWARD_PASS: Final = Pattern(
    r"(?i)^\W*(loss)?[._ ]?backward([-._ ]?(pass|compute))?\W*\d*\W*$", "one backward pass (people; Megatron's timers)",
    ("## backward ##", "loss.backward", "backward-compute", "backward 3"),
    ("MmBackward0", "triton_poi_fused_native_layer_norm_backward_3"),
)
OF_AUTOGRAD: Final = Pattern(
    "^(autograd::|torch::autograd)", "a frame or an operator of the engine of gradients itself",
    ("autograd::engine::evaluate_function: MmBackward0", "torch::autograd::AccumulateGrad"), "MmBackward0",
)
AUTOGRAD_OPERATOR: Final = Pattern(
    r"^autograd::engine|Backward\d*(,|$)",
    "an operator that autograd runs (PyTorch; torch.autograd.profiler.emit_nvtx)",
    ("autograd::engine::evaluate_function: MmBackward0", "MmBackward0, seq = 7", "CompiledFunctionBackward"),
    "backward",
)
AUTOGRAD: Final = Pattern(
    "^autograd::engine::evaluate_function|^CompiledFunctionBackward",
    "what autograd runs on a thread of its own, while its caller waits (PyTorch)",
    "autograd::engine::evaluate_function: MmBackward0", "MmBackward0",
)
DDP_FORWARD: Final = Pattern(
    r"^DistributedDataParallel\.forward$", "the forward pass of a replicated module (PyTorch)",
    "DistributedDataParallel.forward", "DistributedDataParallel.reduce",
)
WORKERS_NEXT_BATCH: Final = Pattern(
    r"_MultiProcessingDataLoaderIter\.__next__", "the main process takes a batch that another process makes (PyTorch)",
    "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
    "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
)
TORCH_NEXT_BATCH: Final = Pattern(
    r"enumerate\(DataLoader\)#.*__next__", "the main process waits for a batch of torch.utils.data (PyTorch)",
    "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "data_time",
)
NEXT_BATCH: Final = Pattern(
    r"(?i)enumerate\(DataLoader\)#.*__next__|^data(loading|_time)?$|data_?load",
    "the main process waits for a batch (PyTorch; people)",
    ("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "data_time"), "metadata",
)
LOADING: Final = Pattern(
    r"(?i)enumerate\(DataLoader\)|DataLoaderIter|data_?loader"
    r"|(^|[^a-z])(data|batch|sample)s?[ _.-]?(load|fetch|prep|prefetch|wait|decode|collate|augment|ingest)"
    r"|(^|[^a-z])(load|fetch|next|get|read|prepare|prep|wait_?for)[ _.:-]?(next[ _.:-]?)?(a[ _])?(data|batch|sample)"
    r"([^a-z]|s|$|loading)|dataset[ _.:-]?(next|get)|input[ _-]?pipeline|(^|[^a-z])dataload"
    r"|^(data|dataloading|data_time|input)$",
    "any work that makes a batch, in the main process or in a worker (PyTorch, DALI, tf.data; people)",
    ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "fetch_next_batch", "dataset_next"),
    ("database", "metadata", "batch_norm", "FusionExecutorCache::prepareInputs", "gpu_model_runner: _prepare_inputs"),
)
COMPILED_REGION: Final = Pattern(
    "^Torch-Compiled Region", "a region of a compiled program runs (torch.compile)",
    "Torch-Compiled Region: 0/1", "## Call CompiledFxGraph fabc ##",
)
GRAPH_CALL: Final = Pattern(
    "^## Call CompiledFxGraph", "the graph of a compiled region is called (torch.compile)",
    "## Call CompiledFxGraph fabc ##", "Torch-Compiled Region: 0/1",
)
COMPILED_GRAPH: Final = Pattern(
    r"\bf[a-z2-7]{51}\b", "key of a compiled graph in the cache (torch.compile)",
    "## Call CompiledFxGraph fq2qocr2katu3xr5mwv7qvrpa3sk6jzudnk27ctfg25gox7ohmtp ##", "## Call CompiledFxGraph ##",
)
COMPILED_CALL: Final = Pattern(
    "^(Torch-Compiled Region|## Call CompiledFxGraph)", "either",
    "Torch-Compiled Region: 0/1", "Call CompiledFxGraph",
)
COMPILED_ONCE: Final = Pattern(
    r"_compile\.compile_inner|entire_frame_compile", "one per compilation (torch.compile)",
    "_compile.compile_inner (dynamo_timed)", "inductor_compile (dynamo_timed)",
)
COMPILING: Final = Pattern(
    rf"\(dynamo_timed\)|{COMPILED_ONCE}", "time in the compiler, of any phase (torch.compile)",
    ("inductor_compile (dynamo_timed)", "entire_frame_compile"), "Torch-Compiled Region: 0/1",
)
DATA_PARALLEL: Final = Pattern(
    r"^(?:Broadcast|ReduceAddCoalesced)(?:Backward)?(?:$|,)|^DataParallel\.forward"
    r"|\bnn\.Module: DataParallel(?:_\d+)?$|torch/nn/parallel/(?:data_parallel|replicate|parallel_apply)\.py",
    "one process copies a model to all its GPUs in each step (torch.nn.DataParallel)",
    ("Broadcast", "BroadcastBackward", "DataParallel.forward", "torch/nn/parallel/replicate.py(92): replicate"),
    ("DistributedDataParallel.forward", "c10d::broadcast_", "nccl:broadcast", "nn.Module: DistributedDataParallel_0",
     "torch/nn/parallel/distributed.py(1500): forward"),
)
SETTING_UP: Final = Pattern(
    r"\(dynamo_timed\)|(?i)autotun|cudnn.*benchmark|ncclCommInit|init_process_group",
    "work of the first steps: compiling, tuning, connecting",
    ("inductor_compile (dynamo_timed)", "triton autotune", "ncclCommInitRank"), "forward",
)
COMPILE_WORK: Final = Pattern(
    r"(?i)dynamo_timed|(?:^|[^/\w])(?:_?compile_fx|autotun\w*(?:[^.\w]|$))"
    r"|autotun\w*\.py\(\d+\): _*(?:do_|auto)?(?:bench|tune|profile|prune)|triton[_ ]?compile"
    r"|triton.*\.py\(\d+\): (?:_*(?:do_)?(?:pre)?compile(?:_[a-z]+)*$"
    r"|make_(?:ir|ttir|ttgir|llir|ptx|cubin|amdgcn|hsaco))|_compile_inner|inductor_compile|async_compile"
    r"|TorchDynamo Start|entire_frame_compile|backend_compile|cudagraph.*(record|warmup)",
    "CPU work of a compiler: a range, or a frame of what compiles and tunes; what runs the result lies in the same "
    "files",
    ("backend_compile (dynamo_timed)", "torch/_inductor/compile_fx.py(900): compile_fx",
     "torch/_inductor/runtime/triton_heuristics.py(900): autotune_to_one_config",
     "triton/runtime/autotuner.py(150): _bench", "flashinfer/autotuner.py(600): _profile_single_kernel",
     "triton/compiler/compiler.py(245): compile", "triton/runtime/jit.py(750): _do_compile",
     "torch/_inductor/runtime/triton_heuristics.py(300): precompile",
     "triton/backends/nvidia/compiler.py(300): make_cubin", "triton autotune"),
    ("Torch-Compiled Region: 0/1", "flashinfer/autotuner.py(400): choose_one",
     "flashinfer/autotuner.py(367): search_cache", "triton/runtime/autotuner.py(205): run",
     "triton/compiler/compiler.py(480): launch_metadata", "triton/backends/nvidia/compiler.py(100): hash",
     "torch/_inductor/compile_fx.py(500): run"),
)
OWN_RANGES: Final = Pattern(
    r"^ProfilerStep#|^Torch-Compiled Region|^Optimizer\.|^## Call CompiledFxGraph",
    "put around work by profilers and compilers: nobody times these",
    "ProfilerStep#1", "layer 3 attention",
)
GENERATED: Final = Pattern(
    r"^## Call |CompiledFxGraph|CompiledFunction|Torch-Compiled Region|^TorchDynamo|^Pregraph bytecode"
    r"|^(nccl|gloo|ucc|mpi|xccl):|^record_param_comms|\(dynamo_timed\)",
    "named by a compiler or a library: no phase of anybody's program (torch.compile, c10d)",
    ("## Call CompiledFxGraph fabc ##", "Torch-Compiled Region: 0/1", "nccl:all_reduce"), "## backward ##",
)

# Other host work
GARBAGE_COLLECTION: Final = Pattern(
    r"(?i)Python GC|garbage.?collect|^gc[._:]|(^|[.\s/])gc\.py|<built-in method collect of", "Python collects garbage",
    ("Python GC", "gc.collect", "<built-in method collect of module gc>"), "gcd",
)
CHECKPOINTING: Final = Pattern(
    r"(?i)torch/serialization\.py|save_checkpoint|checkpoint.*sav|state_dict.*sav|torch\.save",
    "a checkpoint is written",
    ("torch/serialization.py(900): save", "save_checkpoint"), "torch/utils/checkpoint.py",
)
LOGGING: Final = Pattern(
    r"(?i)tensorboard|SummaryWriter|wandb|(^|/)logging/__init__\.py|<built-in function print>"
    r"|(^|[^a-z])log(ging|ger)?[_ .:-]?(step|loss|metrics?)|tqdm",
    "figures are written for people",
    ("wandb/sdk/wandb_run.py(1700): log", "log_metrics"), "log_softmax",
)
PYTHON_LOCK: Final = Pattern(
    "^(?:Holding|Waiting for) GIL",
    "a thread's state as to Python's lock, recorded as a range (nsys --trace=python-gil)",
    "Holding GIL", "GIL",
)
NVTX_FILE: Final = Pattern(
    r"(^|[/\\])nvtx(\.py|[/\\]nvtx\.py)$", "source of the NVTX functions of PyTorch and of the package nvtx",
    ("torch/cuda/nvtx.py", "/usr/lib/python3/site-packages/nvtx/nvtx.py", "C:\\env\\nvtx\\nvtx.py"), "my_nvtx.py",
)
NVTX_OPENS: Final = Pattern(
    "(range_push|push_range|range_start|start_range|__enter__)$", "functions that open a range",
    ("range_push", "__enter__"), ("range_pop", "__exit__"),
)
MARKS: Final = Pattern(
    r'\b(?:range_push|push_range|start_range|range_start|annotate|record_function)\((?:\s*f?["' r"']([^" r'"' r"']+)[" r'"' r"'])?",  # noqa: E501
    "a call in Python that opens a range, with the range's name where it is written there (source text)",
    ('nvtx.range_push("forward")', "with record_function('data_load'):", '@nvtx.annotate(f"L{self.layer}_mlp")'),
    ("nvtx.range_pop()", "def annotated(name):"),
)
# fmt: on

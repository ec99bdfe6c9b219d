"""What a fix leaves of the time of the kernels, copies, launches and loading that it touches.

Shares are of the time that a kernel took, at three cases: what wins least, what is expected, what wins most.
"""

from __future__ import annotations

from typing import Final

from timesink.knowledge.assumption import Assumption

_KEPT = "of its time kept"
_MEASURED = "measured gains of benchmarks/faults on an H200"
_FUSED = f"{_MEASURED}, bf16: in 4 pairs -7 to 8 % of products and what stands between them stays"
_SEEN = "246 tune captures of benchmarks/faults (H200)"
_OTHERS = "a program of others, whose gain was measured"

_AUTOCAST = (
    "benchmarks/worked, GPT-2 under autocast (H200): aligned products of 25.2 ms a step in TF32 take 10.4 in bf16, and "
    "all other kernels grow from 34.2 ms to 41.9 with the casts"
)
_COMPILED_GPT2 = (
    "benchmarks/worked, GPT-2 in bf16 (H200): kernels of 41.9 ms a step, the longest of each run 12.7, become 9.8 ms"
)

ATTENTION_PRODUCTS: Final = Assumption(
    0.6, 0.15, 0.0, _KEPT,
    "written out, products are bound by the scores that they write and read; fused they are not: 85 to 100 % goes",
    _FUSED, "tune", "KRN103",
)  # fmt: skip
ATTENTION_BETWEEN: Final = Assumption(
    0.2, 0.0, 0.0, _KEPT, "what stands between the products goes", _FUSED, "tune", "KRN103"
)
ATTENTION_WIDE: Final = Assumption(
    1.0, 0.95, 0.4, _KEPT, "in fp32 no fused kernel is fast: its products take what they took",
    f"scaled_dot_product_attention in {_OTHERS} on an H200, where it won a tenth of all these kernels, and in one of "
    "benchmarks/ladders (tune, H100), where it won 47 %: their products' share is 0.57", "", "KRN103",
)  # fmt: skip
ATTENTION_LAUNCHES: Final = Assumption(
    0.3, 0.7, 0.9, "of the host's time for a launch saved",
    "one operator is dispatched in place of two products, a scale, a softmax and the views around them; a mask that is "
    "added is one more",
    "counting operators: two of seven launches remain, the fused kernel and a change of layout", "", "",
)  # fmt: skip
POINTWISE_OTHERS: Final = Assumption(
    0.4, 0.05, 0.0, _KEPT,
    "a chain takes as long as its longest member; a little of the others stays for what that one does not read",
    f"{_MEASURED}: none of it stays", "tune", "KRN104",
)  # fmt: skip
CASTS_NEEDLESS: Final = Assumption(
    0.5, 0.0, 0.0, _KEPT,
    "a cast that nobody needs goes; of one that somebody needs, half of its bytes move into a neighbour",
    f"bytes moved; {_MEASURED}: 0 to 2 % stays in 3 pairs, 17 % in one", "tune", "KRN101",
)  # fmt: skip
CASTS_SUMMED: Final = Assumption(
    1.0, 1.0, 0.0, _KEPT, "where a sum or mean reads the result, the digits may be wanted",
    "numerics: a sum of n two-byte figures loses about log2(n) of 8 bits", "", "KRN101",
)  # fmt: skip
LOSS_NARROWED: Final = Assumption(
    0.9, 0.6, 0.4, _KEPT, "a loss over two-byte logits moves half the bytes of one over four-byte logits",
    f"{_MEASURED}: 40 to 70 % stays", "tune", "KRN101",
)  # fmt: skip
LAYOUT_STRIDED: Final = Assumption(
    0.6, 0.05, 0.0, _KEPT, "without the copy some consumer reads strides more slowly than it read the copy",
    f"{_MEASURED}: -1 and 7 % stays", "tune", "KRN102",
)  # fmt: skip
LAYOUT_CONVERTERS: Final = Assumption(
    0.6, 0.3, 0.05, _KEPT, "a network in the other layout has slower kernels elsewhere",
    f"{_MEASURED}: 15 to 55 % stays", "tune", "KRN102",
)  # fmt: skip
LAYOUT_GROUPED: Final = Assumption(
    2.8, 2.0, 1.6, "times as long",
    "with channels last, normalisations over groups read and write the usual layout: PyTorch's own copies convert "
    "around each, where those that come with convolutions did",
    "ATen's group_norm.cpp: input.contiguous() but on CPUs; benchmarks/layouts_on_gpu (H100): kernels of three such "
    "networks take 0.6 to 0.7 times the converters' time more in fp32, 1.0 to 1.2 in bf16; of four others 0.9 to 1.8",
    "", "KRN102",
)  # fmt: skip
LAYOUT_PACKED: Final = Assumption(
    1.0, 1.0, 0.05, _KEPT, "autograd lays out anew what it concatenated for the reader of both",
    "benchmarks/faults: healthy FSDP programs of packed attention have 3 to 6 % of a step of them", "third_tune",
    "KRN102",
)  # fmt: skip
NORM_BLOCKS: Final = Assumption(
    2.0, 4.0, 8.0, "blocks a multiprocessor", "a normalisation with one block a channel fills the device with so many",
    f"{_MEASURED}: of 128 and 512 channels on 132 multiprocessors a quarter and four fifths of the time stay",
    "third_tune", "KRN102",
)  # fmt: skip
UNIT_BYTES: Final = Assumption(
    5e6, 25e6, 100e6, "bytes", "a unit that is gathered at once: DDP's buckets hold so much, layers of models more",
    "PyTorch, DistributedDataParallel: bucket_cap_mb is 25 MiB", "", "COM110",
)  # fmt: skip
UNITS_KEPT: Final = Assumption(
    0.5, 0.25, 0.125, "of the units", "where sizes are not recorded: a transformer layer has four products",
    "arXiv:1706.03762: queries, keys and values, their output, and two of the feed-forward network", "", "COM110",
)  # fmt: skip
CONVOLUTIONS_BESIDE: Final = Assumption(
    1.0, 1.0, 0.8, _KEPT, "in another layout other convolution kernels are chosen",
    f"{_OTHERS}: more than twice the time of the converters was won", "", "KRN102",
)  # fmt: skip
TF32_PEAKS: Final = Assumption(
    0.2, 0.15, 0.1, "of its time kept at the peak", "the ratio of peak rates of a GPU that is not known",
    "data sheets: 1/8 on an A100, 1/7 on an H100", "", "KRN106",
)  # fmt: skip
TF32_OF_PEAKS: Final = Assumption(
    3.0, 1.15, 0.6, "times the ratio of peaks",
    "products of everyday sizes reach about 65 % of a tensor core's peak and 75 % of a plain unit's; fp32 reaches less "
    "where operands are read transposed, so that TF32 wins more",
    _MEASURED, "tune", "KRN106",
)  # fmt: skip
BF16_OF_TF32: Final = Assumption(
    0.75, 0.45, 0.35, _KEPT, "twice the rate, and other kernels are chosen",
    f"data sheets; {_OTHERS}: 51 % of its step where rates and bytes said 42 %", "", "KRN106",
)  # fmt: skip
BF16_OF_FP32: Final = Assumption(
    0.3, 0.12, 0.05, _KEPT, "the ratio of peaks of a tensor core in bf16 to a plain unit in fp32",
    "data sheets: 67 of 989 TFLOP/s on an H100 SXM, 19.5 of 312 on an A100; products reach less of the former", "",
    "KRN106",
)  # fmt: skip
BF16_MISALIGNED: Final = Assumption(
    1.0, 1.0, 0.5, _KEPT, "rows that are not aligned to 16 bytes are loaded in pieces, of two bytes as of four",
    "benchmarks/worked, GPT-2 (H200): products over 50,257 rows take 15.1 ms a step in TF32 and 15.4 in bf16", "",
    "KRN106",
)  # fmt: skip
BF16_STREAMING: Final = Assumption(
    1.0, 0.5, 0.4, _KEPT, "kernels bound by memory move half the bytes", f"bytes moved; {_OTHERS}", "", "KRN106"
)
AUTOCAST_OF_TF32: Final = Assumption(
    0.9, 0.6, 0.35, _KEPT, "twice the rate and other kernels, less the casts that autocast puts around each product",
    f"data sheets; {_AUTOCAST}",
)  # fmt: skip
AUTOCAST_OF_FP32: Final = Assumption(
    0.3, 0.17, 0.05, _KEPT, "the ratio of peaks, less the casts that autocast puts around each product",
    f"data sheets; {_AUTOCAST}",
)  # fmt: skip
AUTOCAST_STREAMING: Final = Assumption(
    1.0, 0.9, 0.4, _KEPT, "half the bytes, where autocast lets kernels have two-byte types", f"bytes moved; {_AUTOCAST}"
)
BF16_PRODUCTS_COMPILED: Final = Assumption(
    0.75, 0.45, 0.35, _KEPT, "twice the rate; a compiler writes the casts into the kernels around a product",
    "data sheets; benchmarks/worked, GPT-2 (H200): aligned products of 25.2 ms a step in TF32 take 10.4 in bf16",
)  # fmt: skip
BF16_OF_FP32_COMPILED: Final = Assumption(
    0.2, 0.1, 0.05, _KEPT, "the ratio of peaks; a compiler writes the casts into the kernels around a product",
    "data sheets; benchmarks/worked, GPT-2 (H200): products of 150 ms a step in fp32 take 12.9 compiled in bf16",
)  # fmt: skip
BF16_STREAMING_COMPILED: Final = Assumption(
    1.0, 0.85, 0.5, _KEPT, "what a compiled kernel reads and writes is half the bytes, where it is no sum",
    "bytes moved; benchmarks/worked, GPT-2 (H200)",
)  # fmt: skip
FP64_AS_FP32: Final = Assumption(
    0.7, 0.48, 0.3, _KEPT, "half the bytes, twice the rate and more", f"{_MEASURED}: 48 to 51 % stays", "tune",
    "KRN106",
)  # fmt: skip
ALIGNED_BY_NAME: Final = Assumption(
    0.8, 0.45, 0.3, _KEPT, "padded products before Hopper, where nothing but a name is known",
    "cuBLAS's advice on alignment: misaligned operands are loaded in halves and quarters", "", "KRN105",
)  # fmt: skip
ALIGNED_SINCE_HOPPER: Final = Assumption(
    0.4, 0.18, 0.12, _KEPT, "only aligned products use the warp-group instructions of an H100",
    f"{_MEASURED}, 4095 and 50257 columns: 13 to 25 % stays", "tune", "KRN105",
)  # fmt: skip
ALIGNED_REACH: Final = Assumption(
    0.7, 0.9, 1.0, "of the attainable bound", "what aligned products usually reach", f"{_MEASURED}: all of it", "tune",
    "KRN105",
)  # fmt: skip
BOUND_REACHED: Final = Assumption(
    0.5, 0.7, 0.9, "of the attainable bound", "what a well-written kernel of everyday shapes reaches",
    "GEMM reaches 70 to 85 % of peak rates in published tables; benchmarks/kernels", "", "KRN109",
)  # fmt: skip
GRIDS_SPREAD: Final = Assumption(
    1.5, 2.0, 3.0, "times the share of the GPU it fills",
    "the same work is cut in more pieces, each with its own beginning and end: half of the gain is expected",
    "the bound is a share of 1: as many multiprocessors work as can; 2 stands half-way between it and no gain for "
    "grids that fill a third", "", "KRN107",
)  # fmt: skip
CAUTIOUS_SHARE: Final = Assumption(
    0.25, 0.5, 0.75, "of the expected gain", "what a fix wins at least, where only its best case is known",
    "benchmarks/faults: four fifths of the measured gains lie within the intervals", "tune",
    "KRN107 KRN105 KRN109 CMP101 CMP104",
)  # fmt: skip
TINY_MERGED: Final = Assumption(
    0.5, 0.75, 1.0, "of the kernels", "share that can be merged into others",
    "chains of four are common; an H100 ran 300 elementwise kernels of a graph in 410 us, their product in 15",
    "", "KRN111",
)  # fmt: skip
STREAMS_CAUTIOUS: Final = Assumption(
    0.2, 0.4, 0.6, "of the expected gain", "two kernels at once may share the memory's bandwidth",
    "arXiv:2507.03114: work beside other work is slowed by 19 % on average and 40 % at most", "", "STR101",
)  # fmt: skip
OPTIMIZER_KERNELS: Final = Assumption(
    0.6, 0.35, 0.2, _KEPT,
    "unfused AdamW moves about five times the 28 bytes per parameter that one pass needs, SGD with momentum three "
    "times",
    f"bytes moved; {_MEASURED}: AdamW's kernels of 477 us a step become 232 us fused, 49 %", "tune", "KRN108",
)  # fmt: skip
OPTIMIZER_FIXED_US: Final = Assumption(
    300.0, 150.0, 80.0, "us a step", "a fused step still checks and groups its parameters", _MEASURED, "tune",
    "KRN108",
)  # fmt: skip
OPTIMIZER_LAUNCH_US: Final = Assumption(
    1.5, 0.6, 0.2, "us a former launch", "gathering the list of parameters", _MEASURED, "tune", "KRN108"
)
LOADING_LEFT: Final = Assumption(
    0.30, 0.05, 0.0, "of the loading time kept",
    "workers compete with the program for cores, and the program takes each batch from them",
    "a public pair of captures, ResNet-50 with 0 and 4 workers: a quarter came back as slower host work", "", "IDL101",
)  # fmt: skip
GRAPH_REPLAY_US: Final = Assumption(
    20.0, 12.0, 8.0, "us a replay", "what the launch of a CUDA graph costs the host",
    "the call alone: 3 to 6.5 us in 4 captures of decoding (H200, Nsight Systems), 10 to 15 us published for a laptop "
    "GPU (RTX 5070 Ti) against 6.4 us for one eager launch; Python around it takes the rest", "", "IDL103",
)  # fmt: skip
GRAPH_KERNEL_US: Final = Assumption(
    1.0, 0.6, 0.2, "us a kernel", "what each kernel of a CUDA graph adds to its launch",
    "between graphs of 12, 28 and 52 kernels (H200, Kineto) 0.58 and 0.83 us; published for a laptop GPU: 0.6 us", "",
    "IDL103",
)  # fmt: skip
GRAPH_GAP_US: Final = Assumption(
    1.0, 0.4, 0.35, "us a kernel", "the gap between two kernels of a CUDA graph",
    "medians of 0.39 to 0.42 us in 4 captures of decoding (H200, Kineto); eagerly queued kernels: 1.15 to 1.63", "tune",
    "IDL103",
)  # fmt: skip
VALUE_BYTES: Final = Assumption(
    64, 4096, 65536, "bytes",
    "a copy of so few bytes to the host hands over a value, such as a loss, and goes with its wait",
    f"{_SEEN}: the 792 copies of values hold 2 to 4 bytes, the 20 others 512 KiB and more; CUDA stages up to 64 KiB",
    "",
    "IDL102",
)  # fmt: skip
CAPTURED_WITHIN_US: Final = Assumption(
    200.0, 500.0, 2000.0, "us", "launches further apart have something between them that is no launching",
    f"{_SEEN}: nine tenths of a capture's launches follow within 21 to 193 us; loading a batch takes milliseconds", "",
    "IDL103",
)  # fmt: skip
STAGED_BYTES: Final = Assumption(
    65536, 65536, 65536, "bytes", "a pageable copy up to this is staged: its call returns at once",
    "CUDA runtime API, API synchronization behavior: 64 KB",
)  # fmt: skip
RATED_BYTES: Final = Assumption(
    262144, 1048576, 4194304, "bytes", "copies of so many bytes show the rate of the link; smaller ones show latency",
    f"{_SEEN}: pinned copies of 16 kB move at 11.4 GB/s, those of 1.5 MB at 50.5", "", "CPY102",
)  # fmt: skip
RATE_QUANTILE: Final = Assumption(
    0.5, 0.9, 1.0, "quantile of pinned copies", "the rate of the link is what its best copies reach, but for a fluke",
    f"{_SEEN}: the median of 157 pinned copies moves at 50.5 GB/s, the ninetieth percentile at 50.8", "", "CPY102",
)  # fmt: skip
PINNED_TIME: Final = Assumption(
    0.8, 0.5, 0.25, "of its time kept", "a pinned copy over the pageable one, where the trace has no pinned copy",
    f"{_SEEN}: batches of 9 MB move at 21.7 GB/s where 50.5 are reached pinned: 0.43 of the time", "tune", "CPY102",
)  # fmt: skip
COLLECTIVE_SLOWDOWN: Final = Assumption(
    0.4, 0.2, 0.1, "of the collective's time", "a collective slows the computation it runs beside",
    "arXiv:2507.03114: 19 % on average and 40 % at most", "", "COM101",
)  # fmt: skip
COMPILED_OTHERS: Final = Assumption(
    0.3, 0.0, 0.0, _KEPT, "compiled, kernels between two products become one; these are all but the longest",
    _COMPILED_GPT2,
)  # fmt: skip
COMPILED_LONGEST: Final = Assumption(
    1.0, 0.8, 0.6, _KEPT, "of a run of kernels the one that took longest; compiled, less goes to memory",
    _COMPILED_GPT2,
)  # fmt: skip
COMPILED_LAUNCHES: Final = Assumption(
    -0.1, 0.0, 0.3, "of the host's time for a launch saved",
    "compiled code launches what it does not fuse without dispatch, some of it in more kernels than before",
    "benchmarks/ladders, tune (H100): a host-bound sampler wins 8 to 10 % by compiling, a mixer 0 to 5 %, a T5 with "
    "many small kernels 24 to 28 %",
)  # fmt: skip
COMPILED_LAUNCHES_GONE: Final = Assumption(
    0.2, 0.5, 0.9, "of the host's time for a launch saved", "an operator that is fused into another is not dispatched",
    "the same three programs: 0.3, 0 to 0.2 and 0.5 of it",
)  # fmt: skip
REGION_ENTERED: Final = Assumption(
    10.0, 4.0, 1.0, "times the host's time for a launch",
    "each call of a compiled layer asks its guards and passes a wrapper; a model compiled as a whole does once",
    "benchmarks/ladders, tune (H100): three programs that nobody trains, whose launches take 13 to 20 us, lose 50 to "
    "240 us a layer beside what fewer launches win",
)  # fmt: skip
REGION_TRAINED: Final = Assumption(
    28.0, 12.0, 4.0, "times the host's time for a launch",
    "autograd's wrappers save what the backward pass needs, and lead to its own region",
    "benchmarks/ladders, tune (H100): four programs in training, whose launches take 17 to 20 us, lose 120 to 550 us "
    "a layer beside what fewer launches win",
)  # fmt: skip
FOREACH_KERNELS: Final = Assumption(
    1.0, 0.9, 0.6, _KEPT, "the same bytes move in kernels over lists, which fill the device better",
    "bytes moved: AdamW reads and writes as often as one parameter at a time",
)  # fmt: skip
AUTOCAST_CASTS: Final = Assumption(
    1.1, 0.8, 0.4, "of the host's time for a launch",
    "a cast is an operator of its own, without Python around it: to, _to_copy, empty_strided, copy_ and the launch are "
    "five records of the six or seven that a launch usually has",
    "benchmarks/ladders, tune (H100): nine programs that wait for their host in 16 bits take 27 to 39 us longer for "
    "each product, 0.5 to 1.2 of the mean time for a launch for each cast counted", "",
)  # fmt: skip
EAGER_LAUNCHES: Final = Assumption(
    10, 20, 40, "launches per engine step", "so many are a model without a graph: with graphs an engine launches few",
    "benchmarks/serving (H200): 6 with graphs, 86 where graphs of four layers are missing", "", "SRV101",
)  # fmt: skip
CHUNK_AGAIN: Final = Assumption(
    1.0, 1.25, 1.6, "times its share of the prompt", "is what reading one chunk of a prompt takes: each chunk reads "
    "the weights, and what is cached, again", "benchmarks/serving (H200): 1.5 for an eighth of 8,192 tokens", "",
    "SRV102",
)  # fmt: skip
SHORT_KERNEL_US: Final = Assumption(
    3.0, 5.0, 8.0, "us", "a kernel this short takes as long for twice the requests: it is mostly its start",
    "benchmarks/serving (H200): norms and additions of 8 to 32 requests take 1 to 4 us", "", "SRV103",
)  # fmt: skip
SAVING_HOOKS: Final = Assumption(
    0.5, 1.1, 1.5, "times the host's time for a launch, a kernel that is run again",
    "torch.utils.checkpoint saves nothing of a layer by hooks in Python: of each tensor it packs and unpacks a holder, "
    "and notes its shape",
    "torch 2.13 on a CPU, small layers of BERT, of an encoder and of convolutions: 13 us for each of 1.3 to 2.6 saved "
    "tensors a kernel, where each kernel takes the host 15 to 30 us with 5 us for its launch: 1.10 to 1.15",
    "", "HAB101",
)  # fmt: skip

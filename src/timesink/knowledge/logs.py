"""What torch.compile writes into logs (`TORCH_LOGS`, `TORCH_TRACE`): how a line begins, and what each message says."""

from typing import Final

from timesink.knowledge import Pattern
from timesink.knowledge.ranges import COMPILED_GRAPH

# Of each pattern its meaning, then names that show it, then near misses.
# fmt: off
LINE: Final = Pattern(
    r"(?:\[[\w.]+\]:)*?(?:\[rank(?P<rank>\d{1,9})\]:)?(?P<level>[VIWEC])(?P<month>\d\d)(?P<day>\d\d) "
    r"(?P<clock>\d\d:\d\d:\d\d)\.(?P<micros>\d{6}) (?P<thread>\d+) (?P<where>[^\]\s]+:\d+)\] ?(?P<rest>.*)",
    "how glog begins a line",
    "[rank0]:V0912 14:05:01.123456 1234 torch/_dynamo/output_graph.py:10] [0/0] x",
    "Traceback (most recent call last):",
)
MESSAGE: Final = Pattern(
    r"(?:\[(?P<id>[^\]\s]*\d{1,9}/\d{1,9}[^\]\s]*|-/-)\] )?(?:\[__(?P<channel>\w+)\] ?)?(?P<said>.*)$",
    "compile id, channel and what is said; all but the last may be missing",
    "[0/1] [__recompiles] Recompiling function f", (),
)
COMPILE_ID: Final = Pattern(
    r"(?P<frame>\d{1,9})/(?P<compilation>\d{1,9})(?:_(?P<attempt>\d{1,9}))?$", "frame, compilation and attempt",
    "2/0_1", "2",
)
RESUMED: Final = Pattern(
    r"resume_in_(?P<function>.+)_at_(?P<line>\d{1,9})$", "what follows a break of the graph",
    "torch_dynamo_resume_in_f_at_12", "resume_training",
)
USER_CODE: Final = Pattern(
    r"user code at:? (?P<file>\S.*?):(?P<line>\d{1,9})\s*$", "where a graph broke",
    "Graph break in user code at m.py:12", "user code",
)
FRAME: Final = Pattern(
    r'\s*File "(?P<file>[^"]+)", line (?P<line>\d{1,9})(?:, in (?P<function>\S+))?', "a frame of a stack",
    '  File "m.py", line 12, in f', "m.py:12",
)
KERNEL_CALL: Final = Pattern(
    r"^(?P<kernel>[\w.]{1,1000}):(?P<call>\d{1,9})$", "a call of a kernel in the code of a compiled graph",
    ("triton_poi_fused_add_0:1", "extern_kernels.mm:2"), "triton_poi_fused_add_0",
)
KERNEL_STACKS: Final = Pattern(
    r'^\s*\{\s*"[\w.]{1,1000}:\d{1,9}":\s*(?:\[|\{\s*"stack_traces")', "how a file of kernels with their stacks begins",
    ('{"triton_poi_fused_add_0:1": [', '{"extern_kernels.mm:2": {"stack_traces": []'), '{"traceEvents": [',
)
NODE_FILE: Final = Pattern(
    r"\s*# File: (?P<file>\S[^\n]{0,1000}?):(?P<line>\d{1,9}) in (?P<function>[\w<>]+)",
    "the line of the nodes of a printed graph that follow",
    "    # File: m.py:12 in forward, code: x = f(x)", "# File: m",
)
NODE: Final = Pattern(
    r'\s*(?P<name>[A-Za-z_]\w*)(?:: \"[^\"\n]*\")? = ', "a node of a printed graph",
    ('  mul_1: "f32[16][1]cuda:0" = torch.ops.aten.mul.Tensor(a, b)', "  chunk = linear.chunk(3, -1)"), "return (a,)",
)
SOURCE_NODES: Final = Pattern(
    r"\s*(?:#|//) (?:Topologically Sorted |Unsorted )?Source Nodes: \[(?P<nodes>[^\]]*)\]",
    "what the next call in a graph's code computes",
    "    # Topologically Sorted Source Nodes: [x, x_1], Original ATen: []", "# Source node to ATen node mapping:",
)
KERNEL_HANDLE: Final = Pattern(
    r"\s*(?:#|//) \[Provenance debug handles\] (?P<kernel>[\w.]{1,1000}):(?P<call>\d{1,9})",
    "the number of the next call",
    "    # [Provenance debug handles] triton_poi_fused_add_0:7", "# handles",
)
CALL_IN_CODE: Final = Pattern(
    r"\s*(?:\w+ = )?(?P<kernel>triton_\w+|cpp_\w+|extern_kernels\.\w+)(?:\.run)?\(",
    "a call of a kernel in a graph's code",
    ("    triton_poi_fused_add_0.run(a, b, 8, stream=stream0)", "    extern_kernels.mm(a, b, out=c)"),
    "    del triton_1",
)
REASON: Final = Pattern(
    r"^\s*(?:Graph Break )?Reason: (?P<why>.*)$", "why a graph broke",
    "Graph Break Reason: a call", "for this reason: x",
)
OLD_REASON: Final = Pattern(
    r"^Graph break: (?P<why>.*?)\s*(?:from user code at:.*)?$", "the same before PyTorch 2.7",
    "Graph break: a call", "Graph break in user code at m.py:12",
)
RECOMPILING: Final = Pattern(
    r"^Recompiling function (?P<function>\S+) in (?P<file>.+?):(?P<line>\d{1,9})\s*$", "a guard failed",
    "Recompiling function f in m.py:12", "Recompiling",
)
GUARD: Final = Pattern(
    r"^\s*(?:- )?(?:\d{1,9}/\d{1,9}(?:_\d{1,9})?: )?(?P<guard>.*?)(?:\s{2,}#.*)?$",
    "the guard that failed, without its number and its comment",
    "    - 0/1: L['x'].size()[0] == 4  # m.py:3", (),
)
LIMIT: Final = Pattern(
    r"hit config\.(?P<limit>\w+) \((?P<count>\d{1,9})\)", "the compiler gave up",
    "torch._dynamo hit config.cache_size_limit (8)", "hit the limit",
)
LIMITED: Final = Pattern(
    r"\s*function: '(?P<function>[^']+)' \((?P<file>.+):(?P<line>\d{1,9})\)", "on this function",
    "   function: 'f' (m.py:12)", "function f",
)
SKIPPED: Final = Pattern(
    r"^skipping:? (?P<function>\S+) \(reason: (?P<why>.*), file: (?P<file>.*)\)", "a function that is not compiled",
    "skipping: f (reason: in skipfiles, file: m.py)", "skipping f",
)
TRACING: Final = Pattern(
    r"Step 1: torchdynamo start tracing (?P<function>\S+) (?P<file>.+):(?P<line>\d{1,9})", "a compilation begins",
    "Step 1: torchdynamo start tracing f m.py:12", "Step 2: calling compiler function",
)
GUARD_LEAF: Final = Pattern(
    r"\+- (?![A-Za-z]*Manager\b)[A-Z_]+", "one guard of a tree of guards",
    "| +- TENSOR_MATCH: check", "+- RootGuardManager",
)
GRAPH_KEY: Final = Pattern(
    rf'"key": ?"(?P<key>{COMPILED_GRAPH})"', "key of a compiled graph in the cache",
    '"key": "fq2qocr2katu3xr5mwv7qvrpa3sk6jzudnk27ctfg25gox7ohmtp"', '"key": "short"',
)
BODY_OF_CODE: Final = Pattern(
    r"(?s)^ *def (?:call|partition_\d+)\(.*?(?=^def benchmark_|\Z)",
    "the function of a graph's code that calls its kernels",
    "def call(self, args):\n    f()", "def helper(args):",
)

"""The keys, tables and columns of profiles that `timesink capture --redact` keeps: those that readers take."""

from typing import Final


def _listed(words: str) -> frozenset[str]:
    return frozenset(words.split())


# fmt: off
# Kineto: https://github.com/pytorch/kineto, and what other writers of its format add.
TRACE_KEYS: Final = dict.fromkeys(_listed("""
schemaVersion deviceProperties computeProperties record_shapes with_stack profile_memory with_flops with_modules
cuda_driver_version cuda_runtime_version cupti_version roctracer_version hip_runtime_version hip_driver_version
displayTimeUnit baseTimeNanoseconds traceEvents distributedInfo traceName
"""), "words")
ARGUMENTS: Final[dict[str, str]] = {
    **dict.fromkeys((
        "Addr", "Bytes", "Call stack", "Collective name", "Comms Id", "Device", "Device Id", "Device Type", "Dst Rank",
        "Ev Idx", "External id", "External Id", "external id", "external ts", "Fwd thread id", "Global rank start",
        "Global rank stride", "Group size", "In msg nelems", "Input type", "Module Hierarchy", "Op count",
        "Out msg nelems", "Output type", "Process Group Description", "Process Group ID", "Process Group Name",
        "Profiler Event Index", "Python id", "Python module id", "Python parent id", "Rank", "Record function id",
        "Seq", "Sequence number", "Src Rank", "Total Allocated", "Total Reserved", "Trace iteration", "Trace name",
        "blocks per SM", "bytes", "cbid", "cid", "context", "correlation", "counters", "cuda_sync_kind", "device",
        "dst", "dtype", "est. achieved occupancy %", "finished", "graph id", "graph node id", "kernel_backend",
        "kernel_file", "kernel_hash", "kernel_kwargs", "kind", "labels", "memory bandwidth (GB/s)", "name",
        "num_stages", "num_warps", "occupancy", "ptr", "queued", "registers per thread", "scope", "shared memory",
        "size", "sort_index", "src", "stream", "theoretical occupancy %", "value", "wait_on_cuda_event_id",
        "wait_on_cuda_event_record_corr_id", "wait_on_stream", "warps per SM",
    ), "words"),
    **dict.fromkeys((
        "Input Dims", "Input dims", "Input Strides", "Output dims", "Concrete Inputs", "In split size",
        "Out split size", "Process Group Ranks", "grid", "block",
    ), "shape"),
    **dict.fromkeys(("kernel", "kernel_name"), "symbol"),
}
"""Arguments of an event, by what their texts may be."""
EVENT: Final = {
    **dict.fromkeys(("ph", "bp", "s"), "letter"), **dict.fromkeys(("pid", "tid"), "process"),
    **dict.fromkeys(("name", "cat", "id", "ts", "dur"), "words"), "args": ARGUMENTS,
}
"""Members of an event, by what they may be."""
KERNEL_EVENT: Final = EVENT | {"name": "symbol"}
KERNEL_KINDS: Final = ("kernel", "Kernel", "cuda_profiler_range")
"""Categories of events whose names are kernels."""
PAGE_COLUMNS: Final = {
    **dict.fromkeys(("ID", "Context", "Stream", "Device", "CC", "Block Size", "Grid Size"), "shape"),
    **dict.fromkeys(("Process ID", "Metric Value", "Kernel Time", "Estimated Speedup"), "figure"),
    **dict.fromkeys(("Process Name", "Host Name"), "private"),
    **dict.fromkeys(("Section Name", "Metric Name", "Metric Unit", "Rule Name", "Rule Type", "Rule Description",
                     "Estimated Speedup Type"), "words"),
    "Kernel Name": "symbol",
}
"""Columns of the tables that ncu prints, by what their cells may be."""
PAGE_NAMES: Final = {
    **dict.fromkeys(_listed("""
a aria-describedby aria-hidden aria-label aria-labelledby aria-live article aside b body br button caption charset
circle class code col colgroup colspan cx cy data data-capture data-flame data-kind data-value data-window dd details
div dl dt em figcaption figure fill font-family font-size footer for g h1 h2 h3 h4 h5 h6 head header height hr href
html http-equiv i id input kbd label lang li line main mark meta name nav ol open option p path polygon polyline pre
preserveaspectratio r rect role rowspan samp scope script section select small span stroke stroke-width strong style
sub summary sup svg tabindex table tbody td template text text-anchor tfoot th thead time title tr type ul var wbr
width x x1 x2 xmlns y y1 y2
"""), "words"),
    **dict.fromkeys(("d", "points", "transform", "viewbox"), "drawing"), "content": "policy",
}
"""Elements and attributes of pages for a browser, by what the attributes' texts may be."""
NSYS_TEXTS: Final = {
    **dict.fromkeys(("nameId", "textId", "jsonTextId", "symbol", "module"), "payload"), "demangledName": "symbol",
}
"""Columns, of any kept table, that refer to texts, by what those may be."""
INSTRUCTIONS: Final = _listed("""
128 16816 16832 1688 32 64 8816 884 ABS ACQBULK ADD AL2P ALD ALL AND ANY ARV AST ATOM ATOMG ATOMS B2R BAR BF16 BF16_V2
BFLY BMMA BMOV BMSK BPT BPTR BRA BREAK BREV BRX BRXU BSSY BSYNC BYPASS CALL CAS CCTL CCTLL CCTLT CLMAD CONSTANT COS
CREDUX CS2R CSMTEST CTA DADD DEC DEPBAR DFMA DMMA DMNMX DMUL DOWN DSETP E EF EL ELECT ENDCOLLECTIVE EQ ERRBAR EX2 EXCH
EXIT F16 F2F F2FP F2I F2IP F32 F64 FADD FCHK FENCE FFMA FLO FMNMX FMUL FRND FSEL FSET FSETP FSWZADD FTZ GE GETLMEMBASE
GPU GT HADD2 HFMA2 HGMMA HI HMMA HMNMX2 HMUL2 HSET2 HSETP2 I2F I2FP I2I I2IP IABS IADD IADD3 IDP IDP4A IDX IGMMA IMAD
IMMA IMNMX IMUL INC IPA ISBERD ISCADD ISETP JCAL JMP JMX JMXU KILL L LD LDC LDCU LDG LDGDEPBAR LDGMC LDGSTS LDL LDS
LDSM LDT LDTM LE LEA LEPC LG2 LO LOP LOP3 LT LTC128B LTC256B LTC64B LU LUT M88 MATCH MAX MEMBAR MIN MOV MOVM MT88 MUFU
NANOSLEEP NANOTRAP NE NODEC NOINC NOP OR OUT P2R PACK PACK_AB PIXLD PLOP3 PMTRIG POPC PRET PRMT PSETP QGMMA QMMA QSPC
R R2B R2P R2UR RCP RECONVERGENT RED REDG REDUX REL RELIABLE RET RM RN RP RPCMOV RSQ RTT RZ S16 S2R S2UR S32 S64 S8 SAT
SEL SETCTAID SETLMEMBASE SGXT SHF SHFL SHL SHR SIN SQRT ST STAS STG STL STRONG STS STSM STT STTM SUATOM SUCCTL SULD
SUQUERY SURED SUST SYNC SYNCS SYNC_DEFER_BLOCKING SYS TANH TEX TF32 TLD TLD4 TMML TRANS TXA TXD TXQ U U16 U32 U64 U8
UBLKCP UBLKPF UBLKRED UBMSK UBREV UCGABAR UCLEA UF2FP UFLO UGETNEXTWORKID UIADD3 UIMAD UISETP ULDC ULEA ULEPC ULOP
ULOP3 UMOV UP UP2UR UPLOP3 UPOPC UPRMT UPSETP UR2UP USEL USETMAXREG USGXT USHF USHL USHR UTCATOMSW UTCBAR UTCCP
UTCHMMA UTCIMMA UTCQMMA UTCSHIFT UTMACCTL UTMACMDFLUSH UTMALDG UTMAPF UTMAREDG UTMASTG UVOTE VABSDIFF VABSDIFF4 VIADD
VIADDMNMX VIMNMX VOTE VOTEU VTG W WARPGROUP WARPSYNC WEAK WIDE X XOR YIELD ZFILL
""")
"""Parts between the dots of instructions of NVIDIA's GPUs (SASS), from the CUDA Binary Utilities' manual."""
CODES: Final = _listed("""
T# c# mxfp# im#col#d #ul #ull #l #u #f sm# SM# Sm# TT TNN NTN NTT NNN bf# f# tf# fp# f#f# f#f#f# tf#f# bf#f# bf#bf#
f#bf# s# i# u# e#m# e#m#e#m# e#m#f# e#m#bf# t h k n v o B v# g# r# k# d d# #d #D #C# #x bx bx# ex# wt ws wr ta tr mh
vs# cga alg# rc r#c c#r ll#mi ogs w# p# x# AFC# CLR# IU# K# LPA# LPB# LPM# LWPMn# MO# NTn# NTA# NTB# NTC# NTD# NTM#
PGR# PLR# PKA# SIA# SS# SPO# SSO# SVW# VSn# VWA# VWB# WS# WG WG# GLS# SK# USL# BH HA BBS SB HHS HSS SS II ZZ cu# m# b#
h# align# Policy# LBSPPA# LBSPPB# f#f dk #d#d hsh hss hhh sss bsb bss m f x y z l#s
""")
"""Codes between the underscores of a name, # for digits: types, layouts, tiles, axes, what Tensile was set to."""
SHORT_WORDS: Final = _listed("""
a t an as at be by do go if in is it me my no of on or so to up us we vs mm nn py cu cc io id ok ms ns s hz rx tx op sm
SMs TPCs pm fp tf lr kv qk eq ne lt le gt ge gc fb f16 f32 f64 bf16 fp8 fp16 fp32 fp64 tf32 i8 u8 i32 i64 s8 s32 l1 l2
L1 L2 SM_A SM_B SM_C FE_B p2p P2P H2D D2H D2D c10 c10d x86 cu118 cu121 cu124 cu126 cu128 cu129 cu130 sm70 sm75 sm80
sm86 sm89 sm90 sm100 sm120 PG500 PG509 ac2g IDs DGXS FHHL NVL 8GB 11GB 12GB 24GB 32GB 48GB 64GB 94GB 128GB 141GB 144GB
180GB 192GB 256GB 288GB
""")
"""Words of less than three letters, and codes, that may stand alone in any text."""
PERSONAL: Final = _listed("""
host hostname user username uid author license licence ip ipv ipaddress login logname mail email home homedir pwd cwd
environ environment cmd command cmdline argv args serial uuid account acct owner metadata slurm phone tel fax ssn
social passport birth iban badge employee ticket customer patient tenant subscription mac sha commit revision url uri
private imei
""")
"""Words of a key whose text names a person, a machine or a command."""
OWNED: Final = _listed("""
job node machine box server cluster rack site zone project team session card address asset org organisation
organization company department lab workspace repo repository branch experiment person people student client busid
workingdir by pin
""")
"""Last words of a key whose text, not its counts, names what belongs to somebody."""
NUMBERING: Final = _listed("id name no nr number label tag title array")
"""What may stand behind them, without the s of many."""
QUANTITIES: Final = {"multiprocessor"} | _listed("""
ns us ms s sec second nanosecond byte b kb mb gb tb kib mib gib tib size count total value low high min max mean
median p sum start end begin dur duration time timestamp ts addr address ptr pointer offset from to period cycle hz
khz mhz ghz flop ops op element numel length memory mem capacity limit width height line seq sequence step version sm
block rate bandwidth dim stride shape nelem allocated reserved index frame optin
""")
"""Last words of a key, without the s of many, whose number is an amount, a time or a place in memory."""
# fmt: on

"""The keys, tables and columns of profiles that `timesink capture --redact` keeps: those that readers take."""

from typing import Final

from timesink.knowledge import nsys_tables
from timesink.knowledge.private_texts import CAPTURE_SETTINGS, DRIVER_VERSIONS, EXPORT_SETTINGS

# fmt: off
# Kineto: https://github.com/pytorch/kineto, and what other writers of its format add.
TRACE_KEYS: Final = frozenset((
    "schemaVersion", "deviceProperties", "computeProperties", "record_shapes", "with_stack", "profile_memory",
    "with_flops", "with_modules", "cuda_driver_version", "cuda_runtime_version", "cupti_version", "roctracer_version",
    "hip_runtime_version", "hip_driver_version", "displayTimeUnit", "baseTimeNanoseconds", "traceEvents",
    "distributedInfo", "traceName",
))
EVENT_KEYS: Final = frozenset((
    "ph", "name", "cat", "pid", "tid", "ts", "dur", "id", "bp", "s", "args",
))
NUMBERED: Final = ("pid", "tid")
"""Members whose texts may be numbers."""
MARKS_OF_EVENTS: Final = tuple("XBEMCiIstfbneNDOPRgp")
"""What an event's members of one letter may be: its phase, its scope, the point it is bound to."""
ARGUMENT_KEYS: Final = frozenset((
    "Addr", "Bytes", "Call stack", "Collective name", "Comms Id", "Concrete Inputs", "Device", "Device Id",
    "Device Type", "Dst Rank", "Ev Idx", "External id", "External Id", "external id", "external ts", "Fwd thread id",
    "Global rank start", "Global rank stride", "Group size", "In msg nelems", "In split size", "Input Dims",
    "Input Strides", "Input dims", "Input type", "Module Hierarchy", "Op count", "Out msg nelems", "Out split size",
    "Output dims", "Output type", "Process Group Description", "Process Group ID", "Process Group Name",
    "Process Group Ranks", "Profiler Event Index", "Python id", "Python module id", "Python parent id", "Rank",
    "Record function id", "Seq", "Sequence number", "Src Rank", "Total Allocated", "Total Reserved", "Trace iteration",
    "Trace name", "block", "blocks per SM", "bytes", "cbid", "cid", "context", "correlation", "cuda_sync_kind",
    "device", "dtype", "est. achieved occupancy %", "finished", "graph id", "graph node id", "grid", "kernel",
    "kernel_backend", "kernel_file", "kernel_hash", "kernel_kwargs", "kernel_name", "kind", "labels",
    "memory bandwidth (GB/s)", "name", "num_stages", "num_warps", "occupancy", "queued", "registers per thread",
    "scope", "shared memory", "sort_index", "stream", "theoretical occupancy %", "wait_on_cuda_event_id",
    "wait_on_cuda_event_record_corr_id", "wait_on_stream", "warps per SM", "size", "ptr", "src", "dst", "value",
    "counters",
))
SHAPES: Final = frozenset((
    "Input Dims", "Input dims", "Input Strides", "Output dims", "Concrete Inputs", "In split size", "Out split size",
    "Process Group Ranks", "grid", "block",
))
"""Arguments whose texts may be sizes."""
KERNEL_KINDS: Final = frozenset((
    "kernel", "Kernel", "cuda_profiler_range",
))
"""Categories of events whose names are kernels."""
KERNEL_ARGUMENTS: Final = frozenset((
    "kernel", "kernel_name",
))
PAGE_COLUMNS: Final = frozenset((
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size",
    "Device", "CC", "Section Name", "Metric Name", "Metric Unit", "Metric Value", "Rule Name", "Rule Type",
    "Rule Description", "Estimated Speedup Type", "Estimated Speedup", "Kernel Time",
))
"""Columns of the tables that ncu prints."""
PAGE_TAGS: Final = frozenset((
    "a", "article", "aside", "b", "body", "br", "button", "caption", "circle", "code", "col", "colgroup", "data", "dd",
    "details", "div", "dl", "dt", "em", "figcaption", "figure", "footer", "g", "h1", "h2", "h3", "h4", "h5", "h6",
    "head", "header", "hr", "html", "i", "input", "kbd", "label", "li", "line", "main", "mark", "meta", "nav", "ol",
    "option", "p", "path", "polygon", "polyline", "pre", "rect", "samp", "script", "section", "select", "small", "span",
    "strong", "style", "sub", "summary", "sup", "svg", "table", "tbody", "td", "template", "text", "tfoot", "th",
    "thead", "time", "title", "tr", "ul", "var", "wbr",
))
PAGE_ATTRIBUTES: Final = frozenset((
    "aria-describedby", "aria-hidden", "aria-label", "aria-labelledby", "aria-live", "charset", "class", "colspan",
    "content", "cx", "cy", "d", "data-capture", "data-flame", "data-kind", "data-value", "data-window", "fill",
    "font-family", "font-size", "for", "height", "href", "http-equiv", "id", "lang", "name", "open", "points",
    "preserveaspectratio", "r", "role", "rowspan", "scope", "stroke", "stroke-width", "tabindex", "text-anchor",
    "title", "transform", "type", "viewbox", "width", "x", "x1", "x2", "xmlns", "y", "y1", "y2",
))
NSYS_SYMBOLS: Final = ((nsys_tables.KERNELS.name, "demangledName"),)
"""Columns that refer to kernels' names."""
NSYS_LABELS: Final = frozenset(("nameId", "textId", "jsonTextId", "symbol", "module"))
"""Columns, of any kept table, that refer to other texts."""
NSYS_SETTINGS_KEPT: Final = {
    nsys_tables.CAPTURE_META.name: CAPTURE_SETTINGS, nsys_tables.SYSTEM_INFO.name: DRIVER_VERSIONS,
    **{table.name: EXPORT_SETTINGS for table in nsys_tables.EXPORT_META},
}
"""Of tables of settings, the settings that say how to read the rest."""
_OPCODES = """
ACQBULK AL2P ALD AST ATOM ATOMG ATOMS B2R BAR BMMA BMOV BMSK BPT BPTR BRA BREAK BREV BRX BRXU BSSY BSYNC CALL CCTL
CCTLL CCTLT CLMAD CREDUX CS2R CSMTEST DADD DEPBAR DFMA DMMA DMNMX DMUL DSETP ELECT ENDCOLLECTIVE ERRBAR EXIT F2F F2FP
F2I F2IP FADD FCHK FENCE FFMA FLO FMNMX FMUL FRND FSEL FSET FSETP FSWZADD GETLMEMBASE HADD2 HFMA2 HGMMA HMMA HMNMX2
HMUL2 HSET2 HSETP2 I2F I2FP I2I I2IP IABS IADD IADD3 IDP IDP4A IGMMA IMAD IMMA IMNMX IMUL IPA ISBERD ISCADD ISETP JCAL
JMP JMX JMXU KILL LD LDC LDCU LDG LDGDEPBAR LDGMC LDGSTS LDL LDS LDSM LDT LDTM LEA LEPC LOP LOP3 MATCH MEMBAR MOV MOVM
MUFU NANOSLEEP NANOTRAP NOP OUT P2R PACK PIXLD PLOP3 PMTRIG POPC PRET PRMT PSETP QGMMA QMMA QSPC R2B R2P R2UR RED REDG
REDUX RET RPCMOV RTT S2R S2UR SEL SETCTAID SETLMEMBASE SGXT SHF SHFL SHL SHR ST STAS STG STL STS STSM STT STTM SUATOM
SUCCTL SULD SUQUERY SURED SUST SYNCS TEX TLD TLD4 TMML TXA TXD TXQ UBLKCP UBLKPF UBLKRED UBMSK UBREV UCGABAR UCLEA
UF2FP UFLO UGETNEXTWORKID UIADD3 UIMAD UISETP ULDC ULEA ULEPC ULOP ULOP3 UMOV UP2UR UPLOP3 UPOPC UPRMT UPSETP UR2UP
USEL USETMAXREG USGXT USHF USHL USHR UTCATOMSW UTCBAR UTCCP UTCHMMA UTCIMMA UTCQMMA UTCSHIFT UTMACCTL UTMACMDFLUSH
UTMALDG UTMAPF UTMAREDG UTMASTG UVOTE VABSDIFF VABSDIFF4 VIADD VIADDMNMX VIMNMX VOTE VOTEU WARPGROUP WARPSYNC YIELD
"""
OPCODES: Final = frozenset(_OPCODES.split())
"""Instructions of NVIDIA's GPUs (SASS), from the CUDA Binary Utilities' manual."""
_MODIFIERS = """
128 16816 16832 1688 32 64 8816 884 ABS ADD ALL AND ANY ARV BF16 BF16_V2 BFLY BYPASS CAS CONSTANT COS CTA DEC DOWN E
EF EL EQ EX2 EXCH F16 F32 F64 FTZ GE GPU GT HI IADD IDX INC L LE LG2 LO LT LTC128B LTC256B LTC64B LU LUT M88 MAX MIN
MOV MOVM MT88 NE NODEC NOINC OR PACK_AB POPC R RCP RECONVERGENT RED REL RELIABLE RM RN RP RSQ RZ S16 S32 S64 S8 SAT
SHL SIN SQRT STRONG SYNC SYNC_DEFER_BLOCKING SYS TANH TF32 TRANS U U16 U32 U64 U8 UP VTG W WEAK WIDE X XOR ZFILL
"""
MODIFIERS: Final = frozenset(_MODIFIERS.split())
"""What stands behind their dots."""
_CODES = """
T# c# mxfp# im#col#d #ul #ull #l #u #f sm# SM SM# Sm# nn tn nt TN NN NT TT TNN TNT NTN NTT NNN NNT bf# f# tf# fp# f#f#
f#f#f# tf#f# bf#f# bf#bf# f#bf# s# i# u# e#m#
e#m#e#m# e#m#f# e#m#bf# bz t h k n v S o B nv v# g# r# k# d d# #d #D #C# #x NS HMMA bx bx# ex#
bt wt ws wr ta tb bn tr fw bw mh ck dq rf nd kv vs# LL cga alg# to do on me no at rc r#c c#r ll#mi ogs w# p# x# MT MI
SN AFC# CLR# IU# K# LPA# LPB# LPM# LWPMn# MO# NTn# NTA# NTB# NTC# NTD# NTM# PGR# PLR# PKA# SIA# SS# SPO# SSO# SVW#
VSn# VWA# VWB# WS# WG WG# GLS# SK# USL# BH HA BBS BS SB AS HHS HSS SS HS II DD ZZ CC cu# m# b# h# align# Policy#
LBSPPA# LBSPPB# f#f dk dv #d#d hsh hss hhh sss bsb bss
"""
CODES: Final = frozenset(_CODES.split())
"""Codes between the underscores of a kernel's name, # for digits: types, layouts, tiles, what Tensile was set to."""
_SHORT_WORDS = """
a t an as at be by do go if in is it me my no of on or so to up us we vs mm nn py cu cc io id ok ms ns s hz rx tx op
sm SMs TPCs pm fp tf lr kv qk eq ne lt le gt ge gc fb f16 f32 f64 bf16 fp8 fp16 fp32 fp64 tf32 i8 u8 i32 i64 s8 s32 l1
l2 L1 L2 p2p P2P H2D D2H D2D HtoD DtoH DtoD c10 c10d x86 cu118 cu121 cu124 cu126 cu128 cu129 cu130 sm70 sm75 sm80 sm86
sm89 sm90 sm100 sm120 PG500 PG509 ac2g IDs DGXS FHHL SXM2 SXM3 SXM4 SXM5 NVL HBM2e HBM3 HBM3e 8GB 11GB 12GB 16GB 24GB
32GB 40GB 48GB 64GB 80GB 94GB 96GB 128GB 141GB 144GB 180GB 192GB 256GB 288GB
"""
SHORT_WORDS: Final = frozenset(_SHORT_WORDS.split())
"""Words of less than three letters that may stand alone in any text."""
_PERSONAL = """
host hostname user username uid author license licence ip ipv ipaddress login logname mail email home homedir pwd cwd
environ environment cmd command cmdline argv args serial uuid account acct owner metadata slurm phone tel fax ssn
social passport birth iban badge employee ticket customer patient tenant subscription mac sha commit revision url uri
private imei
"""
PERSONAL: Final = frozenset(_PERSONAL.split())
"""Words of a key whose text names a person, a machine or a command."""
_OWNED = """
job node machine box server cluster rack site zone project team session card address asset org organisation
organization company department lab workspace repo repository branch experiment person people student client busid
workingdir by pin
"""
OWNED: Final = frozenset(_OWNED.split())
"""Last words of a key whose text, not its counts, names what belongs to somebody."""
_NUMBERING = """
id ids name names no nr number numbers label labels tag tags title titles array
"""
NUMBERING: Final = frozenset(_NUMBERING.split())
"""What may stand behind them."""
_QUANTITIES = """
ns us ms s sec second nanosecond byte b kb mb gb tb kib mib gib tib size count total value low high min max mean
median p sum start end begin dur duration time timestamp ts addr address ptr pointer offset from to period cycle hz
khz mhz ghz flop ops op element numel length memory mem capacity limit width height line seq sequence step version sm
block rate bandwidth dim stride shape nelem allocated reserved index frame optin
"""
QUANTITIES: Final = frozenset(_QUANTITIES.split())
"""Last words of a key, without the s of many, whose number is an amount, a time or a place in memory."""
# fmt: on

// Loads that wait for loads, and copies that are waited for as soon as they are asked for.
#include "plain.cuh"

namespace {

constexpr int kBlocks = kSMs * 16, kThreads = 128, kWarps = kBlocks * kThreads / 32;
constexpr unsigned kStates = 1u << 22, kSymbols = 16;  // a table of 256 MB
constexpr int kLength = 64, kStrings = 4;

__device__ unsigned symbol_of(int string, int at) { return (string * 31u + at * 7u) % kSymbols; }

// The table is made of what the input holds (its values are i % 65521): a next state far from the one before.
__device__ unsigned next_state(const float* table, unsigned state, unsigned symbol) {
  return (unsigned(table[size_t(state) * kSymbols + symbol]) * 2654435761u + state * 40503u + 1) % kStates;
}

// A warp's four strings through the automaton, one after the other.
__global__ void automaton_fault(const float* table, float* out) {
  const int warp = (blockIdx.x * kThreads + threadIdx.x) / 32;
#pragma unroll 1
  for (int s = 0; s < kStrings; ++s) {
    unsigned state = (warp * kStrings + s) * 977u % kStates;
#pragma unroll 1
    for (int at = 0; at < kLength; ++at) state = next_state(table, state, symbol_of(warp * kStrings + s, at));
    out[(size_t(warp) * kStrings + s) * 32 + threadIdx.x % 32] = float(state);
  }
}

// In step.
__global__ void automaton_fix(const float* table, float* out) {
  const int warp = (blockIdx.x * kThreads + threadIdx.x) / 32;
  unsigned state[kStrings];
#pragma unroll
  for (int s = 0; s < kStrings; ++s) state[s] = (warp * kStrings + s) * 977u % kStates;
#pragma unroll 1
  for (int at = 0; at < kLength; ++at)
#pragma unroll
    for (int s = 0; s < kStrings; ++s) state[s] = next_state(table, state[s], symbol_of(warp * kStrings + s, at));
#pragma unroll
  for (int s = 0; s < kStrings; ++s) out[(size_t(warp) * kStrings + s) * 32 + threadIdx.x % 32] = float(state[s]);
}

Unseen automata("automaton", {size_t(kStates) * kSymbols, size_t(kWarps) * kStrings * 32, 65521,
                              [](bool fixed, const float* in, float* out) {
                                (fixed ? automaton_fix : automaton_fault)<<<kBlocks, kThreads>>>(in, out);
                              }});

constexpr unsigned kPages = 1u << 21;  // pages of 32 floats
constexpr int kSteps = 64;

// Through a directory and a table to the page: three loads, each waiting for the one before, then the next page.
template <int kAtOnce>
__device__ void translated(const float* in, float* out) {
  const int warp = (blockIdx.x * kThreads + threadIdx.x) / 32, lane = threadIdx.x % 32;
  float sum = 0;
#pragma unroll 1
  for (int k = 0; k < kSteps; k += kAtOnce) {
    unsigned at[kAtOnce];
    float value[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) at[j] = (unsigned(warp) * kSteps + k + j) * 2654435761u % kPages;
#pragma unroll
    for (int hop = 0; hop < 2; ++hop)
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) at[j] = (unsigned(in[size_t(at[j]) * 32]) * 40503u + at[j] * 69069u + 1) % kPages;
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) value[j] = in[size_t(at[j]) * 32 + lane];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) sum += value[j];
  }
  out[size_t(warp) * 32 + lane] = sum;
}

__global__ void page_table_fault(const float* in, float* out) { translated<1>(in, out); }
__global__ void page_table_fix(const float* in, float* out) { translated<8>(in, out); }

Unseen pages("page_table", {size_t(kPages) * 32, size_t(kWarps) * 32, 251, [](bool fixed, const float* in, float* out) {
                              (fixed ? page_table_fix : page_table_fault)<<<kBlocks, kThreads>>>(in, out);
                            }, 7});

__device__ unsigned shared_address(const void* p) { return unsigned(__cvta_generic_to_shared(p)); }

constexpr int kTiles = 256;  // of 4 KB, to a block

// A tile is copied by cp.async, waited for, and each thread smooths it.
template <int kStages>
__device__ void smoothed(const float* in, float* out) {
  __shared__ float held[kStages][1024];
  const size_t first = size_t(blockIdx.x) * kTiles * 1024;
  const auto ask = [&](int tile) {
    if (tile < kTiles)
      asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(&held[tile % kStages][threadIdx.x])),
                   "l"(in + first + size_t(tile) * 1024 + threadIdx.x)
                   : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  for (int tile = 0; tile < kStages; ++tile) ask(tile);
  float sum = 0;
#pragma unroll 1
  for (int tile = 0; tile < kTiles; ++tile) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 1) : "memory");
    __syncthreads();
    const float* now = held[tile % kStages];
    sum = fmaf(sum, 0.5f, now[threadIdx.x] + now[(threadIdx.x + 1) % 1024] + now[(threadIdx.x + 1023) % 1024]);
    __syncthreads();
    ask(tile + kStages);
  }
  out[blockIdx.x * 1024 + threadIdx.x] = sum;
}

__global__ void __launch_bounds__(1024) tile_waited_for_fault(const float* in, float* out) { smoothed<1>(in, out); }
__global__ void __launch_bounds__(1024) tile_waited_for_fix(const float* in, float* out) { smoothed<6>(in, out); }

Unseen tiles("tile_waited_for", {size_t(kSMs) * 2 * kTiles * 1024, size_t(kSMs) * 2 * 1024, 13,
                                 [](bool fixed, const float* in, float* out) {
                                   (fixed ? tile_waited_for_fix : tile_waited_for_fault)<<<kSMs * 2, 1024>>>(in, out);
                                 }});

constexpr int kGathered = 256, kRow = 128;  // groups of four rows to a block; floats to a row
constexpr unsigned kTable = 1u << 20;       // rows: 512 MB

// Four rows of a table are brought by bulk copies (TMA), waited for and added up.
template <int kStages>
__device__ void gathered(const float* in, float* out) {
  __shared__ __align__(128) float held[kStages][4 * kRow];
  __shared__ unsigned long long barriers[kStages];
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barriers + s)) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  const auto ask = [&](int group) {
    const unsigned barrier = shared_address(barriers + group % kStages);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(4 * kRow * 4) : "memory");
    for (int r = 0; r < 4; ++r) {
      const unsigned row = ((blockIdx.x * kGathered + group) * 4u + r) * 2654435761u % kTable;
      asm volatile(
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
              shared_address(held[group % kStages] + r * kRow)),
          "l"(in + size_t(row) * kRow), "r"(kRow * 4), "r"(barrier)
          : "memory");
    }
  };
  if (threadIdx.x == 0)
    for (int group = 0; group < kStages; ++group) ask(group);
  float sum = 0;
#pragma unroll 1
  for (int group = 0; group < kGathered; ++group) {
    asm volatile(
        "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra ready;\nbra again;\nready:\n}" ::"r"(shared_address(barriers + group % kStages)),
        "r"(group / kStages % 2)
        : "memory");
    sum += held[group % kStages][threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0 && group + kStages < kGathered) ask(group + kStages);
  }
  out[blockIdx.x * 512 + threadIdx.x] = sum;
}

__global__ void __launch_bounds__(512) rows_gathered_fault(const float* in, float* out) { gathered<1>(in, out); }
__global__ void __launch_bounds__(512) rows_gathered_fix(const float* in, float* out) { gathered<8>(in, out); }

Unseen gathering("rows_gathered", {size_t(kTable) * kRow, size_t(kSMs) * 4 * 512, 17, [](bool fixed, const float* in, float* out) {
                                     (fixed ? rows_gathered_fix : rows_gathered_fault)<<<kSMs * 4, 512>>>(in, out);
                                   }});

}  // namespace

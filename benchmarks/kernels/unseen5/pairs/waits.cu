// Loads that wait for loads, and copies that are waited for as soon as they are asked for.
#include <cuda_fp16.h>

#include "../../unseen4/pairs/plain.cuh"

namespace {

constexpr int kBlocks = kSMs * 16, kThreads = 128, kWarps = kBlocks * kThreads / 32;
constexpr unsigned kEntries = 1u << 23;  // of 8 floats: 256 MB
constexpr int kKeys = 16, kHops = 8;

// A bucket's chain: each entry (its value is i % 65521) says where the next lies.
__device__ unsigned next_entry(const float* table, unsigned entry) {
  return (unsigned(table[size_t(entry) * 8]) * 2654435761u + entry * 69069u + 5u) % kEntries;
}

// A warp's keys, one after the other or four in step.
template <int kAtOnce>
__device__ void followed(const float* table, float* out) {
  const int warp = (blockIdx.x * kThreads + threadIdx.x) / 32;
#pragma unroll 1
  for (int key = 0; key < kKeys; key += kAtOnce) {
    unsigned entry[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) entry[k] = (unsigned(warp) * kKeys + key + k) * 40503u % kEntries;
#pragma unroll 1
    for (int hop = 0; hop < kHops; ++hop)
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) entry[k] = next_entry(table, entry[k]);
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) out[(size_t(warp) * kKeys + key + k) * 32 + threadIdx.x % 32] = float(entry[k]);
  }
}

__global__ void bucket_chain_fault(const float* in, float* out) { followed<1>(in, out); }
__global__ void bucket_chain_fix(const float* in, float* out) { followed<4>(in, out); }
Unseen buckets("bucket_chain", {size_t(kEntries) * 8, size_t(kWarps) * kKeys * 32, 65521,
                                [](bool fixed, const float* in, float* out) {
                                  (fixed ? bucket_chain_fix : bucket_chain_fault)<<<kBlocks, kThreads>>>(in, out);
                                }});

constexpr unsigned kTreeNodes = 1u << 20;  // of 4 floats: 16 MB, in L2
constexpr int kFinds = 8, kClimb = 64;

// From node to parent, up to the root; a warp finds one root after the other, or four in step.
template <int kAtOnce>
__device__ void climbed(const float* parents, float* out) {
  const int warp = (blockIdx.x * kThreads + threadIdx.x) / 32;
#pragma unroll 1
  for (int find = 0; find < kFinds; find += kAtOnce) {
    unsigned node[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) node[k] = (unsigned(warp) * kFinds + find + k) * 2654435761u % kTreeNodes;
#pragma unroll 1
    for (int up = 0; up < kClimb; ++up)
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k)
        node[k] = (unsigned(__ldcg(parents + size_t(node[k]) * 4)) * 40503u + node[k] * 69069u + 1u) % kTreeNodes;
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) out[(size_t(warp) * kFinds + find + k) * 32 + threadIdx.x % 32] = float(node[k]);
  }
}

__global__ void root_of_each_fault(const float* in, float* out) { climbed<1>(in, out); }
__global__ void root_of_each_fix(const float* in, float* out) { climbed<4>(in, out); }
Unseen roots("root_of_each", {size_t(kTreeNodes) * 4, size_t(kWarps) * kFinds * 32, 65521,
                              [](bool fixed, const float* in, float* out) {
                                (fixed ? root_of_each_fix : root_of_each_fault)<<<kBlocks, kThreads>>>(in, out);
                              }});

__device__ unsigned shared_address(const void* p) { return unsigned(__cvta_generic_to_shared(p)); }

constexpr int kHead = 128, kTileKeys = 16, kContext = 4096;  // floats to a key: a tile of 16 keys is 8 KB

// Each block scores one query against its keys, tile by tile: brought by a bulk copy (TMA) and waited for.
template <int kStages>
__device__ void scored(const float* keys, float* out) {
  __shared__ __align__(128) float held[kStages][kTileKeys * kHead];
  __shared__ unsigned long long barriers[kStages];
  constexpr int kTiles = kContext / kTileKeys, kBytes = kTileKeys * kHead * 4;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barriers + s)) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  const float* from = keys + size_t(blockIdx.x) * kContext * kHead;
  const auto ask = [&](int tile) {
    const unsigned barrier = shared_address(barriers + tile % kStages);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(kBytes) : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            shared_address(held[tile % kStages])),
        "l"(from + size_t(tile) * kTileKeys * kHead), "r"(kBytes), "r"(barrier)
        : "memory");
  };
  if (threadIdx.x == 0)
    for (int tile = 0; tile < kStages; ++tile) ask(tile);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const float4 query = make_float4(lane % 3, 1, lane % 2, 2);
  float most = 0;
#pragma unroll 1
  for (int tile = 0; tile < kTiles; ++tile) {
    asm volatile(
        "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra ready;\nbra again;\nready:\n}" ::"r"(shared_address(barriers + tile % kStages)),
        "r"(tile / kStages % 2)
        : "memory");
    const float4 v = reinterpret_cast<const float4*>(held[tile % kStages] + warp * kHead)[lane];
    float dot = query.x * v.x + query.y * v.y + query.z * v.z + query.w * v.w;
#pragma unroll
    for (int by = 16; by; by /= 2) dot += __shfl_xor_sync(~0u, dot, by);
    most = fmaxf(most, dot);
    __syncthreads();
    if (threadIdx.x == 0 && tile + kStages < kTiles) ask(tile + kStages);
  }
  if (lane == 0) out[blockIdx.x * 16 + warp] = most;
}

__global__ void __launch_bounds__(512) keys_waited_for_fault(const float* in, float* out) { scored<1>(in, out); }
__global__ void __launch_bounds__(512) keys_waited_for_fix(const float* in, float* out) { scored<5>(in, out); }
Unseen keys("keys_waited_for", {size_t(kSMs) * kContext * kHead, size_t(kSMs) * 16, 61, [](bool fixed, const float* in, float* out) {
                                  (fixed ? keys_waited_for_fix : keys_waited_for_fault)<<<kSMs, 512>>>(in, out);
                                }, 1});

constexpr int kTaps = 12, kChunk = 1024, kChunks = 192;

// A signal's chunks, copied (cp.async, 8 bytes a thread) and waited for before they are filtered.
template <int kStages>
__device__ void filtered(const float* in, float* out) {
  __shared__ __align__(16) float held[kStages][kChunk];
  const size_t first = size_t(blockIdx.x) * kChunks * kChunk;
  const auto ask = [&](int chunk) {
    if (chunk < kChunks)
      asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(shared_address(&held[chunk % kStages][threadIdx.x * 2])),
                   "l"(in + first + size_t(chunk) * kChunk + threadIdx.x * 2)
                   : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  for (int chunk = 0; chunk < kStages; ++chunk) ask(chunk);
  float sum = 0;
#pragma unroll 1
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 1) : "memory");
    __syncthreads();
    const float* now = held[chunk % kStages];
    float found = 0;
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) found = fmaf(now[(threadIdx.x + tap * 32) % kChunk], 1.0f + tap % 3, found);
    sum = fmaf(sum, 0.5f, found);
    __syncthreads();
    ask(chunk + kStages);
  }
  out[blockIdx.x * 512 + threadIdx.x] = sum;
}

__global__ void __launch_bounds__(512) chunk_filtered_fault(const float* in, float* out) { filtered<1>(in, out); }
__global__ void __launch_bounds__(512) chunk_filtered_fix(const float* in, float* out) { filtered<6>(in, out); }
Unseen chunks("chunk_filtered", {size_t(kSMs) * 2 * kChunks * kChunk, size_t(kSMs) * 2 * 512, 13,
                                 [](bool fixed, const float* in, float* out) {
                                   (fixed ? chunk_filtered_fix : chunk_filtered_fault)<<<kSMs * 2, 512>>>(in, out);
                                 }});

}  // namespace

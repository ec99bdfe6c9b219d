// Warps whose lanes differ, blocks that wait at barriers, blocks of unequal length.
#include "../../unseen4/pairs/plain.cuh"

namespace {

constexpr int kPrograms = 32, kItems = 1 << 18, kOps = 96;

__device__ unsigned hashed(unsigned x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

// A little machine: each operation is a short loop of its own.
__device__ unsigned executed(unsigned program, unsigned value) {
#pragma unroll 1
  for (int step = 0; step < kOps; ++step) {
    switch (hashed(program * 131u + step) % 8) {
      case 0: for (int k = 0; k < 6; ++k) value = value * 1664525u + 1013904223u + k; break;
      case 1: for (int k = 0; k < 6; ++k) value ^= value << 5 ^ (value >> 3) ^ k; break;
      case 2: for (int k = 0; k < 6; ++k) value = __umulhi(value, 2654435761u) + (value << k); break;
      case 3: for (int k = 0; k < 6; ++k) value = (value & 0x55555555u) * 3u + (value >> 1) + k; break;
      case 4: for (int k = 0; k < 6; ++k) value = __brev(value) + 77u * k; break;
      case 5: for (int k = 0; k < 6; ++k) value = value - (value >> 7) * 9u + (k ^ value << 9); break;
      case 6: for (int k = 0; k < 6; ++k) value = max(value, ~value) ^ value * (2 * k + 3); break;
      default: for (int k = 0; k < 6; ++k) value = __funnelshift_l(value, value * 5u, 11) + k;
    }
  }
  return value;
}

// Item i runs program i % 32: each lane another, or a warp's lanes the same.
template <bool kGrouped>
__device__ void interpreted(const float* in, float* out) {
  const unsigned thread = blockIdx.x * 256 + threadIdx.x;
  const unsigned item = kGrouped ? thread % (kItems / kPrograms) * kPrograms + thread / (kItems / kPrograms) : thread;
  out[item] = float(executed(item % kPrograms, unsigned(in[item]) + item) & 0xffffff);
}

__global__ void __launch_bounds__(256) interpreter_fault(const float* in, float* out) { interpreted<false>(in, out); }
__global__ void __launch_bounds__(256) interpreter_fix(const float* in, float* out) { interpreted<true>(in, out); }
Unseen machine("interpreter", {kItems, kItems, 251, [](bool fixed, const float* in, float* out) {
                                 (fixed ? interpreter_fix : interpreter_fault)<<<kItems / 256, 256>>>(in, out);
                               }});

constexpr int kLists = kSMs * 64 * 8;

__device__ float scrambled(const float* in, size_t at) { return float(hashed(unsigned(in[at]) + unsigned(at)) % 997u); }

// The first lane sorts the 32 values of its warp in shared memory by insertion, while the others wait for it.
__global__ void __launch_bounds__(256) one_lane_sorts_fault(const float* in, float* out) {
  __shared__ float held[8][33];
  const int lane = threadIdx.x % 32;
  float* mine = held[threadIdx.x / 32];
  const size_t at = (size_t(blockIdx.x) * 8 + threadIdx.x / 32) * 32;
  mine[lane] = scrambled(in, at + lane);
  __syncwarp();
  if (lane == 0) {
#pragma unroll 1
    for (int k = 1; k < 32; ++k) {
      const float value = mine[k];
      int to = k;
#pragma unroll 1
      for (; to > 0 && mine[to - 1] > value; --to) mine[to] = mine[to - 1];
      mine[to] = value;
    }
  }
  __syncwarp();
  out[at + lane] = mine[lane];
}

// All lanes, by exchanges between them.
__global__ void __launch_bounds__(256) one_lane_sorts_fix(const float* in, float* out) {
  const int lane = threadIdx.x % 32;
  const size_t at = (size_t(blockIdx.x) * 8 + threadIdx.x / 32) * 32 + lane;
  float value = scrambled(in, at);
#pragma unroll
  for (int size = 2; size <= 32; size *= 2)
#pragma unroll
    for (int apart = size / 2; apart; apart /= 2) {
      const float other = __shfl_xor_sync(~0u, value, apart);
      const bool wants_low = ((lane & apart) == 0) == ((lane & size) == 0 || size == 32);
      value = wants_low ? fminf(value, other) : fmaxf(value, other);
    }
  out[at] = value;
}
Unseen sorting("one_lane_sorts", {size_t(kLists) * 32, size_t(kLists) * 32, 7919, [](bool fixed, const float* in, float* out) {
                                    (fixed ? one_lane_sorts_fix : one_lane_sorts_fault)<<<kLists / 8, 256>>>(in, out);
                                  }});

constexpr int kRounds = 200, kChain = 48, kRow = 1024;

// Each round the largest value of a row of 1024 is found and, by a long recurrence that one warp works out, changes all:
// a thread to a value in blocks of 1024, or four values to a thread in blocks of 256.
template <int kThreads>
__device__ void pivoted(const float* in, float* out) {
  constexpr int kEach = kRow / kThreads;
  __shared__ unsigned most[32], key;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  unsigned values[kEach];
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const int at = e * kThreads + threadIdx.x;
    values[e] = hashed(unsigned(in[size_t(blockIdx.x) * kRow + at]) * 977u + at);
  }
#pragma unroll 1
  for (int round = 0; round < kRounds; ++round) {
    unsigned largest = 0;
#pragma unroll
    for (int e = 0; e < kEach; ++e) largest = max(largest, values[e]);
    largest = __reduce_max_sync(~0u, largest);
    if (lane == 0) most[warp] = largest;
    __syncthreads();
    if (warp == 0) {
      unsigned found = __reduce_max_sync(~0u, lane < kThreads / 32 ? most[lane] : 0u);
#pragma unroll 1
      for (int k = 0; k < kChain; ++k) found = (found ^ found >> 13) * 0x9e3779b1u + k;
      if (lane == 0) key = found;
    }
    __syncthreads();
#pragma unroll
    for (int e = 0; e < kEach; ++e) values[e] = (values[e] ^ key) * 5u + (values[e] >> 9);
  }
#pragma unroll
  for (int e = 0; e < kEach; ++e) out[size_t(blockIdx.x) * kRow + e * kThreads + threadIdx.x] = float(values[e] & 0xffffff);
}

__global__ void __launch_bounds__(1024, 2) pivot_each_round_fault(const float* in, float* out) { pivoted<1024>(in, out); }
__global__ void __launch_bounds__(256, 8) pivot_each_round_fix(const float* in, float* out) { pivoted<256>(in, out); }
Unseen pivots("pivot_each_round", {size_t(kSMs) * 8 * kRow, size_t(kSMs) * 8 * kRow, 4093, [](bool fixed, const float* in, float* out) {
                                     if (fixed) pivot_each_round_fix<<<kSMs * 8, 256>>>(in, out);
                                     else pivot_each_round_fault<<<kSMs * 8, 1024>>>(in, out);
                                   }});

constexpr int kTilesEach = 16;

// The running sum of a block's tiles: each warp adds what the warps before it found, one warp after the other.
__global__ void __launch_bounds__(1024, 2) carried_in_turn_fault(const float* in, float* out) {
  __shared__ float carry;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (threadIdx.x == 0) carry = 0;
#pragma unroll 1
  for (int tile = 0; tile < kTilesEach; ++tile) {
    const size_t at = (size_t(blockIdx.x) * kTilesEach + tile) * 1024 + threadIdx.x;
    float sum = in[at];
#pragma unroll
    for (int by = 1; by < 32; by *= 2) {
      const float before = __shfl_up_sync(~0u, sum, by);
      sum += lane >= by ? before : 0.0f;
    }
    __syncthreads();
#pragma unroll 1
    for (int turn = 0; turn < 32; ++turn) {
      if (turn == warp) {
        sum += carry;
        __syncwarp();
        if (lane == 31) carry = sum;
      }
      __syncthreads();
    }
    out[at] = sum;
  }
}

// All warps' sums are added up at once, between two barriers.
__global__ void __launch_bounds__(1024, 2) carried_in_turn_fix(const float* in, float* out) {
  __shared__ float totals[2][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float carried = 0;
#pragma unroll 1
  for (int tile = 0; tile < kTilesEach; ++tile) {
    const size_t at = (size_t(blockIdx.x) * kTilesEach + tile) * 1024 + threadIdx.x;
    float sum = in[at];
#pragma unroll
    for (int by = 1; by < 32; by *= 2) {
      const float before = __shfl_up_sync(~0u, sum, by);
      sum += lane >= by ? before : 0.0f;
    }
    if (lane == 31) totals[tile % 2][warp] = sum;
    __syncthreads();
    float all = totals[tile % 2][lane];
#pragma unroll
    for (int by = 1; by < 32; by *= 2) {
      const float before = __shfl_up_sync(~0u, all, by);
      all += lane >= by ? before : 0.0f;
    }
    const float mine = __shfl_sync(~0u, all, warp ? warp - 1 : 0);
    out[at] = sum + carried + (warp ? mine : 0.0f);
    carried += __shfl_sync(~0u, all, 31);
  }
}
Unseen turns("carried_in_turn", {size_t(kSMs) * 8 * kTilesEach * 1024, size_t(kSMs) * 8 * kTilesEach * 1024, 5,
                                 [](bool fixed, const float* in, float* out) {
                                   (fixed ? carried_in_turn_fix : carried_in_turn_fault)<<<kSMs * 8, 1024>>>(in, out);
                                 }});

// Nodes of a graph, those with few neighbours first; the last four have most of them.
constexpr int kNodes = 4096, kFew = 2048, kHubs = 4, kMany = 1 << 21, kPart = 1 << 14;

__device__ float neighbour(unsigned node, unsigned edge) { return float(hashed(node * 40503u ^ edge) % 4); }

__device__ void node_part(int node, unsigned first, unsigned end, float* out) {
  float sum = 0;
#pragma unroll 4
  for (unsigned edge = first + threadIdx.x; edge < end; edge += 256) sum += neighbour(node, edge);
  out[threadIdx.x] = sum;
}

// A block to each node.
__global__ void __launch_bounds__(256) hub_last_fault(const float*, float* out) {
  const int node = blockIdx.x;
  node_part(node, 0, node < kNodes - kHubs ? kFew : kMany, out + size_t(node) * 256);
}

// The hubs in parts, a block to each; whole numbers, whose sum has one value.
__global__ void __launch_bounds__(256) hub_last_fix(const float*, float* out) {
  constexpr int kParts = kMany / kPart;
  const int block = blockIdx.x;
  if (block >= kHubs * kParts) {
    node_part(block - kHubs * kParts, 0, kFew, out + size_t(block - kHubs * kParts) * 256);
    return;
  }
  const int node = kNodes - kHubs + block / kParts;
  float sum = 0;
#pragma unroll 4
  for (unsigned edge = block % kParts * kPart + threadIdx.x, k = 0; k < kPart / 256; ++k, edge += 256) sum += neighbour(node, edge);
  atomicAdd(out + size_t(node) * 256 + threadIdx.x, sum);
}
Unseen hubs("hub_last", {1024, size_t(kNodes) * 256, 7, [](bool fixed, const float* in, float* out) {
                           if (fixed) hub_last_fix<<<kNodes - kHubs + kHubs * (kMany / kPart), 256>>>(in, out);
                           else hub_last_fault<<<kNodes, 256>>>(in, out);
                         }});

// Eight experts; the last has 60 % of the tokens. Sixteen blocks to each expert, or blocks by tokens.
constexpr int kTokens = 132 * 16 * 10, kPopular = kTokens * 6 / 10, kOthers = (kTokens - kPopular) / 7;

__device__ void token_done(int token, const float* in, float* out) {
  float value = in[token * 256 + threadIdx.x];
#pragma unroll 1
  for (int k = 0; k < 128; ++k) value = fmaf(value, 0.5f, 1.0f + float(k % 8));
  out[size_t(token) * 256 + threadIdx.x] = value;
}

__global__ void __launch_bounds__(256) popular_expert_fault(const float* in, float* out) {
  const int expert = blockIdx.x / 16, first = expert * kOthers, count = expert == 7 ? kTokens - 7 * kOthers : kOthers;
#pragma unroll 1
  for (int token = blockIdx.x % 16; token < count; token += 16) token_done(first + token, in, out);
}
__global__ void __launch_bounds__(256) popular_expert_fix(const float* in, float* out) {
#pragma unroll 1
  for (int token = blockIdx.x; token < kTokens; token += gridDim.x) token_done(token, in, out);
}
Unseen experts("popular_expert", {size_t(kTokens) * 256, size_t(kTokens) * 256, 11, [](bool fixed, const float* in, float* out) {
                                    if (fixed) popular_expert_fix<<<kSMs, 256>>>(in, out);
                                    else popular_expert_fault<<<128, 256>>>(in, out);
                                  }});

}  // namespace

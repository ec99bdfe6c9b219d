// Lanes, warps and blocks without work; atomics; arithmetic wider than its result.
#include "../../unseen4/pairs/plain.cuh"

namespace {

// The logistic map, from where a point starts.
__device__ float iterated(float start, int steps) {
  float x = (start + 1.0f) / 64.0f;
#pragma unroll 1
  for (int i = 0; i < steps; ++i) x = fmaf(-3.7f * x, x, 3.7f * x);
  return x;
}

constexpr int kPoints = kSMs * 512;

__global__ void one_thread_blocks_fault(const float* in, float* out) { out[blockIdx.x] = iterated(in[blockIdx.x], 2048); }
__global__ void one_thread_blocks_fix(const float* in, float* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = iterated(in[i], 2048);
}
Unseen singles("one_thread_blocks", {kPoints, kPoints, 61, [](bool fixed, const float* in, float* out) {
                                       if (fixed) one_thread_blocks_fix<<<kPoints / 256, 256>>>(in, out);
                                       else one_thread_blocks_fault<<<kPoints, 1>>>(in, out);
                                     }});

constexpr int kEach = 1 << 16, kMany = kEach * 61;  // a point's value is i % 61; those of 0 converge late

__global__ void points_until_close_fault(const float* in, float* out) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  out[i] = iterated(in[i], in[i] == 0.0f ? 2048 : 32);
}
__global__ void points_until_close_fix(const float* in, float* out) {
  const int thread = blockIdx.x * 256 + threadIdx.x, i = thread % kEach * 61 + thread / kEach;
  out[i] = iterated(in[i], in[i] == 0.0f ? 2048 : 32);
}
Unseen points("points_until_close", {kMany, kMany, 61 * 3 + 1, [](bool fixed, const float* in, float* out) {
                                       (fixed ? points_until_close_fix : points_until_close_fault)<<<kMany / 256, 256>>>(in, out);
                                     }});

constexpr int kSums = 1024, kAdded = 1 << 20;

// The addition that the programming guide makes of a compare-and-swap.
__device__ void add(float* to, float value) {
  int* const word = reinterpret_cast<int*>(to);
  int old = *word, assumed;
  do {
    assumed = old;
    old = atomicCAS(word, assumed, __float_as_int(value + __int_as_float(assumed)));
  } while (assumed != old);
}

__global__ void add_by_exchange_fault(const float* in, float* out) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  add(out + i % kSums, in[i]);
}
__global__ void add_by_exchange_fix(const float* in, float* out) {
  __shared__ float sums[kSums];
  for (int i = threadIdx.x; i < kSums; i += 256) sums[i] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < kAdded / 128; i += 256) atomicAdd(sums + i % kSums, in[blockIdx.x * (kAdded / 128) + i]);
  __syncthreads();
  for (int i = threadIdx.x; i < kSums; i += 256) atomicAdd(out + i, sums[i]);
}
Unseen exchanges("add_by_exchange", {kAdded, kSums, 7, [](bool fixed, const float* in, float* out) {
                                       if (fixed) add_by_exchange_fix<<<128, 256>>>(in, out);
                                       else add_by_exchange_fault<<<kAdded / 256, 256>>>(in, out);
                                     }, 1});

constexpr int kOptions = 1 << 23;

__global__ void options_in_double_fault(const float* in, float* out) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  const float spot = in[i] + 40.0f;
  const float d = (log(spot / 70.0) + 0.05 + 0.5 * 0.3 * 0.3) / 0.3;
  out[i] = spot * 0.5 * erfc(-d / sqrt(2.0)) - 70.0 * exp(-0.05) * 0.5 * erfc((0.3 - d) / sqrt(2.0)) + 1.0;
}
__global__ void options_in_double_fix(const float* in, float* out) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  const float spot = in[i] + 40.0f;
  const float d = (logf(spot / 70.0f) + 0.05f + 0.5f * 0.3f * 0.3f) / 0.3f;
  out[i] = spot * 0.5f * erfcf(-d / sqrtf(2.0f)) - 70.0f * expf(-0.05f) * 0.5f * erfcf((0.3f - d) / sqrtf(2.0f)) + 1.0f;
}
Unseen options("options_in_double", {kOptions, kOptions, 61, [](bool fixed, const float* in, float* out) {
                                       (fixed ? options_in_double_fix : options_in_double_fault)<<<kOptions / 256, 256>>>(in, out);
                                     }, 61 * 3 + 1, 1e-3});

constexpr int kScanned = 1 << 21, kParts = 1024, kPart = kScanned / kParts;

// The sum up to this thread's value, within a block of 1,024.
__device__ float up_to(float value, float* sums) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int by = 1; by < 32; by *= 2) {
    const float other = __shfl_up_sync(~0u, value, by);
    if (lane >= by) value += other;
  }
  if (lane == 31) sums[warp] = value;
  __syncthreads();
  float before = 0;
  for (int w = 0; w < warp; ++w) before += sums[w];
  __syncthreads();
  return before + value;
}

__device__ void scanned(const float* in, float* out, float carry, int count) {
  __shared__ float sums[32], last;
  for (int first = 0; first < count; first += 1024) {
    const float found = carry + up_to(in[first + threadIdx.x], sums);
    out[first + threadIdx.x] = found;
    if (threadIdx.x == 1023) last = found;
    __syncthreads();
    carry = last;
    __syncthreads();
  }
}

__device__ float sum_of_part[kParts];

__device__ float sum_of_block(float value) {
  __shared__ float total;
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  for (int by = 16; by; by /= 2) value += __shfl_xor_sync(~0u, value, by);
  if (threadIdx.x % 32 == 0) atomicAdd(&total, value);
  __syncthreads();
  return total;
}

__global__ void scan_in_one_block_fault(const float* in, float* out) { scanned(in, out, 0, kScanned); }
__global__ void scan_sums_of_parts(const float* in) {
  const float* mine = in + blockIdx.x * kPart + threadIdx.x;
  const float total = sum_of_block(mine[0] + mine[1024]);
  if (threadIdx.x == 0) sum_of_part[blockIdx.x] = total;
}
__global__ void scan_in_one_block_fix(const float* in, float* out) {
  const float before = sum_of_block(threadIdx.x < blockIdx.x ? sum_of_part[threadIdx.x] : 0.0f);
  scanned(in + blockIdx.x * kPart, out + blockIdx.x * kPart, before, kPart);
}
Unseen scans("scan_in_one_block", {kScanned, kScanned, 3, [](bool fixed, const float* in, float* out) {
                                     if (fixed) {
                                       scan_sums_of_parts<<<kParts, 1024>>>(in);
                                       scan_in_one_block_fix<<<kParts, 1024>>>(in, out);
                                     } else scan_in_one_block_fault<<<1, 1024>>>(in, out);
                                   }});

constexpr int kRows = kSMs * 32, kWidth = 8192;

__device__ float largest_of_mine(const float* row) {
  float most = -1;
  for (int i = threadIdx.x; i < kWidth; i += 1024) most = fmaxf(most, row[i]);
  return most;
}

__global__ void leader_takes_maximum_fault(const float* in, float* out) {
  __shared__ float found[1024];
  found[threadIdx.x] = largest_of_mine(in + size_t(blockIdx.x) * kWidth);
  __syncthreads();
  if (threadIdx.x == 0) {
    float most = found[0];
    for (int i = 1; i < 1024; ++i)
      if (found[i] > most) most = found[i];
    out[blockIdx.x] = most;
  }
}
__global__ void leader_takes_maximum_fix(const float* in, float* out) {
  __shared__ float found[32];
  float most = largest_of_mine(in + size_t(blockIdx.x) * kWidth);
  for (int by = 16; by; by /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, by));
  if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = most;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  most = found[threadIdx.x];
  for (int by = 16; by; by /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, by));
  if (threadIdx.x == 0) out[blockIdx.x] = most;
}
Unseen leaders("leader_takes_maximum", {size_t(kRows) * kWidth, kRows, 65521, [](bool fixed, const float* in, float* out) {
                                          (fixed ? leader_takes_maximum_fix : leader_takes_maximum_fault)<<<kRows, 1024>>>(in, out);
                                        }, 1});

}  // namespace

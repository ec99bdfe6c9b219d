// Blocks, warps and lanes without work or with others' to wait for; atomics.
#include "shared.cuh"

namespace {

constexpr int kScanned = 1 << 22, kBlocks = kScanned / 1024;
__device__ float before_block[kBlocks + 1];
__device__ int is_known[kBlocks + 1];

// This thread's four values, summed up to each, within the block; the block's total to every thread.
__device__ float scanned_in_block(const float* in, float (&v)[4]) {
  __shared__ float of_warp[8];
  const int first = blockIdx.x * 1024 + threadIdx.x * 4, warp = threadIdx.x / 32;
  const float4 four = reinterpret_cast<const float4*>(in)[first / 4];
  v[0] = four.x, v[1] = v[0] + four.y, v[2] = v[1] + four.z, v[3] = v[2] + four.w;
  const float up_to = up_to_lane(v[3]);
  if (threadIdx.x % 32 == 31) of_warp[warp] = up_to;
  __syncthreads();
  float before = up_to - v[3], total = 0;
  for (int w = 0; w < 8; ++w) {
    if (w < warp) before += of_warp[w];
    total += of_warp[w];
  }
  for (float& one : v) one += before;
  return total;
}
__device__ void write(float* out, const float (&v)[4], float before) {
  reinterpret_cast<float4*>(out)[blockIdx.x * 256 + threadIdx.x] = {v[0] + before, v[1] + before, v[2] + before, v[3] + before};
}

__global__ void chained_scan_fault(const float* in, float* out) {
  __shared__ float before;
  float v[4];
  const float total = scanned_in_block(in, v);
  if (threadIdx.x == 0) {
    float carried = 0;
    if (blockIdx.x > 0) {
      while (*static_cast<volatile int*>(is_known + blockIdx.x) == 0) {}
      carried = *static_cast<volatile float*>(before_block + blockIdx.x);
    }
    *static_cast<volatile float*>(before_block + blockIdx.x + 1) = carried + total;
    __threadfence();
    *static_cast<volatile int*>(is_known + blockIdx.x + 1) = 1;
    before = carried;
  }
  __syncthreads();
  write(out, v, before);
}
__global__ void totals_of_blocks(const float* in) {
  float v[4];
  const float total = scanned_in_block(in, v);
  if (threadIdx.x == 0) before_block[blockIdx.x + 1] = total;
}
__global__ void scan_of_totals() {
  __shared__ float of_warp[32];
  float* const mine = before_block + 1 + threadIdx.x * 4;
  float v[4] = {mine[0], mine[1], mine[2], mine[3]};
  for (int i = 1; i < 4; ++i) v[i] += v[i - 1];
  const float up_to = up_to_lane(v[3]);
  if (threadIdx.x % 32 == 31) of_warp[threadIdx.x / 32] = up_to;
  __syncthreads();
  float before = up_to - v[3];
  for (int w = 0; w < int(threadIdx.x) / 32; ++w) before += of_warp[w];
  for (int i = 0; i < 4; ++i) mine[i] = v[i] + before;
}
__global__ void chained_scan_fix(const float* in, float* out) {
  float v[4];
  scanned_in_block(in, v);
  write(out, v, blockIdx.x ? before_block[blockIdx.x] : 0.0f);
}
Unseen scans("chained_scan", {kScanned, kScanned, 3, [](bool fixed, const float* in, float* out) {
                                if (fixed) {
                                  totals_of_blocks<<<kBlocks, 256>>>(in);
                                  scan_of_totals<<<1, 1024>>>();
                                  chained_scan_fix<<<kBlocks, 256>>>(in, out);
                                } else {
                                  void* known;
                                  check(cudaGetSymbolAddress(&known, is_known), "symbol");
                                  check(cudaMemsetAsync(known, 0, sizeof is_known), "memset");
                                  chained_scan_fault<<<kBlocks, 256>>>(in, out);
                                }
                              }, 997});

constexpr int kTexts = kSMs * 32, kWords = 8192;
constexpr float kKept = 0.9f;

// Where a running sum passes nine tenths of the total, from what 512 threads brought to shared memory.
__device__ float brought(const float* in, float* weights) {
  __shared__ float of_warp[16];
  float sum = 0;
  for (int i = threadIdx.x; i < kWords; i += 512) sum += weights[i] = in[size_t(blockIdx.x) * kWords + i];
  sum = sum_of_warp(sum);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
  __syncthreads();
  float total = 0;
  for (const float one : of_warp) total += one;
  return total;
}
// The place, by one warp, among `count` weights from `first` on; -1 where it is not there. `carry` ends as their sum.
__device__ int passed(const float* weights, int first, int count, float& carry, float limit) {
  for (int i = first; i < first + count; i += 32) {
    const float up_to = carry + up_to_lane(weights[i + threadIdx.x % 32]);
    const unsigned past = __ballot_sync(~0u, up_to > limit);
    if (past) return i + __ffs(past) - 1;
    carry = __shfl_sync(~0u, up_to, 31);
  }
  return -1;
}
__global__ void nucleus_by_one_warp_fault(const float* in, float* out) {
  __shared__ float weights[kWords];
  const float limit = kKept * brought(in, weights);
  float carry = 0;
  if (threadIdx.x >= 32) return;
  const int place = passed(weights, 0, kWords, carry, limit);
  if (threadIdx.x == 0) out[blockIdx.x] = place;
}
__global__ void nucleus_by_one_warp_fix(const float* in, float* out) {
  __shared__ float weights[kWords], of_part[16];
  const float limit = kKept * brought(in, weights);
  const int warp = threadIdx.x / 32, part = kWords / 16, lane = threadIdx.x % 32;
  float sum = 0, carry = 0;
  for (int i = lane; i < part; i += 32) sum += weights[warp * part + i];
  sum = sum_of_warp(sum);
  if (lane == 0) of_part[warp] = sum;
  __syncthreads();
  for (int w = 0; w < warp; ++w) carry += of_part[w];
  if (carry > limit || carry + sum <= limit) return;
  const int place = passed(weights, warp * part, part, carry, limit);
  if (lane == 0) out[blockIdx.x] = place;
}
Unseen nuclei("nucleus_by_one_warp", {size_t(kTexts) * kWords, kTexts, 61, [](bool fixed, const float* in, float* out) {
                                        (fixed ? nucleus_by_one_warp_fix : nucleus_by_one_warp_fault)<<<kTexts, 512>>>(in, out);
                                      }, 7});

constexpr int kChannels = 128, kPlaces = 1 << 19;

__global__ void amax_per_channel_fault(const float* in, float* out) {
  const size_t i = blockIdx.x * size_t(256) + threadIdx.x;
  atomicMax(reinterpret_cast<int*>(out) + i % kChannels, __float_as_int(fabsf(in[i])));
}
__global__ void amax_per_channel_fix(const float* in, float* out) {
  const float* mine = in + blockIdx.x * size_t(kChannels) * 256 + threadIdx.x;
  float most = 0;
#pragma unroll 16
  for (int i = 0; i < 256; ++i) most = fmaxf(most, fabsf(mine[i * kChannels]));
  atomicMax(reinterpret_cast<int*>(out) + threadIdx.x, __float_as_int(most));
}
Unseen channels("amax_per_channel", {size_t(kChannels) * kPlaces, kChannels, 65521, [](bool fixed, const float* in, float* out) {
                                       if (fixed) amax_per_channel_fix<<<kPlaces / 256, kChannels>>>(in, out);
                                       else amax_per_channel_fault<<<kPlaces / 2, 256>>>(in, out);
                                     }, 1});

// The logistic map, from where a point starts.
__device__ float iterated(float start, int steps) {
  float x = (start + 1.0f) / 64.0f;
#pragma unroll 1
  for (int i = 0; i < steps; ++i) x = fmaf(-3.7f * x, x, 3.7f * x);
  return x;
}
constexpr int kPoints = kSMs * 4096;
__device__ void point(const float* in, float* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = iterated(in[i], 1024);
}
__global__ void blocks_of_eight_fault(const float* in, float* out) { point(in, out); }
__global__ void blocks_of_eight_fix(const float* in, float* out) { point(in, out); }
Unseen eights("blocks_of_eight", {kPoints, kPoints, 61, [](bool fixed, const float* in, float* out) {
                                    if (fixed) blocks_of_eight_fix<<<kPoints / 256, 256>>>(in, out);
                                    else blocks_of_eight_fault<<<kPoints / 8, 8>>>(in, out);
                                  }});

constexpr int kSignal = 1 << 24, kTaps = 16, kHoarded = 160 * 1024;

// A filter of 16 taps; `shared` is as large as the launch asks for.
__device__ void filtered(const float* in, float* out) {
  extern __shared__ float taps[];
  if (threadIdx.x < kTaps) taps[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  const size_t i = blockIdx.x * size_t(128) + threadIdx.x;
  float sum = 0;
#pragma unroll
  for (int k = 0; k < kTaps; ++k) sum += taps[k] * in[i + k];
  out[i] = sum;
}
__global__ void taps_hoarded_fault(const float* in, float* out) { filtered(in, out); }
__global__ void taps_hoarded_fix(const float* in, float* out) { filtered(in, out); }
Unseen filters("taps_hoarded", {kSignal + kTaps, kSignal, 61, [](bool fixed, const float* in, float* out) {
                               check(cudaFuncSetAttribute(taps_hoarded_fault, cudaFuncAttributeMaxDynamicSharedMemorySize, kHoarded), "shared");
                               if (fixed) taps_hoarded_fix<<<kSignal / 128, 128, kTaps * 4>>>(in, out);
                               else taps_hoarded_fault<<<kSignal / 128, 128, kHoarded>>>(in, out);
                             }, 997});

}  // namespace

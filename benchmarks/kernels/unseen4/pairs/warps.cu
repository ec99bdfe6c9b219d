// Warps of which few lanes work, blocks that meet at barriers, and work that is dealt unevenly.
#include "plain.cuh"

namespace {

constexpr int kRows = kSMs * 16 * 8;  // a row of 1024 values to a warp

// Running sums of each row: one lane adds them up out of shared memory.
__global__ void __launch_bounds__(256) prefix_by_one_fault(const float* in, float* out) {
  __shared__ float held[8][32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const size_t row = (size_t(blockIdx.x) * 8 + warp) * 1024;
  float carried = 0;
#pragma unroll 1
  for (int at = 0; at < 1024; at += 32) {
    held[warp][lane] = in[row + at + lane];
    __syncwarp();
    if (lane == 0)
      for (int k = 0; k < 32; ++k) held[warp][k] = carried += held[warp][k];
    __syncwarp();
    out[row + at + lane] = held[warp][lane];
  }
}

// All lanes, by shuffles.
__global__ void __launch_bounds__(256) prefix_by_one_fix(const float* in, float* out) {
  const int lane = threadIdx.x % 32;
  const size_t row = (size_t(blockIdx.x) * 8 + threadIdx.x / 32) * 1024;
  float carried = 0;
#pragma unroll 4
  for (int at = 0; at < 1024; at += 32) {
    float sum = in[row + at + lane];
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const float below = __shfl_up_sync(~0u, sum, step);
      if (lane >= step) sum += below;
    }
    out[row + at + lane] = sum += carried;
    carried = __shfl_sync(~0u, sum, 31);
  }
}

Unseen prefix("prefix_by_one", {size_t(kRows) * 1024, size_t(kRows) * 1024, 5, [](bool fixed, const float* in, float* out) {
                                  (fixed ? prefix_by_one_fix : prefix_by_one_fault)<<<kRows / 8, 256>>>(in, out);
                                }});

constexpr int kPixels = kSMs * 16 * 1024, kMost = 400;

// Steps until z * z + c escapes; every eighth pixel's c never does.
__device__ float escape(int pixel) {
  const float cx = pixel % 8 == 3 ? -0.1f : 0.5f + float(pixel % 5) * 0.01f, cy = float(pixel % 7) * 0.01f;
  float x = 0, y = 0;
  int steps = 0;
  while (steps < kMost && x * x + y * y < 4.0f) {
    const float next = x * x - y * y + cx;
    y = 2.0f * x * y + cy;
    x = next;
    ++steps;
  }
  return float(steps);
}

__global__ void escape_time_fault(const float*, float* out) {
  const int pixel = blockIdx.x * 256 + threadIdx.x;
  out[pixel] = escape(pixel);
}

// A warp takes every eighth pixel, so that its pixels are alike.
__global__ void escape_time_fix(const float*, float* out) {
  const int warp = threadIdx.x / 32;
  const int pixel = blockIdx.x * 256 + threadIdx.x % 32 * 8 + warp;
  out[pixel] = escape(pixel);
}

Unseen pixels("escape_time", {1, kPixels, 2, [](bool fixed, const float* in, float* out) {
                                (fixed ? escape_time_fix : escape_time_fault)<<<kPixels / 256, 256>>>(in, out);
                              }});

constexpr int kBlocks = kSMs * 2, kRepeats = 64;

// Running sums over 1024 threads, ten steps with two barriers each.
__global__ void __launch_bounds__(1024) scan_in_steps_fault(const float* in, float* out) {
  __shared__ float held[1024];
  const size_t block = size_t(blockIdx.x) * kRepeats * 1024;
#pragma unroll 1
  for (int r = 0; r < kRepeats; ++r) {
    float sum = held[threadIdx.x] = in[block + r * 1024 + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int step = 1; step < 1024; step *= 2) {
      const float below = threadIdx.x >= step ? held[threadIdx.x - step] : 0.0f;
      __syncthreads();
      held[threadIdx.x] = sum += below;
      __syncthreads();
    }
    out[block + r * 1024 + threadIdx.x] = sum;
  }
}

// Within warps by shuffles, then over the warps' sums: two barriers.
__global__ void __launch_bounds__(1024) scan_in_steps_fix(const float* in, float* out) {
  __shared__ float sums[2][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const size_t block = size_t(blockIdx.x) * kRepeats * 1024;
#pragma unroll 1
  for (int r = 0; r < kRepeats; ++r) {
    float sum = in[block + r * 1024 + threadIdx.x];
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const float below = __shfl_up_sync(~0u, sum, step);
      if (lane >= step) sum += below;
    }
    if (lane == 31) sums[r % 2][warp] = sum;
    __syncthreads();
    float before = lane < warp ? sums[r % 2][lane] : 0.0f;
#pragma unroll
    for (int step = 16; step; step /= 2) before += __shfl_xor_sync(~0u, before, step);
    out[block + r * 1024 + threadIdx.x] = sum + before;
  }
}

Unseen scan("scan_in_steps",
            {size_t(kBlocks) * kRepeats * 1024, size_t(kBlocks) * kRepeats * 1024, 7, [](bool fixed, const float* in, float* out) {
               (fixed ? scan_in_steps_fix : scan_in_steps_fault)<<<kBlocks, 1024>>>(in, out);
             }});

__device__ void exchange(float& mine, float other, int stride, int size) {
  const bool is_low = (threadIdx.x & stride) == 0, is_up = (threadIdx.x & size) == 0;
  mine = is_low == is_up ? fminf(mine, other) : fmaxf(mine, other);
}

// Rows of 1024 keys sorted by a bitonic network; partners a warp apart meet in shared memory, nearer ones by kNear.
template <bool kNear>
__device__ void sorted(const float* in, float* out) {
  __shared__ float held[1024];
#pragma unroll 1
  for (int r = 0; r < 8; ++r) {
    const size_t at = (size_t(blockIdx.x) * 8 + r) * 1024 + threadIdx.x;
    float mine = in[at];
#pragma unroll 1
    for (int size = 2; size <= 1024; size *= 2)
#pragma unroll 1
      for (int stride = size / 2; stride; stride /= 2) {
        if (kNear && stride < 32) {
          exchange(mine, __shfl_xor_sync(~0u, mine, stride), stride, size);
          continue;
        }
        held[threadIdx.x] = mine;
        __syncthreads();
        exchange(mine, held[threadIdx.x ^ stride], stride, size);
        __syncthreads();
      }
    out[at] = mine;
  }
}

__global__ void __launch_bounds__(1024) sort_rows_fault(const float* in, float* out) { sorted<false>(in, out); }
__global__ void __launch_bounds__(1024) sort_rows_fix(const float* in, float* out) { sorted<true>(in, out); }

Unseen sorting("sort_rows", {size_t(kBlocks) * 8 * 1024, size_t(kBlocks) * 8 * 1024, 1021, [](bool fixed, const float* in, float* out) {
                               (fixed ? sort_rows_fix : sort_rows_fault)<<<kBlocks, 1024>>>(in, out);
                             }});

// 150 tiles of 160 KB of shared memory: two fit on no SM, so that 18 of them are a second wave.
constexpr int kTiles = 150, kTileWork = 1 << 15;

template <int kParts>
__device__ void tile_of(const float* in, float* out) {
  extern __shared__ float held[];
  const int tile = blockIdx.x / kParts, part = blockIdx.x % kParts;
  for (int i = threadIdx.x; i < 8192; i += 1024) held[i] = in[i];
  __syncthreads();
  constexpr int kMine = kTileWork / kParts;
#pragma unroll 1
  for (int k = 0; k < kMine; k += 1024) {
    const int item = part * kMine + k + threadIdx.x;
    float x = held[item % 8192];
#pragma unroll 16
    for (int s = 0; s < 256; ++s) x = fmaf(x, 0.5f, 1.0f);
    out[size_t(tile) * kTileWork + item] = x;
  }
}

__global__ void __launch_bounds__(1024) second_wave_fault(const float* in, float* out) { tile_of<1>(in, out); }
__global__ void __launch_bounds__(1024) second_wave_fix(const float* in, float* out) { tile_of<8>(in, out); }

Unseen waves("second_wave", {8192, size_t(kTiles) * kTileWork, 9, [](bool fixed, const float* in, float* out) {
                               const int bytes = 160 << 10;
                               auto kernel = fixed ? second_wave_fix : second_wave_fault;
                               check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), "shared");
                               kernel<<<kTiles * (fixed ? 8 : 1), 1024, bytes>>>(in, out);
                             }});

// Row r of a causal mask has r + 1 keys; a block takes rows next to each other.
constexpr int kCausal = kSMs * 16, kWidth = 1024;

template <bool kDealt>
__device__ void causal(const float* in, float* out) {
  const int blocks = kCausal / 16;
#pragma unroll 1
  for (int r = 0; r < 16; ++r) {
    const int row = kDealt ? (r % 2 ? (r + 1) * blocks - 1 - blockIdx.x : r * blocks + blockIdx.x) : blockIdx.x * 16 + r;
    float sum = 0;
#pragma unroll 8
    for (int key = 0; key <= row; ++key) sum = fmaf(in[key & 1023], in[1024 + threadIdx.x], sum * 0.5f);
    out[size_t(row) * kWidth + threadIdx.x] = sum;
  }
}

__global__ void __launch_bounds__(1024) causal_rows_fault(const float* in, float* out) { causal<false>(in, out); }
__global__ void __launch_bounds__(1024) causal_rows_fix(const float* in, float* out) { causal<true>(in, out); }

Unseen rows("causal_rows", {1024 + kWidth, size_t(kCausal) * kWidth, 3, [](bool fixed, const float* in, float* out) {
                              (fixed ? causal_rows_fix : causal_rows_fault)<<<kCausal / 16, 1024>>>(in, out);
                            }});

}  // namespace

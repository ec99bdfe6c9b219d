// Rows to threads, tiles and rotations in shared memory, arrays in local memory.
#include "shared.cuh"

namespace {

constexpr int kRows = 1 << 18, kWidth = 256;
constexpr size_t kValues = size_t(kRows) * kWidth;

// A layer norm, as one writes it for a CPU.
__global__ void norm_row_per_thread_fault(const float* in, float* out) {
  const size_t row = size_t(blockIdx.x * 256 + threadIdx.x) * kWidth;
  float sum = 0, squares = 0;
  for (int i = 0; i < kWidth; ++i) {
    const float v = in[row + i];
    sum += v;
    squares += v * v;
  }
  const float mean = sum / kWidth, scale = rsqrtf(squares / kWidth - mean * mean + 1e-5f);
  for (int i = 0; i < kWidth; ++i) out[row + i] = (in[row + i] - mean) * scale;
}
__global__ void norm_row_per_thread_fix(const float* in, float* out) {
  const size_t first = size_t(blockIdx.x * 8 + threadIdx.x / 32) * kWidth + threadIdx.x % 32;
  float v[8], sum = 0, squares = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    v[i] = in[first + i * 32];
    sum += v[i];
    squares += v[i] * v[i];
  }
  const float mean = sum_of_warp(sum) / kWidth, scale = rsqrtf(sum_of_warp(squares) / kWidth - mean * mean + 1e-5f);
#pragma unroll
  for (int i = 0; i < 8; ++i) out[first + i * 32] = (v[i] - mean) * scale;
}
Unseen norms("norm_row_per_thread", {kValues, kValues, 200, [](bool fixed, const float* in, float* out) {
                                       if (fixed) norm_row_per_thread_fix<<<kRows / 8, 256>>>(in, out);
                                       else norm_row_per_thread_fault<<<kRows / 256, 256>>>(in, out);
                                     }, 9973, 1e-3});

constexpr int kSide = 2048;

// B lies transposed in shared memory, so that both are read along k.
template <int kPitch>
__device__ void product(const float* in, float* out) {
  __shared__ float a[32][32], b[32][kPitch];
  const int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 32 + y, column = blockIdx.x * 32 + x;
  const float* other = in + size_t(kSide) * kSide;
  float sum = 0;
  for (int k = 0; k < kSide; k += 32) {
    a[y][x] = in[size_t(row) * kSide + k + x];
    b[x][y] = other[size_t(k + y) * kSide + column];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 32; ++i) sum += a[y][i] * b[x][i];
    __syncthreads();
  }
  out[size_t(row) * kSide + column] = sum;
}
__global__ void sgemm_transposed_tile_fault(const float* in, float* out) { product<32>(in, out); }
__global__ void sgemm_transposed_tile_fix(const float* in, float* out) { product<33>(in, out); }
Unseen products("sgemm_transposed_tile", {size_t(kSide) * kSide * 2, size_t(kSide) * kSide, 29, [](bool fixed, const float* in, float* out) {
                                            const dim3 grid(kSide / 32, kSide / 32), block(32, 32);
                                            (fixed ? sgemm_transposed_tile_fix : sgemm_transposed_tile_fault)<<<grid, block>>>(in, out);
                                          }, 997});

constexpr int kHead = 128, kKeys = 64, kQueries = kSMs * 4 * 256;
constexpr float kScale = 1e-5f;

// A thread keeps a query and its result.
__global__ void __launch_bounds__(256, 4) attention_by_thread_fault(const float* in, float* out) {
  const size_t query = blockIdx.x * 256 + threadIdx.x;
  const float *keys = in + size_t(kQueries) * kHead, *values = keys + kKeys * kHead;
  float q[kHead], found[kHead], total = 0;
  for (int d = 0; d < kHead; ++d) {
    q[d] = in[query * kHead + d];
    found[d] = 0;
  }
  for (int key = 0; key < kKeys; ++key) {
    float score = 0;
    for (int d = 0; d < kHead; ++d) score += q[d] * keys[key * kHead + d];
    const float p = __expf(score * kScale);
    total += p;
    for (int d = 0; d < kHead; ++d) found[d] += p * values[key * kHead + d];
  }
  for (int d = 0; d < kHead; ++d) out[query * kHead + d] = found[d] / total;
}
// A warp, four values to a lane.
__global__ void attention_by_thread_fix(const float* in, float* out) {
  const size_t at = (blockIdx.x * 8 + threadIdx.x / 32) * size_t(kHead) / 4 + threadIdx.x % 32;
  const float4 *keys = reinterpret_cast<const float4*>(in + size_t(kQueries) * kHead) + threadIdx.x % 32, *values = keys + kKeys * kHead / 4;
  const float4 q = reinterpret_cast<const float4*>(in)[at];
  float4 found = {};
  float total = 0;
  for (int key = 0; key < kKeys; ++key) {
    const float4 k = keys[key * (kHead / 4)], v = values[key * (kHead / 4)];
    const float p = __expf(sum_of_warp(q.x * k.x + q.y * k.y + q.z * k.z + q.w * k.w) * kScale);
    total += p;
    found = {found.x + p * v.x, found.y + p * v.y, found.z + p * v.z, found.w + p * v.w};
  }
  reinterpret_cast<float4*>(out)[at] = {found.x / total, found.y / total, found.z / total, found.w / total};
}
Unseen attentions("attention_by_thread", {size_t(kQueries + 2 * kKeys) * kHead, size_t(kQueries) * kHead, 59, [](bool fixed, const float* in, float* out) {
                                            if (fixed) attention_by_thread_fix<<<kQueries / 8, 256>>>(in, out);
                                            else attention_by_thread_fault<<<kQueries / 256, 256>>>(in, out);
                                          }, 997, 1e-3});

constexpr int kColumns = kSMs * 1024, kSteps = 124, kLargest = 32;

// The largest values of a column, sorted: later ones are larger here, so that each is put in.
__global__ void largest_in_order_fault(const float* in, float* out) {
  const int column = blockIdx.x * 256 + threadIdx.x;
  float best[kLargest];
  for (int i = 0; i < kLargest; ++i) best[i] = -1;
  for (int step = 0; step < kSteps; ++step) {
    const float v = in[size_t(step) * kColumns + column];
    if (v <= best[kLargest - 1]) continue;
    int place = kLargest - 1;
    while (place > 0 && best[place - 1] < v) {
      best[place] = best[place - 1];
      --place;
    }
    best[place] = v;
  }
  for (int i = 0; i < kLargest; ++i) out[size_t(i) * kColumns + column] = best[i];
}
__global__ void largest_in_order_fix(const float* in, float* out) {
  const int column = blockIdx.x * 256 + threadIdx.x;
  float best[kLargest];
#pragma unroll
  for (int i = 0; i < kLargest; ++i) best[i] = -1;
  for (int step = 0; step < kSteps; ++step) {
    float v = in[size_t(step) * kColumns + column];
#pragma unroll
    for (int i = 0; i < kLargest; ++i) {
      const float smaller = fminf(best[i], v);
      best[i] = fmaxf(best[i], v);
      v = smaller;
    }
  }
#pragma unroll
  for (int i = 0; i < kLargest; ++i) out[size_t(i) * kColumns + column] = best[i];
}
Unseen largest("largest_in_order", {size_t(kColumns) * kSteps, size_t(kColumns) * kLargest, 16777213, [](bool fixed, const float* in, float* out) {
                                      (fixed ? largest_in_order_fix : largest_in_order_fault)<<<kColumns / 256, 256>>>(in, out);
                                    }, 997});

constexpr size_t kRotated = 1 << 25;

__device__ void rotated(float (&v)[32]) {
#pragma unroll
  for (int by = 1; by < 32; by *= 2)
#pragma unroll
    for (int i = 0; i < 32; ++i)
      if ((i & by) == 0) {
        const float a = v[i], b = v[i + by];
        v[i] = a + b;
        v[i + by] = a - b;
      }
}

// A Hadamard rotation of 1,024 values, as quantised models have it: neighbours to a thread, then strides of 32.
template <int kPad>
__device__ void rotation(const float* in, float* out) {
  __shared__ float kept[4096 + 128 * kPad];
  const auto place = [](int i) { return i + kPad * (i / 32); };
  const size_t block = blockIdx.x * size_t(4096);
  const int t = threadIdx.x, strided = t / 32 * 1024 + t % 32;
  float v[32];
#pragma unroll
  for (int i = 0; i < 32; ++i) kept[place(i * 128 + t)] = in[block + i * 128 + t];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 32; ++i) v[i] = kept[place(t * 32 + i)];
  rotated(v);
#pragma unroll
  for (int i = 0; i < 32; ++i) kept[place(t * 32 + i)] = v[i];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 32; ++i) v[i] = kept[place(strided + i * 32)];
  rotated(v);
#pragma unroll
  for (int i = 0; i < 32; ++i) out[block + strided + i * 32] = v[i];
}
__global__ void rotation_in_shared_fault(const float* in, float* out) { rotation<0>(in, out); }
__global__ void rotation_in_shared_fix(const float* in, float* out) { rotation<1>(in, out); }
Unseen rotations("rotation_in_shared", {kRotated, kRotated, 7, [](bool fixed, const float* in, float* out) {
                                          (fixed ? rotation_in_shared_fix : rotation_in_shared_fault)<<<kRotated / 4096, 128>>>(in, out);
                                        }, 9973});

}  // namespace

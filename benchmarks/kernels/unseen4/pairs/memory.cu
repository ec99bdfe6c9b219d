// Results of short products, data read from L2 again, weights of one token.
#include <cuda_fp16.h>
#include <mma.h>

#include "plain.cuh"

namespace {

using namespace nvcuda;

constexpr int kSide = 8192, kShort = 32;

// C = A B^T + residual, 32 x 32 to a warp, in the precision of T.
template <typename T>
__device__ void product(const __half* a, const __half* b, const T* residual, T* c) {
  const int row = blockIdx.y * 64 + threadIdx.x / 64 * 32, column = blockIdx.x * 64 + threadIdx.x / 32 % 2 * 32;
  wmma::fragment<wmma::accumulator, 16, 16, 16, T> sum[2][2];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    wmma::load_matrix_sync(sum[i / 2][i % 2], residual + size_t(row + i / 2 * 16) * kSide + column + i % 2 * 16, kSide,
                           wmma::mem_row_major);
#pragma unroll
  for (int k = 0; k < kShort; k += 16) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa[2];
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> fb[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      wmma::load_matrix_sync(fa[i], a + size_t(row + i * 16) * kShort + k, kShort);
      wmma::load_matrix_sync(fb[i], b + size_t(column + i * 16) * kShort + k, kShort);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) wmma::mma_sync(sum[i / 2][i % 2], fa[i / 2], fb[i % 2], sum[i / 2][i % 2]);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
    wmma::store_matrix_sync(c + size_t(row + i / 2 * 16) * kSide + column + i % 2 * 16, sum[i / 2][i % 2], kSide,
                            wmma::mem_row_major);
}

__global__ void residual_added_fault(const __half* a, const __half* b, const float* residual, float* c) {
  product<float>(a, b, residual, c);
}
__global__ void residual_added_fix(const __half* a, const __half* b, const __half* residual, __half* c) {
  product<__half>(a, b, residual, c);
}

std::vector<double> halves(const DeviceArray<__half>& array, size_t step) {
  std::vector<__half> host(array.count());
  check(cudaMemcpy(host.data(), array.get(), host.size() * 2, cudaMemcpyDeviceToHost), "cudaMemcpy");
  std::vector<double> found;
  for (size_t i = 0; i < host.size(); i += step) found.push_back(__half2float(host[i]));
  return found;
}

class ResidualAdded : public Pair {
 public:
  ResidualAdded()
      : a_(size_t(kSide) * kShort), b_(a_.count()), narrow_(size_t(kSide) * kSide), narrow_out_(narrow_.count()),
        wide_(narrow_.count()), wide_out_(narrow_.count()) {
    fill(a_, 3);
    fill(b_, 5);
    fill(narrow_, 7);
    fill(wide_, 7);
  }
  void reset() override { narrow_out_.clear(), wide_out_.clear(); }
  void launch(bool fixed) override {
    is_fixed_ = fixed;
    const dim3 grid(kSide / 64, kSide / 64);
    if (fixed) residual_added_fix<<<grid, 128>>>(a_.get(), b_.get(), narrow_.get(), narrow_out_.get());
    else residual_added_fault<<<grid, 128>>>(a_.get(), b_.get(), wide_.get(), wide_out_.get());
  }
  std::vector<double> result() const override { return is_fixed_ ? halves(narrow_out_, 9973) : wide_out_.sample(9973); }

 private:
  DeviceArray<__half> a_, b_, narrow_, narrow_out_;
  DeviceArray<float> wide_, wide_out_;
  bool is_fixed_ = false;
};
Register<ResidualAdded> residual("residual_added", "unseen");

constexpr int kColumns = 4096, kOuter = 8192, kDepth = 8;

// Four products over a depth of 8; each result is written column by column, or row by row.
template <bool kByRows>
__device__ void parts_of(const float* in, float* out) {
  const int column = blockIdx.x * 256 + threadIdx.x, row = blockIdx.y;
  float sums[4] = {};
#pragma unroll
  for (int k = 0; k < kDepth; ++k)
#pragma unroll
    for (int part = 0; part < 4; ++part)
      sums[part] = fmaf(in[row * kDepth + k], in[kOuter * kDepth + (part * kDepth + k) * kColumns + column], sums[part]);
  const size_t at = size_t(row) * kColumns + column;
#pragma unroll
  for (int part = 0; part < 4; ++part) {
    if (kByRows) out[size_t(part) * kOuter * kColumns + at] = sums[part];
    else out[at % kColumns * kOuter + row + size_t(part) * kOuter * kColumns] = sums[part];
  }
}

__global__ void __launch_bounds__(256) columns_written_fault(const float* in, float* out) { parts_of<false>(in, out); }
__global__ void __launch_bounds__(256) columns_written_fix(const float* in, float* out) { parts_of<true>(in, out); }

// The fault's output is the other way round.
class ColumnsWritten : public Pair {
 public:
  ColumnsWritten() : in_(size_t(kOuter) * kDepth + 4 * kDepth * kColumns), out_(size_t(kOuter) * kColumns * 4) { fill(in_, 11); }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    is_fixed_ = fixed;
    (fixed ? columns_written_fix : columns_written_fault)<<<dim3(kColumns / 256, kOuter), 256>>>(in_.get(), out_.get());
  }
  std::vector<double> result() const override {
    const auto all = out_.sample();
    std::vector<double> found;
    for (size_t k = 0; k < 40000; ++k) {
      const size_t row = k * 7919 % kOuter, column = k * 104729 % kColumns, part = k % 4;
      found.push_back(all[part * kOuter * kColumns + (is_fixed_ ? row * kColumns + column : column * kOuter + row)]);
    }
    return found;
  }

 private:
  DeviceArray<float> in_, out_;
  bool is_fixed_ = false;
};
Register<ColumnsWritten> columns("columns_written", "unseen");

constexpr int kLong = 1 << 20, kTaps = 33, kChannels = 4;  // 16 MB in all

__device__ float4 plus(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }

// The sum of 33 neighbours, each read from L2.
__global__ void sum_of_shifts_fault(const float4* in, float4* out) {
  const int at = blockIdx.x * 256 + threadIdx.x;
  float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 11
  for (int tap = 0; tap < kTaps; ++tap) sum = plus(sum, __ldcg(in + ((at + tap) & (kLong - 1))));
  out[at] = sum;
}

// From shared memory, to which a block brings its stretch once; sixteen sums to a thread.
__global__ void sum_of_shifts_fix(const float4* in, float4* out) {
  __shared__ float4 held[2400];
  const int first = blockIdx.x * 2048;
  for (int i = threadIdx.x; i < 2048 + kTaps - 1; i += 256) held[i + i / 8] = __ldcg(in + ((first + i) & (kLong - 1)));
  __syncthreads();
  const auto at = [&](int i) { return held[i + i / 8]; };
  const int mine = threadIdx.x * 8;
  float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
  for (int tap = 0; tap < kTaps; ++tap) sum = plus(sum, at(mine + tap));
  for (int k = 0;; ++k) {
    out[first + mine + k] = sum;
    if (k == 7) break;
    const float4 gone = at(mine + k), come = at(mine + k + kTaps);
    sum = make_float4(sum.x + come.x - gone.x, sum.y + come.y - gone.y, sum.z + come.z - gone.z, sum.w + come.w - gone.w);
  }
}

Unseen shifts("sum_of_shifts", {size_t(kLong) * kChannels, size_t(kLong) * kChannels, 7, [](bool fixed, const float* in, float* out) {
                                  (fixed ? sum_of_shifts_fix : sum_of_shifts_fault)<<<kLong / (fixed ? 2048 : 256), 256>>>(
                                      reinterpret_cast<const float4*>(in), reinterpret_cast<float4*>(out));
                                }});

constexpr int kQueries = kSMs * 8, kKeys = 8192;  // keys of 128 floats: 4 MB

// Each block holds one query against all keys; the same keys for every block, out of L2.
template <int kMine>
__device__ void against_all(const float4* keys, float* out) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float4 query[kMine];
  float most[kMine];
#pragma unroll
  for (int q = 0; q < kMine; ++q) {
    query[q] = __ldcg(keys + size_t(blockIdx.x * kMine + q) * 32 + lane);
    most[q] = 0;
  }
#pragma unroll 4
  for (int key = warp; key < kKeys; key += 8) {
    const float4 v = __ldcg(keys + size_t(key) * 32 + lane);
#pragma unroll
    for (int q = 0; q < kMine; ++q)
      most[q] = fmaxf(most[q], query[q].x * v.x + query[q].y * v.y + query[q].z * v.z + query[q].w * v.w);
  }
#pragma unroll
  for (int q = 0; q < kMine; ++q) out[((size_t(blockIdx.x) * kMine + q) * 8 + warp) * 32 + lane] = most[q];
}

__global__ void __launch_bounds__(256) query_by_query_fault(const float4* keys, float* out) { against_all<1>(keys, out); }
__global__ void __launch_bounds__(256) query_by_query_fix(const float4* keys, float* out) { against_all<8>(keys, out); }

Unseen queries("query_by_query", {size_t(kKeys) * 128, size_t(kQueries) * 8 * 32, 5, [](bool fixed, const float* in, float* out) {
                                    (fixed ? query_by_query_fix : query_by_query_fault)<<<kQueries / (fixed ? 8 : 1), 256>>>(
                                        reinterpret_cast<const float4*>(in), out);
                                  }});

constexpr int kOutputs = 32768, kInputs = 4096;

__device__ float at(float v) { return v; }
__device__ float at(signed char v) { return float(v); }
__device__ float at(__half v) { return __half2float(v); }

// Four rows of weights to a warp, 16 bytes of each to a load.
template <typename T>
__device__ void times_vector(const T* weights, const float* x, float* y, int apart) {
  constexpr int kEach = 16 / sizeof(T);
  const int lane = threadIdx.x % 32, warp = (blockIdx.x * 256 + threadIdx.x) / 32;
  const uint4* rows = reinterpret_cast<const uint4*>(weights + size_t(warp) * 4 * apart * kInputs);
  float sums[4] = {};
#pragma unroll 2
  for (int k = lane; k < kInputs / kEach; k += 32) {
    uint4 raw[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) raw[r] = __ldcs(rows + size_t(r) * apart * (kInputs / kEach) + k);
#pragma unroll
    for (int j = 0; j < kEach; j += 4) {
      const float4 by = reinterpret_cast<const float4*>(x)[(k * kEach + j) / 4];
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const T* v = reinterpret_cast<const T*>(raw + r) + j;
        sums[r] += at(v[0]) * by.x + at(v[1]) * by.y + at(v[2]) * by.z + at(v[3]) * by.w;
      }
    }
  }
#pragma unroll
  for (int r = 0; r < 4; ++r) {
#pragma unroll
    for (int step = 16; step; step /= 2) sums[r] += __shfl_xor_sync(~0u, sums[r], step);
    if (lane == 0) y[warp * 4 + r] = sums[r];
  }
}

// The experts' rows lie between those of the experts that were not chosen.
__global__ void two_experts_fault(const __half* w, const float* x, float* y) { times_vector(w, x, y, 2); }
__global__ void two_experts_fix(const signed char* w, const float* x, float* y) { times_vector(w, x, y, 2); }
__global__ void last_token_fault(const float* w, const float* x, float* y) { times_vector(w, x, y, 1); }
__global__ void last_token_fix(const __half* w, const float* x, float* y) { times_vector(w, x, y, 1); }

template <typename Wide, typename Narrow, void (*kFault)(const Wide*, const float*, float*),
          void (*kFix)(const Narrow*, const float*, float*), int kTaken>
class Vector : public Pair {
 public:
  Vector() : wide_(size_t(kOutputs) * kInputs), narrow_(wide_.count()), x_(kInputs), y_(kOutputs / kTaken) {
    fill(wide_, 7);
    fill(narrow_, 7);
    fill(x_, 5);
  }
  void reset() override { y_.clear(); }
  void launch(bool fixed) override {
    const int blocks = kOutputs / kTaken / 32;
    if (fixed) kFix<<<blocks, 256>>>(narrow_.get(), x_.get(), y_.get());
    else kFault<<<blocks, 256>>>(wide_.get(), x_.get(), y_.get());
  }
  std::vector<double> result() const override { return y_.sample(61); }

 private:
  DeviceArray<Wide> wide_;
  DeviceArray<Narrow> narrow_;
  DeviceArray<float> x_, y_;
};
Register<Vector<__half, signed char, two_experts_fault, two_experts_fix, 2>> experts("two_experts", "unseen");
Register<Vector<float, __half, last_token_fault, last_token_fix, 1>> token("last_token", "unseen");

}  // namespace

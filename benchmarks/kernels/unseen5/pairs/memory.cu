// Results of short products, data read from L2 again, weights times vectors.
#include <cuda_fp16.h>
#include <mma.h>

#include "../../unseen4/pairs/plain.cuh"

namespace {

using namespace nvcuda;

constexpr int kSide = 8192;

// 32 x 32 of A B^T (K = 16 * kSteps) to a warp, four warps to a block.
struct Tile {
  int row = blockIdx.y * 64 + threadIdx.x / 64 * 32, column = blockIdx.x * 64 + threadIdx.x / 32 % 2 * 32;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[2][2];

  template <int kSteps>
  __device__ void multiply(const __half* a, const __half* b) {
    for (int i = 0; i < 4; ++i) wmma::fill_fragment(sum[i / 2][i % 2], 0.0f);
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa[2];
      wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> fb[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        wmma::load_matrix_sync(fa[i], a + size_t(row + i * 16) * kSteps * 16 + k * 16, kSteps * 16);
        wmma::load_matrix_sync(fb[i], b + size_t(column + i * 16) * kSteps * 16 + k * 16, kSteps * 16);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) wmma::mma_sync(sum[i / 2][i % 2], fa[i / 2], fb[i % 2], sum[i / 2][i % 2]);
    }
  }
  __device__ size_t at(int i) const { return size_t(row + i / 2 * 16) * kSide + column + i % 2 * 16; }
};

__device__ float mish_exactly(float x) { return x * tanhf(log1pf(expf(x))); }
__device__ float mish_in_short(float x) {
  const float e = __expf(fminf(x, 20.0f)), n = e * (e + 2.0f);
  return x * __fdividef(n, n + 2.0f);
}

// A product over a depth of 16 whose epilogue is the activation Mish, as its formula says or rewritten.
template <float (*kActivation)(float)>
__device__ void activated(const __half* a, const __half* b, __half* c) {
  Tile tile;
  tile.multiply<1>(a, b);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    wmma::fragment<wmma::accumulator, 16, 16, 16, __half> found;
#pragma unroll
    for (int e = 0; e < 8; ++e) found.x[e] = __half(kActivation((tile.sum[i / 2][i % 2].x[e] - 16.0f) * 0.25f));
    wmma::store_matrix_sync(c + tile.at(i), found, kSide, wmma::mem_row_major);
  }
}

__global__ void __launch_bounds__(128) mish_exactly_fault(const __half* a, const __half* b, __half* c) {
  activated<mish_exactly>(a, b, c);
}
__global__ void __launch_bounds__(128) mish_exactly_fix(const __half* a, const __half* b, __half* c) {
  activated<mish_in_short>(a, b, c);
}

// Before and after the activation, both are written for the backward pass: in fp32, from fragments.
__global__ void __launch_bounds__(128) saved_for_backward_fault(const __half* a, const __half* b, float* c) {
  Tile tile;
  tile.multiply<2>(a, b);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> before, after;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const float x = tile.sum[i / 2][i % 2].x[e];
      before.x[e] = x;
      after.x[e] = fmaxf(x - 64.0f, 0.0f);
    }
    wmma::store_matrix_sync(c + tile.at(i), before, kSide, wmma::mem_row_major);
    wmma::store_matrix_sync(c + size_t(kSide) * kSide + tile.at(i), after, kSide, wmma::mem_row_major);
  }
}

// In fp16, 16 bytes a lane by way of shared memory.
__global__ void __launch_bounds__(128) saved_for_backward_fix(const __half* a, const __half* b, __half* c) {
  __shared__ __align__(16) float held[4][32][36];
  Tile tile;
  tile.multiply<2>(a, b);
  auto& mine = held[threadIdx.x / 32];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    wmma::store_matrix_sync(&mine[i / 2 * 16][i % 2 * 16], tile.sum[i / 2][i % 2], 36, wmma::mem_row_major);
  __syncwarp();
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const int row = k * 8 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 8;
    __align__(16) __half before[8], after[8];
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      before[e] = __half(mine[row][column + e]);
      after[e] = __half(fmaxf(mine[row][column + e] - 64.0f, 0.0f));
    }
    __half* to = c + size_t(tile.row + row) * kSide + tile.column + column;
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(before);
    *reinterpret_cast<uint4*>(to + size_t(kSide) * kSide) = *reinterpret_cast<const uint4*>(after);
  }
}

std::vector<double> sampled(const DeviceArray<float>& array) { return array.sample(9973); }
std::vector<double> sampled(const DeviceArray<__half>& array) {
  std::vector<__half> host(array.count());
  check(cudaMemcpy(host.data(), array.get(), host.size() * 2, cudaMemcpyDeviceToHost), "cudaMemcpy");
  std::vector<double> found;
  for (size_t i = 0; i < host.size(); i += 9973) found.push_back(__half2float(host[i]));
  return found;
}

template <typename Wide, typename Narrow, void (*kFault)(const __half*, const __half*, Wide*),
          void (*kFix)(const __half*, const __half*, Narrow*), int kDepth, int kOutputs>
class Product : public Pair {
 public:
  Product() : a_(size_t(kSide) * kDepth), b_(a_.count()), wide_(size_t(kSide) * kSide * kOutputs), narrow_(wide_.count()) {
    fill(a_, 3);
    fill(b_, 5);
  }
  void reset() override { wide_.clear(), narrow_.clear(); }
  void launch(bool fixed) override {
    is_fixed_ = fixed;
    const dim3 grid(kSide / 64, kSide / 64);
    if (fixed) kFix<<<grid, 128>>>(a_.get(), b_.get(), narrow_.get());
    else kFault<<<grid, 128>>>(a_.get(), b_.get(), wide_.get());
  }
  std::vector<double> result() const override { return is_fixed_ ? sampled(narrow_) : sampled(wide_); }
  double tolerance() const override { return 2e-3; }

 private:
  DeviceArray<__half> a_, b_;
  DeviceArray<Wide> wide_;
  DeviceArray<Narrow> narrow_;
  bool is_fixed_ = false;
};
Register<Product<__half, __half, mish_exactly_fault, mish_exactly_fix, 16, 1>> mish("mish_exactly", "unseen");
Register<Product<float, __half, saved_for_backward_fault, saved_for_backward_fix, 32, 2>> saved("saved_for_backward", "unseen");

constexpr int kX = 64, kY = 256, kZ = 256;  // a volume of 256 x 256 x 256 floats in pieces of four

__device__ float4 plus(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }
__device__ float4 piece(const float4* in, int x, int y, int z) { return __ldcg(in + ((z & (kZ / 8 - 1)) * kY + (y & (kY - 1))) * kX + x); }

// Each value is the sum of 5 x 5 around it in y and z, all read from L2; the volume repeats a slab of 8 MB.
__global__ void box_of_planes_fault(const float4* in, float4* out) {
  const int x = threadIdx.x % kX, y = blockIdx.x * 4 + threadIdx.x / kX, z = blockIdx.y;
  float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
  for (int dz = -2; dz <= 2; ++dz)
#pragma unroll
    for (int dy = -2; dy <= 2; ++dy) sum = plus(sum, piece(in, x, y + dy, z + dz));
  out[((z & (kZ / 8 - 1)) * kY + y) * kX + x] = sum;
}

// A thread goes along z and keeps the sums of five planes in registers.
__global__ void box_of_planes_fix(const float4* in, float4* out) {
  const int x = threadIdx.x % kX, y = blockIdx.x * 4 + threadIdx.x / kX, first = blockIdx.y * 16;
  float4 planes[5];
  const auto plane = [&](int z) {
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int dy = -2; dy <= 2; ++dy) sum = plus(sum, piece(in, x, y + dy, z));
    return sum;
  };
#pragma unroll
  for (int k = 0; k < 4; ++k) planes[k + 1] = plane(first + k - 2);
#pragma unroll
  for (int k = 0; k < 16; ++k) {
#pragma unroll
    for (int p = 0; p < 4; ++p) planes[p] = planes[p + 1];
    planes[4] = plane(first + k + 2);
    const float4 sum = plus(plus(plus(planes[0], planes[1]), plus(planes[2], planes[3])), planes[4]);
    out[(((first + k) & (kZ / 8 - 1)) * kY + y) * kX + x] = sum;
  }
}
Unseen boxes("box_of_planes", {size_t(kX) * 4 * kY * kZ / 8, size_t(kX) * 4 * kY * kZ / 8, 7, [](bool fixed, const float* in, float* out) {
                                 const auto from = reinterpret_cast<const float4*>(in);
                                 const auto to = reinterpret_cast<float4*>(out);
                                 if (fixed) box_of_planes_fix<<<dim3(kY / 4, kZ / 16), 256>>>(from, to);
                                 else box_of_planes_fault<<<dim3(kY / 4, kZ), 256>>>(from, to);
                               }});

constexpr int kWords = 8192, kVectors = kSMs * 64;  // sixteen codebooks of 512 words of 128 floats: 4 MB in all

// A warp's vectors against their codebook out of L2: for each by itself, or once for four.
template <int kMine>
__device__ void coded(const float4* book, float* out) {
  const int lane = threadIdx.x % 32, warp = (blockIdx.x * 256 + threadIdx.x) / 32;
  float4 mine[kMine], best[kMine];
#pragma unroll
  for (int v = 0; v < kMine; ++v) {
    mine[v] = __ldcg(book + size_t((warp * kMine + v) * 7 % kWords) * 32 + lane);
    best[v] = make_float4(0, 0, 0, 0);
  }
#pragma unroll 8
  for (int word = 0; word < kWords / 16; ++word) {
    const float4 w = __ldcg(book + size_t(word * 16 + warp * kMine / 64 % 16) * 32 + lane);
#pragma unroll
    for (int v = 0; v < kMine; ++v) {
      best[v].x = fmaf(mine[v].x, w.x, best[v].x);
      best[v].y = fmaf(mine[v].y, w.y, best[v].y);
      best[v].z = fmaf(mine[v].z, w.z, best[v].z);
      best[v].w = fmaf(mine[v].w, w.w, best[v].w);
    }
  }
#pragma unroll
  for (int v = 0; v < kMine; ++v)
    out[size_t(warp * kMine + v) * 32 + lane] = best[v].x + best[v].y + best[v].z + best[v].w;
}

__global__ void __launch_bounds__(256) codebook_fault(const float4* in, float* out) { coded<1>(in, out); }
__global__ void __launch_bounds__(256) codebook_fix(const float4* in, float* out) { coded<4>(in, out); }
Unseen codebooks("codebook", {size_t(kWords) * 128, size_t(kVectors) * 32, 5, [](bool fixed, const float* in, float* out) {
                                const auto from = reinterpret_cast<const float4*>(in);
                                (fixed ? codebook_fix : codebook_fault)<<<kVectors / 8 / (fixed ? 4 : 1), 256>>>(from, out);
                              }});

constexpr int kRows = 8448, kColumns = 8192, kChunk = 32;  // 277 MB of fp32

// y = x^T W by columns, four to a thread; blocks divide the rows, and leave parts of the sums.
template <typename Raw>
__device__ void by_columns(const Raw* weights, const float* x, float4* out) {
  const int column = blockIdx.x * 256 + threadIdx.x, first = blockIdx.y * kChunk;
  float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 8
  for (int r = first; r < first + kChunk; ++r) {
    const Raw raw = __ldcs(weights + size_t(r) * (kColumns / 4) + column);
    const float by = x[r];
    float4 w;
    if constexpr (sizeof(Raw) == 16) w = *reinterpret_cast<const float4*>(&raw);
    else {
      const float2 low = __half22float2(*reinterpret_cast<const __half2*>(&raw.x));
      const float2 high = __half22float2(*reinterpret_cast<const __half2*>(&raw.y));
      w = make_float4(low.x, low.y, high.x, high.y);
    }
    sum = make_float4(fmaf(by, w.x, sum.x), fmaf(by, w.y, sum.y), fmaf(by, w.z, sum.z), fmaf(by, w.w, sum.w));
  }
  out[size_t(blockIdx.y) * (kColumns / 4) + column] = sum;
}

__global__ void __launch_bounds__(256) by_columns_fault(const uint4* w, const float* x, float4* y) { by_columns(w, x, y); }
__global__ void __launch_bounds__(256) by_columns_fix(const uint2* w, const float* x, float4* y) { by_columns(w, x, y); }

class ByColumns : public Pair {
 public:
  ByColumns() : wide_(size_t(kRows) * kColumns), narrow_(wide_.count()), x_(kRows), y_(size_t(kRows / kChunk) * kColumns) {
    fill(wide_, 7);
    fill(narrow_, 7);
    fill(x_, 5);
  }
  void reset() override { y_.clear(); }
  void launch(bool fixed) override {
    const dim3 grid(kColumns / 1024, kRows / kChunk);
    const auto y = reinterpret_cast<float4*>(y_.get());
    if (fixed) by_columns_fix<<<grid, 256>>>(reinterpret_cast<const uint2*>(narrow_.get()), x_.get(), y);
    else by_columns_fault<<<grid, 256>>>(reinterpret_cast<const uint4*>(wide_.get()), x_.get(), y);
  }
  std::vector<double> result() const override { return y_.sample(61); }

 private:
  DeviceArray<float> wide_;
  DeviceArray<__half> narrow_;
  DeviceArray<float> x_, y_;
};
Register<ByColumns> columns("by_columns", "unseen");

constexpr int kOutputs = 24576, kInputs = 4096;

__device__ float at(__half v) { return __half2float(v); }
__device__ float at(signed char v) { return float(v); }

// Two drafted tokens against the weights; two rows to a warp, 16 bytes of each to a load.
template <typename T>
__device__ void two_tokens(const T* weights, const float4* x, float* y) {
  constexpr int kEach = 16 / sizeof(T);
  const int lane = threadIdx.x % 32, warp = (blockIdx.x * 256 + threadIdx.x) / 32;
  const uint4* rows = reinterpret_cast<const uint4*>(weights + size_t(warp) * 2 * kInputs);
  float sums[4] = {};
#pragma unroll 4
  for (int k = lane; k < kInputs / kEach; k += 32) {
    const uint4 raw[2] = {__ldcs(rows + k), __ldcs(rows + kInputs / kEach + k)};
#pragma unroll
    for (int j = 0; j < kEach; j += 4)
#pragma unroll
      for (int token = 0; token < 2; ++token) {
        const float4 by = x[token * (kInputs / 4) + (k * kEach + j) / 4];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const T* v = reinterpret_cast<const T*>(raw + r) + j;
          sums[token * 2 + r] += at(v[0]) * by.x + at(v[1]) * by.y + at(v[2]) * by.z + at(v[3]) * by.w;
        }
      }
  }
#pragma unroll
  for (int s = 0; s < 4; ++s) {
#pragma unroll
    for (int by = 16; by; by /= 2) sums[s] += __shfl_xor_sync(~0u, sums[s], by);
    if (lane == 0) y[size_t(s / 2) * kOutputs + warp * 2 + s % 2] = sums[s];
  }
}

__global__ void __launch_bounds__(256) drafted_tokens_fault(const __half* w, const float4* x, float* y) { two_tokens(w, x, y); }
__global__ void __launch_bounds__(256) drafted_tokens_fix(const signed char* w, const float4* x, float* y) { two_tokens(w, x, y); }

class DraftedTokens : public Pair {
 public:
  DraftedTokens() : wide_(size_t(kOutputs) * kInputs), narrow_(wide_.count()), x_(2 * kInputs), y_(2 * kOutputs) {
    fill(wide_, 7);
    fill(narrow_, 7);
    fill(x_, 5);
  }
  void reset() override { y_.clear(); }
  void launch(bool fixed) override {
    const auto x = reinterpret_cast<const float4*>(x_.get());
    if (fixed) drafted_tokens_fix<<<kOutputs / 16, 256>>>(narrow_.get(), x, y_.get());
    else drafted_tokens_fault<<<kOutputs / 16, 256>>>(wide_.get(), x, y_.get());
  }
  std::vector<double> result() const override { return y_.sample(61); }

 private:
  DeviceArray<__half> wide_;
  DeviceArray<signed char> narrow_;
  DeviceArray<float> x_, y_;
};
Register<DraftedTokens> drafted("drafted_tokens", "unseen");

}  // namespace

// Products over a short K, whose time goes to what is done with the result.
#include <cuda_fp16.h>
#include <mma.h>

#include "../../pair.cuh"

namespace {

using namespace nvcuda;
using Accumulator = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;

// 64 x 64 of A B^T to a block of 4 warps, 32 x 32 to each; depths [k0, k1) of pitch `pitch`.
__device__ void multiply(Accumulator (&sum)[2][2], const __half* a, const __half* b, int pitch, int k0, int k1) {
  for (auto& row : sum)
    for (auto& one : row) wmma::fill_fragment(one, 0.0f);
  for (int k = k0; k < k1; k += 16) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa[2];
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> fb[2];
    for (int i = 0; i < 2; ++i) wmma::load_matrix_sync(fa[i], a + size_t(i) * 16 * pitch + k, pitch);
    for (int j = 0; j < 2; ++j) wmma::load_matrix_sync(fb[j], b + size_t(j) * 16 * pitch + k, pitch);
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < 2; ++j) wmma::mma_sync(sum[i][j], fa[i], fb[j], sum[i][j]);
  }
}

__device__ int row_of_warp() { return blockIdx.y * 64 + threadIdx.x / 64 * 32; }
__device__ int column_of_warp() { return blockIdx.x * 64 + threadIdx.x / 32 % 2 * 32; }

constexpr int kM = 2048, kDepth = 512, kSplits = 16;

// Each of sixteen blocks takes a part of K and adds its tile to the result.
__global__ void split_depth_fault(const __half* a, const __half* b, float* c) {
  Accumulator sum[2][2];
  __shared__ float tiles[4][32 * 32];
  float* tile = tiles[threadIdx.x / 32];
  const int row = row_of_warp(), column = column_of_warp(), k0 = blockIdx.z * (kDepth / kSplits);
  multiply(sum, a + size_t(row) * kDepth, b + size_t(column) * kDepth, kDepth, k0, k0 + kDepth / kSplits);
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j)
      wmma::store_matrix_sync(tile + i * 16 * 32 + j * 16, sum[i][j], 32, wmma::mem_row_major);
  __syncwarp();
  for (int r = 0; r < 32; ++r) atomicAdd(c + size_t(row + r) * kM + column + threadIdx.x % 32, tile[r * 32 + threadIdx.x % 32]);
}

// Each block takes all of K and writes its tile.
__global__ void split_depth_fix(const __half* a, const __half* b, float* c) {
  Accumulator sum[2][2];
  const int row = row_of_warp(), column = column_of_warp();
  multiply(sum, a + size_t(row) * kDepth, b + size_t(column) * kDepth, kDepth, 0, kDepth);
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j)
      wmma::store_matrix_sync(c + size_t(row + i * 16) * kM + column + j * 16, sum[i][j], kM, wmma::mem_row_major);
}

class SplitDepth : public Pair {
 public:
  SplitDepth() : a_(size_t(kM) * kDepth), b_(size_t(kM) * kDepth), c_(size_t(kM) * kM) {
    fill(a_, 3);
    fill(b_, 5);
  }
  void reset() override { c_.clear(); }
  void launch(bool fixed) override {
    const dim3 grid(kM / 64, kM / 64, fixed ? 1 : kSplits);
    (fixed ? split_depth_fix : split_depth_fault)<<<grid, 128>>>(a_.get(), b_.get(), c_.get());
  }
  std::vector<double> result() const override { return c_.sample(9973); }

 private:
  DeviceArray<__half> a_, b_;
  DeviceArray<float> c_;
};
Register<SplitDepth> split("split_depth", "unseen");

constexpr int kWide = 8192, kShort = 32;

// The activation "mish", x tanh(ln(1 + e^x)), as it is written.
__device__ float mish(float x) { return x * tanhf(log1pf(expf(x))); }

// The same by algebra: tanh(ln y) = (y^2 - 1) / (y^2 + 1).
__device__ float quick_mish(float x) {
  const float y = 1.0f + __expf(x), square = y * y;
  return x * __fdividef(square - 1.0f, square + 1.0f);
}

template <float (*kActivation)(float)>
__device__ void activated(const __half* a, const __half* b, __half* c) {
  Accumulator sum[2][2];
  const int row = row_of_warp(), column = column_of_warp();
  multiply(sum, a + size_t(row) * kShort, b + size_t(column) * kShort, kShort, 0, kShort);
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j) {
      wmma::fragment<wmma::accumulator, 16, 16, 16, __half> narrow;
#pragma unroll
      for (int e = 0; e < narrow.num_elements; ++e) narrow.x[e] = __float2half(kActivation(sum[i][j].x[e] * 0.05f - 4.0f));
      wmma::store_matrix_sync(c + size_t(row + i * 16) * kWide + column + j * 16, narrow, kWide, wmma::mem_row_major);
    }
}

__global__ void exact_activation_fault(const __half* a, const __half* b, __half* c) { activated<mish>(a, b, c); }
__global__ void exact_activation_fix(const __half* a, const __half* b, __half* c) { activated<quick_mish>(a, b, c); }

class ExactActivation : public Pair {
 public:
  ExactActivation() : a_(size_t(kWide) * kShort), b_(size_t(kWide) * kShort), c_(size_t(kWide) * kWide) {
    fill(a_, 3);
    fill(b_, 5);
  }
  void reset() override { c_.clear(); }
  void launch(bool fixed) override {
    auto kernel = fixed ? exact_activation_fix : exact_activation_fault;
    kernel<<<dim3(kWide / 64, kWide / 64), 128>>>(a_.get(), b_.get(), c_.get());
  }
  std::vector<double> result() const override {
    std::vector<double> found;
    std::vector<__half> host(c_.count());
    check(cudaMemcpy(host.data(), c_.get(), c_.count() * 2, cudaMemcpyDeviceToHost), "cudaMemcpy");
    for (size_t i = 0; i < host.size(); i += 9973) found.push_back(__half2float(host[i]));
    return found;
  }
  double tolerance() const override { return 1e-2; }

 private:
  DeviceArray<__half> a_, b_, c_;
};
Register<ExactActivation> activation("exact_activation", "unseen");

}  // namespace

// Tensor cores kept busy by operands wider than the values need.
#include <cuda_fp16.h>
#include <mma.h>

#include "../pair.cuh"

namespace {

using namespace nvcuda;

constexpr int kRounds = 512, kChains = 4, kBlocks = 132 * 4, kWarps = 8;

// Each warp multiplies one pair of 16 x 16 tiles again and again into four accumulators, K = 16 per round.
__global__ void wide_operands_fault(const float* a, const float* b, float* out) {
  wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> fa[2];
  wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> fb[2];
  wmma::fragment<wmma::accumulator, 16, 16, 8, float> sum[kChains];
  for (int h = 0; h < 2; ++h) {
    wmma::load_matrix_sync(fa[h], a + h * 8, 16);
    wmma::load_matrix_sync(fb[h], b + h * 8 * 16, 16);
  }
  for (int c = 0; c < kChains; ++c) wmma::fill_fragment(sum[c], float(c));
  for (int r = 0; r < kRounds; ++r) {
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int c = 0; c < kChains; ++c) wmma::mma_sync(sum[c], fa[h], fb[h], sum[c]);
  }
  for (int c = 1; c < kChains; ++c)
    for (int i = 0; i < sum[0].num_elements; ++i) sum[0].x[i] += sum[c].x[i];
  wmma::store_matrix_sync(out + (blockIdx.x * kWarps + threadIdx.x / 32) * 256, sum[0], 16, wmma::mem_row_major);
}

__global__ void wide_operands_fix(const __half* a, const __half* b, float* out) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[kChains];
  wmma::load_matrix_sync(fa, a, 16);
  wmma::load_matrix_sync(fb, b, 16);
  for (int c = 0; c < kChains; ++c) wmma::fill_fragment(sum[c], float(c));
  for (int r = 0; r < kRounds; ++r) {
#pragma unroll
    for (int c = 0; c < kChains; ++c) wmma::mma_sync(sum[c], fa, fb, sum[c]);
  }
  for (int c = 1; c < kChains; ++c)
    for (int i = 0; i < sum[0].num_elements; ++i) sum[0].x[i] += sum[c].x[i];
  wmma::store_matrix_sync(out + (blockIdx.x * kWarps + threadIdx.x / 32) * 256, sum[0], 16, wmma::mem_row_major);
}

class WideOperands : public Pair {
 public:
  WideOperands() : a32_(256), b32_(256), a16_(256), b16_(256), out_(size_t(kBlocks) * kWarps * 256) {
    fill(a32_, 3);
    fill(b32_, 5);
    fill(a16_, 3);
    fill(b16_, 5);
  }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    if (fixed)
      wide_operands_fix<<<kBlocks, kWarps * 32>>>(a16_.get(), b16_.get(), out_.get());
    else
      wide_operands_fault<<<kBlocks, kWarps * 32>>>(a32_.get(), b32_.get(), out_.get());
  }
  std::vector<double> result() const override { return out_.sample(61); }

 private:
  DeviceArray<float> a32_, b32_;
  DeviceArray<__half> a16_, b16_;
  DeviceArray<float> out_;
};
Register<WideOperands> operands("wide_operands", "tensor");

}  // namespace

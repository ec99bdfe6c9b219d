// Asynchronous copies into shared memory that are waited for at once: stages would hide them.
#include <cuda_fp16.h>
#include <mma.h>

#include "../../pair.cuh"

namespace {

using namespace nvcuda;

__device__ unsigned shared_address(const void* p) { return unsigned(__cvta_generic_to_shared(p)); }

__device__ void copy16(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from));
}

constexpr int kN = 4096, kTile = 128, kDepth = 32, kPitch = kDepth + 8;
constexpr int kStage = 2 * kTile * kPitch;  // halves: a tile of A and one of B, both K-major

__device__ void fetch(__half* stage, const __half* a, const __half* b, int row0, int column0, int k0) {
  for (int i = threadIdx.x; i < kTile * kDepth / 8; i += 256) {
    const int r = i / (kDepth / 8), c = i % (kDepth / 8) * 8;
    copy16(stage + r * kPitch + c, a + size_t(row0 + r) * kN + k0 + c);
    copy16(stage + (kTile + r) * kPitch + c, b + size_t(column0 + r) * kN + k0 + c);
  }
  asm volatile("cp.async.commit_group;");
}

// C = A B^T, 128 x 128 per block, 32 x 64 per warp, kStages tiles of K on the way.
template <int kStages>
__device__ void product(const __half* a, const __half* b, float* c) {
  extern __shared__ __half stages[];
  const int row0 = blockIdx.y * kTile, column0 = blockIdx.x * kTile;
  const int warp = threadIdx.x / 32, wr = warp / 2 * 32, wc = warp % 2 * 64;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[2][4];
  for (auto& row : sum)
    for (auto& one : row) wmma::fill_fragment(one, 0.0f);
  for (int s = 0; s < kStages - 1; ++s) fetch(stages + s * kStage, a, b, row0, column0, s * kDepth);
  for (int t = 0; t < kN / kDepth; ++t) {
    const int ahead = t + kStages - 1;
    if (ahead < kN / kDepth) fetch(stages + ahead % kStages * kStage, a, b, row0, column0, ahead * kDepth);
    else asm volatile("cp.async.commit_group;");
    asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 1));
    __syncthreads();
    const __half* stage = stages + t % kStages * kStage;
#pragma unroll
    for (int k = 0; k < kDepth; k += 16) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa[2];
      wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> fb[4];
      for (int i = 0; i < 2; ++i) wmma::load_matrix_sync(fa[i], stage + (wr + i * 16) * kPitch + k, kPitch);
      for (int j = 0; j < 4; ++j) wmma::load_matrix_sync(fb[j], stage + (kTile + wc + j * 16) * kPitch + k, kPitch);
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) wmma::mma_sync(sum[i][j], fa[i], fb[j], sum[i][j]);
    }
    __syncthreads();
  }
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 4; ++j)
      wmma::store_matrix_sync(c + size_t(row0 + wr + i * 16) * kN + column0 + wc + j * 16, sum[i][j], kN,
                              wmma::mem_row_major);
}

__global__ void __launch_bounds__(256, 2) one_stage_product_fault(const __half* a, const __half* b, float* c) {
  product<1>(a, b, c);
}
__global__ void __launch_bounds__(256, 2) one_stage_product_fix(const __half* a, const __half* b, float* c) {
  product<4>(a, b, c);
}

class OneStageProduct : public Pair {
 public:
  OneStageProduct() : a_(size_t(kN) * kN), b_(size_t(kN) * kN), c_(size_t(kN) * kN) {
    fill(a_, 3);
    fill(b_, 5);
    for (auto kernel : {one_stage_product_fault, one_stage_product_fix})
      check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 4 * kStage * 2), "shared");
  }
  void reset() override { c_.clear(); }
  void launch(bool fixed) override {
    auto kernel = fixed ? one_stage_product_fix : one_stage_product_fault;
    kernel<<<dim3(kN / kTile, kN / kTile), 256, (fixed ? 4 : 1) * kStage * 2>>>(a_.get(), b_.get(), c_.get());
  }
  std::vector<double> result() const override { return c_.sample(9973); }

 private:
  DeviceArray<__half> a_, b_;
  DeviceArray<float> c_;
};
Register<OneStageProduct> product_pair("one_stage_product", "unseen");

constexpr int kThreads = 1024, kPiece = 1024, kBlocks = 132 * 2, kPieces = 192;  // 4 KB a piece

__device__ void expect(unsigned barrier, unsigned to, const float* from) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(kPiece * 4) : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
      "r"(kPiece * 4), "r"(barrier)
      : "memory");
}

__device__ void await(unsigned barrier, unsigned phase) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra ready;\nbra again;\nready:\n}" ::"r"(barrier), "r"(phase)
      : "memory");
}

// The copy engine fetches pieces of 4 KB into kStages buffers; the block adds them up.
template <int kStages>
__device__ void streamed(const float* in, float* out) {
  extern __shared__ __align__(128) float pieces[];
  __shared__ unsigned long long barriers[kStages];
  const float* from = in + size_t(blockIdx.x) * kPieces * kPiece;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barriers + s)) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  if (threadIdx.x == 0)
    for (int s = 0; s < kStages; ++s)
      expect(shared_address(barriers + s), shared_address(pieces + s * kPiece), from + size_t(s) * kPiece);
  float sum = 0;
#pragma unroll 1
  for (int p = 0; p < kPieces; ++p) {
    const int s = p % kStages;
    await(shared_address(barriers + s), p / kStages % 2);
    sum += pieces[s * kPiece + threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0 && p + kStages < kPieces)
      expect(shared_address(barriers + s), shared_address(pieces + s * kPiece), from + size_t(p + kStages) * kPiece);
  }
  out[blockIdx.x * kThreads + threadIdx.x] = sum;
}

__global__ void one_stage_stream_fault(const float* in, float* out) { streamed<1>(in, out); }
__global__ void one_stage_stream_fix(const float* in, float* out) { streamed<8>(in, out); }

class OneStageStream : public Pair {
 public:
  OneStageStream() : in_(size_t(kBlocks) * kPieces * kPiece), out_(size_t(kBlocks) * kThreads) { fill(in_, 5); }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    auto kernel = fixed ? one_stage_stream_fix : one_stage_stream_fault;
    kernel<<<kBlocks, kThreads, (fixed ? 8 : 1) * kPiece * 4>>>(in_.get(), out_.get());
  }
  std::vector<double> result() const override { return out_.sample(61); }

 private:
  DeviceArray<float> in_, out_;
};
Register<OneStageStream> stream("one_stage_stream", "unseen");

}  // namespace

// The first rungs of a matrix multiply in fp32: each is held up one level further in.
#include "../pair.cuh"

namespace {

constexpr int kN = 1024;

// Threads of a warp take rows: their loads of A lie a row apart.
__global__ void gemm_rows_fault(const float* a, const float* b, float* c) {
  const int row = blockIdx.x * 32 + threadIdx.x % 32, column = blockIdx.y * 32 + threadIdx.x / 32;
  float sum = 0;
  for (int k = 0; k < kN; ++k) sum += a[row * kN + k] * b[k * kN + column];
  c[row * kN + column] = sum;
}

__device__ void one_output(const float* a, const float* b, float* c) {
  const int column = blockIdx.x * 32 + threadIdx.x % 32, row = blockIdx.y * 32 + threadIdx.x / 32;
  float sum = 0;
  for (int k = 0; k < kN; ++k) sum += a[row * kN + k] * b[k * kN + column];
  c[row * kN + column] = sum;
}

__global__ void gemm_rows_fix(const float* a, const float* b, float* c) { one_output(a, b, c); }
__global__ void gemm_no_reuse_fault(const float* a, const float* b, float* c) { one_output(a, b, c); }

__device__ void square_tiles(const float* a, const float* b, float* c) {
  __shared__ float ta[32][32], tb[32][32];
  const int tx = threadIdx.x % 32, ty = threadIdx.x / 32;
  const int column = blockIdx.x * 32 + tx, row = blockIdx.y * 32 + ty;
  float sum = 0;
  for (int k0 = 0; k0 < kN; k0 += 32) {
    ta[ty][tx] = a[row * kN + k0 + tx];
    tb[ty][tx] = b[(k0 + ty) * kN + column];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 32; ++k) sum += ta[ty][k] * tb[k][tx];
    __syncthreads();
  }
  c[row * kN + column] = sum;
}

// 4 x 4 outputs per thread: 16 multiply-adds for 8 shared loads instead of one for two.
__device__ void register_tiles(const float* a, const float* b, float* c) {
  constexpr int kTile = 64, kDepth = 16;
  __shared__ float ta[kDepth][kTile + 4], tb[kDepth][kTile];
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  const int column0 = blockIdx.x * kTile, row0 = blockIdx.y * kTile;
  float sum[4][4] = {};
  for (int k0 = 0; k0 < kN; k0 += kDepth) {
    for (int i = threadIdx.x; i < kTile * kDepth; i += 256) {
      ta[i % kDepth][i / kDepth] = a[(row0 + i / kDepth) * kN + k0 + i % kDepth];
      tb[i / kTile][i % kTile] = b[(k0 + i / kTile) * kN + column0 + i % kTile];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      const float4 va = *reinterpret_cast<const float4*>(&ta[k][ty * 4]);
      const float4 vb = *reinterpret_cast<const float4*>(&tb[k][tx * 4]);
      const float ra[4] = {va.x, va.y, va.z, va.w}, rb[4] = {vb.x, vb.y, vb.z, vb.w};
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[i][j] += ra[i] * rb[j];
    }
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) c[(row0 + ty * 4 + i) * kN + column0 + tx * 4 + j] = sum[i][j];
}

__global__ void gemm_no_reuse_fix(const float* a, const float* b, float* c) { register_tiles(a, b, c); }
__global__ void gemm_shared_only_fault(const float* a, const float* b, float* c) { square_tiles(a, b, c); }
__global__ void gemm_shared_only_fix(const float* a, const float* b, float* c) { register_tiles(a, b, c); }

using Kernel = void (*)(const float*, const float*, float*);

class Gemm : public Pair {
 public:
  Gemm(Kernel fault, Kernel fix, bool tiled) : fault_(fault), fix_(fix), tiled_(tiled), a_(kN * kN), b_(kN * kN), c_(kN * kN) {
    fill(a_, 7);
    fill(b_, 5);
  }
  void reset() override { c_.clear(); }
  void launch(bool fixed) override {
    if (fixed && tiled_)
      fix_<<<dim3(kN / 64, kN / 64), 256>>>(a_.get(), b_.get(), c_.get());
    else
      (fixed ? fix_ : fault_)<<<dim3(kN / 32, kN / 32), 1024>>>(a_.get(), b_.get(), c_.get());
  }
  std::vector<double> result() const override { return c_.sample(61); }

 private:
  Kernel fault_, fix_;
  bool tiled_;
  DeviceArray<float> a_, b_, c_;
};

struct GemmRows : Gemm {
  GemmRows() : Gemm(gemm_rows_fault, gemm_rows_fix, false) {}
};
struct GemmNoReuse : Gemm {
  GemmNoReuse() : Gemm(gemm_no_reuse_fault, gemm_no_reuse_fix, true) {}
};
struct GemmSharedOnly : Gemm {
  GemmSharedOnly() : Gemm(gemm_shared_only_fault, gemm_shared_only_fix, true) {}
};
Register<GemmRows> rows("gemm_rows", "gemm");
Register<GemmNoReuse> no_reuse("gemm_no_reuse", "gemm");
Register<GemmSharedOnly> shared_only("gemm_shared_only", "gemm");

}  // namespace

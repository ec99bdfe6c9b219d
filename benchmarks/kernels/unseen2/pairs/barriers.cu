// Blocks whose steps are separated by barriers.
#include "../../pair.cuh"

namespace {

constexpr int kN = 1024, kPanel = 32, kBlocks = 132 * 2;

// x of L x = b, L with a unit diagonal, column-major: a barrier before and after each of 1024 columns.
__global__ void __launch_bounds__(kN) triangular_solve_fault(const float* l, const float* b, float* out) {
  __shared__ float x;
  const int row = threadIdx.x;
  float mine = b[row];
  for (int k = 0; k < kN; ++k) {
    if (row == k) x = mine;
    __syncthreads();
    if (row > k) mine -= l[size_t(k) * kN + row] * x;
    __syncthreads();
  }
  out[blockIdx.x * kN + row] = mine;
}

// Panels of 32 columns: a warp solves the diagonal block with shuffles; two barriers a panel.
__global__ void __launch_bounds__(kN) triangular_solve_fix(const float* l, const float* b, float* out) {
  __shared__ float x[kPanel];
  const int row = threadIdx.x, lane = row % 32;
  float mine = b[row];
  for (int p = 0; p < kN; p += kPanel) {
    const float* panel = l + size_t(p) * kN + row;
    if (row / 32 == p / 32) {
      float own[kPanel];
#pragma unroll
      for (int k = 0; k < kPanel; ++k) own[k] = panel[size_t(k) * kN];
#pragma unroll
      for (int k = 0; k < kPanel; ++k) {
        const float found = __shfl_sync(~0u, mine, k);
        if (lane > k) mine -= own[k] * found;
      }
      x[lane] = mine;
    }
    __syncthreads();
    if (row >= p + kPanel)
#pragma unroll
      for (int k = 0; k < kPanel; ++k) mine -= panel[size_t(k) * kN] * x[k];
    __syncthreads();
  }
  out[blockIdx.x * kN + row] = mine;
}

__global__ void make_triangle(float* l) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < kN * kN; i += gridDim.x * blockDim.x)
    l[i] = float((i * 7 + i / kN) % 5) / 4096.0f;
}

class TriangularSolve : public Pair {
 public:
  TriangularSolve() : l_(size_t(kN) * kN), b_(kN), out_(size_t(kBlocks) * kN) {
    make_triangle<<<1024, 256>>>(l_.get());
    fill(b_, 11);
  }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    (fixed ? triangular_solve_fix : triangular_solve_fault)<<<kBlocks, kN>>>(l_.get(), b_.get(), out_.get());
  }
  std::vector<double> result() const override { return out_.sample(61); }
  double tolerance() const override { return 1e-3; }

 private:
  DeviceArray<float> l_, b_, out_;
};
Register<TriangularSolve> solve("triangular_solve", "unseen");

__device__ float relaxed(float x) { return x > 1.0f ? x - 1.0f : x; }

// A value to each thread, each relaxed until none changes; that is asked after every kEvery steps.
template <int kEvery>
__device__ void settled(const float* in, float* out) {
  float x = in[threadIdx.x];
  bool is_changed = true;
  while (__syncthreads_or(is_changed)) {
    is_changed = false;
#pragma unroll
    for (int k = 0; k < kEvery; ++k) {
      const float next = relaxed(x);
      is_changed |= next != x;
      x = next;
    }
  }
  out[blockIdx.x * kN + threadIdx.x] = x;
}

__global__ void __launch_bounds__(kN) asks_each_step_fault(const float* in, float* out) { settled<1>(in, out); }
__global__ void __launch_bounds__(kN) asks_each_step_fix(const float* in, float* out) { settled<16>(in, out); }

class AsksEachStep : public Pair {
 public:
  AsksEachStep() : in_(kN), out_(size_t(kBlocks) * kN) { fill(in_, 1021); }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    (fixed ? asks_each_step_fix : asks_each_step_fault)<<<kBlocks, kN>>>(in_.get(), out_.get());
  }
  std::vector<double> result() const override { return out_.sample(61); }

 private:
  DeviceArray<float> in_, out_;
};
Register<AsksEachStep> asks("asks_each_step", "unseen");

}  // namespace

// Chains of kernels that end before the next is launched. The fault is the chain; ONE_LAUNCH=1, for the profiler, its first.
#include <cstdlib>

#include "../../pair.cuh"

namespace {

int launches(int all) { return std::getenv("ONE_LAUNCH") ? 1 : all; }

constexpr int kElements = 16384, kSteps = 16;

__global__ void tiny_steps_fault(float* x) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  x[i] = fmaf(x[i], 0.5f, 1.0f);
}

__global__ void tiny_steps_fix(float* x) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  float v = x[i];
#pragma unroll
  for (int step = 0; step < kSteps; ++step) v = fmaf(v, 0.5f, 1.0f);
  x[i] = v;
}

class TinySteps : public Pair {
 public:
  TinySteps() : x_(kElements) {}
  void reset() override { fill(x_, 1021); }
  void launch(bool fixed) override {
    if (fixed) tiny_steps_fix<<<kElements / 256, 256>>>(x_.get());
    else
      for (int step = launches(kSteps); step; --step) tiny_steps_fault<<<kElements / 256, 256>>>(x_.get());
  }
  std::vector<double> result() const override { return x_.sample(7); }

 private:
  DeviceArray<float> x_;
};
Register<TinySteps> steps("tiny_steps", "unseen");

constexpr int kRows = 32, kWidth = 1024;

__device__ void row_sum(const float* in, float* out) {
  __shared__ float sums[8];
  float sum = 0;
  for (int i = threadIdx.x; i < kWidth; i += 256) sum += in[i];
  for (int step = 16; step; step >>= 1) sum += __shfl_xor_sync(~0u, sum, step);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) *out = sums[0] + sums[1] + sums[2] + sums[3] + sums[4] + sums[5] + sums[6] + sums[7];
}

__global__ void launch_per_row_fault(const float* in, float* out) { row_sum(in, out); }
__global__ void launch_per_row_fix(const float* in, float* out) {
  row_sum(in + blockIdx.x * kWidth, out + blockIdx.x);
}

class LaunchPerRow : public Pair {
 public:
  LaunchPerRow() : in_(kRows * kWidth), out_(kRows) { fill(in_, 1021); }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    if (fixed) launch_per_row_fix<<<kRows, 256>>>(in_.get(), out_.get());
    else
      for (int row = 0; row < launches(kRows); ++row)
        launch_per_row_fault<<<1, 256>>>(in_.get() + row * kWidth, out_.get() + row);
  }
  std::vector<double> result() const override { return out_.sample(); }

 private:
  DeviceArray<float> in_, out_;
};
Register<LaunchPerRow> rows("launch_per_row", "unseen");

}  // namespace

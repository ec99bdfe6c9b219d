// Lanes of a warp with different amounts of work.
#include <algorithm>
#include <numeric>

#include "../../pair.cuh"

namespace {

constexpr int kItems = 132 * 2048 * 2, kThreads = 256;

__host__ __device__ inline unsigned hashed(unsigned i) {
  i = (i ^ (i >> 16)) * 0x7feb352du;
  return i ^ (i >> 15);
}

// Most items take 8 steps, one in sixteen takes 512: the iterations of a solver.
__host__ __device__ inline int steps_of(unsigned item) { return hashed(item) % 16 == 0 ? 512 : 8; }

__global__ void solver_steps_fault(const int* order, float* out) {
  const int item = blockIdx.x * kThreads + threadIdx.x;
  float x = item % 31;
  for (int k = steps_of(item); k; --k) x = fmaf(x, 0.5f, 1.5f);
  out[item] = x;
}

// Items in the order of their steps: warps of equal lanes.
__global__ void solver_steps_fix(const int* order, float* out) {
  const int item = order[blockIdx.x * kThreads + threadIdx.x];
  float x = item % 31;
  for (int k = steps_of(item); k; --k) x = fmaf(x, 0.5f, 1.5f);
  out[item] = x;
}

class SolverSteps : public Pair {
 public:
  SolverSteps() : order_(kItems), out_(kItems) {
    std::vector<int> order(kItems);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [](int a, int b) { return steps_of(a) > steps_of(b); });
    check(cudaMemcpy(order_.get(), order.data(), kItems * sizeof(int), cudaMemcpyHostToDevice), "order");
  }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    (fixed ? solver_steps_fix : solver_steps_fault)<<<kItems / kThreads, kThreads>>>(order_.get(), out_.get());
  }
  std::vector<double> result() const override { return out_.sample(61); }

 private:
  DeviceArray<int> order_;
  DeviceArray<float> out_;
};
Register<SolverSteps> solver("solver_steps", "unseen");

constexpr int kSegment = 256, kBlocks = 132 * 8;  // a segment of shared memory to each warp

__device__ void load(float* mine, const float* in) {
  for (int k = threadIdx.x % 32; k < kSegment; k += 32) mine[k] = in[k];
  __syncwarp();
}

__device__ void store(const float* mine, float* out) {
  __syncwarp();
  float sum = 0;
  for (int k = threadIdx.x % 32; k < kSegment; k += 32) sum += mine[k];
  out[blockIdx.x * kThreads + threadIdx.x] = sum;
}

// Running sums of a segment, carried on by the first lane of each warp.
__global__ void leader_sums_fault(const float* in, float* out, int rounds) {
  __shared__ float segments[kThreads / 32][kSegment];
  float* mine = segments[threadIdx.x / 32];
  load(mine, in);
  for (int r = 0; r < rounds; ++r) {
    if (threadIdx.x % 32 == 0) {
      float sum = 0;
      for (int k = 0; k < kSegment; ++k) {
        sum += mine[k];
        mine[k] = sum > 1000.0f ? sum - 1000.0f : sum;
      }
    }
    __syncwarp();
  }
  store(mine, out);
}

// Each lane sums its eighth of a row, and shuffles carry the sums.
__global__ void leader_sums_fix(const float* in, float* out, int rounds) {
  __shared__ float segments[kThreads / 32][kSegment];
  float* mine = segments[threadIdx.x / 32];
  const int lane = threadIdx.x % 32;
  load(mine, in);
  for (int r = 0; r < rounds; ++r) {
    float own[8], sum = 0;
#pragma unroll
    for (int k = 0; k < 8; ++k) own[k] = sum += mine[lane * 8 + k];
    float before = sum;
    for (int step = 1; step < 32; step *= 2) {
      const float other = __shfl_up_sync(~0u, before, step);
      if (lane >= step) before += other;
    }
    before -= sum;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const float all = before + own[k];
      mine[lane * 8 + k] = all > 1000.0f ? all - 1000.0f : all;
    }
    __syncwarp();
  }
  store(mine, out);
}

class LeaderSums : public Pair {
 public:
  LeaderSums() : in_(kSegment), out_(kBlocks * kThreads) { fill(in_, 3); }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    (fixed ? leader_sums_fix : leader_sums_fault)<<<kBlocks, kThreads>>>(in_.get(), out_.get(), 3);
  }
  std::vector<double> result() const override { return out_.sample(61); }

 private:
  DeviceArray<float> in_, out_;
};
Register<LeaderSums> sums("leader_sums", "unseen");

}  // namespace

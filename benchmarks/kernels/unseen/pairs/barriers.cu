// Blocks that spend their time at barriers, with every warp slot taken.
#include "../../pair.cuh"

namespace {

constexpr int kBlocks = 132 * 2, kThreads = 1024;

// A maximum over the block by halving: ten barriers, and most warps wait at nine of them.
__global__ void halving_maximum_fault(const float* in, float* out, int rounds) {
  __shared__ float values[kThreads];
  float x = in[threadIdx.x];
  for (int r = 0; r < rounds; ++r) {
    values[threadIdx.x] = x;
    __syncthreads();
    for (int half = kThreads / 2; half; half >>= 1) {
      if (threadIdx.x < half) values[threadIdx.x] = fmaxf(values[threadIdx.x], values[threadIdx.x + half]);
      __syncthreads();
    }
    x = x * 0.5f + values[0];
    __syncthreads();
  }
  out[blockIdx.x * kThreads + threadIdx.x] = x;
}

// Shuffles within warps; one barrier.
__global__ void halving_maximum_fix(const float* in, float* out, int rounds) {
  __shared__ float values[2][32];
  float x = in[threadIdx.x];
  for (int r = 0; r < rounds; ++r) {
    float most = x;
    for (int step = 16; step; step >>= 1) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
    if (threadIdx.x % 32 == 0) values[r % 2][threadIdx.x / 32] = most;
    __syncthreads();
    most = values[r % 2][threadIdx.x % 32];
    for (int step = 16; step; step >>= 1) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
    x = x * 0.5f + most;
  }
  out[blockIdx.x * kThreads + threadIdx.x] = x;
}

constexpr int kTile = 4096;

__device__ float used(const float* tile) {
  float sum = 0;
#pragma unroll
  for (int k = 0; k < kTile / kThreads; ++k) sum += tile[k * kThreads + threadIdx.x];
  return sum;
}

// One warp fetches the block's tile while 31 wait at the barrier.
__global__ void one_warp_fetches_fault(const float4* in, float* out, int rounds) {
  __shared__ float4 tile[kTile / 4];
  float sum = 0;
  for (int r = 0; r < rounds; ++r) {
    const float4* from = in + (blockIdx.x * rounds + r) % 512 * (kTile / 4);
    if (threadIdx.x < 32)
#pragma unroll 1
      for (int k = threadIdx.x; k < kTile / 4; k += 32) tile[k] = __ldcg(from + k);
    __syncthreads();
    sum += used(reinterpret_cast<const float*>(tile));
    __syncthreads();
  }
  out[blockIdx.x * kThreads + threadIdx.x] = sum;
}

// Every warp fetches its part.
__global__ void one_warp_fetches_fix(const float4* in, float* out, int rounds) {
  __shared__ float4 tile[kTile / 4];
  float sum = 0;
  for (int r = 0; r < rounds; ++r) {
    const float4* from = in + (blockIdx.x * rounds + r) % 512 * (kTile / 4);
    tile[threadIdx.x] = __ldcg(from + threadIdx.x);
    __syncthreads();
    sum += used(reinterpret_cast<const float*>(tile));
    __syncthreads();
  }
  out[blockIdx.x * kThreads + threadIdx.x] = sum;
}

class Maximum : public Pair {
 public:
  Maximum() : in_(kThreads), out_(size_t(kBlocks) * kThreads) { fill(in_, 1021); }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    (fixed ? halving_maximum_fix : halving_maximum_fault)<<<kBlocks, kThreads>>>(in_.get(), out_.get(), 128);
  }
  std::vector<double> result() const override { return out_.sample(61); }

 private:
  DeviceArray<float> in_, out_;
};
Register<Maximum> maximum("halving_maximum", "unseen");

class OneWarpFetches : public Pair {
 public:
  OneWarpFetches() : in_(512 * kTile), out_(size_t(kBlocks) * kThreads) { fill(in_, 5); }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    auto kernel = fixed ? one_warp_fetches_fix : one_warp_fetches_fault;
    kernel<<<kBlocks, kThreads>>>(reinterpret_cast<const float4*>(in_.get()), out_.get(), 32);
  }
  std::vector<double> result() const override { return out_.sample(61); }

 private:
  DeviceArray<float> in_, out_;
};
Register<OneWarpFetches> fetches("one_warp_fetches", "unseen");

}  // namespace

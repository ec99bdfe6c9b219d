// Atomic updates that queue for the same few words.
#include "../pair.cuh"

namespace {

constexpr int kCount = 1 << 22;

__global__ void one_counter_fault(const float* in, float* total) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(total, in[i]);
}

__global__ void one_counter_fix(const float* in, float* total) {
  __shared__ float parts[8];
  float value = in[blockIdx.x * blockDim.x + threadIdx.x];
  for (int step = 16; step; step >>= 1) value += __shfl_xor_sync(~0u, value, step);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < 8; ++w) value += parts[w];
    atomicAdd(total, value);
  }
}

class OneCounter : public Pair {
 public:
  OneCounter() : in_(kCount), total_(1) { fill(in_, 3); }
  void reset() override { total_.clear(); }
  void launch(bool fixed) override {
    auto kernel = fixed ? one_counter_fix : one_counter_fault;
    kernel<<<kCount / 256, 256>>>(in_.get(), total_.get());
  }
  std::vector<double> result() const override { return total_.sample(); }

 private:
  DeviceArray<float> in_, total_;
};
Register<OneCounter> counter("one_counter", "atomics");

constexpr int kBins = 64;

__device__ unsigned bin_of(unsigned word) { return (word * 2654435761u) >> 26; }

__global__ void global_histogram_fault(const unsigned* in, unsigned* bins) {
  const unsigned word = in[blockIdx.x * blockDim.x + threadIdx.x];
  atomicAdd(&bins[bin_of(word)], word & 3);
}

__global__ void global_histogram_fix(const unsigned* in, unsigned* bins) {
  __shared__ unsigned mine[8][kBins];  // one copy per warp
  for (int b = threadIdx.x; b < 8 * kBins; b += blockDim.x) mine[0][b] = 0;
  __syncthreads();
  for (int k = 0; k < 32; ++k) {
    const unsigned word = in[(blockIdx.x * 32 + k) * blockDim.x + threadIdx.x];
    atomicAdd(&mine[threadIdx.x / 32][bin_of(word)], word & 3);
  }
  __syncthreads();
  if (threadIdx.x < kBins) {
    unsigned sum = 0;
    for (int w = 0; w < 8; ++w) sum += mine[w][threadIdx.x];
    atomicAdd(&bins[threadIdx.x], sum);
  }
}

class GlobalHistogram : public Pair {
 public:
  GlobalHistogram() : in_(kCount), bins_(kBins) { fill(in_, 65521); }
  void reset() override { bins_.clear(); }
  void launch(bool fixed) override {
    if (fixed)
      global_histogram_fix<<<kCount / 256 / 32, 256>>>(in_.get(), bins_.get());
    else
      global_histogram_fault<<<kCount / 256, 256>>>(in_.get(), bins_.get());
  }
  std::vector<double> result() const override { return bins_.sample(); }

 private:
  DeviceArray<unsigned> in_, bins_;
};
Register<GlobalHistogram> global("global_histogram", "atomics");

// Nearly all values fall into one bin of a shared histogram: the lanes of a warp queue for one word.
__device__ unsigned skewed_bin(unsigned word) { return word % 16 ? 5u : word % kBins; }

__global__ void hot_shared_bin_fault(const unsigned* in, unsigned* out, int rounds) {
  __shared__ unsigned bins[kBins];
  if (threadIdx.x < kBins) bins[threadIdx.x] = 0;
  __syncthreads();
  unsigned word = in[(blockIdx.x * blockDim.x + threadIdx.x) & 4095];
  for (int k = 0; k < rounds; ++k) {
    atomicAdd(&bins[skewed_bin(word)], word & 3);
    word = word * 1664525u + 1013904223u;
  }
  __syncthreads();
  if (threadIdx.x < kBins) out[blockIdx.x * kBins + threadIdx.x] = bins[threadIdx.x];
}

// A copy per lane, spread over the banks.
__global__ void hot_shared_bin_fix(const unsigned* in, unsigned* out, int rounds) {
  __shared__ unsigned bins[kBins * 32];
  for (int b = threadIdx.x; b < kBins * 32; b += blockDim.x) bins[b] = 0;
  __syncthreads();
  unsigned word = in[(blockIdx.x * blockDim.x + threadIdx.x) & 4095];
  for (int k = 0; k < rounds; ++k) {
    atomicAdd(&bins[skewed_bin(word) * 32 + threadIdx.x % 32], word & 3);
    word = word * 1664525u + 1013904223u;
  }
  __syncthreads();
  if (threadIdx.x < kBins) {
    unsigned sum = 0;
    for (int lane = 0; lane < 32; ++lane) sum += bins[threadIdx.x * 32 + (lane + threadIdx.x) % 32];
    out[blockIdx.x * kBins + threadIdx.x] = sum;
  }
}

class HotSharedBin : public Pair {
 public:
  static constexpr int kBlocks = 132 * 8;
  HotSharedBin() : in_(4096), out_(kBlocks * kBins) { fill(in_, 4093); }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    auto kernel = fixed ? hot_shared_bin_fix : hot_shared_bin_fault;
    kernel<<<kBlocks, 256>>>(in_.get(), out_.get(), 64);
  }
  std::vector<double> result() const override { return out_.sample(); }

 private:
  DeviceArray<unsigned> in_, out_;
};
Register<HotSharedBin> hot("hot_shared_bin", "atomics");

}  // namespace

// Values that live in local memory: registers spilled, arrays indexed by a value the compiler does not know.
#include "../pair.cuh"

namespace {

constexpr int kValues = 48;
constexpr int kThreads = 132 * 2048;

__device__ void many_accumulators(const float* in, float* out, int rounds) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float acc[kValues];
#pragma unroll
  for (int k = 0; k < kValues; ++k) acc[k] = in[(i + k) & 4095];
  for (int r = 0; r < rounds; ++r) {
#pragma unroll
    for (int k = 0; k < kValues; ++k) acc[k] = fmaf(acc[(k + 1) % kValues], 0.5f, acc[k]);
  }
  float sum = 0;
#pragma unroll
  for (int k = 0; k < kValues; ++k) sum += acc[k];
  out[i] = sum;
}

// 64 warps per SM were asked for: 32 registers a thread, and 48 values to keep.
__global__ void __launch_bounds__(1024, 2) forced_registers_fault(const float* in, float* out, int rounds) {
  many_accumulators(in, out, rounds);
}

__global__ void __launch_bounds__(256) forced_registers_fix(const float* in, float* out, int rounds) {
  many_accumulators(in, out, rounds);
}

class ForcedRegisters : public Pair {
 public:
  ForcedRegisters() : in_(4096), out_(kThreads) { fill(in_, 7); }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    if (fixed)
      forced_registers_fix<<<kThreads / 256, 256>>>(in_.get(), out_.get(), 100);
    else
      forced_registers_fault<<<kThreads / 1024, 1024>>>(in_.get(), out_.get(), 100);
  }
  std::vector<double> result() const override { return out_.sample(31); }

 private:
  DeviceArray<float> in_, out_;
};
Register<ForcedRegisters> forced("forced_registers", "locals");

constexpr int kBins = 32;

// A private histogram per thread, indexed by data: an array the compiler must put into local memory.
__global__ void private_bins_fault(const unsigned* in, unsigned* out, int count) {
  unsigned bins[kBins];
  for (int b = 0; b < kBins; ++b) bins[b] = 0;
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned word = in[i & 4095] * 2654435761u + i;
  for (int k = 0; k < count; ++k) {
    bins[word >> 27] += k;
    word = word * 1664525u + 1013904223u;
  }
  unsigned digest = 0;
  for (int b = 0; b < kBins; ++b) digest = digest * 31u + bins[b];
  out[i] = digest;
}

// The same histograms in shared memory, one column per thread.
__global__ void private_bins_fix(const unsigned* in, unsigned* out, int count) {
  __shared__ unsigned bins[kBins][128];
  for (int b = 0; b < kBins; ++b) bins[b][threadIdx.x] = 0;
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned word = in[i & 4095] * 2654435761u + i;
  for (int k = 0; k < count; ++k) {
    bins[word >> 27][threadIdx.x] += k;
    word = word * 1664525u + 1013904223u;
  }
  unsigned digest = 0;
  for (int b = 0; b < kBins; ++b) digest = digest * 31u + bins[b][threadIdx.x];
  out[i] = digest;
}

class PrivateBins : public Pair {
 public:
  PrivateBins() : in_(4096), out_(kThreads) { fill(in_, 4093); }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    auto kernel = fixed ? private_bins_fix : private_bins_fault;
    kernel<<<kThreads / 128, 128>>>(in_.get(), out_.get(), 256);
  }
  std::vector<double> result() const override { return out_.sample(31); }

 private:
  DeviceArray<unsigned> in_, out_;
};
Register<PrivateBins> bins("private_bins", "locals");

}  // namespace

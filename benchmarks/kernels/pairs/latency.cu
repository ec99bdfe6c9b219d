// Enough warps, no pipe or memory level busy: they wait for each other, for fences, for instructions.
#include "../pair.cuh"

namespace {

constexpr int kBlocks = 132 * 2;

__device__ unsigned next_value(unsigned value, unsigned total) { return value * 1664525u + total; }

// One warp adds up what the block has written; 31 warps wait at the barrier.
__global__ void barrier_chain_fault(const float* in, float* out, int rounds) {
  __shared__ unsigned values[1024];
  __shared__ unsigned totals[32];
  unsigned value = unsigned(in[threadIdx.x]);
  for (int r = 0; r < rounds; ++r) {
    values[threadIdx.x] = value;
    __syncthreads();
    if (threadIdx.x < 32) {
      unsigned sum = 0;
#pragma unroll 1
      for (int k = 0; k < 32; ++k) sum += values[k * 32 + threadIdx.x];
      for (int step = 16; step; step >>= 1) sum += __shfl_xor_sync(~0u, sum, step);
      totals[threadIdx.x] = sum;
    }
    __syncthreads();
    value = next_value(value, totals[0]);
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = float(value & 0xffff);
}

// Every warp adds its own values in registers, then the 32 sums.
__global__ void barrier_chain_fix(const float* in, float* out, int rounds) {
  __shared__ unsigned totals[2][32];
  unsigned value = unsigned(in[threadIdx.x]);
  for (int r = 0; r < rounds; ++r) {
    const unsigned mine = __reduce_add_sync(~0u, value);
    if (threadIdx.x % 32 == 0) totals[r % 2][threadIdx.x / 32] = mine;
    __syncthreads();
    value = next_value(value, __reduce_add_sync(~0u, totals[r % 2][threadIdx.x % 32]));
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = float(value & 0xffff);
}

using Kernel = void (*)(const float*, float*, int);

class Rounds : public Pair {
 public:
  Rounds(Kernel fault, Kernel fix, int rounds, int threads)
      : fault_(fault), fix_(fix), rounds_(rounds), in_(threads), out_(size_t(kBlocks) * threads) {
    fill(in_, 7);
  }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    (fixed ? fix_ : fault_)<<<kBlocks, in_.count()>>>(in_.get(), out_.get(), rounds_);
  }
  std::vector<double> result() const override { return out_.sample(61); }

 private:
  Kernel fault_, fix_;
  int rounds_;
  DeviceArray<float> in_, out_;
};

struct BarrierChain : Rounds {
  BarrierChain() : Rounds(barrier_chain_fault, barrier_chain_fix, 128, 1024) {}
};
Register<BarrierChain> barrier("barrier_chain", "latency");

// A device-wide fence after every store, although nobody reads before the kernel ends.
__global__ void fence_each_store_fault(const float* in, float* out, int rounds) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = in[threadIdx.x];
  for (int r = 0; r < rounds; ++r) {
    x = fmaf(x, 0.5f, 3.0f);
    *(volatile float*)(out + i) = x;
    __threadfence();
  }
}

__global__ void fence_each_store_fix(const float* in, float* out, int rounds) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = in[threadIdx.x];
  for (int r = 0; r < rounds; ++r) {
    x = fmaf(x, 0.5f, 3.0f);
    *(volatile float*)(out + i) = x;
  }
  __threadfence();
}

struct FenceEachStore : Rounds {
  FenceEachStore() : Rounds(fence_each_store_fault, fence_each_store_fix, 64, 1024) {}
};
Register<FenceEachStore> fence("fence_each_store", "latency");

__device__ float straight_line(float x) {
#pragma unroll
  for (int k = 0; k < 4096; ++k) x = fmaf(x, 0.5f, float(k & 3));
  return x;
}

// 16384 multiply-adds in a row, 256 KB of code: more than the instruction caches hold.
__global__ void unrolled_code_fault(const float* in, float* out, int rounds) {
  float x = in[threadIdx.x];
  for (int r = 0; r < rounds; ++r) x = straight_line(straight_line(straight_line(straight_line(x))));
  out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}

__global__ void unrolled_code_fix(const float* in, float* out, int rounds) {
  float x = in[threadIdx.x];
  for (int r = 0; r < rounds; ++r) {
#pragma unroll 1
    for (int k = 0; k < 16384; k += 16) {
#pragma unroll
      for (int j = 0; j < 16; ++j) x = fmaf(x, 0.5f, float(j & 3));
    }
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}

struct UnrolledCode : Rounds {
  UnrolledCode() : Rounds(unrolled_code_fault, unrolled_code_fix, 4, 512) {}
};
Register<UnrolledCode> unrolled("unrolled_code", "latency");

}  // namespace

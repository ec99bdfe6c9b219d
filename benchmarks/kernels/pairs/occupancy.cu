// Too few warps on the device: blocks that hoard shared memory, blocks too small, grids too small, a last wave of one.
#include "../pair.cuh"

namespace {

constexpr size_t kCount = size_t(1) << 26;
constexpr int kHoard = 200 * 1024;

__device__ void stream(const float* in, float* out) {
  const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
  out[i] = 2.0f * in[i] + 1.0f;
}

// Asks for 200 KB of shared memory that it never touches: one block per SM.
__global__ void hoarded_shared_fault(const float* in, float* out) { stream(in, out); }
__global__ void hoarded_shared_fix(const float* in, float* out) { stream(in, out); }

// One warp per block: 32 blocks fill an SM's block slots and half of its warp slots.
__global__ void tiny_blocks_fault(const float* in, float* out) { stream(in, out); }
__global__ void tiny_blocks_fix(const float* in, float* out) { stream(in, out); }

class Stream : public Pair {
 public:
  Stream() : in_(kCount), out_(kCount) { fill(in_, 1021); }
  void reset() override { out_.clear(); }
  std::vector<double> result() const override { return out_.sample(997); }

 protected:
  DeviceArray<float> in_, out_;
};

struct HoardedShared : Stream {
  HoardedShared() {
    check(cudaFuncSetAttribute(hoarded_shared_fault, cudaFuncAttributeMaxDynamicSharedMemorySize, kHoard), "shared");
  }
  void launch(bool fixed) override {
    if (fixed)
      hoarded_shared_fix<<<kCount / 256, 256>>>(in_.get(), out_.get());
    else
      hoarded_shared_fault<<<kCount / 256, 256, kHoard>>>(in_.get(), out_.get());
  }
};
Register<HoardedShared> hoard("hoarded_shared", "occupancy");

struct TinyBlocks : Stream {
  void launch(bool fixed) override {
    if (fixed)
      tiny_blocks_fix<<<kCount / 256, 256>>>(in_.get(), out_.get());
    else
      tiny_blocks_fault<<<kCount / 32, 32>>>(in_.get(), out_.get());
  }
};
Register<TinyBlocks> tiny("tiny_blocks", "occupancy");

__device__ void strided_stream(const float* in, float* out, size_t count) {
  for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += size_t(gridDim.x) * blockDim.x)
    out[i] = 2.0f * in[i] + 1.0f;
}

// 16 blocks on a GPU of 132 SMs.
__global__ void small_grid_fault(const float* in, float* out, size_t count) { strided_stream(in, out, count); }
__global__ void small_grid_fix(const float* in, float* out, size_t count) { strided_stream(in, out, count); }

struct SmallGrid : Pair {
  SmallGrid() : in_(kUsed), out_(kUsed) { fill(in_, 1021); }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    auto kernel = fixed ? small_grid_fix : small_grid_fault;
    kernel<<<fixed ? 132 * 8 : 16, 256>>>(in_.get(), out_.get(), kUsed);
  }
  std::vector<double> result() const override { return out_.sample(997); }

  static constexpr size_t kUsed = kCount / 8;
  DeviceArray<float> in_, out_;
};
Register<SmallGrid> grid("small_grid", "occupancy");

__device__ void refine(float* out, int count, int rounds) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    float x = i & 1023, y = x + 1, z = x + 2, w = x + 3;
    for (int r = 0; r < rounds; ++r) {
      x = fmaf(x, 0.5f, 1.0f);
      y = fmaf(y, 0.5f, 2.0f);
      z = fmaf(z, 0.5f, 3.0f);
      w = fmaf(w, 0.5f, 4.0f);
    }
    out[i] = x + y + z + w;
  }
}

// One block fits an SM; the 133rd waits until the first 132 are done and then runs alone.
__global__ void last_wave_fault(float* out, int count, int rounds) { refine(out, count, rounds); }
__global__ void last_wave_fix(float* out, int count, int rounds) { refine(out, count, rounds); }

struct LastWave : Pair {
  static constexpr int kItems = 132 * 133 * 1024;
  LastWave() : out_(kItems) {
    check(cudaFuncSetAttribute(last_wave_fault, cudaFuncAttributeMaxDynamicSharedMemorySize, kHoard), "shared");
    check(cudaFuncSetAttribute(last_wave_fix, cudaFuncAttributeMaxDynamicSharedMemorySize, kHoard), "shared");
    check(cudaDeviceGetAttribute(&sms_, cudaDevAttrMultiProcessorCount, 0), "SM count");
  }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    auto kernel = fixed ? last_wave_fix : last_wave_fault;
    kernel<<<fixed ? sms_ : sms_ + 1, 1024, kHoard>>>(out_.get(), kItems, 32);
  }
  std::vector<double> result() const override { return out_.sample(997); }

  DeviceArray<float> out_;
  int sms_ = 0;
};
Register<LastWave> wave("last_wave", "occupancy");

}  // namespace

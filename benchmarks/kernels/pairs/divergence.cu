// Warps whose lanes go separate ways.
#include "../pair.cuh"

namespace {

constexpr int kCount = 132 * 2048 * 4;

// Eight different bodies, kept apart so that the compiler cannot merge them into selects.
template <int C>
__device__ __noinline__ float body(float x, float a, int rounds) {
  for (int r = 0; r < rounds; ++r) {
    x = fmaf(x, a, float(C));
    if (C & 1) x = fminf(x, 64.0f + C);
    if (C & 2) x = fmaxf(x - 3.0f, 1.0f);
    if (C & 4) x = fabsf(x - 5.0f);
  }
  return x;
}

__device__ float by_class(int c, float x, float a, int rounds) {
  switch (c) {
    case 0: return body<0>(x, a, rounds);
    case 1: return body<1>(x, a, rounds);
    case 2: return body<2>(x, a, rounds);
    case 3: return body<3>(x, a, rounds);
    case 4: return body<4>(x, a, rounds);
    case 5: return body<5>(x, a, rounds);
    case 6: return body<6>(x, a, rounds);
    default: return body<7>(x, a, rounds);
  }
}

__global__ void class_per_lane_fault(const float* in, float* out, float a, int rounds) {
  const int e = blockIdx.x * 256 + threadIdx.x;
  out[e] = by_class(e & 7, in[e], a, rounds);
}

// The same elements, dealt so that a warp holds one class.
__global__ void class_per_lane_fix(const float* in, float* out, float a, int rounds) {
  const int e = blockIdx.x * 256 + (threadIdx.x % 32) * 8 + threadIdx.x / 32;
  out[e] = by_class(e & 7, in[e], a, rounds);
}

class ClassPerLane : public Pair {
 public:
  ClassPerLane() : in_(kCount), out_(kCount) { fill(in_, 7); }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    auto kernel = fixed ? class_per_lane_fix : class_per_lane_fault;
    kernel<<<kCount / 256, 256>>>(in_.get(), out_.get(), 0.5f, 128);
  }
  std::vector<double> result() const override { return out_.sample(61); }

 private:
  DeviceArray<float> in_, out_;
};
Register<ClassPerLane> classes("class_per_lane", "divergence");

__device__ int length_of(int row) { return row % 32 == 0 ? 1024 : 32; }

__device__ float walk_row(const float* in, int row) {
  float x = in[row & 4095];
  const int length = length_of(row);
  for (int k = 0; k < length; ++k) x = fmaf(x, 0.5f, 3.0f);
  return x;
}

// One long row in every warp: 31 lanes wait for it.
__global__ void ragged_rows_fault(const float* in, float* out) {
  const int row = blockIdx.x * 1024 + threadIdx.x;
  out[row] = walk_row(in, row);
}

// The long rows of a block share a warp.
__global__ void ragged_rows_fix(const float* in, float* out) {
  const int row = blockIdx.x * 1024 + (threadIdx.x % 32) * 32 + threadIdx.x / 32;
  out[row] = walk_row(in, row);
}

class RaggedRows : public Pair {
 public:
  RaggedRows() : in_(4096), out_(kCount) { fill(in_, 7); }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    auto kernel = fixed ? ragged_rows_fix : ragged_rows_fault;
    kernel<<<kCount / 1024, 1024>>>(in_.get(), out_.get());
  }
  std::vector<double> result() const override { return out_.sample(61); }

 private:
  DeviceArray<float> in_, out_;
};
Register<RaggedRows> ragged("ragged_rows", "divergence");

__device__ float refine(float x) {
  for (int k = 0; k < 64; ++k) x = fmaf(x, 0.5f, 3.0f);
  return x;
}

// Lane 0 does the work of its warp.
__global__ void first_lane_only_fault(const float* in, float* out) {
  const int first = (blockIdx.x * 256 + threadIdx.x) & ~31;
  if (threadIdx.x % 32 == 0)
    for (int k = 0; k < 32; ++k) out[first + k] = refine(in[(first + k) & 4095]);
}

__global__ void first_lane_only_fix(const float* in, float* out) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  out[i] = refine(in[i & 4095]);
}

class FirstLaneOnly : public Pair {
 public:
  FirstLaneOnly() : in_(4096), out_(kCount) { fill(in_, 7); }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    auto kernel = fixed ? first_lane_only_fix : first_lane_only_fault;
    kernel<<<kCount / 256, 256>>>(in_.get(), out_.get());
  }
  std::vector<double> result() const override { return out_.sample(61); }

 private:
  DeviceArray<float> in_, out_;
};
Register<FirstLaneOnly> first("first_lane_only", "divergence");

}  // namespace

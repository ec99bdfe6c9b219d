// Data that stays in L2, whose rate sets the pace.
#include <cuda_fp16.h>

#include "../../pair.cuh"

namespace {

constexpr int kPasses = 8;
constexpr int kBlocks = 132 * 8, kThreads = 256;
constexpr int kPerThread = 4;
constexpr size_t kCount = size_t(kBlocks) * kThreads * kPerThread * 4;  // floats: 17 MB

__device__ float weighed(float4 v, float w) { return fmaf(v.x, w, fmaf(v.y, w, fmaf(v.z, w, v.w))); }

// Eight weighted sums: the array is read once for each.
__global__ void repeated_passes_fault(const float4* in, float* out) {
  const size_t i = size_t(blockIdx.x) * kThreads + threadIdx.x, stride = size_t(kBlocks) * kThreads;
#pragma unroll 1
  for (int pass = 0; pass < kPasses; ++pass) {
    float sum = 0;
#pragma unroll
    for (int k = 0; k < kPerThread; ++k) sum += weighed(__ldcg(in + i + ((k + pass) % kPerThread) * stride), pass);
    out[pass * stride + i] = sum;
  }
}

// Read once for all of them.
__global__ void repeated_passes_fix(const float4* in, float* out) {
  const size_t i = size_t(blockIdx.x) * kThreads + threadIdx.x, stride = size_t(kBlocks) * kThreads;
  float4 held[kPerThread];
#pragma unroll
  for (int k = 0; k < kPerThread; ++k) held[k] = __ldcg(in + i + k * stride);
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass) {
    float sum = 0;
#pragma unroll
    for (int k = 0; k < kPerThread; ++k) sum += weighed(held[(k + pass) % kPerThread], pass);
    out[pass * stride + i] = sum;
  }
}

class RepeatedPasses : public Pair {
 public:
  RepeatedPasses() : in_(kCount), out_(size_t(kBlocks) * kThreads * kPasses) { fill(in_, 5); }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    auto kernel = fixed ? repeated_passes_fix : repeated_passes_fault;
    kernel<<<kBlocks, kThreads>>>(reinterpret_cast<const float4*>(in_.get()), out_.get());
  }
  std::vector<double> result() const override { return out_.sample(61); }

 private:
  DeviceArray<float> in_, out_;
};
Register<RepeatedPasses> passes("repeated_passes", "unseen");

constexpr int kRows = 65536, kWidth = 64;  // 16 MB as fp32
constexpr int kBag = 64;

__device__ unsigned row_of(unsigned bag, unsigned k) { return (bag * 2654435761u + k * 40503u * 97u) % kRows; }

// Sums of 64 rows of an embedding, half a warp to a row.
__global__ void embedding_bag_fault(const float4* table, float4* out) {
  const unsigned bag = (blockIdx.x * kThreads + threadIdx.x) / 16, lane = threadIdx.x % 16;
  float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 8
  for (int k = 0; k < kBag; ++k) {
    const float4 v = __ldcg(table + row_of(bag, k) * (kWidth / 4) + lane);
    sum = make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w);
  }
  out[bag * 16 + lane] = sum;
}

// The table in fp16.
__global__ void embedding_bag_fix(const uint2* table, float4* out) {
  const unsigned bag = (blockIdx.x * kThreads + threadIdx.x) / 16, lane = threadIdx.x % 16;
  float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 8
  for (int k = 0; k < kBag; ++k) {
    uint2 raw = __ldcg(table + row_of(bag, k) * (kWidth / 4) + lane);
    const float2 a = __half22float2(*reinterpret_cast<__half2*>(&raw.x));
    const float2 b = __half22float2(*reinterpret_cast<__half2*>(&raw.y));
    sum = make_float4(sum.x + a.x, sum.y + a.y, sum.z + b.x, sum.w + b.y);
  }
  out[bag * 16 + lane] = sum;
}

class EmbeddingBag : public Pair {
 public:
  static constexpr int kBags = 132 * 8 * 16 * 2;
  EmbeddingBag() : t32_(size_t(kRows) * kWidth), t16_(size_t(kRows) * kWidth), out_(size_t(kBags) * kWidth) {
    fill(t32_, 7);
    fill(t16_, 7);
  }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    auto out = reinterpret_cast<float4*>(out_.get());
    if (fixed)
      embedding_bag_fix<<<kBags / 16, kThreads>>>(reinterpret_cast<const uint2*>(t16_.get()), out);
    else
      embedding_bag_fault<<<kBags / 16, kThreads>>>(reinterpret_cast<const float4*>(t32_.get()), out);
  }
  std::vector<double> result() const override { return out_.sample(61); }

 private:
  DeviceArray<float> t32_;
  DeviceArray<__half> t16_;
  DeviceArray<float> out_;
};
Register<EmbeddingBag> bag("embedding_bag", "unseen");

}  // namespace

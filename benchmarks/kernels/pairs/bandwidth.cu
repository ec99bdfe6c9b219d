// Kernels at the rate of a memory level: only fewer bytes help.
#include <cuda_fp16.h>

#include "../pair.cuh"

namespace {

constexpr size_t kCount = size_t(1) << 26;

// y = 2 x + 1 over values that half precision holds exactly: the wide storage moves twice the bytes.
__global__ void wide_stream_fault(const float4* in, float4* out) {
  const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const float4 v = in[i];
  out[i] = make_float4(2 * v.x + 1, 2 * v.y + 1, 2 * v.z + 1, 2 * v.w + 1);
}

struct alignas(16) Half8 {
  __half2 part[4];
};

__global__ void wide_stream_fix(const Half8* in, Half8* out) {
  const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
  Half8 v = in[i];
  const __half2 two = __float2half2_rn(2.0f), one = __float2half2_rn(1.0f);
#pragma unroll
  for (int k = 0; k < 4; ++k) v.part[k] = __hfma2(v.part[k], two, one);
  out[i] = v;
}

class WideStream : public Pair {
 public:
  WideStream() : in32_(kCount), out32_(kCount), in16_(kCount), out16_(kCount) {
    fill(in32_, 1021);
    fill(in16_, 1021);
  }
  void launch(bool fixed) override {
    fixed_ = fixed;
    if (fixed)
      wide_stream_fix<<<kCount / 8 / 256, 256>>>(reinterpret_cast<Half8*>(in16_.get()),
                                                 reinterpret_cast<Half8*>(out16_.get()));
    else
      wide_stream_fault<<<kCount / 4 / 256, 256>>>(reinterpret_cast<float4*>(in32_.get()),
                                                   reinterpret_cast<float4*>(out32_.get()));
  }
  std::vector<double> result() const override { return fixed_ ? out16_.sample(997) : out32_.sample(997); }

 private:
  DeviceArray<float> in32_, out32_;
  DeviceArray<__half> in16_, out16_;
  bool fixed_ = false;
};
Register<WideStream> stream("wide_stream", "bandwidth");

constexpr int kRows = 16384, kColumns = 4096;

__device__ void write_row(float sum, float* out, int row) {
  for (int step = 16; step; step >>= 1) sum += __shfl_xor_sync(~0u, sum, step);
  if (threadIdx.x % 32 == 0) out[row] = sum;
}

// Matrix times vector, one warp per row, as in decoding one token.
__global__ void wide_weights_fault(const float4* weights, const float* x, float* out) {
  const int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  float sum = 0;
#pragma unroll 8
  for (int k = threadIdx.x % 32; k < kColumns / 4; k += 32) {
    const float4 w = weights[size_t(row) * (kColumns / 4) + k];
    const float4 v = reinterpret_cast<const float4*>(x)[k];
    sum += w.x * v.x + w.y * v.y + w.z * v.z + w.w * v.w;
  }
  write_row(sum, out, row);
}

__global__ void wide_weights_fix(const Half8* weights, const float* x, float* out) {
  const int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  float sum = 0;
#pragma unroll 8
  for (int k = threadIdx.x % 32; k < kColumns / 8; k += 32) {
    const Half8 w = weights[size_t(row) * (kColumns / 8) + k];
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      const float2 pair = __half22float2(w.part[p]);
      const float2 v = reinterpret_cast<const float2*>(x)[k * 4 + p];
      sum += pair.x * v.x + pair.y * v.y;
    }
  }
  write_row(sum, out, row);
}

class WideWeights : public Pair {
 public:
  WideWeights() : w32_(size_t(kRows) * kColumns), w16_(size_t(kRows) * kColumns), x_(kColumns), out_(kRows) {
    fill(w32_, 7);
    fill(w16_, 7);
    fill(x_, 5);
  }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    if (fixed)
      wide_weights_fix<<<kRows / 8, 256>>>(reinterpret_cast<Half8*>(w16_.get()), x_.get(), out_.get());
    else
      wide_weights_fault<<<kRows / 8, 256>>>(reinterpret_cast<float4*>(w32_.get()), x_.get(), out_.get());
  }
  std::vector<double> result() const override { return out_.sample(); }

 private:
  DeviceArray<float> w32_;
  DeviceArray<__half> w16_;
  DeviceArray<float> x_, out_;
};
Register<WideWeights> weights("wide_weights", "bandwidth");

constexpr size_t kTable = size_t(1) << 22;  // 16 MB as fp32: larger than the L1s, smaller than L2

// Every block reads the whole table's stripe again and again past L1: the L2 sets the pace.
__global__ void l2_table_fault(const float4* table, float* out) {
  const size_t vectors = kTable / 4;
  size_t at = (size_t(blockIdx.x) * 4099 * blockDim.x) % vectors + threadIdx.x;
  float sum = 0;
#pragma unroll 8
  for (int k = 0; k < 128; ++k) {
    const float4 v = __ldcg(table + at % vectors);
    sum += v.x + v.y + v.z + v.w;
    at += blockDim.x;
  }
  out[size_t(blockIdx.x) * blockDim.x + threadIdx.x] = sum;
}

__global__ void l2_table_fix(const uint2* table, float* out) {
  const size_t vectors = kTable / 4;
  size_t at = (size_t(blockIdx.x) * 4099 * blockDim.x) % vectors + threadIdx.x;
  float sum = 0;
#pragma unroll 8
  for (int k = 0; k < 128; ++k) {
    uint2 raw = __ldcg(table + at % vectors);
    const float2 a = __half22float2(*reinterpret_cast<__half2*>(&raw.x));
    const float2 b = __half22float2(*reinterpret_cast<__half2*>(&raw.y));
    sum += a.x + a.y + b.x + b.y;
    at += blockDim.x;
  }
  out[size_t(blockIdx.x) * blockDim.x + threadIdx.x] = sum;
}

class L2Table : public Pair {
 public:
  static constexpr int kBlocks = 132 * 16;
  L2Table() : t32_(kTable), t16_(kTable), out_(size_t(kBlocks) * 256) {
    fill(t32_, 3);
    fill(t16_, 3);
  }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    if (fixed)
      l2_table_fix<<<kBlocks, 256>>>(reinterpret_cast<uint2*>(t16_.get()), out_.get());
    else
      l2_table_fault<<<kBlocks, 256>>>(reinterpret_cast<float4*>(t32_.get()), out_.get());
  }
  std::vector<double> result() const override { return out_.sample(61); }

 private:
  DeviceArray<float> t32_;
  DeviceArray<__half> t16_;
  DeviceArray<float> out_;
};
Register<L2Table> l2("l2_table", "bandwidth");

}  // namespace

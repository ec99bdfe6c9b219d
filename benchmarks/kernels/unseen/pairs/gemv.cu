// Two tokens of decoding: each weight is read once, for four operations.
#include <cuda_fp16.h>

#include "../../pair.cuh"

namespace {

constexpr int kRows = 16384, kColumns = 8192;

__device__ void write_row(float first, float second, float* out, int row) {
  for (int step = 16; step; step >>= 1) {
    first += __shfl_xor_sync(~0u, first, step);
    second += __shfl_xor_sync(~0u, second, step);
  }
  if (threadIdx.x % 32 == 0) {
    out[row] = first;
    out[kRows + row] = second;
  }
}

__device__ void add(float2 w, float2 x, float2 y, float& first, float& second) {
  first = fmaf(w.x, x.x, fmaf(w.y, x.y, first));
  second = fmaf(w.x, y.x, fmaf(w.y, y.y, second));
}

// One warp per row, fp16 weights, eight to a load.
__global__ void half_weights_fault(const uint4* weights, const float2* x, float* out) {
  const int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  float first = 0, second = 0;
#pragma unroll 4
  for (int k = threadIdx.x % 32; k < kColumns / 8; k += 32) {
    const uint4 raw = __ldcs(weights + size_t(row) * (kColumns / 8) + k);
    const unsigned part[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int p = 0; p < 4; ++p)
      add(__half22float2(*reinterpret_cast<const __half2*>(part + p)), x[p * (kColumns / 8) + k],
          x[kColumns / 2 + p * (kColumns / 8) + k], first, second);
  }
  write_row(first, second, out, row);
}

// int8 weights, eight to a load.
__global__ void half_weights_fix(const uint2* weights, const float2* x, float* out) {
  const int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  float first = 0, second = 0;
#pragma unroll 4
  for (int k = threadIdx.x % 32; k < kColumns / 8; k += 32) {
    const uint2 raw = __ldcs(weights + size_t(row) * (kColumns / 8) + k);
    const unsigned part[2] = {raw.x, raw.y};
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      const unsigned two = part[p / 2] >> (p % 2 * 16);
      add(make_float2(float(int(two & 0xff)), float(int(two >> 8 & 0xff))), x[p * (kColumns / 8) + k],
          x[kColumns / 2 + p * (kColumns / 8) + k], first, second);
    }
  }
  write_row(first, second, out, row);
}

class HalfWeights : public Pair {
 public:
  HalfWeights() : w16_(size_t(kRows) * kColumns), w8_(size_t(kRows) * kColumns), x_(2 * kColumns), out_(2 * kRows) {
    fill(w16_, 7);
    fill(w8_, 7);
    fill(x_, 5);
  }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    auto x = reinterpret_cast<const float2*>(x_.get());
    if (fixed) half_weights_fix<<<kRows / 8, 256>>>(reinterpret_cast<const uint2*>(w8_.get()), x, out_.get());
    else half_weights_fault<<<kRows / 8, 256>>>(reinterpret_cast<const uint4*>(w16_.get()), x, out_.get());
  }
  std::vector<double> result() const override { return out_.sample(); }

 private:
  DeviceArray<__half> w16_;
  DeviceArray<unsigned char> w8_;
  DeviceArray<float> x_, out_;
};
Register<HalfWeights> weights("half_weights", "unseen");

}  // namespace

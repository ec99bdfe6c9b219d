// Matrix-vector products near the rate of DRAM.
#include <cuda_fp16.h>

#include "../../pair.cuh"

namespace {

constexpr int kRows = 16384, kColumns = 16384, kStrips = 64;

// x W, W by rows: a thread to each two columns, a strip of 256 rows to a block; fp32 weights.
__global__ void weights_by_rows_fault(const float2* w, const float* x, float* out) {
  const int column = blockIdx.x * 256 + threadIdx.x, first = blockIdx.y * (kRows / kStrips);
  float a = 0, b = 0;
#pragma unroll 16
  for (int row = first; row < first + kRows / kStrips; ++row) {
    const float2 v = __ldcs(w + size_t(row) * (kColumns / 2) + column);
    a = fmaf(v.x, x[row], a);
    b = fmaf(v.y, x[row], b);
  }
  atomicAdd(out + 2 * column, a);
  atomicAdd(out + 2 * column + 1, b);
}

// fp16 weights, four columns to a thread.
__global__ void weights_by_rows_fix(const uint2* w, const float* x, float* out) {
  const int column = blockIdx.x * 256 + threadIdx.x, first = blockIdx.y * (kRows / kStrips);
  float2 a = make_float2(0, 0), b = a;
#pragma unroll 16
  for (int row = first; row < first + kRows / kStrips; ++row) {
    uint2 raw = __ldcs(w + size_t(row) * (kColumns / 4) + column);
    const float2 u = __half22float2(*reinterpret_cast<__half2*>(&raw.x));
    const float2 v = __half22float2(*reinterpret_cast<__half2*>(&raw.y));
    a = make_float2(fmaf(u.x, x[row], a.x), fmaf(u.y, x[row], a.y));
    b = make_float2(fmaf(v.x, x[row], b.x), fmaf(v.y, x[row], b.y));
  }
  for (int k = 0; k < 4; ++k) atomicAdd(out + 4 * column + k, k < 2 ? (k ? a.y : a.x) : (k > 2 ? b.y : b.x));
}

class WeightsByRows : public Pair {
 public:
  WeightsByRows() : w32_(size_t(kRows) * kColumns), w16_(size_t(kRows) * kColumns), x_(kRows), out_(kColumns) {
    fill(w32_, 7);
    fill(w16_, 7);
    fill(x_, 5);
  }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    if (fixed)
      weights_by_rows_fix<<<dim3(kColumns / 1024, kStrips), 256>>>(reinterpret_cast<const uint2*>(w16_.get()), x_.get(),
                                                                   out_.get());
    else
      weights_by_rows_fault<<<dim3(kColumns / 512, kStrips), 256>>>(reinterpret_cast<const float2*>(w32_.get()),
                                                                    x_.get(), out_.get());
  }
  std::vector<double> result() const override { return out_.sample(); }

 private:
  DeviceArray<float> w32_;
  DeviceArray<__half> w16_;
  DeviceArray<float> x_, out_;
};
Register<WeightsByRows> weights("weights_by_rows", "unseen");

constexpr int kOut = 32768, kIn = 8192;  // a row to a warp

__device__ void write_row(float sum, float* out, int row) {
  for (int step = 16; step; step >>= 1) sum += __shfl_xor_sync(~0u, sum, step);
  if (threadIdx.x % 32 == 0) out[row] = sum;
}

// The integer as a float, by the bits of 2^23 plus it.
__device__ float number(unsigned bits) { return __uint_as_float(0x4b000000u | bits) - 8388608.0f; }

// Weights in eight bits, sixteen to a load.
__global__ void byte_weights_fault(const uint4* w, const float4* x, float* out) {
  const int row = (blockIdx.x * 256 + threadIdx.x) / 32;
  float sum = 0;
#pragma unroll 4
  for (int k = threadIdx.x % 32; k < kIn / 16; k += 32) {
    const uint4 raw = __ldcs(w + size_t(row) * (kIn / 16) + k);
    const unsigned part[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      const float4 v = x[p * (kIn / 16) + k];
      sum = fmaf(number(part[p] & 255), v.x, fmaf(number(part[p] >> 8 & 255), v.y, sum));
      sum = fmaf(number(part[p] >> 16 & 255), v.z, fmaf(number(part[p] >> 24), v.w, sum));
    }
  }
  write_row(sum, out, row);
}

// In four bits.
__global__ void byte_weights_fix(const uint2* w, const float4* x, float* out) {
  const int row = (blockIdx.x * 256 + threadIdx.x) / 32;
  float sum = 0;
#pragma unroll 4
  for (int k = threadIdx.x % 32; k < kIn / 16; k += 32) {
    const uint2 raw = __ldcs(w + size_t(row) * (kIn / 16) + k);
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      const unsigned four = (p < 2 ? raw.x : raw.y) >> (p % 2 * 16);
      const float4 v = x[p * (kIn / 16) + k];
      sum = fmaf(number(four & 15), v.x, fmaf(number(four >> 4 & 15), v.y, sum));
      sum = fmaf(number(four >> 8 & 15), v.z, fmaf(number(four >> 12 & 15), v.w, sum));
    }
  }
  write_row(sum, out, row);
}

// The same values of 0 to 6 in both widths.
__global__ void pack(const unsigned char* bytes, unsigned short* nibbles, size_t count) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count / 4; i += size_t(gridDim.x) * blockDim.x)
    nibbles[i] = bytes[4 * i] | bytes[4 * i + 1] << 4 | bytes[4 * i + 2] << 8 | bytes[4 * i + 3] << 12;
}

class ByteWeights : public Pair {
 public:
  ByteWeights() : w8_(size_t(kOut) * kIn), w4_(size_t(kOut) * kIn / 4), x_(kIn), out_(kOut) {
    fill(w8_, 7);
    fill(x_, 5);
    pack<<<1024, 256>>>(w8_.get(), w4_.get(), w8_.count());
  }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    auto x = reinterpret_cast<const float4*>(x_.get());
    if (fixed) byte_weights_fix<<<kOut / 8, 256>>>(reinterpret_cast<const uint2*>(w4_.get()), x, out_.get());
    else byte_weights_fault<<<kOut / 8, 256>>>(reinterpret_cast<const uint4*>(w8_.get()), x, out_.get());
  }
  std::vector<double> result() const override { return out_.sample(); }

 private:
  DeviceArray<unsigned char> w8_;
  DeviceArray<unsigned short> w4_;
  DeviceArray<float> x_, out_;
};
Register<ByteWeights> bytes("byte_weights", "unseen");

}  // namespace

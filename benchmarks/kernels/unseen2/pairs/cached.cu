// Data that stays in L2 and is read from it again and again.
#include "../../pair.cuh"

namespace {

constexpr int kHeads = 8, kGroups = 16, kKeys = 2048, kSplits = 16, kMine = kKeys / kSplits / 8;  // keys to a warp

__device__ float weight_of(int head, int key) { return float(key * (head + 1) % 5); }

__device__ void add(float4& sum, float w, float4 v) {
  sum = make_float4(fmaf(w, v.x, sum.x), fmaf(w, v.y, sum.y), fmaf(w, v.z, sum.z), fmaf(w, v.w, sum.w));
}

__device__ const float4* values_of(const float4* values, int group, int key) {
  return values + (size_t(group) * kKeys + key) * 32 + threadIdx.x % 32;
}

__device__ int first_key(int split) { return split * (kKeys / kSplits) + threadIdx.x / 32 * kMine; }

__device__ float4* slot(float4* out, int group, int split, int head) {
  return out + (((size_t(group) * kSplits + split) * kHeads + head) * 8 + threadIdx.x / 32) * 32 + threadIdx.x % 32;
}

// Decoding with shared keys: each of the eight heads of a group reads the group's values (128 floats a key).
__global__ void read_by_each_head_fault(const float4* values, float4* out) {
  const int head = blockIdx.y, group = blockIdx.z, first = first_key(blockIdx.x);
  float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
  for (int k = 0; k < kMine; ++k) add(sum, weight_of(head, first + k), __ldcg(values_of(values, group, first + k)));
  *slot(out, group, blockIdx.x, head) = sum;
}

// Read once for the eight.
__global__ void read_by_each_head_fix(const float4* values, float4* out) {
  const int group = blockIdx.z, first = first_key(blockIdx.x);
  float4 sums[kHeads] = {};
#pragma unroll
  for (int k = 0; k < kMine; ++k) {
    const float4 v = __ldcg(values_of(values, group, first + k));
#pragma unroll
    for (int head = 0; head < kHeads; ++head) add(sums[head], weight_of(head, first + k), v);
  }
#pragma unroll
  for (int head = 0; head < kHeads; ++head) *slot(out, group, blockIdx.x, head) = sums[head];
}

class ReadByEachHead : public Pair {
 public:
  ReadByEachHead() : values_(size_t(kGroups) * kKeys * 128), out_(size_t(kGroups) * kSplits * kHeads * 8 * 128) {
    fill(values_, 5);
  }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    (fixed ? read_by_each_head_fix : read_by_each_head_fault)<<<dim3(kSplits, fixed ? 1 : kHeads, kGroups), 256>>>(
        reinterpret_cast<const float4*>(values_.get()), reinterpret_cast<float4*>(out_.get()));
  }
  std::vector<double> result() const override { return out_.sample(61); }

 private:
  DeviceArray<float> values_, out_;
};
Register<ReadByEachHead> heads("read_by_each_head", "unseen");

constexpr int kSide = 2048, kRadius = 12, kStrip = 32;

// A blur along columns: each row's thread reads the 25 rows around it.
__global__ void column_blur_fault(const float4* in, float4* out) {
  const int column = threadIdx.x + blockIdx.x * 128, row = blockIdx.y;
  float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
  for (int d = -kRadius; d <= kRadius; ++d) add(sum, 1.0f, in[size_t((row + d) & (kSide - 1)) * (kSide / 4) + column]);
  out[size_t(row) * (kSide / 4) + column] = sum;
}

// A running sum down a strip of 32 rows.
__global__ void column_blur_fix(const float4* in, float4* out) {
  const int column = threadIdx.x + blockIdx.x * 128, first = blockIdx.y * kStrip;
  float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
  for (int d = -kRadius; d < kRadius; ++d) add(sum, 1.0f, in[size_t((first + d) & (kSide - 1)) * (kSide / 4) + column]);
#pragma unroll 8
  for (int row = first; row < first + kStrip; ++row) {
    add(sum, 1.0f, in[size_t((row + kRadius) & (kSide - 1)) * (kSide / 4) + column]);
    out[size_t(row) * (kSide / 4) + column] = sum;
    add(sum, -1.0f, in[size_t((row - kRadius) & (kSide - 1)) * (kSide / 4) + column]);
  }
}

class ColumnBlur : public Pair {
 public:
  ColumnBlur() : in_(size_t(kSide) * kSide), out_(size_t(kSide) * kSide) { fill(in_, 7); }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    (fixed ? column_blur_fix : column_blur_fault)<<<dim3(kSide / 512, fixed ? kSide / kStrip : kSide), 128>>>(
        reinterpret_cast<const float4*>(in_.get()), reinterpret_cast<float4*>(out_.get()));
  }
  std::vector<double> result() const override { return out_.sample(61); }

 private:
  DeviceArray<float> in_, out_;
};
Register<ColumnBlur> blur("column_blur", "unseen");

}  // namespace

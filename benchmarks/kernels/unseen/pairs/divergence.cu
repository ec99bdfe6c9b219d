// One lane of a warp is busy while 31 wait.
#include "../../pair.cuh"

namespace {

constexpr int kCount = 132 * 2048 * 8;

__device__ bool is_slow(int e) { return (e * 7 + e / 32) % 32 == 0; }  // one lane of each warp, another in each

__device__ float quick(float x) { return fmaf(x, 0.5f, 3.0f); }

__device__ float slow(float x) {
#pragma unroll 4
  for (int k = 0; k < 384; ++k) x = fmaf(x, 0.5f, 3.0f);
  return x;
}

// The rare element is worked out where it is found.
__global__ void rare_case_fault(const float* in, float* out) {
  const int e = blockIdx.x * 256 + threadIdx.x;
  const float x = in[e & 4095];
  out[e] = is_slow(e) ? slow(x) : quick(x);
}

// The rare elements of a block are queued, and its first lanes work them out side by side.
__global__ void rare_case_fix(const float* in, float* out) {
  __shared__ int queue[256];
  __shared__ int length;
  if (threadIdx.x == 0) length = 0;
  __syncthreads();
  const int e = blockIdx.x * 256 + threadIdx.x;
  if (is_slow(e)) queue[atomicAdd(&length, 1)] = e;
  else out[e] = quick(in[e & 4095]);
  __syncthreads();
  if (threadIdx.x < length) out[queue[threadIdx.x]] = slow(in[queue[threadIdx.x] & 4095]);
}

class RareCase : public Pair {
 public:
  RareCase() : in_(4096), out_(kCount) { fill(in_, 7); }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    (fixed ? rare_case_fix : rare_case_fault)<<<kCount / 256, 256>>>(in_.get(), out_.get());
  }
  std::vector<double> result() const override { return out_.sample(61); }

 private:
  DeviceArray<float> in_, out_;
};
Register<RareCase> rare("rare_case", "unseen");

__device__ unsigned mixed(unsigned h, unsigned word) {
  h = (h ^ word) * 16777619u;
  return h ^ (h >> 15);
}

// A hash is carried along each record of 64 words: one lane takes the warp's 32 records in turn.
__global__ void leader_hashes_fault(const unsigned* words, float* out) {
  const int first = (blockIdx.x * 256 + threadIdx.x) & ~31;
  if (threadIdx.x % 32 == 0) {
    for (int record = 0; record < 32; ++record) {
      unsigned h = 2166136261u + first + record;
      for (int k = 0; k < 64; ++k) h = mixed(h, words[k]);
      out[first + record] = float(h & 0xffff);
    }
  }
}

// Each lane takes a record.
__global__ void leader_hashes_fix(const unsigned* words, float* out) {
  const int record = blockIdx.x * 256 + threadIdx.x;
  unsigned h = 2166136261u + record;
  for (int k = 0; k < 64; ++k) h = mixed(h, words[k]);
  out[record] = float(h & 0xffff);
}

class LeaderHashes : public Pair {
 public:
  LeaderHashes() : words_(64), out_(kCount / 4) { fill(words_, 251); }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    (fixed ? leader_hashes_fix : leader_hashes_fault)<<<kCount / 4 / 256, 256>>>(words_.get(), out_.get());
  }
  std::vector<double> result() const override { return out_.sample(61); }

 private:
  DeviceArray<unsigned> words_;
  DeviceArray<float> out_;
};
Register<LeaderHashes> leader("leader_hashes", "unseen");

}  // namespace

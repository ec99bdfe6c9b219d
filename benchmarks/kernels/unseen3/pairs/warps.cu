// Lanes, barriers, chains of loads, tails.
#include <algorithm>

#include "../../pair.cuh"

namespace {

constexpr int kItems = 132 * 2048 * 8, kThreads = 256;

__host__ __device__ inline bool is_flagged(unsigned i) {
  i = (i ^ (i >> 16)) * 0x45d9f3bu;
  return ((i ^ (i >> 13)) & 7) == 0;
}

__device__ float refined(int item) {
  float x = item % 13;
  for (int k = 0; k < 256; ++k) x = fmaf(x, 0.5f, 2.0f);
  return x;
}

// One item in eight is refined, where it lies.
__global__ void flagged_items_fault(const int* flagged, int count, float* out) {
  const int item = blockIdx.x * kThreads + threadIdx.x;
  if (is_flagged(item)) out[item] = refined(item);
}

// By the list of those that are.
__global__ void flagged_items_fix(const int* flagged, int count, float* out) {
  const int at = blockIdx.x * kThreads + threadIdx.x;
  if (at < count) out[flagged[at]] = refined(flagged[at]);
}

class FlaggedItems : public Pair {
 public:
  FlaggedItems() : flagged_(kItems), out_(kItems) {
    std::vector<int> flagged;
    for (int i = 0; i < kItems; ++i)
      if (is_flagged(i)) flagged.push_back(i);
    count_ = int(flagged.size());
    check(cudaMemcpy(flagged_.get(), flagged.data(), count_ * sizeof(int), cudaMemcpyHostToDevice), "flagged");
  }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    if (fixed) flagged_items_fix<<<(count_ + kThreads - 1) / kThreads, kThreads>>>(flagged_.get(), count_, out_.get());
    else flagged_items_fault<<<kItems / kThreads, kThreads>>>(flagged_.get(), count_, out_.get());
  }
  std::vector<double> result() const override { return out_.sample(61); }

 private:
  DeviceArray<int> flagged_;
  DeviceArray<float> out_;
  int count_ = 0;
};
Register<FlaggedItems> flagged("flagged_items", "unseen");

constexpr int kWide = 1024, kMessages = 512, kBlocks = 132 * 2;

// The first thread reads each message and hands it to the block between two barriers.
__global__ void __launch_bounds__(kWide) one_message_fault(const float* messages, float* out) {
  __shared__ float message;
  float x = threadIdx.x;
  for (int m = 0; m < kMessages; ++m) {
    if (threadIdx.x == 0) message = __ldcg(messages + m);
    __syncthreads();
    x = fmaf(x, 0.5f, message);
    __syncthreads();
  }
  out[blockIdx.x * kWide + threadIdx.x] = x;
}

// A warp reads 32 at once.
__global__ void __launch_bounds__(kWide) one_message_fix(const float* messages, float* out) {
  __shared__ float read[32];
  float x = threadIdx.x;
  for (int m = 0; m < kMessages; m += 32) {
    if (threadIdx.x < 32) read[threadIdx.x] = __ldcg(messages + m + threadIdx.x);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 32; ++k) x = fmaf(x, 0.5f, read[k]);
    __syncthreads();
  }
  out[blockIdx.x * kWide + threadIdx.x] = x;
}

class OneMessage : public Pair {
 public:
  OneMessage() : messages_(kMessages), out_(size_t(kBlocks) * kWide) { fill(messages_, 7); }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    (fixed ? one_message_fix : one_message_fault)<<<kBlocks, kWide>>>(messages_.get(), out_.get());
  }
  std::vector<double> result() const override { return out_.sample(61); }

 private:
  DeviceArray<float> messages_, out_;
};
Register<OneMessage> message("one_message", "unseen");

constexpr unsigned kNodes = 1u << 21;  // of 4 bytes: 8 MB
constexpr int kJumps = 512, kFar = 16, kWalkers = 132 * 8;

__global__ void make_next(unsigned* next, unsigned* far) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < kNodes; i += gridDim.x * blockDim.x) {
    unsigned at = i;
    for (int k = 0; k < kFar; ++k) at = (at * 1664525u + 1013904223u) % kNodes;
    next[i] = (i * 1664525u + 1013904223u) % kNodes;
    far[i] = at;
  }
}

// Where 512 steps lead, one at a time.
__global__ void far_away_fault(const unsigned* next, const unsigned* far, float* out) {
  const int warp = (blockIdx.x * kThreads + threadIdx.x) / 32;
  unsigned at = unsigned(warp) * 2654435761u % kNodes;
#pragma unroll 1
  for (int k = 0; k < kJumps; ++k) at = next[at];
  if (threadIdx.x % 32 == 0) out[warp] = float(at);
}

// Sixteen at a time, by a table.
__global__ void far_away_fix(const unsigned* next, const unsigned* far, float* out) {
  const int warp = (blockIdx.x * kThreads + threadIdx.x) / 32;
  unsigned at = unsigned(warp) * 2654435761u % kNodes;
#pragma unroll 1
  for (int k = 0; k < kJumps / kFar; ++k) at = far[at];
  if (threadIdx.x % 32 == 0) out[warp] = float(at);
}

class FarAway : public Pair {
 public:
  FarAway() : next_(kNodes), far_(kNodes), out_(kWalkers * kThreads / 32) {
    make_next<<<1024, 256>>>(next_.get(), far_.get());
  }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    (fixed ? far_away_fix : far_away_fault)<<<kWalkers, kThreads>>>(next_.get(), far_.get(), out_.get());
  }
  std::vector<double> result() const override { return out_.sample(); }

 private:
  DeviceArray<unsigned> next_, far_;
  DeviceArray<float> out_;
};
Register<FarAway> away("far_away", "unseen");

constexpr int kSequences = 132 * 2, kSteps = 256, kLong = 12;  // one sequence is twelve times as long

__device__ float stepped(int first, int steps) {
  float sum = 0;
  for (int s = first; s < first + steps; ++s) {
    float x = threadIdx.x % 7 + s % 3;
    for (int k = 0; k < 64; ++k) x = fmaf(x, 0.5f, 1.0f);
    sum += floorf(x);
  }
  return sum;
}

// One block to each sequence.
__global__ void __launch_bounds__(kWide) long_sequence_fault(float* out) {
  out[blockIdx.x * kWide + threadIdx.x] = stepped(0, blockIdx.x == 77 ? kSteps * kLong : kSteps);
}

// As many blocks to the long one as it is longer.
__global__ void __launch_bounds__(kWide) long_sequence_fix(float* out) {
  const int part = max(int(blockIdx.x) - kSequences + 1, 0), sequence = part ? 77 : int(blockIdx.x);
  atomicAdd(out + sequence * kWide + threadIdx.x, stepped(part * kSteps, kSteps));
}

class LongSequence : public Pair {
 public:
  LongSequence() : out_(size_t(kSequences) * kWide) {}
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    if (fixed) long_sequence_fix<<<kSequences + kLong - 1, kWide>>>(out_.get());
    else long_sequence_fault<<<kSequences, kWide>>>(out_.get());
  }
  std::vector<double> result() const override { return out_.sample(7); }

 private:
  DeviceArray<float> out_;
};
Register<LongSequence> sequence("long_sequence", "unseen");

constexpr int kState = 4096, kTokens = 10;

__device__ float next_state(float x) { return floorf(x * 0.5f) + 3.0f; }

// A launch for each token of a small recurrent state.
__global__ void launch_per_token_fault(float* state) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  state[i] = next_state(state[i]);
}

// One for all.
__global__ void launch_per_token_fix(float* state) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  float x = state[i];
  for (int t = 0; t < kTokens; ++t) x = next_state(x);
  state[i] = x;
}

class LaunchPerToken : public Pair {
 public:
  LaunchPerToken() : state_(kState) {}
  void reset() override { fill(state_, 1021); }
  void launch(bool fixed) override {
    if (fixed) launch_per_token_fix<<<kState / kThreads, kThreads>>>(state_.get());
    else
      for (int t = 0; t < kTokens; ++t) launch_per_token_fault<<<kState / kThreads, kThreads>>>(state_.get());
  }
  std::vector<double> result() const override { return state_.sample(7); }

 private:
  DeviceArray<float> state_;
};
Register<LaunchPerToken> token("launch_per_token", "unseen");

}  // namespace

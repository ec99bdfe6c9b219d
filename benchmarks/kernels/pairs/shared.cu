// Shared memory whose banks serve one lane at a time.
#include "../pair.cuh"

namespace {

constexpr int kSide = 8192;
constexpr size_t kCells = size_t(kSide) * kSide;

template <int Pitch>
__device__ void transpose_tile(const float* in, float* out) {
  __shared__ float tile[32][Pitch];
  const int x = blockIdx.x * 32 + threadIdx.x, y0 = blockIdx.y * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8) tile[threadIdx.y + j][threadIdx.x] = in[size_t(y0 + j) * kSide + x];
  __syncthreads();
  const int tx = blockIdx.y * 32 + threadIdx.x, ty0 = blockIdx.x * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8) out[size_t(ty0 + j) * kSide + tx] = tile[threadIdx.x][threadIdx.y + j];
}

__global__ void transpose_pitch_fault(const float* in, float* out) { transpose_tile<32>(in, out); }
__global__ void transpose_pitch_fix(const float* in, float* out) { transpose_tile<33>(in, out); }

class TransposePitch : public Pair {
 public:
  TransposePitch() : in_(kCells), out_(kCells) { fill(in_, 1021); }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    auto kernel = fixed ? transpose_pitch_fix : transpose_pitch_fault;
    kernel<<<dim3(kSide / 32, kSide / 32), dim3(32, 8)>>>(in_.get(), out_.get());
  }
  std::vector<double> result() const override { return out_.sample(997); }

 private:
  DeviceArray<float> in_, out_;
};
Register<TransposePitch> transpose("transpose_pitch", "shared");

constexpr int kRounds = 64;

// Every lane walks its own row of a tile; with a pitch of 32 words all lanes meet in one bank.
template <int Pitch>
__device__ void row_walk(const float* in, float* out) {
  __shared__ float tile[32 * Pitch];
  const int lane = threadIdx.x % 32;
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) tile[(i / 32) * Pitch + i % 32] = in[i];
  __syncthreads();
  float sum = 0;
  for (int r = 0; r < kRounds; ++r) {
#pragma unroll
    for (int k = 0; k < 32; ++k) sum += *(volatile float*)&tile[lane * Pitch + k];
  }
  out[size_t(blockIdx.x) * blockDim.x + threadIdx.x] = sum;
}

__global__ void row_walk_fault(const float* in, float* out) { row_walk<32>(in, out); }
__global__ void row_walk_fix(const float* in, float* out) { row_walk<33>(in, out); }

class RowWalk : public Pair {
 public:
  RowWalk() : in_(1024), out_(132 * 4 * 256) { fill(in_, 3); }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    auto kernel = fixed ? row_walk_fix : row_walk_fault;
    kernel<<<132 * 4, 256>>>(in_.get(), out_.get());
  }
  std::vector<double> result() const override { return out_.sample(); }

 private:
  DeviceArray<float> in_, out_;
};
Register<RowWalk> rows("row_walk", "shared");

// Every lane keeps a record of 16 words: records side by side put 16 lanes into one bank, interleaved words none.
template <bool Fixed>
__device__ void record_sums(const float* in, float* out) {
  __shared__ float tile[8 * 512];
  const int lane = threadIdx.x % 32;
  float* mine = tile + (threadIdx.x / 32) * 512;
  for (int k = 0; k < 16; ++k) mine[Fixed ? k * 32 + lane : lane * 16 + k] = in[lane * 16 + k];
  __syncwarp();
  float sum = 0;
  for (int r = 0; r < 2 * kRounds; ++r) {
#pragma unroll
    for (int k = 0; k < 16; ++k) sum += *(volatile float*)&mine[Fixed ? k * 32 + lane : lane * 16 + k];
  }
  out[size_t(blockIdx.x) * blockDim.x + threadIdx.x] = sum;
}

__global__ void lane_records_fault(const float* in, float* out) { record_sums<false>(in, out); }
__global__ void lane_records_fix(const float* in, float* out) { record_sums<true>(in, out); }

class LaneRecords : public Pair {
 public:
  LaneRecords() : in_(512), out_(132 * 2 * 256) { fill(in_, 3); }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    auto kernel = fixed ? lane_records_fix : lane_records_fault;
    kernel<<<132 * 2, 256>>>(in_.get(), out_.get());
  }
  std::vector<double> result() const override { return out_.sample(); }

 private:
  DeviceArray<float> in_, out_;
};
Register<LaneRecords> records("lane_records", "shared");

}  // namespace

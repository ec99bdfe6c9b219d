// Loads and stores whose warps touch more sectors than their bytes need.
#include "../pair.cuh"

namespace {

constexpr int kSide = 8192;
constexpr size_t kCells = size_t(kSide) * kSide;
constexpr int kChunk = 64;

__device__ void add_to_block_total(float value, float* total) {
  __shared__ float parts[32];
  for (int step = 16; step; step >>= 1) value += __shfl_xor_sync(~0u, value, step);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (unsigned w = 1; w < blockDim.x / 32; ++w) value += parts[w];
    *total = value;
  }
}

// Each thread sums a contiguous chunk: neighbouring threads are 256 bytes apart.
__global__ void chunk_per_thread_fault(const float* in, float* totals) {
  const float* mine = in + (size_t(blockIdx.x) * blockDim.x + threadIdx.x) * kChunk;
  float sum = 0;
  for (int k = 0; k < kChunk; ++k) sum += __ldcg(mine + k);
  add_to_block_total(sum, totals + blockIdx.x);
}

// The same block reads the same bytes, neighbouring threads neighbouring words.
__global__ void chunk_per_thread_fix(const float* in, float* totals) {
  const float* block = in + size_t(blockIdx.x) * blockDim.x * kChunk;
  float sum = 0;
  for (int k = 0; k < kChunk; ++k) sum += __ldcg(block + k * blockDim.x + threadIdx.x);
  add_to_block_total(sum, totals + blockIdx.x);
}

class ChunkPerThread : public Pair {
 public:
  ChunkPerThread() : in_(kCells), totals_(kCells / (256 * kChunk)) { fill(in_, 5); }
  void launch(bool fixed) override {
    auto kernel = fixed ? chunk_per_thread_fix : chunk_per_thread_fault;
    kernel<<<totals_.count(), 256>>>(in_.get(), totals_.get());
  }
  std::vector<double> result() const override { return totals_.sample(); }

 private:
  DeviceArray<float> in_, totals_;
};
Register<ChunkPerThread> chunk("chunk_per_thread", "coalescing");

// Reads rows, writes columns: every lane of a store touches its own sector.
__global__ void transpose_naive_fault(const float* in, float* out) {
  const int x = blockIdx.x * 32 + threadIdx.x, y0 = blockIdx.y * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8) out[size_t(x) * kSide + y0 + j] = in[size_t(y0 + j) * kSide + x];
}

__global__ void transpose_naive_fix(const float* in, float* out) {
  __shared__ float tile[32][33];
  const int x = blockIdx.x * 32 + threadIdx.x, y0 = blockIdx.y * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8) tile[threadIdx.y + j][threadIdx.x] = in[size_t(y0 + j) * kSide + x];
  __syncthreads();
  const int tx = blockIdx.y * 32 + threadIdx.x, ty0 = blockIdx.x * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8) out[size_t(ty0 + j) * kSide + tx] = tile[threadIdx.x][threadIdx.y + j];
}

class TransposeNaive : public Pair {
 public:
  TransposeNaive() : in_(kCells), out_(kCells) { fill(in_, 1021); }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    auto kernel = fixed ? transpose_naive_fix : transpose_naive_fault;
    kernel<<<dim3(kSide / 32, kSide / 32), dim3(32, 8)>>>(in_.get(), out_.get());
  }
  std::vector<double> result() const override { return out_.sample(997); }

 private:
  DeviceArray<float> in_, out_;
};
Register<TransposeNaive> transpose("transpose_naive", "coalescing");

struct Particle {
  float field[8];
};

// One word of every 32-byte record: an eighth of each sector is used.
__global__ void aos_field_fault(const Particle* in, float* out) {
  const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
  out[i] = 2.0f * in[i].field[3];
}

__global__ void aos_field_fix(const float* field, float* out) {
  const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
  out[i] = 2.0f * field[i];
}

__global__ void split_field(const Particle* in, float* field) {
  const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
  field[i] = in[i].field[3];
}

class AosField : public Pair {
 public:
  AosField() : words_(kCells * 2), field_(kCells / 4), out_(kCells / 4) {
    fill(words_, 1021);
    split_field<<<field_.count() / 256, 256>>>(reinterpret_cast<Particle*>(words_.get()), field_.get());
  }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    const unsigned blocks = out_.count() / 256;
    if (fixed)
      aos_field_fix<<<blocks, 256>>>(field_.get(), out_.get());
    else
      aos_field_fault<<<blocks, 256>>>(reinterpret_cast<Particle*>(words_.get()), out_.get());
  }
  std::vector<double> result() const override { return out_.sample(61); }

 private:
  DeviceArray<float> words_, field_, out_;
};
Register<AosField> aos("aos_field", "coalescing");

constexpr unsigned kGather = 1u << 25;

__global__ void scattered_index_fault(const float* in, const unsigned* index, float* totals) {
  float sum = 0;
  for (int k = 0; k < 16; ++k) sum += in[index[(size_t(blockIdx.x) * 16 + k) * blockDim.x + threadIdx.x]];
  add_to_block_total(sum, totals + blockIdx.x);
}

// The same code with the index sorted.
__global__ void scattered_index_fix(const float* in, const unsigned* index, float* totals) {
  float sum = 0;
  for (int k = 0; k < 16; ++k) sum += in[index[(size_t(blockIdx.x) * 16 + k) * blockDim.x + threadIdx.x]];
  add_to_block_total(sum, totals + blockIdx.x);
}

__global__ void make_index(unsigned* index, unsigned factor) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  index[i] = (i * factor) & (kGather - 1);  // an odd factor permutes
}

class ScatteredIndex : public Pair {
 public:
  ScatteredIndex() : in_(kGather), scattered_(kGather), sorted_(kGather), totals_(kGather / 4096) {
    fill(in_, 3);
    make_index<<<kGather / 256, 256>>>(scattered_.get(), 2654435761u);
    make_index<<<kGather / 256, 256>>>(sorted_.get(), 1u);
  }
  void launch(bool fixed) override {
    if (fixed)
      scattered_index_fix<<<totals_.count(), 256>>>(in_.get(), sorted_.get(), totals_.get());
    else
      scattered_index_fault<<<totals_.count(), 256>>>(in_.get(), scattered_.get(), totals_.get());
  }
  std::vector<double> result() const override {  // the grand total does not depend on the order
    double sum = 0;
    for (double part : totals_.sample()) sum += part;
    return {sum};
  }

 private:
  DeviceArray<float> in_;
  DeviceArray<unsigned> scattered_, sorted_;
  DeviceArray<float> totals_;
};
Register<ScatteredIndex> gather("scattered_index", "coalescing");

}  // namespace

// Transposes, a sparse matrix, a product in small tiles.
#include "../../unseen4/pairs/plain.cuh"

namespace {

constexpr int kTokens = 1 << 16, kHead = 512;
constexpr size_t kValues = size_t(kTokens) * kHead;

// Keys as an attention wants them: a row to each place within the head.
__global__ void keys_by_column_fault(const float* in, float* out) {
  out[size_t(threadIdx.x) * kTokens + blockIdx.x] = in[size_t(blockIdx.x) * kHead + threadIdx.x];
}

template <int kPitch>
__device__ void transposed(const float* in, float* out, int rows, int width) {
  __shared__ float tile[32][kPitch];
  const int x = threadIdx.x % 32, first = threadIdx.x / 32, row = blockIdx.y * 32, column = blockIdx.x * 32;
#pragma unroll
  for (int y = first; y < 32; y += 8) tile[y][x] = in[size_t(row + y) * width + column + x];
  __syncthreads();
#pragma unroll
  for (int y = first; y < 32; y += 8) out[size_t(column + y) * rows + row + x] = tile[x][y];
}

__global__ void keys_by_column_fix(const float* in, float* out) { transposed<33>(in, out, kTokens, kHead); }
Unseen keys("keys_by_column", {kValues, kValues, 65521, [](bool fixed, const float* in, float* out) {
                                 if (fixed) keys_by_column_fix<<<dim3(kHead / 32, kTokens / 32), 256>>>(in, out);
                                 else keys_by_column_fault<<<kTokens, kHead>>>(in, out);
                               }, 9973});

constexpr int kImages = 64, kPlaces = 56 * 56, kChannels = 128;
constexpr size_t kPixels = size_t(kImages) * kPlaces * kChannels;

// An image to each z: 3,136 places of 128 channels.
template <int kPitch>
__device__ void image(const float* in, float* out) {
  const size_t first = size_t(blockIdx.z) * kPlaces * kChannels;
  transposed<kPitch>(in + first, out + first, kPlaces, kChannels);
}
__global__ void channels_first_fault(const float* in, float* out) { image<32>(in, out); }
__global__ void channels_first_fix(const float* in, float* out) { image<33>(in, out); }
Unseen channels("channels_first", {kPixels, kPixels, 65521, [](bool fixed, const float* in, float* out) {
                                     const dim3 grid(kChannels / 32, kPlaces / 32, kImages);
                                     (fixed ? channels_first_fix : channels_first_fault)<<<grid, 256>>>(in, out);
                                   }, 9973});

constexpr int kSparseRows = 1 << 18, kFilled = 64, kVector = 4096;

// A sparse matrix of 64 values a row: values, then columns, then the vector.
struct Sparse {
  const float *values, *columns, *x;
  __device__ explicit Sparse(const float* in)
      : values(in), columns(in + size_t(kSparseRows) * kFilled), x(in + size_t(kSparseRows) * kFilled * 2) {}
  __device__ float at(size_t i) const { return values[i] * x[unsigned(columns[i]) * 67 % kVector]; }
};

__global__ void rows_of_sparse_fault(const float* in, float* out) {
  const Sparse matrix(in);
  const int row = blockIdx.x * 256 + threadIdx.x;
  float sum = 0;
  for (int i = 0; i < kFilled; ++i) sum += matrix.at(size_t(row) * kFilled + i);
  out[row] = sum;
}
__global__ void rows_of_sparse_fix(const float* in, float* out) {
  const Sparse matrix(in);
  const int row = (blockIdx.x * 256 + threadIdx.x) / 32, lane = threadIdx.x % 32;
  float sum = matrix.at(size_t(row) * kFilled + lane) + matrix.at(size_t(row) * kFilled + 32 + lane);
  for (int by = 16; by; by /= 2) sum += __shfl_xor_sync(~0u, sum, by);
  if (lane == 0) out[row] = sum;
}
Unseen sparse("rows_of_sparse", {size_t(kSparseRows) * kFilled * 2 + kVector, kSparseRows, 61, [](bool fixed, const float* in, float* out) {
                                   if (fixed) rows_of_sparse_fix<<<kSparseRows / 8, 256>>>(in, out);
                                   else rows_of_sparse_fault<<<kSparseRows / 256, 256>>>(in, out);
                                 }, 61 * 3 + 1});

constexpr int kSide = 2048;

__global__ void sgemm_tile16_fault(const float* in, float* out) {
  __shared__ float a[16][16], b[16][16];
  const int x = threadIdx.x % 16, y = threadIdx.x / 16, row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
  const float* other = in + size_t(kSide) * kSide;
  float sum = 0;
  for (int k = 0; k < kSide; k += 16) {
    a[y][x] = in[size_t(row) * kSide + k + x];
    b[y][x] = other[size_t(k + y) * kSide + column];
    __syncthreads();
    for (int i = 0; i < 16; ++i) sum += a[y][i] * b[i][x];
    __syncthreads();
  }
  out[size_t(row) * kSide + column] = sum;
}

// 64 x 64 results to a block, 4 x 4 to a thread.
__global__ void sgemm_tile16_fix(const float* in, float* out) {
  __shared__ float a[16][65], b[16][64];
  const int x = threadIdx.x % 16, y = threadIdx.x / 16, row = blockIdx.y * 64, column = blockIdx.x * 64;
  const float* other = in + size_t(kSide) * kSide;
  float sum[4][4] = {};
  for (int k = 0; k < kSide; k += 16) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      a[x][y + i * 16] = in[size_t(row + y + i * 16) * kSide + k + x];
      b[y][x + i * 16] = other[size_t(k + y) * kSide + column + x + i * 16];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 16; ++i)
#pragma unroll
      for (int r = 0; r < 4; ++r)
#pragma unroll
        for (int c = 0; c < 4; ++c) sum[r][c] += a[i][y + r * 16] * b[i][x + c * 16];
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < 4; ++r)
#pragma unroll
    for (int c = 0; c < 4; ++c) out[size_t(row + y + r * 16) * kSide + column + x + c * 16] = sum[r][c];
}
Unseen products("sgemm_tile16", {size_t(kSide) * kSide * 2, size_t(kSide) * kSide, 7, [](bool fixed, const float* in, float* out) {
                                   if (fixed) sgemm_tile16_fix<<<dim3(kSide / 64, kSide / 64), 256>>>(in, out);
                                   else sgemm_tile16_fault<<<dim3(kSide / 16, kSide / 16), 256>>>(in, out);
                                 }, 9973});

}  // namespace

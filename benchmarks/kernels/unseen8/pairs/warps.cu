// Searches, divisions, lanes and blocks without work, barriers.
#include "../../unseen7/pairs/shared.cuh"

namespace {

constexpr int kValues = 1 << 24, kCodes = 256;

// Quantised by a code of 256 values, four to a thread: the nearest is looked for one by one, or the code is known to be even.
__device__ float code_of(int i) { return float(i) * 0.25f; }
__global__ void codes_by_search_fault(const float* in, float* out) {
  __shared__ float codes[kCodes];
  codes[threadIdx.x] = code_of(threadIdx.x);
  __syncthreads();
  const size_t first = blockIdx.x * size_t(1024) + threadIdx.x;
  float v[4], least[4];
  int at[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) v[i] = in[first + i * 256], least[i] = 1e30f, at[i] = 0;
#pragma unroll 8
  for (int c = 0; c < kCodes; ++c) {
    const float code = codes[c];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float apart = fabsf(v[i] - code);
      if (apart < least[i]) least[i] = apart, at[i] = c;
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) out[first + i * 256] = float(at[i]);
}
__global__ void codes_by_search_fix(const float* in, float* out) {
  const size_t first = blockIdx.x * size_t(1024) + threadIdx.x;
#pragma unroll
  for (int i = 0; i < 4; ++i) out[first + i * 256] = fminf(rintf(in[first + i * 256] * 4.0f), float(kCodes - 1));
}
Unseen codes("codes_by_search", {kValues, kValues, 67, [](bool fixed, const float* in, float* out) {
                                   (fixed ? codes_by_search_fix : codes_by_search_fault)<<<kValues / 1024, 256>>>(in, out);
                                 }, 61});

struct Sizes {
  long long images, channels, height, width, kernel;
};
constexpr Sizes kSizes = {4, 64, 128, 128, 3};
constexpr size_t kPatches = 4 * 128 * 128 * 64 * 9;

// Patches of images for a product: where a value comes from is worked out of its number.
__global__ void patches_by_division_fault(const float* in, float* out, Sizes of) {
  const long long i = blockIdx.x * 256LL + threadIdx.x, taps = of.kernel * of.kernel;
  const long long tap = i % taps, channel = i / taps % of.channels, place = i / (taps * of.channels);
  const long long x = place % of.width + tap % of.kernel - of.kernel / 2, y = place / of.width % of.height + tap / of.kernel - of.kernel / 2;
  const long long image = place / (of.width * of.height);
  const bool is_inside = x >= 0 && x < of.width && y >= 0 && y < of.height;
  out[i] = is_inside ? in[((image * of.channels + channel) * of.height + y) * of.width + x] : 0.0f;
}
__global__ void patches_by_division_fix(const float* in, float* out) {
  constexpr int kSide = 128, kChannels = 64, kTaps = 9;
  const int place = blockIdx.x, x = place % kSide - 1, y = place / kSide % kSide - 1, image = place / (kSide * kSide);
  for (int i = threadIdx.x; i < kChannels * kTaps; i += 192) {
    const int channel = i / kTaps, tap = i % kTaps, column = x + tap % 3, row = y + tap / 3;
    const bool is_inside = column >= 0 && column < kSide && row >= 0 && row < kSide;
    out[size_t(place) * (kChannels * kTaps) + i] = is_inside ? in[((image * kChannels + channel) * kSide + row) * kSide + column] : 0.0f;
  }
}
Unseen patches("patches_by_division", {4 * 64 * 128 * 128, kPatches, 9973, [](bool fixed, const float* in, float* out) {
                                         if (fixed) patches_by_division_fix<<<4 * 128 * 128, 192>>>(in, out);
                                         else patches_by_division_fault<<<kPatches / 256, 256>>>(in, out, kSizes);
                                       }, 997});

constexpr int kEquations = kSMs * 1024;

// The root of x * exp(x) = c by Newton, for each c: a block to each, or 256.
__device__ void root(const float* in, float* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float c = in[i] + 1.0f;
  float x = 0.5f;
#pragma unroll 1
  for (int turn = 0; turn < 512; ++turn) {
    const float e = __expf(x);
    x -= (x * e - c) / (e * (x + 1.0f));
  }
  out[i] = x;
}
__global__ void root_to_a_block_fault(const float* in, float* out) { root(in, out); }
__global__ void root_to_a_block_fix(const float* in, float* out) { root(in, out); }
Unseen roots("root_to_a_block", {kEquations, kEquations, 61, [](bool fixed, const float* in, float* out) {
                                   if (fixed) root_to_a_block_fix<<<kEquations / 256, 256>>>(in, out);
                                   else root_to_a_block_fault<<<kEquations, 1>>>(in, out);
                                 }});

constexpr int kOrbits = 140 * 1024;

// Equal work for 140 blocks of 1,024 threads, of which an SM holds one; or for eight times as many.
__device__ void orbit(const float* in, float* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = in[i] * 0.01f, y = 0.1f, z = 0.2f, w = 0.3f;
#pragma unroll 1
  for (int turn = 0; turn < 4096; ++turn) {
    x = fmaf(y, 0.01f, x);
    y = fmaf(z, -0.01f, y);
    z = fmaf(w, 0.01f, z);
    w = fmaf(x, -0.01f, w);
  }
  out[i] = x + y + z + w;
}
__global__ void __launch_bounds__(1024, 1) wave_and_a_bit_fault(const float* in, float* out) { orbit(in, out); }
__global__ void wave_and_a_bit_fix(const float* in, float* out) { orbit(in, out); }
Unseen orbits("wave_and_a_bit", {kOrbits, kOrbits, 61, [](bool fixed, const float* in, float* out) {
                                   constexpr int kShared = 120 * 1024;  // a table that each block of the first kind keeps
                                   check(cudaFuncSetAttribute(wave_and_a_bit_fault, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared), "shared");
                                   if (fixed) wave_and_a_bit_fix<<<kOrbits / 128, 128>>>(in, out);
                                   else wave_and_a_bit_fault<<<kOrbits / 1024, 1024, kShared>>>(in, out);
                                 }});

constexpr int kWord = 128, kWordPairs = kSMs * 256;

__device__ int least(int gone, int added, int changed) { return min(min(gone, added) + 1, changed); }

// How many changes lead from one word to another: a block to each pair, one diagonal after the other.
__global__ void edits_by_diagonal_fault(const float* in, float* out) {
  __shared__ float row_word[kWord], column_word[kWord];
  __shared__ int rows[3][kWord + 1];
  const int column = threadIdx.x + 1;
  row_word[threadIdx.x] = in[size_t(blockIdx.x) * 2 * kWord + threadIdx.x];
  column_word[threadIdx.x] = in[size_t(blockIdx.x) * 2 * kWord + kWord + threadIdx.x];
  // rows[d % 3][c]: what is on diagonal d in column c
  if (threadIdx.x == 0) rows[0][0] = 0;
  for (int diagonal = 1; diagonal <= 2 * kWord; ++diagonal) {
    __syncthreads();
    int *const now = rows[diagonal % 3], *const before = rows[(diagonal + 2) % 3], *const earlier = rows[(diagonal + 1) % 3];
    const int row = diagonal - column;
    if (threadIdx.x == 0 && diagonal <= kWord) now[0] = diagonal;
    if (row == 0) now[column] = diagonal;
    if (row >= 1 && row <= kWord)
      now[column] = least(before[column], before[column - 1], earlier[column - 1] + (row_word[row - 1] != column_word[column - 1]));
  }
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = float(rows[2 * kWord % 3][kWord]);
}
// A warp to each pair, four columns to a lane; a lane is a row behind its neighbour.
__global__ void edits_by_diagonal_fix(const float* in, float* out) {
  const int pair = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
  const float* row_word = in + size_t(pair) * 2 * kWord;
  const float4 own = reinterpret_cast<const float4*>(row_word + kWord)[lane];
  const float letters[4] = {own.x, own.y, own.z, own.w};
  int above[4], corner = lane * 4;
#pragma unroll
  for (int i = 0; i < 4; ++i) above[i] = lane * 4 + i + 1;
  for (int step = 1; step <= kWord + 31; ++step) {
    const int row = step - lane, passed = __shfl_up_sync(~0u, above[3], 1);
    if (row < 1 || row > kWord) continue;
    const float letter = row_word[row - 1];
    int left = lane == 0 ? row : passed, diagonal = lane == 0 ? row - 1 : corner;
    corner = left;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int found = least(above[i], left, diagonal + (letter != letters[i]));
      diagonal = above[i];
      above[i] = left = found;
    }
  }
  if (lane == 31) out[pair] = float(above[3]);
}
Unseen edits("edits_by_diagonal", {size_t(kWordPairs) * 2 * kWord, kWordPairs, 7, [](bool fixed, const float* in, float* out) {
                                     if (fixed) edits_by_diagonal_fix<<<kWordPairs / 4, 128>>>(in, out);
                                     else edits_by_diagonal_fault<<<kWordPairs, kWord>>>(in, out);
                                   }});

constexpr int kSamplers = kSMs * 2048, kEach = 16;

__device__ unsigned drawn(unsigned& state) {
  state ^= state << 13;
  state ^= state >> 17;
  state ^= state << 5;
  return state;
}
// One of eight draws is kept; what is asked of a draw takes a while.
__device__ bool is_kept(unsigned draw, float& value) {
  value = float(draw >> 8) * (1.0f / 16777216.0f);
  float x = value;
#pragma unroll
  for (int i = 0; i < 24; ++i) x = fmaf(-3.5f * x, x, 3.5f * x);
  return x > 0.5f && (draw & 7) == 0;
}
__device__ unsigned seed(const float* in, int i) { return unsigned(in[i]) * 2654435761u + unsigned(i) * 40503u | 1u; }
__global__ void samples_rejected_fault(const float* in, float* out) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  unsigned state = seed(in, i);
  float sum = 0, value;
  for (int n = 0; n < kEach; ++n) {
    while (!is_kept(drawn(state), value)) {}
    sum += value;
  }
  out[i] = sum;
}
// A lane goes on to its next sample without waiting for the others.
__global__ void samples_rejected_fix(const float* in, float* out) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  unsigned state = seed(in, i);
  float sum = 0, value;
  for (int n = 0; n < kEach;)
    if (is_kept(drawn(state), value)) {
      sum += value;
      ++n;
    }
  out[i] = sum;
}
Unseen samples("samples_rejected", {kSamplers, kSamplers, 9973, [](bool fixed, const float* in, float* out) {
                                      (fixed ? samples_rejected_fix : samples_rejected_fault)<<<kSamplers / 256, 256>>>(in, out);
                                    }});

}  // namespace

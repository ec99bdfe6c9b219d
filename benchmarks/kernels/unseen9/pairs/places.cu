// Atomics, scans, lists, tables in L2, bulk copies, arrays with places known at run time, one wave of unequal blocks.
#include "../../unseen7/pairs/shared.cuh"

namespace {

constexpr int kPoints = 1 << 25, kPixels = 256, kDrawn = kSMs * 4;
using Key = unsigned long long;

// The nearest point of each pixel, by the largest key: asked of L2 for each point, or in shared memory once it is nearer.
__device__ inline Key key_of(const float* in, int i, int& pixel) {
  unsigned mixed = (__float_as_uint(in[i]) ^ unsigned(i)) * 2654435761u;
  mixed = (mixed ^ mixed >> 15) * 2246822519u;
  mixed ^= mixed >> 13;
  pixel = mixed & (kPixels - 1);
  return Key(__float_as_uint(1.0f + float(mixed >> 9) * (1.0f / 8388608.0f))) << 32 | unsigned(i & 0x7fffff);
}
__global__ void nearest_by_exchange_fault(const float* in, float* out) {
  for (int i = blockIdx.x * 512 + threadIdx.x; i < kPoints; i += kDrawn * 512) {
    int pixel;
    const Key key = key_of(in, i, pixel);
    atomicMax(reinterpret_cast<Key*>(out) + pixel, key);
  }
}
__global__ void nearest_by_exchange_fix(const float* in, float* out) {
  __shared__ Key best[kPixels];
  if (threadIdx.x < kPixels) best[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * 512 + threadIdx.x; i < kPoints; i += kDrawn * 512) {
    int pixel;
    const Key key = key_of(in, i, pixel);
    if (key > *const_cast<volatile Key*>(best + pixel)) atomicMax(best + pixel, key);
  }
  __syncthreads();
  if (threadIdx.x < kPixels) atomicMax(reinterpret_cast<Key*>(out) + threadIdx.x, best[threadIdx.x]);
}
Unseen nearests("nearest_by_exchange", {kPoints, 2 * kPixels, 16777213, [](bool fixed, const float* in, float* out) {
                                          (fixed ? nearest_by_exchange_fix : nearest_by_exchange_fault)<<<kDrawn, 512>>>(in, out);
                                        }, 1});

constexpr int kScanned = 1024, kScans = 1 << 15;

// Running sums by sweeps up and down a tree (Blelloch), its places in shared memory as they are, or one in 32 left out.
template <bool kPadded>
__device__ inline int placed(int i) { return kPadded ? i + i / 32 : i; }
template <bool kPadded>
__device__ void swept(const float* in, float* out) {
  __shared__ float tree[kScanned + kScanned / 32];
  const size_t first = size_t(blockIdx.x) * kScanned;
  const int t = threadIdx.x;
  tree[placed<kPadded>(t)] = in[first + t];
  tree[placed<kPadded>(t + 512)] = in[first + t + 512];
  int apart = 1;
#pragma unroll 1
  for (int pairs = kScanned / 2; pairs > 0; pairs /= 2, apart *= 2) {
    __syncthreads();
    if (t < pairs) tree[placed<kPadded>(apart * (2 * t + 2) - 1)] += tree[placed<kPadded>(apart * (2 * t + 1) - 1)];
  }
  if (t == 0) tree[placed<kPadded>(kScanned - 1)] = 0;
#pragma unroll 1
  for (int pairs = 1; pairs < kScanned; pairs *= 2) {
    apart /= 2;
    __syncthreads();
    if (t < pairs) {
      const int low = placed<kPadded>(apart * (2 * t + 1) - 1), high = placed<kPadded>(apart * (2 * t + 2) - 1);
      const float left = tree[low];
      tree[low] = tree[high];
      tree[high] += left;
    }
  }
  __syncthreads();
  out[first + t] = tree[placed<kPadded>(t)];
  out[first + t + 512] = tree[placed<kPadded>(t + 512)];
}
__global__ void totals_by_sweeps_fault(const float* in, float* out) { swept<false>(in, out); }
__global__ void totals_by_sweeps_fix(const float* in, float* out) { swept<true>(in, out); }
Unseen totals("totals_by_sweeps", {size_t(kScans) * kScanned, size_t(kScans) * kScanned, 61, [](bool fixed, const float* in, float* out) {
                                     (fixed ? totals_by_sweeps_fix : totals_by_sweeps_fault)<<<kScans, 512>>>(in, out);
                                   }, 997});

constexpr int kSequences = kSMs * 8, kShort = 256, kLong = 8192, kWidth = 256;
constexpr int kLongOnes = (kSequences - 6) / 131 + 1, kParts = kSequences + kLongOnes * (kLong / kShort - 1);
constexpr size_t kRowsOfAll = size_t(kParts) * kShort;

// Sums over sequences, all of which run at once; nine are 32 times as long as the others. A block to each, or to each part of 256 rows.
__device__ inline int long_before(int sequence) { return sequence > 5 ? (sequence - 6) / 131 + 1 : 0; }
__device__ inline float summed(const float* rows, int count) {
  float sum = 0;
#pragma unroll 4
  for (int r = 0; r < count; ++r) sum += rows[size_t(r) * kWidth + threadIdx.x];
  return sum;
}
__global__ void lengths_in_one_wave_fault(const float* in, float* out) {
  const int sequence = blockIdx.x, before = long_before(sequence);
  const size_t first = size_t(sequence) * kShort + size_t(before) * (kLong - kShort);
  out[sequence * kWidth + threadIdx.x] = summed(in + first * kWidth, sequence % 131 == 5 ? kLong : kShort);
}
__global__ void lengths_in_one_wave_fix(const float* in, float* out) {
  int sequence = 0;
  for (int step = 1024; step; step /= 2) {  // the last sequence whose first part is not past this one
    const int next = sequence + step;
    if (next < kSequences && next + long_before(next) * (kLong / kShort - 1) <= int(blockIdx.x)) sequence = next;
  }
  atomicAdd(out + sequence * kWidth + threadIdx.x, summed(in + size_t(blockIdx.x) * kShort * kWidth, kShort));
}
Unseen lengths("lengths_in_one_wave", {kRowsOfAll * kWidth, size_t(kSequences) * kWidth, 61, [](bool fixed, const float* in, float* out) {
                                         if (fixed) lengths_in_one_wave_fix<<<kParts, kWidth>>>(in, out);
                                         else lengths_in_one_wave_fault<<<kSequences, kWidth>>>(in, out);
                                       }});

constexpr int kNodes = 1 << 18, kFollowed = 1 << 15, kStretch = 32;

// A list whose nodes have 32 values each is followed by one warp from its first node on, or by a warp from each 32nd.
__device__ void followed(const float* in, float* out, int node, int stretch) {
  float sum = 0;
  for (int step = 0; step < kStretch; ++step) {
    sum += in[node * 32 + threadIdx.x];
    node = (int(in[node * 32]) / 32 * 5 + 3) & (kNodes - 1);
  }
  out[stretch * 32 + threadIdx.x] = sum;
}
__global__ void links_of_one_list_fault(const float* in, float* out) {
  int node = 0;
  float sum = 0;
#pragma unroll 1
  for (int step = 1; step <= kFollowed; ++step) {
    sum += in[node * 32 + threadIdx.x];
    node = (int(in[node * 32]) / 32 * 5 + 3) & (kNodes - 1);
    if (step % kStretch == 0) out[step / kStretch * 32 - 32 + threadIdx.x] = sum, sum = 0;
  }
}
__global__ void links_of_one_list_fix(const float* in, float* out) {
  unsigned scale = 5, shift = 3, node = 0;  // the steps before this stretch, doubled
  for (unsigned steps = blockIdx.x * kStretch; steps; steps /= 2) {
    if (steps & 1) node = node * scale + shift;
    shift = shift * scale + shift;
    scale *= scale;
  }
  followed(in, out, int(node & (kNodes - 1)), blockIdx.x);
}
Unseen links("links_of_one_list", {size_t(kNodes) * 32, size_t(kFollowed) / kStretch * 32, 16777213, [](bool fixed, const float* in, float* out) {
                                     if (fixed) links_of_one_list_fix<<<kFollowed / kStretch, 32>>>(in, out);
                                     else links_of_one_list_fault<<<1, 32>>>(in, out);
                                   }});

constexpr int kStates = 1 << 22, kDocuments = kSMs * 64 * 4, kLetters = 128;

// An automaton whose table lies in L2 reads documents: a warp one after the other's letters, or four documents at once.
__device__ inline unsigned next_state(float word, unsigned letter) { return (__float_as_uint(word) * 2654435761u + letter) >> 10; }
template <int kAtOnce>
__device__ void documents_read(const float* in, float* out) {
  const int warp = blockIdx.x * 8 + threadIdx.x / 32;
  unsigned state[kAtOnce], letter[kAtOnce];
#pragma unroll
  for (int k = 0; k < kAtOnce; ++k) state[k] = (warp * kAtOnce + k) * 101u & (kStates - 1), letter[k] = (warp * kAtOnce + k) * 40503u;
#pragma unroll 4
  for (int step = 0; step < kLetters; ++step) {
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) state[k] = next_state(in[state[k]], letter[k] += 0x3c6ef372u);
  }
#pragma unroll
  for (int k = 0; k < kAtOnce; ++k) out[warp * kAtOnce + k] = float(state[k]);
}
__global__ void automaton_in_memory_fault(const float* in, float* out) { documents_read<1>(in, out); }
__global__ void automaton_in_memory_fix(const float* in, float* out) { documents_read<4>(in, out); }
Unseen automata("automaton_in_memory", {kStates, kDocuments, 16777213, [](bool fixed, const float* in, float* out) {
                                          if (fixed) automaton_in_memory_fix<<<kDocuments / 32, 256>>>(in, out);
                                          else automaton_in_memory_fault<<<kDocuments / 8, 256>>>(in, out);
                                        }});

constexpr int kVectors = 8192, kDims = 128, kQueries = kSMs * 16;

// The least distance of each query to vectors of a table that fits L2, read for each query, or for eight.
template <int kAtOnce>
__device__ void least_distances(const float* in, float* out) {
  __shared__ float query[kDims][kAtOnce];
  for (int k = threadIdx.x; k < kDims * kAtOnce; k += 256)
    query[k / kAtOnce][k % kAtOnce] = in[((blockIdx.x * kAtOnce + k % kAtOnce) * 131 + k / kAtOnce) % (kVectors * kDims)];
  __syncthreads();
  float least[kAtOnce];
#pragma unroll
  for (int q = 0; q < kAtOnce; ++q) least[q] = 1e30f;
  for (int v = threadIdx.x * 4; v < kVectors; v += 1024) {
    float4 apart[kAtOnce];
#pragma unroll
    for (int q = 0; q < kAtOnce; ++q) apart[q] = make_float4(0, 0, 0, 0);
#pragma unroll 8
    for (int d = 0; d < kDims; ++d) {
      const float4 own = __ldcg(reinterpret_cast<const float4*>(in + size_t(d) * kVectors + v));
#pragma unroll
      for (int q = 0; q < kAtOnce; ++q) {
        const float x = own.x - query[d][q], y = own.y - query[d][q], z = own.z - query[d][q], w = own.w - query[d][q];
        apart[q].x += x * x, apart[q].y += y * y, apart[q].z += z * z, apart[q].w += w * w;
      }
    }
#pragma unroll
    for (int q = 0; q < kAtOnce; ++q) least[q] = fminf(fminf(fminf(least[q], apart[q].x), fminf(apart[q].y, apart[q].z)), apart[q].w);
  }
#pragma unroll
  for (int q = 0; q < kAtOnce; ++q) out[(blockIdx.x * kAtOnce + q) * 256 + threadIdx.x] = least[q];
}
__global__ void __launch_bounds__(256) queries_one_by_one_fault(const float* in, float* out) { least_distances<1>(in, out); }
__global__ void __launch_bounds__(256) queries_one_by_one_fix(const float* in, float* out) { least_distances<8>(in, out); }
Unseen queries("queries_one_by_one", {size_t(kVectors) * kDims, size_t(kQueries) * 256, 61, [](bool fixed, const float* in, float* out) {
                                        if (fixed) queries_one_by_one_fix<<<kQueries / 8, 256>>>(in, out);
                                        else queries_one_by_one_fault<<<kQueries, 256>>>(in, out);
                                      }});

constexpr int kReaders = kSMs * 16, kRead = 128, kRow = 128;

__device__ inline unsigned shared_place(const void* at) { return unsigned(__cvta_generic_to_shared(at)); }
__device__ inline void bring(float* to, const float* from, Key* arrived) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_place(arrived)), "r"(kRow * 4) : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_place(to)), "l"(from), "r"(kRow * 4), "r"(shared_place(arrived)) : "memory");
}
__device__ inline void await(Key* arrived, unsigned parity) {
  asm volatile("{\n.reg .pred p;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra DONE;\nbra AGAIN;\nDONE:\n}" ::"r"(shared_place(arrived)), "r"(parity) : "memory");
}
// Rows of 512 bytes come by bulk copies (TMA): each is waited for, or seven others are on the way.
template <int kAhead>
__device__ void rows_brought(const float* in, float* out) {
  __shared__ alignas(128) float rows[kAhead][kRow];
  __shared__ Key arrived[kAhead];
  const float* mine = in + size_t(blockIdx.x) * kRead * kRow;
  if (threadIdx.x == 0) {
    for (int k = 0; k < kAhead; ++k) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_place(arrived + k)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    for (int k = 0; k < kAhead; ++k) bring(rows[k], mine + k * kRow, arrived + k);
  }
  __syncthreads();
  float sum = 0;
#pragma unroll 1
  for (int r = 0; r < kRead; ++r) {
    const int k = r % kAhead;
    await(arrived + k, r / kAhead & 1);
    sum += rows[k][threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0 && r + kAhead < kRead) bring(rows[k], mine + (r + kAhead) * kRow, arrived + k);
  }
  out[blockIdx.x * kRow + threadIdx.x] = sum;
}
__global__ void rows_by_bulk_copy_fault(const float* in, float* out) { rows_brought<1>(in, out); }
__global__ void rows_by_bulk_copy_fix(const float* in, float* out) { rows_brought<8>(in, out); }
Unseen brought("rows_by_bulk_copy", {size_t(kReaders) * kRead * kRow, size_t(kReaders) * kRow, 61, [](bool fixed, const float* in, float* out) {
                                       (fixed ? rows_by_bulk_copy_fix : rows_by_bulk_copy_fault)<<<kReaders, kRow>>>(in, out);
                                     }});

constexpr int kSystems = kSMs * 4096, kSide = 8;

// Eight equations to each thread: rows are exchanged by a place known at run time, or compared one by one.
__device__ inline void system_of(const float* in, int i, float (&a)[kSide][kSide + 1]) {
#pragma unroll
  for (int r = 0; r < kSide; ++r)
#pragma unroll
    for (int c = 0; c <= kSide; ++c) a[r][c] = in[size_t(r * (kSide + 1) + c) * kSystems + i] * 0.01f + (r == c ? 20.0f : 1.0f);
}
__global__ void __launch_bounds__(128) systems_with_pivots_fault(const float* in, float* out) {
  const int i = blockIdx.x * 128 + threadIdx.x;
  float a[kSide][kSide + 1];
  system_of(in, i, a);
#pragma unroll 1
  for (int k = 0; k < kSide; ++k) {
    int pivot = k;
#pragma unroll 1
    for (int r = k + 1; r < kSide; ++r)
      if (fabsf(a[r][k]) > fabsf(a[pivot][k])) pivot = r;
#pragma unroll 1
    for (int c = k; c <= kSide; ++c) {
      const float kept = a[k][c];
      a[k][c] = a[pivot][c];
      a[pivot][c] = kept;
    }
#pragma unroll 1
    for (int r = 0; r < kSide; ++r) {
      if (r == k) continue;
      const float factor = a[r][k] / a[k][k];
#pragma unroll 1
      for (int c = k + 1; c <= kSide; ++c) a[r][c] -= factor * a[k][c];
    }
  }
  float sum = 0;
#pragma unroll 1
  for (int r = 0; r < kSide; ++r) sum += a[r][kSide] / a[r][r] * (r + 1);
  out[i] = sum;
}
__global__ void __launch_bounds__(128) systems_with_pivots_fix(const float* in, float* out) {
  const int i = blockIdx.x * 128 + threadIdx.x;
  float a[kSide][kSide + 1];
  system_of(in, i, a);
#pragma unroll
  for (int k = 0; k < kSide; ++k) {
#pragma unroll
    for (int r = k + 1; r < kSide; ++r) {
      const bool is_larger = fabsf(a[r][k]) > fabsf(a[k][k]);
#pragma unroll
      for (int c = k; c <= kSide; ++c) {
        const float upper = a[k][c], lower = a[r][c];
        a[k][c] = is_larger ? lower : upper;
        a[r][c] = is_larger ? upper : lower;
      }
    }
#pragma unroll
    for (int r = 0; r < kSide; ++r) {
      if (r == k) continue;
      const float factor = a[r][k] / a[k][k];
#pragma unroll
      for (int c = k + 1; c <= kSide; ++c) a[r][c] -= factor * a[k][c];
    }
  }
  float sum = 0;
#pragma unroll
  for (int r = 0; r < kSide; ++r) sum += a[r][kSide] / a[r][r] * (r + 1);
  out[i] = sum;
}
Unseen systems("systems_with_pivots", {size_t(kSystems) * kSide * (kSide + 1), kSystems, 61, [](bool fixed, const float* in, float* out) {
                                         (fixed ? systems_with_pivots_fix : systems_with_pivots_fault)<<<kSystems / 128, 128>>>(in, out);
                                       }, 61, 1e-3});

}  // namespace

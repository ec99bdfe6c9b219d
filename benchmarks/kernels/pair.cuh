// A pair is one program fault and its fix: two kernels that must give the same result. The suite launches them for
// checking, for unprofiled timing and, between cudaProfilerStart and cudaProfilerStop, for Nsight Compute.
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

inline void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) {
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
    std::exit(1);
  }
}

// Device memory that frees itself.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count) : count_(count) { check(cudaMalloc(&data_, count * sizeof(T)), "cudaMalloc"); }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* get() const { return data_; }
  size_t count() const { return count_; }
  void clear() const { check(cudaMemset(data_, 0, count_ * sizeof(T)), "cudaMemset"); }

  // Every `step`-th element of the first `used`, as doubles.
  std::vector<double> sample(size_t step = 1) const {
    std::vector<T> host(count_);
    check(cudaMemcpy(host.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
    std::vector<double> out;
    for (size_t i = 0; i < count_; i += step) out.push_back(static_cast<double>(host[i]));
    return out;
  }

 private:
  T* data_ = nullptr;
  size_t count_;
};

// data[i] = i % modulus: small integers, exact in every format used here, so that sums do not depend on their order.
template <typename T>
__global__ void fill_kernel(T* data, size_t count, unsigned modulus) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += size_t(gridDim.x) * blockDim.x)
    data[i] = static_cast<T>(float(i % modulus));
}

template <typename T>
void fill(const DeviceArray<T>& array, unsigned modulus) {
  fill_kernel<<<1024, 256>>>(array.get(), array.count(), modulus);
}

class Pair {
 public:
  virtual ~Pair() = default;
  virtual void reset() {}                            // before every launch, untimed
  virtual void launch(bool fixed) = 0;               // exactly one kernel
  virtual std::vector<double> result() const = 0;    // of the last launch
  virtual double tolerance() const { return 0.0; }   // relative; 0 means identical
};

struct Entry {
  std::string name, group;
  std::function<std::unique_ptr<Pair>()> make;
};

std::vector<Entry>& entries();

template <typename P>
struct Register {
  Register(const char* name, const char* group) {
    entries().push_back({name, group, [] { return std::unique_ptr<Pair>(new P()); }});
  }
};

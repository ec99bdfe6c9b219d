#pragma once
#include "../../unseen4/pairs/plain.cuh"

// The sum of a warp, to every lane.
__device__ inline float sum_of_warp(float value) {
  for (int by = 16; by; by /= 2) value += __shfl_xor_sync(~0u, value, by);
  return value;
}

// The sum up to this lane.
__device__ inline float up_to_lane(float value) {
  for (int by = 1; by < 32; by *= 2) {
    const float other = __shfl_up_sync(~0u, value, by);
    if (int(threadIdx.x) % 32 >= by) value += other;
  }
  return value;
}

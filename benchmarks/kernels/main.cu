// pairs --list | --verify | --time FILE.json | --capture GROUP
#include <cuda_profiler_api.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "pair.cuh"

std::vector<Entry>& entries() {
  static std::vector<Entry> all;
  return all;
}

static std::vector<double> run_once(Pair& pair, bool fixed) {
  pair.reset();
  pair.launch(fixed);
  check(cudaGetLastError(), "launch");
  check(cudaDeviceSynchronize(), "kernel");
  return pair.result();
}

static bool agree(const Pair& pair, const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size() || a.empty()) return false;
  bool any = false;
  for (size_t i = 0; i < a.size(); ++i) {
    any = any || a[i] != 0.0;
    if (!(std::abs(a[i] - b[i]) <= pair.tolerance() * std::max(std::abs(a[i]), std::abs(b[i])))) return false;
  }
  return any;  // two outputs of zeros prove nothing
}

static int verify() {
  int wrong = 0;
  for (const Entry& entry : entries()) {
    auto pair = entry.make();
    const bool same = agree(*pair, run_once(*pair, false), run_once(*pair, true));
    std::printf("%-24s %s\n", entry.name.c_str(), same ? "same result" : "RESULTS DIFFER");
    wrong += !same;
  }
  return wrong != 0;
}

static float timed_us(Pair& pair, bool fixed, cudaEvent_t start, cudaEvent_t stop) {
  pair.reset();
  cudaEventRecord(start);
  pair.launch(fixed);
  cudaEventRecord(stop);
  check(cudaEventSynchronize(stop), "timing");
  float ms = 0;
  cudaEventElapsedTime(&ms, start, stop);
  return ms * 1000.0f;
}

// Fault and fix alternate, so that clock and temperature drift touch both alike.
static int time_all(const char* path) {
  const int warm = 5, runs = 41;
  FILE* out = std::fopen(path, "w");
  if (!out) return 1;
  cudaEvent_t start, stop;
  cudaEventCreate(&start);
  cudaEventCreate(&stop);
  std::fprintf(out, "{\n");
  for (size_t e = 0; e < entries().size(); ++e) {
    auto pair = entries()[e].make();
    std::vector<float> us[2];
    for (int i = 0; i < warm + runs; ++i)
      for (int fixed = 0; fixed < 2; ++fixed) {
        const float t = timed_us(*pair, fixed, start, stop);
        if (i >= warm) us[fixed].push_back(t);
      }
    for (auto& v : us) std::sort(v.begin(), v.end());
    std::fprintf(out,
                 "  \"%s\": {\"runs\": %d, \"fault_us\": %.3f, \"fault_p10_us\": %.3f, \"fault_p90_us\": %.3f, "
                 "\"fix_us\": %.3f, \"fix_p10_us\": %.3f, \"fix_p90_us\": %.3f}%s\n",
                 entries()[e].name.c_str(), runs, us[0][runs / 2], us[0][runs / 10], us[0][runs - 1 - runs / 10],
                 us[1][runs / 2], us[1][runs / 10], us[1][runs - 1 - runs / 10],
                 e + 1 < entries().size() ? "," : "");
  }
  std::fprintf(out, "}\n");
  return std::fclose(out);
}

// One warm launch outside the profiled window, one inside, of every kernel of the group.
static int capture(const std::string& group) {
  for (const Entry& entry : entries()) {
    if (entry.group != group) continue;
    auto pair = entry.make();
    for (int fixed = 0; fixed < 2; ++fixed) {
      run_once(*pair, fixed);
      pair->reset();
      check(cudaDeviceSynchronize(), "reset");
      cudaProfilerStart();
      pair->launch(fixed);
      check(cudaDeviceSynchronize(), "capture");
      cudaProfilerStop();
    }
  }
  return 0;
}

int main(int argc, char** argv) {
  std::sort(entries().begin(), entries().end(), [](const Entry& a, const Entry& b) { return a.name < b.name; });
  const std::string mode = argc > 1 ? argv[1] : "--list";
  if (mode == "--verify") return verify();
  if (mode == "--time" && argc > 2) return time_all(argv[2]);
  if (mode == "--capture" && argc > 2) return capture(argv[2]);
  for (const Entry& entry : entries()) std::printf("%s %s\n", entry.group.c_str(), entry.name.c_str());
  return 0;
}

// A pair of two kernels that read one array and write another.
#pragma once
#include "../../pair.cuh"

struct Plan {
  size_t in, out;    // floats
  unsigned modulus;  // of the input's values
  void (*launch)(bool fixed, const float* in, float* out);
  size_t step = 61;  // of the values compared
  double tolerance = 0;
};

class Plain : public Pair {
 public:
  explicit Plain(const Plan& plan) : plan_(plan), in_(plan.in), out_(plan.out) { fill(in_, plan.modulus); }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override { plan_.launch(fixed, in_.get(), out_.get()); }
  std::vector<double> result() const override { return out_.sample(plan_.step); }
  double tolerance() const override { return plan_.tolerance; }

 private:
  Plan plan_;
  DeviceArray<float> in_, out_;
};

struct Unseen {
  Unseen(const char* name, const Plan& plan) {
    entries().push_back({name, "unseen", [plan] { return std::unique_ptr<Pair>(new Plain(plan)); }});
  }
};

constexpr int kSMs = 132;

// The model's attention, forward and backward, as an interface: plain C++, or chapters' code in a worker. Independent
// of the model.
#pragma once

#include <span>

#include "common/attention/setting.hpp"
#include "common/training/storage.hpp"

namespace workbook::training {

/// Attention for the model. Q, K, V and dO hold numbers of the run's storage format, and so must the results. An
/// exception ends the run. A backward call receives O and lse of the forward pass and overwrites its gradients. The
/// same inputs must give bitwise identical results.
template <class T>
class AttentionCore {
 public:
  virtual ~AttentionCore() = default;
  virtual void forward(const AttentionCallOf<T>& call) = 0;
  virtual void backward(const GradientCallOf<T>& call) = 0;
};

/// Attention head by head with S and P materialised, in T. It rounds where chapters 3 to 7 round: P before the matmul
/// with V or dO, dS before the matmul with K or Q, and the results. S, dP, D and the LSE stay in T. Source: Dao 2023,
/// section 3.1.2, and common/attention/oracle.hpp for the formulas.
template <class T>
class PlainAttention : public AttentionCore<T> {
 public:
  explicit PlainAttention(Storage storage) : storage_(storage) {}
  void forward(const AttentionCallOf<T>& call) override;
  void backward(const GradientCallOf<T>& call) override;

 private:
  Storage storage_;
};

}  // namespace workbook::training

// Attention as the model needs it, forward and backward, behind an interface: the book's own in plain C++, or the
// reader's chapters in a worker. Knows nothing of the model.
#pragma once

#include <span>

#include "common/attention/setting.hpp"
#include "common/training/storage.hpp"

namespace workbook::training {

/// Attention for the model. Q, K, V and dO hold numbers of the run's storage format, and so must the results. May
/// throw; the run then ends with what was thrown. O and lse of a backward call are as the
/// forward pass gave them; its gradients are overwritten. The same inputs have to give the same bits.
template <class T>
class AttentionCore {
 public:
  virtual ~AttentionCore() = default;
  virtual void forward(const AttentionCallOf<T>& call) = 0;
  virtual void backward(const GradientCallOf<T>& call) = 0;
};

/// Attention head by head with S and P materialised, in T. It rounds where chapters 3 to 7 round: P before it is
/// multiplied with V or dO, dS before it is multiplied with K or Q, and the results; S, dP, D and the LSE stay in T.
/// Source: Dao 2023, section 3.1.2, and common/attention/oracle.hpp for the formulas.
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

#include "common/training/attention_core.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "common/training/product.hpp"
#include "common/training/threads.hpp"

namespace workbook::training {
namespace {

/// S (Nq, Nk) = scale·QKᵀ of one head with the score modification; masked scores are -inf.
template <class T>
void scores(std::vector<T>& S, const T* Q, const T* K, const Setting& setting, std::int64_t head) {
  const auto [B, H, Hkv, Nq, Nk, d] = setting.shape;
  multiply(S.data(), Nk, matrix(Q, Nq, d), matrix(K, Nk, d).transposed(), Into::overwrite, /*all_cores=*/false);
  for (std::int64_t i = 0; i < Nq; ++i) {
    const std::int64_t row = head * Nq + i;
    std::int64_t masked_from = 0;
    const auto mask_until = [&, Nk = Nk](std::int64_t key) {
      std::fill(&S[std::size_t(i * Nk + masked_from)], S.data() + i * Nk + key, -std::numeric_limits<T>::infinity());
    };
    setting.mask.for_keys(setting.shape, row, [&, Nk = Nk](std::int64_t j) {
      mask_until(j);
      masked_from = j + 1;
      T& s = S[std::size_t(i * Nk + j)];
      s = T(setting.mask.changed(setting.shape, row, j, double(T(setting.scale) * s)));
    });
    mask_until(Nk);
  }
}

}  // namespace

template <class T>
void PlainAttention<T>::forward(const AttentionCallOf<T>& call) {
  const auto [B, H, Hkv, Nq, Nk, d] = call.shape;
  const auto work = [&, Nq = Nq, Nk = Nk, d = d](std::int64_t first, std::int64_t last) {
    std::vector<T> S(std::size_t(Nq * Nk)), l(static_cast<std::size_t>(Nq));
    for (std::int64_t head = first; head < last; ++head) {
      const auto keys = std::size_t(call.shape.kv_head(head) * Nk * d);
      scores(S, &call.Q[std::size_t(head * Nq * d)], &call.K[keys], call, head);
      // P = exp(S - m), not yet divided by l. l sums P before rounding.
      for (std::int64_t i = 0; i < Nq; ++i) {
        T* row = &S[std::size_t(i * Nk)];
        T m = -std::numeric_limits<T>::infinity(), sum = 0;
        for (std::int64_t j = 0; j < Nk; ++j) m = row[j] > m ? row[j] : m;
        const T m_safe = m == -std::numeric_limits<T>::infinity() ? T(0) : m;
        for (std::int64_t j = 0; j < Nk; ++j) {
          row[j] = std::exp(row[j] - m_safe);
          sum += row[j];
        }
        l[std::size_t(i)] = sum;
        call.lse[std::size_t(head * Nq + i)] = m + std::log(sum);
      }
      round_to(storage_, std::span<T>(S));
      T* O = &call.O[std::size_t(head * Nq * d)];
      multiply(O, d, matrix(S.data(), Nq, Nk), matrix(&call.V[keys], Nk, d), Into::overwrite, false);
      for (std::int64_t i = 0; i < Nq; ++i) {
        const T sum = l[std::size_t(i)];
        for (std::int64_t c = 0; c < d; ++c) O[i * d + c] = sum == 0 ? T(0) : O[i * d + c] / sum;
      }
      round_to(storage_, std::span<T>(O, std::size_t(Nq * d)));
    }
  };
  parallel(B * H, 1, work);
}

template <class T>
void PlainAttention<T>::backward(const GradientCallOf<T>& call) {
  const auto [B, H, Hkv, Nq, Nk, d] = call.shape;
  const std::int64_t group = H / Hkv;  // heads that share K and V; one thread accumulates their dK and dV
  const auto work = [&, Nq = Nq, Nk = Nk, d = d](std::int64_t first, std::int64_t last) {
    std::vector<T> P(std::size_t(Nq * Nk)), dS(P.size());
    for (std::int64_t head = first * group; head < last * group; ++head) {
      const auto queries = std::size_t(head * Nq * d), keys = std::size_t(head / group * Nk * d);
      const T *Q = &call.Q[queries], *K = &call.K[keys], *V = &call.V[keys], *O = &call.O[queries],
              *dO = &call.dO[queries];
      scores(P, Q, K, call, head);
      multiply(dS.data(), Nk, matrix(dO, Nq, d), matrix(V, Nk, d).transposed(), Into::overwrite, false);  // dP = dO·Vᵀ
      for (std::int64_t i = 0; i < Nq; ++i) {
        T D = 0;
        for (std::int64_t c = 0; c < d; ++c) D += dO[i * d + c] * O[i * d + c];
        const T lse = call.lse[std::size_t(head * Nq + i)];
        // A fully masked row has the LSE -inf; reading it as +inf gives P = 0.
        const T lse_safe = std::isinf(lse) ? std::numeric_limits<T>::infinity() : lse;
        for (std::int64_t j = 0; j < Nk; ++j) {
          T &p = P[std::size_t(i * Nk + j)], &ds = dS[std::size_t(i * Nk + j)];
          p = std::exp(p - lse_safe);
          ds = p * (ds - D);
        }
      }
      round_to(storage_, std::span<T>(P));
      round_to(storage_, std::span<T>(dS));
      const Into into = head % group == 0 ? Into::overwrite : Into::add;
      // dQ = scale·dS·K, dK = scale·dSᵀ·Q, dV = Pᵀ·dO
      multiply(&call.dQ[queries], d, matrix(dS.data(), Nq, Nk), matrix(K, Nk, d), Into::overwrite, false);
      multiply(&call.dK[keys], d, matrix(dS.data(), Nq, Nk).transposed(), matrix(Q, Nq, d), into, false);
      multiply(&call.dV[keys], d, matrix(P.data(), Nq, Nk).transposed(), matrix(dO, Nq, d), into, false);
      for (T& gradient : call.dQ.subspan(queries, std::size_t(Nq * d))) gradient *= T(call.scale);
      round_to(storage_, call.dQ.subspan(queries, std::size_t(Nq * d)));
      if (head % group != group - 1) continue;
      for (T& gradient : call.dK.subspan(keys, std::size_t(Nk * d))) gradient *= T(call.scale);
      round_to(storage_, call.dK.subspan(keys, std::size_t(Nk * d)));
      round_to(storage_, call.dV.subspan(keys, std::size_t(Nk * d)));
    }
  };
  parallel(B * Hkv, 1, work);
}

template class PlainAttention<float>;
template class PlainAttention<double>;

}  // namespace workbook::training

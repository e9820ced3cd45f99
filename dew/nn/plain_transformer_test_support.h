// The transformer as a plain loop in double precision, written from the model's definition and
// sharing nothing with nn or ops: tests compare programs with it.
#pragma once

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "dew/base/rng.h"
#include "dew/nn/transformer.h"

namespace dew::plain {

using Vec = std::vector<double>;
using Params = std::map<std::string, Vec>;  // as stored: a stack's layers behind each other
using Row = std::vector<int>;

// One row of a batch.
struct Sequence {
  Row ids, labels, positions, segments;
  Vec weights;
  int row_id = 0;
};

struct Sums {
  double loss = 0, nll = 0, correct = 0;
};

class Model {
 public:
  Model(const models::TransformerConfig& config, const Params& params)
      : c_(models::resolved(config)), params_(params) {}

  // Turns dropout on.
  void train(RandomKey key, std::uint32_t step) {
    key_ = key;
    step_ = step;
    rate_ = c_.dropout;
  }

  std::vector<Vec> states(const Sequence& row) const {
    std::vector<Vec> x;
    for (std::size_t t = 0; t < row.ids.size(); ++t) {
      x.push_back(part("embed_tokens/embedding", row.ids[t], width()));
      if (c_.scale_embeddings) {
        for (double& v : x[t]) v *= std::sqrt(static_cast<double>(width()));
      }
      if (c_.positions == "learned")
        add_to(x[t], part("embed_positions/embedding", row.positions[t], width()));
    }
    drop(x, 1, 0, row);
    for (int l = 0; l < c_.num_layers; ++l) layer(x, l, row);
    for (Vec& v : x) v = norm("final_norm", 0, v);
    return x;
  }

  Sums sums(const Sequence& row, double z_loss) const {
    const std::string head = c_.tie_embeddings ? "embed_tokens/embedding" : "lm_head/kernel";
    const std::vector<Vec> x = states(row);
    Sums s;
    for (std::size_t t = 0; t < x.size(); ++t) {
      if (row.weights[t] == 0) continue;
      Vec logits;
      for (int v = 0; v < c_.vocab_size; ++v)
        logits.push_back(cap(dot(x[t], part(head, v, width())), c_.logit_softcap));
      double sum = 0;
      std::size_t best = 0;
      for (std::size_t v = 0; v < logits.size(); ++v) {
        sum += std::exp(logits[v]);
        if (logits[v] > logits[best]) best = v;
      }
      const double lse = std::log(sum), nll = lse - logits[static_cast<std::size_t>(row.labels[t])];
      s.nll += row.weights[t] * nll;
      s.loss += row.weights[t] * (nll + z_loss * lse * lse);
      s.correct += static_cast<int>(best) == row.labels[t] ? row.weights[t] : 0;
    }
    return s;
  }

 private:
  std::int64_t width() const { return c_.emb_features; }

  // Elements [index * size, (index + 1) * size) of a parameter.
  Vec part(const std::string& name, std::int64_t index, std::int64_t size) const {
    const Vec& all = params_.at(name);
    return {all.begin() + index * size, all.begin() + (index + 1) * size};
  }

  static double dot(const Vec& a, const Vec& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
  }
  static void add_to(Vec& a, const Vec& b) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  }
  static double cap(double x, double softcap) {
    return softcap > 0 ? softcap * std::tanh(x / softcap) : x;
  }

  Vec product(const std::string& name, int l, const Vec& x, std::int64_t out, bool bias) const {
    const auto in = static_cast<std::int64_t>(x.size());
    const Vec w = part(name + "/kernel", l, in * out);
    Vec y = bias ? part(name + "/bias", l, out) : Vec(static_cast<std::size_t>(out), 0.0);
    for (std::int64_t i = 0; i < in; ++i) {
      for (std::int64_t o = 0; o < out; ++o) {
        y[static_cast<std::size_t>(o)] +=
            x[static_cast<std::size_t>(i)] * w[static_cast<std::size_t>(i * out + o)];
      }
    }
    return y;
  }

  Vec rms(const Vec& x, const Vec& scale) const {
    const double r = 1 / std::sqrt(dot(x, x) / static_cast<double>(x.size()) + c_.norm_eps);
    Vec y(x);
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * r * scale[i];
    return y;
  }

  Vec norm(const std::string& name, int l, const Vec& x) const {
    Vec scale = part(name + "/scale", l, width());
    if (c_.norm == "rms_plus_one") {
      for (double& v : scale) v += 1;
    }
    if (c_.norm != "layer") return rms(x, scale);
    const Vec bias = part(name + "/bias", l, width());
    double mean = 0, variance = 0;
    for (const double v : x) mean += v / static_cast<double>(x.size());
    for (const double v : x) variance += (v - mean) * (v - mean) / static_cast<double>(x.size());
    Vec y(x);
    for (std::size_t i = 0; i < x.size(); ++i)
      y[i] = (x[i] - mean) / std::sqrt(variance + c_.norm_eps) * scale[i] + bias[i];
    return y;
  }

  double frequency(std::int64_t pair) const {
    const double f = std::pow(c_.rope_theta,
                              -2.0 * static_cast<double>(pair) / static_cast<double>(c_.head_dim));
    const models::RopeScaling& s = c_.rope_scaling;
    if (s.type == "none") return f;
    if (s.type == "linear") return f / s.factor;
    const double turns =
        static_cast<double>(s.original_max_seq_len) * f / (2 * 3.14159265358979323846);
    if (turns > s.high_freq_factor) return f;
    if (turns < s.low_freq_factor) return f / s.factor;
    const double keep = (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
    return f * (keep + (1 - keep) / s.factor);
  }

  // One head of q or k.
  Vec head(const Vec& all, std::int64_t h, const std::string& head_norm, int l,
           int position) const {
    const std::int64_t d = c_.head_dim;
    Vec x(all.begin() + h * d, all.begin() + (h + 1) * d);
    if (c_.qk_norm && c_.qk_norm_over == "head") x = rms(x, part(head_norm + "/scale", l, d));
    if (c_.positions != "rope") return x;
    for (std::int64_t i = 0; i < d / 2; ++i) {
      double &a = x[static_cast<std::size_t>(i)], &b = x[static_cast<std::size_t>(i + d / 2)];
      const double angle = position * frequency(i), a0 = a;
      a = a0 * std::cos(angle) - b * std::sin(angle);
      b = a0 * std::sin(angle) + b * std::cos(angle);
    }
    return x;
  }

  bool sees(const Sequence& row, std::size_t t, std::size_t s, int l) const {
    const auto& pattern = c_.window_pattern;
    const std::int64_t window =
        pattern.empty() ? c_.window : pattern[static_cast<std::size_t>(l) % pattern.size()];
    const int distance = row.positions[t] - row.positions[s];
    return row.segments[t] == row.segments[s] && distance >= 0 &&
           (window == 0 || distance < window);
  }

  std::vector<Vec> attention(const std::vector<Vec>& x, int l, const Sequence& row) const {
    const std::string at = "layers/attention/";
    const std::int64_t d = c_.head_dim, q_size = c_.num_heads * d, kv_size = c_.num_kv_heads * d;
    std::vector<Vec> q, k, v, out;
    const bool bias = c_.attention_bias || c_.qkv_bias;
    for (const Vec& in : x) {
      q.push_back(product(at + "q_proj", l, in, q_size, bias));
      k.push_back(product(at + "k_proj", l, in, kv_size, bias));
      v.push_back(product(at + "v_proj", l, in, kv_size, bias));
      if (!c_.qk_norm || c_.qk_norm_over != "all") continue;
      q.back() = rms(q.back(), part(at + "q_norm/scale", l, q_size));
      k.back() = rms(k.back(), part(at + "k_norm/scale", l, kv_size));
    }
    const double scale =
        c_.attention_scale > 0 ? c_.attention_scale : 1 / std::sqrt(static_cast<double>(d));
    for (std::size_t t = 0; t < x.size(); ++t) {
      Vec joined;
      for (std::int64_t h = 0; h < c_.num_heads; ++h) {
        const std::int64_t kv = h / (c_.num_heads / c_.num_kv_heads);
        const Vec query = head(q[t], h, at + "q_norm", l, row.positions[t]);
        Vec sum(static_cast<std::size_t>(d), 0.0);
        double total = 0;
        for (std::size_t s = 0; s < x.size(); ++s) {
          if (!sees(row, t, s, l)) continue;
          const Vec key = head(k[s], kv, at + "k_norm", l, row.positions[s]);
          const double p = std::exp(cap(dot(query, key) * scale, c_.attention_softcap));
          total += p;
          for (std::int64_t i = 0; i < d; ++i) {
            sum[static_cast<std::size_t>(i)] += p * v[s][static_cast<std::size_t>(kv * d + i)];
          }
        }
        for (const double value : sum) joined.push_back(value / total);
      }
      out.push_back(product(at + "o_proj", l, joined, width(), c_.attention_bias));
    }
    return out;
  }

  Vec mlp(const Vec& x, int l) const {
    const std::string at = "layers/mlp/";
    const auto gelu = [](double u) {
      return u / 2 *
             (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (u + 0.044715 * u * u * u)));
    };
    Vec hidden = product(at + "up_proj", l, x, c_.mlp_features, c_.mlp_bias);
    if (c_.mlp == "gelu") {
      for (double& h : hidden) h = gelu(h);
    } else if (c_.mlp == "gelu_erf") {
      for (double& h : hidden) h = h / 2 * (1 + std::erf(h / std::sqrt(2.0)));
    } else {
      const Vec gate = product(at + "gate_proj", l, x, c_.mlp_features, c_.mlp_bias);
      for (std::size_t i = 0; i < hidden.size(); ++i) {
        hidden[i] *= c_.mlp == "geglu" ? gelu(gate[i]) : gate[i] / (1 + std::exp(-gate[i]));
      }
    }
    return product(at + "down_proj", l, hidden, width(), c_.mlp_bias);
  }

  void layer(std::vector<Vec>& x, int l, const Sequence& row) const {
    const bool before = c_.norm_placement != "after", after = c_.norm_placement != "before";
    std::vector<Vec> normed;
    for (const Vec& v : x) normed.push_back(before ? norm("layers/attention_norm", l, v) : v);
    std::vector<Vec> change = attention(normed, l, row);
    for (Vec& v : change) v = after ? norm("layers/attention_out_norm", l, v) : v;
    drop(change, 2, l, row);
    for (std::size_t t = 0; t < x.size(); ++t) add_to(x[t], change[t]);
    for (std::size_t t = 0; t < x.size(); ++t) {
      change[t] = mlp(before ? norm("layers/mlp_norm", l, x[t]) : x[t], l);
      if (after) change[t] = norm("layers/mlp_out_norm", l, change[t]);
    }
    drop(change, 3, l, row);
    for (std::size_t t = 0; t < x.size(); ++t) add_to(x[t], change[t]);
  }

  void drop(std::vector<Vec>& x, std::uint32_t purpose, int l, const Sequence& row) const {
    if (rate_ == 0) return;
    const RandomKey k = fold(key_, purpose, static_cast<std::uint32_t>(l), step_, 0);
    for (std::size_t t = 0; t < x.size(); ++t) {
      for (std::size_t j = 0; j < x[t].size(); ++j) {
        const auto words =
            philox(k, {static_cast<std::uint32_t>(j / 4), static_cast<std::uint32_t>(t),
                       static_cast<std::uint32_t>(row.row_id), 0});
        x[t][j] = uniform(words[j % 4]) >= rate_ ? x[t][j] / (1 - rate_) : 0;
      }
    }
  }

  models::TransformerConfig c_;
  const Params& params_;
  RandomKey key_;
  std::uint32_t step_ = 0;
  double rate_ = 0;
};

}  // namespace dew::plain

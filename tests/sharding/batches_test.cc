// Any batch on any mesh over any processes: loss and gradients are those of one device and one
// micro step, and an evaluation sees every row once.
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <random>

#include "dew/data/data_test_support.h"
#include "dew/runtime/comm/threads_test_support.h"
#include "dew/runtime/cpu/cpu.h"
#include "dew/train/stepper.h"
#include "tests/effort.h"

namespace dew {
namespace {

constexpr std::int64_t kColumns = 6, kVocab = 24, kRecords = 150, kValidation = 23;

struct Deal {
  std::int64_t rows = 1;  // G
  std::optional<std::int64_t> accumulate = {}, micro_batch = {};
};

struct Machine {
  MeshSpec mesh;
  std::int64_t devices = 1;
  int processes = 1;
};

// What a step and an evaluation give.
struct Answer {
  double loss = 0, accuracy = 0, grad_norm = 0, eval_loss = 0, eval_accuracy = 0, eval_tokens = 0;
  std::map<std::string, std::vector<float>> moved;  // parameters after a step of rate 1
};

class Batches : public testing::Test {
 protected:
  Batches()
      : objective_(models::causal_transformer({.vocab_size = kVocab,
                                               .emb_features = 16,
                                               .num_layers = 2,
                                               .num_heads = 4,
                                               .num_kv_heads = 2,
                                               .mlp_features = 32,
                                               .max_seq_len = kColumns,
                                               .dropout = 0.2}),
                   {.seq_len = kColumns, .z_loss = 0.01}),
        train_(ids(kRecords, 1), kColumns, kColumns),
        val_(ids(kValidation, 2), kColumns, kColumns) {}

  std::shared_ptr<const TokenFile> ids(std::int64_t records, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<std::uint8_t> all(static_cast<std::size_t>(records * kColumns + 1));
    for (auto& id : all) id = static_cast<std::uint8_t>(random() % kVocab);
    const Path path = directory_ / ("ids" + std::to_string(seed));
    write_ids(path, all);
    return std::make_shared<TokenFile>(
        path, TokenFileSpec{.dtype = IdType::uint8,
                            .vocab_size = kVocab,
                            .tokens = static_cast<std::int64_t>(all.size())});
  }

  // Rows have different numbers of weighted tokens, some none; and what pads hold must not matter.
  static double weight(std::int64_t row, std::int64_t column) {
    return column < (row * 5 + 2) % (kColumns + 1) ? 0.5 + static_cast<double>(row % 3) : 0;
  }
  static void weigh(StepBatch& batch) {
    for (std::size_t t = 0; t < batch.weights.size(); ++t) {
      const auto row = batch.row_ids[t / static_cast<std::size_t>(batch.width)];
      const auto column = batch.columns[t % static_cast<std::size_t>(batch.width)];
      if (row >= 0) {
        batch.weights[t] = static_cast<float>(weight(row, column));
      } else {
        batch.ids[t] = static_cast<std::int32_t>(t % kVocab);
        batch.labels[t] = t % 2 == 0 ? -1 : 1 << 30;
        batch.positions[t] = static_cast<std::int32_t>(t % kColumns);
      }
    }
    batch.weight_sum = 0;
    for (std::int64_t g = 0; g < std::ssize(batch.records); ++g) {
      for (std::int64_t t = 0; t < kColumns; ++t) batch.weight_sum += weight(g, t);
    }
  }

  Answer answer(const Machine& m, const Deal& deal) {
    Answer out;
    std::mutex mutex;
    comm::run_processes(m.processes, [&](comm::Job& job) {
      const Arrangement a =
          arrange(m.mesh, m.devices, {.min_shard = 1, .tolerance = 1}, objective_.model());
      const DispatchPlan plan({.global_batch = deal.rows,
                               .seq_len = kColumns,
                               .batch_shards = a.batch_shards(),
                               .accumulate = deal.accumulate,
                               .micro_batch = deal.micro_batch});
      const auto backend = cpu_backend(1, m.devices, &job);
      Stepper stepper(objective_, {.name = "sgd"}, step_shape(plan), DType::f32, *backend,
                      {.arrangement = a});
      stepper.set_key(key_from_seed(3));
      stepper.initialize();
      const std::vector<std::int64_t> shards = shards_of_process(a, job);
      ValidationPass pass(val_, plan, 0, shards);
      const EvalResult eval = *stepper.evaluate(pass);
      StepBatch batch;
      for (std::int64_t g = 0; g < deal.rows; ++g) batch.records.push_back((g * 7) % kRecords);
      BatchMaker(train_, plan, shards).fill(batch);
      weigh(batch);
      const StepResult step = stepper.step(batch, {.step = 4, .update = 1, .lr = 1});
      const std::lock_guard lock(mutex);
      out.loss = step.loss;
      out.accuracy = step.accuracy;
      out.grad_norm = step.grad_norm;
      out.eval_loss = eval.loss;
      out.eval_accuracy = eval.accuracy;
      out.eval_tokens = eval.tokens;
      for (const Stepper::Array& array : stepper.parameters()) collect(array, out);
    });
    return out;
  }

  static void collect(const Stepper::Array& array, Answer& out) {
    std::vector<float>& whole = out.moved[array.name];
    whole.resize(static_cast<std::size_t>(element_count(array.shape)));
    for (const Stepper::Part& part : array.parts) {
      copy_part(part.box, sizeof(float), part.box, part.bytes, dew::whole(array.shape),
                std::as_writable_bytes(std::span(whole)));
    }
  }

  void expect_same(const Answer& found, const Answer& wanted) {
    EXPECT_NEAR(found.loss, wanted.loss, 1e-5 * wanted.loss);
    EXPECT_NEAR(found.accuracy, wanted.accuracy, 1e-6);
    EXPECT_NEAR(found.grad_norm, wanted.grad_norm, 1e-5 * wanted.grad_norm);
    EXPECT_NEAR(found.eval_loss, wanted.eval_loss, 1e-5 * wanted.eval_loss);
    EXPECT_NEAR(found.eval_accuracy, wanted.eval_accuracy, 1e-6);
    EXPECT_EQ(found.eval_tokens, wanted.eval_tokens);
    for (const auto& [name, values] : wanted.moved) {
      double most = 0, worst = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        most = std::max(most, std::abs(static_cast<double>(values[i])));
        worst = std::max(worst, std::abs(static_cast<double>(values[i] - found.moved.at(name)[i])));
      }
      EXPECT_LT(worst, 1e-5 * most + 1e-7) << name;
    }
  }

  TemporaryDirectory directory_;
  LMObjective objective_;
  Windows train_, val_;
};

TEST_F(Batches, AreThoseOfOneDeviceAndOneMicroStep) {
  const std::vector<Machine> machines = {
      {{}, 1, 1},
      {{}, 4, 1},
      {{}, 4, 4},
      {{.fsdp = 4}, 4, 2},
      {{.fsdp = 2, .tensor = 2}, 8, 4},
      {{.fsdp = 2, .expert = 2}, 4, 2},
      {{.tensor = 4}, 4, 2},
      {{.fsdp = 16, .tensor = 4}, 64, 16},
  };
  const std::vector<std::pair<std::optional<std::int64_t>, std::optional<std::int64_t>>> cuts = {
      {{}, {}}, {2, {}}, {5, {}}, {{}, 1}, {{}, 3}};
  std::size_t turn = 0;
  for (const int rows : sampled<int>({17, 2, 3, 5, 16, 1, 100, 128})) {
    const Answer wanted = answer({}, {rows});
    for (const Machine& machine : machines) {
      // Not every cut on every machine: each meets each in the course of the numbers of rows.
      for (int k = 0; k < 2; ++k) {
        const auto& [accumulate, micro_batch] = cuts[turn++ % cuts.size()];
        SCOPED_TRACE(std::to_string(rows) + " rows, " + std::to_string(machine.devices) +
                     " devices, fsdp " + std::to_string(machine.mesh.fsdp) + ", " +
                     std::to_string(machine.processes) + " processes, accumulate " +
                     std::to_string(accumulate.value_or(0)) + ", micro " +
                     std::to_string(micro_batch.value_or(0)));
        expect_same(answer(machine, {rows, accumulate, micro_batch}), wanted);
        if (HasFailure()) return;
      }
    }
  }
}

// No process reads a row that it does not hold.
TEST_F(Batches, EachProcessReadsItsRows) {
  const Arrangement a = arrange({.fsdp = 4, .tensor = 2}, 8, {.min_shard = 1}, objective_.model());
  const DispatchPlan plan({.global_batch = 6, .seq_len = kColumns, .batch_shards = 4});
  std::mutex mutex;
  std::map<int, std::vector<std::int32_t>> rows;
  comm::run_processes(4, [&](comm::Job& job) {
    StepBatch batch;
    batch.records = {10, 11, 12, 13, 14, 15};
    BatchMaker(train_, plan, shards_of_process(a, job)).fill(batch);
    const std::lock_guard lock(mutex);
    for (const std::int32_t row : batch.row_ids) {
      if (row >= 0) rows[job.rank()].push_back(row);
    }
  });
  EXPECT_EQ(rows, (std::map<int, std::vector<std::int32_t>>{
                      {0, {0, 1}}, {1, {2}}, {2, {3, 4}}, {3, {5}}}));
}

}  // namespace
}  // namespace dew

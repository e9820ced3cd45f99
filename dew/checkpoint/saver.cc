#include "dew/checkpoint/saver.h"

#include <utility>

#include "dew/base/error.h"
#include "dew/base/format.h"

namespace dew {

Saver::Saver(Processes& processes, Path directory, const Retention& retention,
             std::span<const CarriedFile> files)
    : processes_(processes),
      directory_(std::move(directory)),
      retention_(retention),
      files_(files) {}

// What fails is told of the step.
template <class F>
void Saver::attempt(F f) const {
  try {
    f();
  } catch (const Error& e) {
    fail(e.code(), format("the checkpoint of step {} is not written: {}", step_, e.what()),
         e.hint());
  }
}

// Alone, this process writes all of it at once.
void Saver::open(const CheckpointInfo& info, std::span<const StateTensor> state) {
  run_ = info.run;
  step_ = info.clocks.step;
  if (processes_.count() == 1) return;
  first_does(processes_, "the beginning of a checkpoint", [&] {
    attempt([&] {
      writer_.emplace(directory_, info);
      for (const StateTensor& tensor : state) writer_->declare(tensor.record);
      for (const CarriedFile& file : files_) writer_->add_file(file.name, file.bytes);
    });
  });
}

void Saver::write(std::span<const StateTensor> state) {
  attempt([&] {
    Path partial = directory_ / step_name(step_);
    partial += kPartialSuffix;
    PartWriter writer(partial, {.bytes_stay = true, .owner = processes_.rank()});
    writer.add(state);
    part_ = writer.finish();
  });
}

void Saver::commit() {
  const std::vector<std::string> parts =
      processes_.exchange(to_text(part_), "the parts of a checkpoint");
  first_does(processes_, "the end of a checkpoint", [&] {
    attempt([&] {
      for (std::size_t rank = 0; rank < parts.size(); ++rank)
        writer_->adopt(
            part_from_text(parts[rank], processes_.name(static_cast<int>(rank)) + "'s part"));
      writer_->commit();
    });
    writer_.reset();
    apply_retention(directory_, retention_, run_, step_);
  });
}

void Saver::save(const CheckpointInfo& info, std::span<const StateTensor> state) {
  complete();
  open(info, state);
  if (processes_.count() == 1) {
    attempt([&] { write_checkpoint(directory_, info, state, files_); });
    apply_retention(directory_, retention_, run_, step_);
    return;
  }
  do_together(processes_, "a checkpoint", [&] { write(state); });
  commit();
}

void Saver::begin(const CheckpointInfo& info, std::span<const StateTensor> state) {
  DEW_CHECK(!begun_, "two snapshots at once");
  open(info, state);
  const bool alone = processes_.count() == 1;
  snapshot_.start(state, [this, alone, info](std::span<const StateTensor> copy) {
    if (!alone) return write(copy);
    attempt([&] { write_checkpoint(directory_, info, copy, files_); });
    apply_retention(directory_, retention_, run_, step_);
  });
  begun_ = step_;
}

void Saver::complete() {
  if (!begun_) return;
  begun_.reset();
  do_together(processes_, "a checkpoint", [&] { snapshot_.wait(); });
  if (processes_.count() > 1) commit();
}

}  // namespace dew

// Writer and reader together: what is written is read back, and nothing damaged is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <thread>

#include "dew/base/digest.h"
#include "dew/checkpoint/sample_test_support.h"

namespace dew {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Bytes read(const CheckpointReader& reader, const std::string& name, const Box& box) {
  const TensorRecord* tensor = reader.find(name);
  Bytes out(static_cast<std::size_t>(box.elements() * byte_size(tensor->dtype)));
  reader.read(*tensor, box, out);
  return out;
}

void expect_all(const CheckpointReader& reader, const Sample& sample) {
  ASSERT_EQ(reader.tensors().size(), sample.tensors.size());
  for (const TensorRecord& t : sample.tensors) {
    const TensorRecord& found = reader.require(t.name, t.dtype, t.shape);
    EXPECT_EQ(read(reader, t.name, whole(t.shape)), sample.values.at(t.name)) << t.name;
    EXPECT_EQ(reader.digest(found), digest_of(sample.values.at(t.name))) << t.name;
  }
  EXPECT_TRUE(reader.has_file("tokenizer.json"));
  EXPECT_FALSE(reader.has_file("other.json"));
  EXPECT_EQ(reader.read_extra_file("tokenizer.json"), "{\"a\":1}");
  reader.verify_all();
}

TEST(Checkpoint, RoundTrip) {
  const TempDir dir;
  const Sample sample;
  const Path path = sample.write(dir / "checkpoints");
  EXPECT_EQ(path, dir / "checkpoints" / "step_00000400");
  const CheckpointReader reader(path);
  EXPECT_EQ(reader.info(), sample_info());
  expect_all(reader, sample);
  EXPECT_EQ(reader.manifest().shards.size(), 1u);
  EXPECT_THAT(list_directory(dir / "checkpoints", ErrorCode::internal),
              ElementsAre("step_00000400"));
}

TEST(Checkpoint, AnyShardSize) {
  const Sample sample;
  for (const std::int64_t limit : {1, 2, 16, 100, 150}) {
    const TempDir dir;
    const CheckpointReader reader(sample.write(dir.path(), 3, {.shard_bytes = limit, .owner = 7}));
    expect_all(reader, sample);
    EXPECT_GT(reader.manifest().shards.size(), 1u);
    EXPECT_EQ(reader.manifest().shards[0].name, "shard-00007-00000.safetensors");
    for (const ShardFile& shard : reader.manifest().shards) {
      EXPECT_LE(shard.bytes - shard.header_bytes, std::max<std::int64_t>(limit, 120));
    }
  }
}

// Bytes that stay where they are give the same files as bytes that are held.
TEST(Checkpoint, BytesThatStayAreNotHeld) {
  const Sample sample;
  for (const std::int64_t limit : {1, 16, 100, 150, 10000}) {
    const TempDir held, stay;
    const Path one = sample.write(held.path(), 400, {.shard_bytes = limit});
    CheckpointWriter writer(stay.path(), sample_info(), {.shard_bytes = limit, .bytes_stay = true});
    for (const TensorRecord& t : sample.tensors) writer.declare(t);
    std::vector<Bytes> parts;
    for (const Box& box : sample.boxes_of_m) parts.push_back(sample.part("opt/m/a", box));
    for (const TensorRecord& t : sample.tensors) {
      if (t.name != "opt/m/a") {
        writer.add(t.name, sample.values.at(t.name));
        continue;
      }
      for (std::size_t i = 0; i < parts.size(); ++i) {
        writer.add(t.name, sample.boxes_of_m[i], parts[i]);
      }
    }
    writer.add_file("tokenizer.json", "{\"a\":1}");
    const Path two = writer.commit();
    for (const std::string& name : list_directory(one, ErrorCode::internal)) {
      EXPECT_EQ(read_text(one / name), read_text(two / name)) << name << " at " << limit;
    }
  }
}

TEST(Checkpoint, TheSameBytesEveryTime) {
  const TempDir a, b;
  const Path one = Sample().write(a.path()), two = Sample().write(b.path());
  for (const std::string& name : list_directory(one, ErrorCode::internal)) {
    EXPECT_EQ(read_text(one / name), read_text(two / name)) << name;
  }
}

// Written by the first program of this version. It is never made anew: what reads it stays.
TEST(Checkpoint, AStoredFileOfVersion1IsRead) {
  const CheckpointReader reader("dew/checkpoint/testdata/version1");
  EXPECT_EQ(reader.info(), sample_info());
  expect_all(reader, Sample());
}

// Pieces in any cut and any order, boxes across them.
TEST(Checkpoint, AnyPiecesAnyBox) {
  EXPECT_TRUE(rc::check("any box of any pieces", [] {
    const TempDir dir;
    const Dims shape = {*rc::gen::inRange<std::int64_t>(1, 9),
                        *rc::gen::inRange<std::int64_t>(1, 9),
                        *rc::gen::inRange<std::int64_t>(1, 4)};
    const Bytes values = ramp(element_count(shape));
    std::vector<Box> boxes;
    const std::int64_t rows = *rc::gen::inRange<std::int64_t>(1, shape[0] + 1);
    const std::int64_t columns = *rc::gen::inRange<std::int64_t>(1, shape[1] + 1);
    for (std::int64_t i = 0; i < shape[0]; i += rows) {
      for (std::int64_t j = 0; j < shape[1]; j += columns) {
        boxes.push_back(
            {{i, j, 0}, {std::min(rows, shape[0] - i), std::min(columns, shape[1] - j), shape[2]}});
      }
    }
    std::reverse(boxes.begin(), boxes.end());
    CheckpointWriter writer(dir.path(), sample_info(), {.shard_bytes = 64});
    writer.declare(tensor("params/a", DType::f32, shape));
    for (const Box& box : boxes) {
      Bytes piece(static_cast<std::size_t>(box.elements() * 4));
      copy_part(box, 4, whole(shape), values, box, piece);
      writer.add("params/a", box, piece);
    }
    const CheckpointReader reader(writer.commit());
    Box box = whole(shape);
    for (std::size_t d = 0; d < 3; ++d) {
      box.start[d] = *rc::gen::inRange<std::int64_t>(0, shape[d] + 1);
      box.extent[d] = *rc::gen::inRange<std::int64_t>(0, shape[d] - box.start[d] + 1);
    }
    Bytes expected(static_cast<std::size_t>(box.elements() * 4));
    copy_part(box, 4, whole(shape), values, box, expected);
    RC_ASSERT(read(reader, "params/a", box) == expected);
    RC_ASSERT(reader.digest(*reader.find("params/a")) == digest_of(values));
  }));
}

// opt/m/a (5,7) lies in four pieces; the box meets two of them.
TEST(Checkpoint, CountsWhatItReads) {
  const TempDir dir;
  const CheckpointReader reader(Sample().write(dir.path()));
  const TensorRecord& tensor = *reader.find("opt/m/a");
  const Box box{{2, 0}, {2, 3}};
  Bytes out(6 * 4);
  reader.read(tensor, box, out);
  EXPECT_EQ(reader.traffic().copied, 6 * 4);
  EXPECT_EQ(reader.traffic().checked, (3 * 4 + 2 * 4) * 4);
  reader.read(tensor, box, out);
  EXPECT_EQ(reader.traffic().copied, 2 * 6 * 4);
  EXPECT_EQ(reader.traffic().checked, (3 * 4 + 2 * 4) * 4);
  reader.verify_all();
  EXPECT_EQ(reader.traffic().copied, 2 * 6 * 4);
}

TEST(Checkpoint, FromAnyThread) {
  const TempDir dir;
  const Sample sample;
  std::thread([&] { sample.write(dir.path()); }).join();
  const CheckpointReader reader(dir / "step_00000400");
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { expect_all(reader, sample); });
}

TEST(Checkpoint, WhatIsAskedForMustBeThere) {
  const TempDir dir;
  const CheckpointReader reader(Sample().write(dir.path()));
  EXPECT_THAT(refusal([&] { reader.require("params/b", DType::f32, {3}); }),
              HasSubstr("no tensor 'params/b'"));
  EXPECT_THAT(refusal([&] {
                reader.require("params/a", DType::f32, {3, 5, 3});
              }),
              HasSubstr("is f32[3,5,2], but f32[3,5,3] is needed"));
  refusal([&] { reader.require("params/a", DType::bf16, {3, 5, 2}); });
  refusal([&] { reader.read_extra_file("other.json"); });
}

// Reads all of it, the way a resume does.
void read_everything(const Path& path) {
  const CheckpointReader reader(path);
  for (const TensorRecord& t : reader.tensors()) read(reader, t.name, whole(t.shape));
  for (const ExtraFile& file : reader.manifest().files) reader.read_extra_file(file.name);
  reader.verify_all();
}

TEST(Checkpoint, EveryFlippedBitIsFound) {
  const TempDir dir;
  const Path path = Sample().write(dir.path(), 400, {.shard_bytes = 128});
  int flips = 0;
  for (const std::string& name : list_directory(path, ErrorCode::internal)) {
    std::string text = read_text(path / name);
    for (std::size_t i = 0; i < text.size(); ++i, ++flips) {
      const char good = text[i];
      text[i] = static_cast<char>(good ^ (1 << (i % 8)));
      write_text(path / name, text);
      EXPECT_THAT(refusal([&] { read_everything(path); }), HasSubstr(name)) << i;
      text[i] = good;
    }
    write_text(path / name, text);
  }
  read_everything(path);
  EXPECT_GT(flips, 3000);
  std::printf("%d bytes, one bit of each flipped\n", flips);
}

TEST(Checkpoint, DamagedTensorsAreNamed) {
  const TempDir dir;
  const Path path = Sample().write(dir.path());
  const CheckpointReader before(path);
  const StoredPiece piece = before.find("opt/m/a")->pieces[2];
  std::string text = read_text(path / piece.file);
  text[static_cast<std::size_t>(piece.offset)] ^= 1;
  write_text(path / piece.file, text);
  const CheckpointReader reader(path);
  EXPECT_THAT(refusal([&] {
                read(reader, "opt/m/a", whole({5, 7}));
              }),
              AllOf(HasSubstr("tensor 'opt/m/a'"), HasSubstr("[3:5,0:4]"), HasSubstr(piece.file)));
  // Other pieces of the same tensor and file are as good as before.
  EXPECT_EQ(read(reader, "opt/m/a", {{0, 0}, {3, 4}}), Sample().part("opt/m/a", {{0, 0}, {3, 4}}));
}

TEST(Checkpoint, AllDamageIsNamedTogether) {
  const TempDir dir;
  const Path path = Sample().write(dir.path());
  const CheckpointReader before(path);
  for (const char* name : {"params/a", "opt/m/a"}) {
    const StoredPiece piece = before.find(name)->pieces[0];
    std::string text = read_text(path / piece.file);
    text[static_cast<std::size_t>(piece.offset)] ^= 1;
    write_text(path / piece.file, text);
  }
  write_text(path / "tokenizer.json", "{\"b\":1}");
  EXPECT_THAT(refusal([&] { CheckpointReader(path).verify_all(); }),
              AllOf(HasSubstr("'params/a', piece [0:3,0:5,0:2]"), HasSubstr("'opt/m/a'"),
                    HasSubstr("tokenizer.json' is damaged")));
}

// Several readers that verify a share each read every byte once, and find what one finds.
TEST(Checkpoint, SharesOfTheVerifying) {
  const TempDir dir;
  const Path path = Sample().write(dir.path(), 400, {.shard_bytes = 128});
  CheckpointReader whole(path);
  whole.verify_all();
  for (const int shares : {1, 2, 3, 7, 64}) {
    std::int64_t checked = 0;
    for (int share = 0; share < shares; ++share) {
      const CheckpointReader reader(path);
      EXPECT_THAT(reader.problems_of_share(share, shares), testing::IsEmpty());
      checked += reader.traffic().checked;
    }
    EXPECT_EQ(checked, whole.traffic().checked) << shares;
  }
  // Each file damaged in turn: somebody says it.
  for (const std::string& name : list_directory(path, ErrorCode::internal)) {
    if (name == kManifestName) continue;
    const std::string before = read_text(path / name);
    for (const std::size_t at : {std::size_t{12}, before.size() - 1}) {
      if (at >= before.size()) continue;
      std::string text = before;
      text[at] ^= 1;
      write_text(path / name, text);
      for (const int shares : {2, 5}) {
        std::string all;
        for (int share = 0; share < shares; ++share) {
          for (const std::string& line : CheckpointReader(path).problems_of_share(share, shares))
            all += line + "\n";
        }
        EXPECT_THAT(all, HasSubstr(name));
      }
    }
    write_text(path / name, before);
  }
}

TEST(Checkpoint, MissingAndTruncatedFiles) {
  const TempDir dir;
  const Path path = Sample().write(dir.path(), 400, {.shard_bytes = 128});
  for (const std::string& name : list_directory(path, ErrorCode::internal)) {
    const std::string text = read_text(path / name);
    write_text(path / name, std::string_view(text).substr(0, text.size() - 1));
    EXPECT_THAT(refusal([&] { read_everything(path); }), HasSubstr(name));
    write_text(path / name, text + "x");
    EXPECT_THAT(refusal([&] { read_everything(path); }), HasSubstr(name));
    write_text(path / name, "");
    refusal([&] { read_everything(path); });
    remove_quietly(path / name);
    EXPECT_THAT(refusal([&] { read_everything(path); }), HasSubstr(name));
    create_directory(path / name, ErrorCode::internal);
    refusal([&] { read_everything(path); });
    remove_quietly(path / name);
    write_text(path / name, text);
  }
  read_everything(path);
  refusal([&] { CheckpointReader(dir / "nothing"); });
  refusal([&] { CheckpointReader(path / kManifestName); });
}

TEST(Checkpoint, NonFiniteValuesAreNotSaved) {
  const TempDir dir;
  const float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {inf, -inf, std::numeric_limits<float>::quiet_NaN()}) {
    CheckpointWriter writer(dir.path(), sample_info());
    writer.declare(tensor("params/a", DType::f32, {3}));
    const std::vector<float> values = {1, bad, std::numeric_limits<float>::max()};
    EXPECT_THAT(refusal([&] { writer.add("params/a", std::as_bytes(std::span(values))); },
                        ErrorCode::non_finite),
                AllOf(HasSubstr("tensor 'params/a' has a value"), HasSubstr("element 1")));
  }
  EXPECT_TRUE(list_directory(dir.path(), ErrorCode::internal).empty());
  CheckpointWriter writer(dir.path(), sample_info());
  writer.declare(tensor("params/h", DType::bf16, {1}));
  const std::vector<bf16> half = {bf16(inf)};
  refusal([&] { writer.add("params/h", std::as_bytes(std::span(half))); }, ErrorCode::non_finite);
}

TEST(Checkpoint, NonFiniteValuesAreFoundAnywhere) {
  const TempDir dir;
  std::vector<float> values(5000, std::numeric_limits<float>::max());
  for (const std::size_t at : {0u, 1023u, 1024u, 3000u, 4999u}) {
    CheckpointWriter writer(dir.path(), sample_info());
    writer.declare(tensor("params/a", DType::f32, {5000}));
    values[at] = -std::numeric_limits<float>::infinity();
    EXPECT_THAT(refusal([&] { writer.add("params/a", std::as_bytes(std::span(values))); },
                        ErrorCode::non_finite),
                HasSubstr("(element " + std::to_string(at) + " of"));
    values[at] = 0;
    writer.add("params/a", std::as_bytes(std::span(values)));
  }
}

TEST(Checkpoint, BugsOfTheCallerAreFound) {
  const TempDir dir;
  const auto code = ErrorCode::internal;
  const Bytes two = ramp(2);
  CheckpointWriter writer(dir.path(), sample_info());
  writer.declare(tensor("params/a", DType::f32, {4}));
  refusal([&] { writer.declare(tensor("params/a", DType::f32, {4})); }, code);
  refusal([&] { writer.declare(tensor("params/a b", DType::f32, {4})); }, code);
  refusal([&] { writer.add("params/b", two); }, code);
  refusal([&] { writer.add("params/a", two); }, code);
  refusal([&] { writer.add("params/a", {{3}, {2}}, two); }, code);
  writer.add("params/a", {{0}, {2}}, two);
  EXPECT_THAT(refusal([&] { writer.commit(); }, code), HasSubstr("2 of 4 elements"));
}

TEST(Checkpoint, ACompleteOneIsNotOverwritten) {
  const TempDir dir;
  const Sample sample;
  const Path path = sample.write(dir.path());
  EXPECT_THAT(refusal([&] { sample.write(dir.path()); }), HasSubstr("exists and is complete"));
  expect_all(CheckpointReader(path), sample);
}

TEST(Checkpoint, ADamagedOneIsReplacedAndKept) {
  const TempDir dir;
  const Sample sample;
  for (int round = 0; round < 2; ++round) {
    const Path path = round == 0 ? sample.write(dir.path()) : dir / "step_00000400";
    const std::string shard = CheckpointReader(path).manifest().shards[0].name;
    write_text(path / shard, read_text(path / shard).replace(300, 1, 1, '\x7f'));
    EXPECT_EQ(sample.write(dir.path()), path);
    expect_all(CheckpointReader(path), sample);
    EXPECT_THAT(list_directory(dir.path(), ErrorCode::internal),
                ElementsAre("step_00000400", "step_00000400.broken"));
  }
}

TEST(Checkpoint, NothingIsLeftWithoutCommit) {
  const TempDir dir;
  {
    CheckpointWriter writer(dir.path(), sample_info(), {.shard_bytes = 4});
    writer.declare(tensor("params/a", DType::f32, {4}));
    writer.add("params/a", {{0}, {2}}, ramp(2));
    EXPECT_EQ(list_directory(dir / "step_00000400.partial", ErrorCode::internal).size(), 1u);
  }
  EXPECT_TRUE(list_directory(dir.path(), ErrorCode::internal).empty());
}

// ---- faults: the n-th call that changes the file system fails ----
std::atomic<int> calls_left;

int fail_at_zero(FileCall, const Path&) { return calls_left.fetch_sub(1) == 0 ? ENOSPC : 0; }

TEST(Checkpoint, EveryFailingCallLeavesTheOlderOne) {
  const Sample sample;
  int points = 0;
  for (bool failed = true; failed; ++points) {
    const TempDir dir;
    const Path directory = dir / "run" / "checkpoints";
    if (points % 2 == 0) sample.write(directory, 300);
    calls_left = points;
    set_file_fault(fail_at_zero);
    failed = false;
    try {
      sample.write(directory, 400, {.shard_bytes = 64});
    } catch (const Error& error) {
      failed = true;
      EXPECT_EQ(static_cast<int>(error.code()), 5);
      EXPECT_THAT(error.what(), HasSubstr("No space left"));
    }
    set_file_fault(nullptr);
    if (points % 2 == 0) expect_all(CheckpointReader(directory / "step_00000300"), sample);
    for (const CheckpointEntry& entry : list_checkpoints(directory)) {
      EXPECT_EQ(entry.problem, "");
    }
  }
  EXPECT_GT(points, 25);
}

}  // namespace
}  // namespace dew

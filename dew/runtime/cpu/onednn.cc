#include "dew/runtime/cpu/onednn.h"

#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <thread>
#include <vector>

#include "dew/base/error.h"
#include "dew/base/format.h"

// Of the library that oneDNN was built with. Declared here because omp.h belongs to the compiler,
// and clang's is a package of its own.
extern "C" void omp_set_num_threads(int count);

namespace dew::cpu {
namespace {

thread_local int t_depth = 0;  // calls of oneDNN that this thread is in

struct InsideOneDnn {
  InsideOneDnn() { ++t_depth; }
  ~InsideOneDnn() { --t_depth; }
};

void check(dnnl_status_t status, const char* what) {
  DEW_CHECK(status == dnnl_success,
            format("oneDNN: {} gave status {}", what, static_cast<int>(status)));
}

dnnl_engine_t engine() {
  static const dnnl_engine_t engine = [] {
    dnnl_engine_t made = nullptr;
    check(dnnl_engine_create(&made, dnnl_cpu, 0), "engine");
    return made;
  }();
  return engine;
}

// ---- numbers of threads ----

std::mutex g_numbers_mutex;
std::vector<int> g_free_numbers;  // left by finished threads
int g_numbers = 0;                // given out so far

// As many threads as there are cores, and a few that make kernels. A thread beyond them works too,
// a little slower.
int prepared_threads() {
  static const int count = static_cast<int>(std::max(std::thread::hardware_concurrency(), 4u)) + 8;
  return count;
}

struct ThreadState {
  int number = 0;
  dnnl_stream_t stream = nullptr;

  ThreadState() {
    const InsideOneDnn inside;
    omp_set_num_threads(1);
    check(dnnl_stream_create(&stream, engine(), dnnl_stream_default_flags), "stream");
    const std::lock_guard lock(g_numbers_mutex);
    if (g_free_numbers.empty()) {
      number = g_numbers++;
    } else {
      const auto least = std::min_element(g_free_numbers.begin(), g_free_numbers.end());
      number = *least;
      g_free_numbers.erase(least);
    }
  }
  ~ThreadState() {
    dnnl_stream_destroy(stream);
    const std::lock_guard lock(g_numbers_mutex);
    g_free_numbers.push_back(number);
  }
};

ThreadState& thread_state() {
  thread_local ThreadState state;
  return state;
}

// ---- descriptors ----

dnnl_data_type_t data_type(DType dtype) {
  DEW_CHECK(dtype == DType::f32 || dtype == DType::bf16, "products are of f32 or bf16");
  return dtype == DType::f32 ? dnnl_f32 : dnnl_bf16;
}

// A matrix, or `batch` of them. Batches are the second of four dimensions, which is how oneDNN
// knows the layout [rows, batch, cols] (of attention's heads) as one that its best kernels take.
dnnl_memory_desc_t matrix(std::int64_t batch, std::int64_t rows, std::int64_t cols,
                          std::array<std::int64_t, 3> strides, DType dtype) {
  const dnnl_dims_t dims = {1, batch, rows, cols};
  const std::int64_t whole = std::max({batch * strides[0], rows * strides[1], cols * strides[2]});
  const dnnl_dims_t steps = {whole, strides[0], strides[1], strides[2]};
  const int skip = batch == 1 ? 2 : 0;
  dnnl_memory_desc_t desc;
  check(dnnl_memory_desc_init_by_strides(&desc, 4 - skip, dims + skip, data_type(dtype),
                                         steps + skip),
        "strides");
  return desc;
}

std::string describe(const ProductShape& s) {
  return format("{} x [{},{}] ({},{}) times [{},{}] ({},{}) to row stride {}, {} -> {}{}", s.batch,
                s.m, s.k, s.a_row, s.a_col, s.k, s.n, s.b_row, s.b_col, s.c_row, name(s.in),
                name(s.out), s.accumulate ? ", added" : "");
}

// A dimension of size 1 has any stride: give it the one that a dense matrix has, or oneDNN takes a
// slower kernel.
void settle(std::int64_t rows, std::int64_t cols, std::int64_t& row, std::int64_t& col) {
  if (cols == 1) col = row == 1 ? rows : 1;
  if (rows == 1) row = col == 1 ? cols : 1;
}

ProductShape settled(ProductShape s) {
  settle(s.m, s.k, s.a_row, s.a_col);
  settle(s.k, s.n, s.b_row, s.b_col);
  if (s.m == 1) s.c_row = s.n;
  return s;
}

// Owns a primitive descriptor's attributes while it is made.
struct Attributes {
  dnnl_primitive_attr_t attr = nullptr;
  dnnl_post_ops_t post_ops = nullptr;

  explicit Attributes(bool accumulate) {
    check(dnnl_primitive_attr_create(&attr), "attributes");
    check(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user),
          "scratchpad mode");
    if (!accumulate) return;
    check(dnnl_post_ops_create(&post_ops), "post-ops");
    check(dnnl_post_ops_append_sum(post_ops, 1.0f), "post-op sum");
    check(dnnl_primitive_attr_set_post_ops(attr, post_ops), "post-ops");
  }
  ~Attributes() {
    if (post_ops != nullptr) dnnl_post_ops_destroy(post_ops);
    dnnl_primitive_attr_destroy(attr);
  }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
};

// One thread's memory objects of a product.
struct Arguments {
  static constexpr int kCount = 4;
  dnnl_exec_arg_t list[kCount] = {};

  void create(const std::array<dnnl_memory_desc_t, kCount>& descs) {
    constexpr int kNames[kCount] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST,
                                    DNNL_ARG_SCRATCHPAD};
    for (std::size_t i = 0; i < kCount; ++i) {
      list[i].arg = kNames[i];
      check(dnnl_memory_create(&list[i].memory, &descs[i], engine(), DNNL_MEMORY_NONE), "memory");
    }
  }
  void destroy() {
    for (auto& arg : list) {
      if (arg.memory != nullptr) dnnl_memory_destroy(arg.memory);
      arg.memory = nullptr;
    }
  }
};

}  // namespace

void onednn_thread_init() { thread_state(); }

bool onednn_has_fast_bf16() {
  static const bool has = (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) ==
                          dnnl_cpu_isa_avx512_core_bf16;
  return has;
}

bool inside_onednn() { return t_depth > 0; }

struct Product::Impl {
  ProductShape shape;
  std::array<dnnl_memory_desc_t, Arguments::kCount> descs{};
  dnnl_primitive_t primitive = nullptr;
  std::string implementation;
  std::size_t scratch_bytes = 0;
  std::vector<Arguments> of_thread;

  explicit Impl(const ProductShape& s) : shape(s) {}
  ~Impl() {
    for (auto& arguments : of_thread) arguments.destroy();
    if (primitive != nullptr) dnnl_primitive_destroy(primitive);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void make();
};

void Product::Impl::make() {
  const ProductShape s = settled(shape);
  descs[0] = matrix(s.batch, s.m, s.k, {s.a_batch, s.a_row, s.a_col}, s.in);
  descs[1] = matrix(s.batch, s.k, s.n, {s.b_batch, s.b_row, s.b_col}, s.in);
  descs[2] = matrix(s.batch, s.m, s.n, {s.c_batch, s.c_row, 1}, s.out);
  dnnl_matmul_desc_t desc;
  check(dnnl_matmul_desc_init(&desc, &descs[0], &descs[1], nullptr, &descs[2]),
        "matmul descriptor");

  const Attributes attributes(s.accumulate);
  dnnl_primitive_desc_t found = nullptr;
  const dnnl_status_t status =
      dnnl_primitive_desc_create(&found, &desc, attributes.attr, engine(), nullptr);
  DEW_CHECK(status == dnnl_success, "oneDNN has no product " + describe(shape));
  const std::unique_ptr<dnnl_primitive_desc, decltype(&dnnl_primitive_desc_destroy)> owner(
      found, &dnnl_primitive_desc_destroy);

  const char* info = nullptr;
  check(dnnl_primitive_desc_query(found, dnnl_query_impl_info_str, 0, &info), "implementation");
  implementation = info;
  DEW_CHECK(!implementation.starts_with("ref"),
            "oneDNN has only a reference product " + describe(shape));
  descs[3] = *dnnl_primitive_desc_query_md(found, dnnl_query_scratchpad_md, 0);
  scratch_bytes = dnnl_memory_desc_get_size(&descs[3]);
  check(dnnl_primitive_create(&primitive, found), "primitive");

  of_thread.resize(static_cast<std::size_t>(prepared_threads()));
  for (auto& arguments : of_thread) arguments.create(descs);
}

Product::Product(const ProductShape& shape) : impl_(std::make_unique<Impl>(shape)) {
  DEW_CHECK(shape.m > 0 && shape.n > 0 && shape.k > 0 && shape.batch > 0,
            "empty product " + describe(shape));
  onednn_thread_init();
  const InsideOneDnn inside;
  impl_->make();
}

Product::~Product() = default;
Product::Product(Product&&) noexcept = default;
Product& Product::operator=(Product&&) noexcept = default;

void Product::execute(const void* a, const void* b, void* c, void* scratch) const noexcept {
  const ThreadState& thread = thread_state();
  const InsideOneDnn inside;
  const auto number = static_cast<std::size_t>(thread.number);
  const bool prepared = number < impl_->of_thread.size();
  Arguments own;
  if (!prepared) own.create(impl_->descs);
  const Arguments& arguments = prepared ? impl_->of_thread[number] : own;
  void* const addresses[] = {const_cast<void*>(a), const_cast<void*>(b), c, scratch};
  for (int i = 0; i < Arguments::kCount; ++i)
    dnnl_memory_set_data_handle(arguments.list[i].memory, addresses[i]);
  check(dnnl_primitive_execute(impl_->primitive, thread.stream, Arguments::kCount, arguments.list),
        "execute");
  if (!prepared) own.destroy();
}

const ProductShape& Product::shape() const { return impl_->shape; }
std::size_t Product::scratch_bytes() const { return impl_->scratch_bytes; }
const std::string& Product::implementation() const { return impl_->implementation; }

}  // namespace dew::cpu

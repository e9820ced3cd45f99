#include "dew/train/profile.h"

#include <algorithm>
#include <map>

#include "dew/base/format.h"
#include "dew/base/json.h"

namespace dew {
namespace {

struct Row {
  std::string what;
  double busy_ns = 0, flops = 0, bytes = 0;
  std::int64_t calls = 0;
};

double length(const TraceSpan& span) { return static_cast<double>(span.end_ns - span.begin_ns); }

double total_length(const std::vector<TraceSpan>& spans) {
  double total = 0;
  for (const TraceSpan& s : spans) total += length(s);
  return total;
}

std::string row_name(const TracedStep& step) {
  return format("{}: {}{}", step.program, step.op,
                step.implementation.empty() ? "" : format(" ({})", step.implementation));
}

// Busy time is all threads'; calls, flops and bytes count once, by the first thread to begin, which
// takes part in every phase of several pieces and runs those of one.
std::vector<Row> rows_of(const Trace& trace) {
  std::map<std::string, Row> rows;
  for (std::size_t thread = 0; thread < trace.threads.size(); ++thread) {
    for (const TraceSpan& span : trace.threads[thread]) {
      const TracedStep& step = trace.steps[static_cast<std::size_t>(span.step)];
      Row& row = rows[row_name(step)];
      row.busy_ns += length(span);
      if (thread > 0 || span.phase > 0) continue;
      ++row.calls;
      row.flops += step.flops;
      row.bytes += step.bytes;
    }
  }
  std::vector<Row> sorted;
  for (auto& [name, row] : rows) {
    row.what = name;
    sorted.push_back(std::move(row));
  }
  std::ranges::sort(sorted, std::greater(), &Row::busy_ns);
  return sorted;
}

// Rates are of all threads: as if the row's work were spread over them evenly.
std::string line(const Row& row, double all_ns, double threads, double runs) {
  const double wall_ns = row.busy_ns / threads;
  const auto rate = [&](double amount) {
    return amount == 0 || wall_ns == 0 ? std::string("-") : format("{:.1f}", amount / wall_ns);
  };
  return format("{:6.1f}% {:9.3f} {:8.1f} {:>9} {:>8}  {}\n", 100 * row.busy_ns / all_ns,
                wall_ns / runs / 1e6, static_cast<double>(row.calls) / runs, rate(row.flops),
                rate(row.bytes), row.what);
}

}  // namespace

std::string profile_table(const Trace& trace) {
  if (trace.runs.empty()) return "";
  const auto threads = static_cast<double>(trace.threads.size());
  const auto runs = static_cast<double>(trace.runs.size());
  const double wall_ns = total_length(trace.runs), all_ns = wall_ns * threads;
  double busy_ns = 0;
  for (const auto& spans : trace.threads) busy_ns += total_length(spans);
  std::string out = format("Profile of {} step(s), {:.3f} ms each, {} thread(s)\n",
                           trace.runs.size(), wall_ns / runs / 1e6, trace.threads.size());
  out += "  share   ms/step  calls/step  GFLOP/s   GB/s  program: op (kernel)\n";
  for (const Row& row : rows_of(trace)) out += line(row, all_ns, threads, runs);
  const double waiting_ns = std::max(0.0, all_ns - busy_ns);
  out += format("{:6.1f}% {:9.3f} {:>8} {:>9} {:>8}  threads waiting for each other\n",
                100 * waiting_ns / all_ns, waiting_ns / threads / runs / 1e6, "-", "-", "-");
  return out;
}

std::string trace_events(const Trace& trace, int process, std::int64_t devices) {
  std::int64_t first_ns = 0;
  if (!trace.runs.empty()) first_ns = trace.runs.front().begin_ns;
  const auto us = [](std::int64_t ns) { return static_cast<double>(ns) / 1e3; };
  std::string out = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
  const auto add = [&](const OrderedJson& event) {
    if (!out.ends_with("[\n")) out += ",\n";
    out += event.dump();
  };
  const auto name_of = [&](const char* kind, std::size_t thread, const std::string& name) {
    add({{"name", kind},
         {"ph", "M"},
         {"pid", process},
         {"tid", thread},
         {"args", {{"name", name}}}});
  };
  name_of("process_name", 0, format("process {}, {} device(s)", process, devices));
  for (std::size_t t = 0; t < trace.threads.size(); ++t)
    name_of("thread_name", t, format("thread {}", t));
  for (std::size_t t = 0; t < trace.threads.size(); ++t) {
    for (const TraceSpan& span : trace.threads[t]) {
      const TracedStep& step = trace.steps[static_cast<std::size_t>(span.step)];
      add({{"name", step.name},
           {"cat", step.op},
           {"ph", "X"},
           {"pid", process},
           {"tid", t},
           {"ts", us(span.begin_ns - first_ns)},
           {"dur", us(span.end_ns - span.begin_ns)},
           {"args",
            {{"program", step.program},
             {"kernel", step.implementation},
             {"phase", span.phase},
             {"iteration", span.iteration},
             {"flops", step.flops},
             {"bytes", step.bytes},
             {"devices", devices}}}});
    }
  }
  return out + "\n]}\n";
}

}  // namespace dew

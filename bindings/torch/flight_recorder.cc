// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/torch/flight_recorder.h"

#include <ATen/core/Dict.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/serialization/pickler.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <string_view>
#include <utility>

namespace trnccl::torch_binding {
namespace {

using Fields = c10::impl::GenericDict;

// Of the form that PyTorch 2.13 writes and reads.
constexpr char kVersion[] = "2.10";
constexpr size_t kUsualCapacity = 2000;

// The analyser knows calls by these names.
const char* NameForAnalyser(std::string_view title) {
  constexpr std::array<std::pair<std::string_view, const char*>, 4> kOthers = {
      {{"all_gather_into_tensor", "_all_gather_base"},
       {"reduce_scatter_tensor", "_reduce_scatter_base"},
       {"all_reduce_sparse", "all_gather_v"},
       {"recvAnySource", "recv"}}};
  for (const auto& [ours, theirs] : kOthers)
    if (title == ours) return theirs;
  return title.data();
}

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

size_t CapacityWanted() {
  const char* text = std::getenv("TORCH_FR_BUFFER_SIZE");
  return text == nullptr ? kUsualCapacity : std::strtoul(text, nullptr, 10);
}

Fields NewFields() {
  return Fields(c10::StringType::get(), c10::AnyType::get());
}

c10::List<c10::IValue> NewList() {
  return c10::List<c10::IValue>(c10::AnyType::get());
}

// A list of tensors of one shape, as the analyser takes it: one more dimension.
void Collapse(std::vector<std::vector<int64_t>>* shapes,
              std::vector<at::ScalarType>* types) {
  if (shapes->size() < 2) return;
  const auto one_shape = [&](const auto& shape) {
    return shape == shapes->front();
  };
  if (!std::all_of(shapes->begin(), shapes->end(), one_shape)) return;
  const auto count = static_cast<int64_t>(shapes->size());
  shapes->resize(1);
  types->resize(1);
  shapes->front().insert(shapes->front().begin(), count);
}

}  // namespace

FlightRecorder& FlightRecorder::Get() {
  static auto& recorder = *new FlightRecorder(CapacityWanted());
  return recorder;
}

FlightRecorder::FlightRecorder(size_t capacity) : entries_(capacity) {}

size_t FlightRecorder::AddGroup(Group group) {
  const std::lock_guard<std::mutex> lock(mutex_);
  groups_.push_back(std::move(group));
  return groups_.size() - 1;
}

uint64_t FlightRecorder::Start(const Call& call,
                               const std::vector<at::Tensor>& inputs,
                               const std::vector<at::Tensor>& outputs) {
  if (entries_.empty()) return 0;
  const std::lock_guard<std::mutex> lock(mutex_);
  Entry& entry = entries_[next_ % entries_.size()];
  entry.call = call;
  entry.inputs = inputs.size();
  entry.outcome = kPending;
  entry.created_ns = NowNs();
  // What an entry has held before is filled anew: no allocation, usually.
  const size_t tensors = inputs.size() + outputs.size();
  entry.shapes.resize(tensors);
  entry.types.resize(tensors);
  for (size_t i = 0; i < tensors; ++i) {
    const at::Tensor& tensor =
        i < inputs.size() ? inputs[i] : outputs[i - inputs.size()];
    entry.shapes[i].assign(tensor.sizes().begin(), tensor.sizes().end());
    entry.types[i] = tensor.scalar_type();
  }
  return next_++;
}

void FlightRecorder::End(uint64_t number, Outcome outcome, int peer) {
  if (entries_.empty()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (number + entries_.size() < next_) return;  // written over since
  Entry& entry = entries_[number % entries_.size()];
  entry.outcome = outcome;
  if (peer >= 0) entry.call.peer = peer;
  entry.ended_ns = NowNs();
}

// "gloo:send 0->1": the analyser takes names of backends that it knows, and of
// those Gloo's is the one for the CPU.
std::string FlightRecorder::NameOf(const Entry& entry) const {
  std::string name = c10::str("gloo:", NameForAnalyser(entry.call.title));
  if (!entry.call.is_message) return name;
  const bool sends = std::string_view(entry.call.title) == "send";
  const int rank = groups_[entry.call.group].rank;
  // A message that may come from anyone is this rank's own until it's there.
  const int peer = entry.call.peer < 0 ? rank : entry.call.peer;
  return c10::str(name, " ", rank, sends ? "->" : "<-", peer);
}

c10::IValue FlightRecorder::Described(const Entry& entry,
                                      uint64_t number) const {
  const Call& call = entry.call;
  const Group& group = groups_[call.group];
  Fields fields = NewFields();
  const auto put = [&](const char* name, const c10::IValue& value) {
    fields.insert(name, value);
  };
  const auto count = [&](const char* name, uint64_t value) {
    put(name, static_cast<int64_t>(value));
  };
  count("record_id", number);
  count("pg_id", call.group);
  put("process_group",
      c10::ivalue::Tuple::create({group.name, group.description}));
  count("collective_seq_id", call.collective);
  // The analyser takes calls of one number for one block, messages' numbers
  // and collectives' alike: they must never be the same.
  constexpr uint64_t kMessages = uint64_t{1} << 32;
  count("p2p_seq_id", kMessages + call.message);
  count("op_id", call.operation);
  put("profiling_name", NameOf(entry));
  for (const bool output : {false, true}) {
    const auto first = output ? static_cast<int64_t>(entry.inputs) : 0;
    const auto last = output ? static_cast<int64_t>(entry.types.size())
                             : static_cast<int64_t>(entry.inputs);
    std::vector<std::vector<int64_t>> shapes(entry.shapes.begin() + first,
                                             entry.shapes.begin() + last);
    std::vector<at::ScalarType> kinds(entry.types.begin() + first,
                                      entry.types.begin() + last);
    Collapse(&shapes, &kinds);
    auto sizes = NewList();
    auto types = NewList();
    for (const auto& shape : shapes) sizes.push_back(shape);
    for (const at::ScalarType kind : kinds)
      types.push_back(std::string(c10::toString(kind)));
    put(output ? "output_sizes" : "input_sizes", sizes);
    put(output ? "output_dtypes" : "input_dtypes", types);
  }
  put("time_created_ns", entry.created_ns);
  put("time_discovered_started_ns", entry.created_ns);
  const bool completed = entry.outcome == kCompleted;
  put("time_discovered_completed_ns",
      completed ? c10::IValue(entry.ended_ns) : c10::IValue());
  if (completed) {
    put("duration_ms",
        static_cast<double>(entry.ended_ns - entry.created_ns) * 1e-6);
  }
  put("state", completed                   ? "completed"
               : entry.outcome == kDropped ? "scheduled"
                                           : "started");
  put("retired", entry.outcome != kPending);
  put("timeout_ms", static_cast<int64_t>(call.timeout.count()));
  put("is_p2p", call.is_message);
  put("frames", NewList());
  return fields;
}

c10::IValue FlightRecorder::DescribedGroups() const {
  Fields all = NewFields();
  for (const Group& group : groups_) {
    Fields fields = NewFields();
    fields.insert("name", group.name);
    fields.insert("desc", group.description);
    fields.insert("ranks", c10::str("[", c10::Join(", ", group.ranks), "]"));
    all.insert_or_assign(group.name, fields);
  }
  return all;
}

std::string FlightRecorder::Dump() const {
  Fields dump = NewFields();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto entries = NewList();
    const uint64_t kept = std::min<uint64_t>(next_, entries_.size());
    for (uint64_t number = next_ - kept; number < next_; ++number)
      entries.push_back(Described(entries_[number % entries_.size()], number));
    dump.insert("version", kVersion);
    dump.insert("entries", entries);
    dump.insert("pg_config", DescribedGroups());
    dump.insert("pg_status", NewFields());
  }
  std::string pickled;
  // Python's own pickle reads lists and dictionaries that bear no type tags.
  torch::jit::Pickler pickler(
      [&](const char* data, size_t bytes) { pickled.append(data, bytes); },
      nullptr, nullptr, nullptr, nullptr, /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(dump);
  pickler.stop();
  return pickled;
}

void FlightRecorder::WriteDump(int64_t rank) const {
  const char* prefix = std::getenv("TORCH_FR_DUMP_TEMP_FILE");
  if (prefix == nullptr || entries_.empty()) return;
  const std::string name = c10::str(prefix, rank);
  std::ofstream file(name, std::ios::binary);
  const std::string dump = Dump();
  file.write(dump.data(), static_cast<std::streamsize>(dump.size()));
  if (!file.flush()) {
    TORCH_WARN("trnccl: the flight recorder's calls can't be written to ",
               name);
  }
}

}  // namespace trnccl::torch_binding

// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "tests/simulation/rank_calls.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ccl/base/check.h"

namespace trnccl {
namespace {

// What is in a message follows from its name and place.
Bytes ContentOf(const SimMessage& message) {
  Bytes content(static_cast<size_t>(message.bytes));
  for (size_t i = 0; i < content.size(); ++i)
    content[i] = static_cast<std::byte>(
        i * 7 + (i >> 8) * 13 + static_cast<size_t>(message.from) * 31 +
        static_cast<size_t>(message.to) * 57 +
        static_cast<size_t>(message.number) * 101 + content.size());
  if (content.size() >= sizeof(message.number))
    std::memcpy(content.data(), &message.number, sizeof(message.number));
  return content;
}

// Where an in-place call's input lies in its output, or the other way round.
struct Places {
  size_t input_at = 0;
  size_t output_at = 0;
};

Places PlacesOf(const SimCall& call, int rank) {
  const size_t block_bytes =
      static_cast<size_t>(call.count) * ElementBytes(call.type);
  const size_t at = static_cast<size_t>(rank) * block_bytes;
  switch (call.collective) {
    case Collective::kAllGather:
      return {.input_at = at};
    case Collective::kReduceScatter:
      return {.output_at = at};
    case Collective::kGather:
      return {.input_at = rank == call.root ? at : 0};
    case Collective::kScatter:
      return {.output_at = rank == call.root ? at : 0};
    default:
      return {};
  }
}

// So that what's left of a like call would be seen.
void Turn(const SimCall& call, Bytes* input) {
  const size_t elements = input->size() / ElementBytes(call.type);
  if (elements == 0) return;
  const size_t by = static_cast<size_t>(call.number) % elements;
  std::rotate(
      input->begin(),
      input->begin() + static_cast<ptrdiff_t>(by * ElementBytes(call.type)),
      input->end());
}

}  // namespace

CollectiveCall CallOf(const SimCall& call, const Membership& me,
                      BorrowedCounts* counts) {
  CollectiveCall made{.collective = call.collective,
                      .type = call.type,
                      .op = call.op,
                      .root = call.root,
                      .input_counts = BlockCounts::Even(call.count),
                      .output_counts = BlockCounts::Even(call.count)};
  if (call.op == ReduceOp::kPremulSum) {
    const double factor = PremulFactorOf(me.rank);
    made.factor = {.real = factor, .integer = static_cast<int64_t>(factor)};
  }
  const auto rank = static_cast<size_t>(me.rank);
  switch (call.collective) {
    case Collective::kAllGatherV:
      counts->received = call.counts;
      made.input_counts = BlockCounts::Even(call.counts[rank]);
      made.output_counts = {.counts = counts->received};
      break;
    case Collective::kReduceScatterV:
      counts->sent = call.counts;
      made.input_counts = {.counts = counts->sent};
      made.output_counts = BlockCounts::Even(call.counts[rank]);
      break;
    case Collective::kAllToAllV:
      for (size_t peer = 0; peer < static_cast<size_t>(me.ranks); ++peer) {
        const auto ranks = static_cast<size_t>(me.ranks);
        counts->sent.push_back(call.counts[rank * ranks + peer]);
        counts->received.push_back(call.counts[peer * ranks + rank]);
      }
      made.input_counts = {.counts = counts->sent};
      made.output_counts = {.counts = counts->received};
      break;
    default:
      break;
  }
  return made;
}

CallData CallOracle::DataOf(const SimCall& call) {
  if (call.collective == Collective::kBarrier)
    return {.inputs = std::vector<Bytes>(ranks()),
            .outputs = std::vector<Bytes>(ranks())};
  BorrowedCounts counts;
  const absl::StatusOr<const Plan*> plan =
      options_.planner->PlanFor(CallOf(call, options_.planned, &counts));
  TRNCCL_CHECK(plan.ok());
  const Case one{.algorithm = (*plan)->program->algorithm,
                 .ranks = ranks(),
                 .root = call.root,
                 .type = call.type,
                 .op = call.op,
                 .count = call.count,
                 .counts = call.counts,
                 .segment_count = (*plan)->sizes.segment_count,
                 .strict = options_.determinism == Determinism::kStrict,
                 .grid = options_.grid};
  CallData data{.inputs = InputsOf(one)};
  for (Bytes& input : data.inputs) Turn(call, &input);
  data.outputs = ExpectedOutputs(one, data.inputs);
  return data;
}

const SimMessage* CallOracle::Find(int64_t number) const {
  for (const SimSubmission& submission : *options_.script)
    for (const SimCall& call : submission)
      for (const SimMessage& message : call.messages)
        if (message.number == number) return &message;
  return nullptr;
}

std::string CallOracle::CheckWild(const Transfer& receive, int rank) {
  int64_t number = 0;
  if (receive.received_bytes < sizeof(number)) return "a message cut off";
  std::memcpy(&number, receive.buffer, sizeof(number));
  const SimMessage* message = Find(number);
  if (message == nullptr || message->to != rank ||
      message->tag != receive.tag || message->from != receive.source)
    return absl::StrCat("what it got is no message to it: ", number, " of ",
                        receive.source);
  const Bytes content = ContentOf(*message);
  if (receive.received_bytes != content.size() ||
      !std::equal(content.begin(), content.end(), receive.buffer))
    return absl::StrCat("message ", number, " came broken");
  if (taken_.try_emplace(number, &receive).first->second != &receive)
    return absl::StrCat("message ", number, " came twice");
  return "";
}

struct RankCalls::One {
  Operation operation;
  BorrowedCounts counts;
  std::string name;
  std::unique_ptr<GuardedBuffer> input;   // null where it's in place
  std::unique_ptr<GuardedBuffer> output;  // null where there's none
  size_t output_at = 0;
  Bytes sent;      // that the input must still hold
  Bytes expected;  // of the output
  bool is_wild = false;
};

RankCalls::RankCalls(const SimSubmission& submission, int rank,
                     CallOracle* oracle)
    : rank_(rank), oracle_(oracle) {
  for (const SimCall& call : submission) {
    if (call.kind == SimCall::kMessages) {
      AddMessages(call, rank);
    } else {
      AddCollective(call, rank, oracle);
    }
  }
  for (const auto& one : calls_) operations_.push_back(&one->operation);
}

RankCalls::~RankCalls() = default;

void RankCalls::AddCollective(const SimCall& call, int rank,
                              CallOracle* oracle) {
  constexpr auto kHeap = GuardedBuffer::Memory::kHeap;
  CallData data = oracle->DataOf(call);
  auto one = std::make_unique<One>();
  one->name = std::string(Name(call.collective));
  one->sent = std::move(data.inputs[static_cast<size_t>(rank)]);
  one->expected = std::move(data.outputs[static_cast<size_t>(rank)]);
  CollectiveCall& made = one->operation.call;
  made = CallOf(call, {.rank = rank, .ranks = oracle->ranks()}, &one->counts);
  const size_t offset = static_cast<size_t>(rank) % 3;
  if (call.in_place) {
    const Places places = PlacesOf(call, rank);
    one->output = std::make_unique<GuardedBuffer>(
        std::max(places.input_at + one->sent.size(),
                 places.output_at + one->expected.size()),
        offset, kHeap);
    one->output_at = places.output_at;
    std::byte* base = one->output->data();
    std::ranges::copy(one->sent, base + places.input_at);
    made.input = base + places.input_at;
    made.output = base + places.output_at;
  } else {
    one->input =
        std::make_unique<GuardedBuffer>(one->sent.size(), offset, kHeap);
    one->output =
        std::make_unique<GuardedBuffer>(one->expected.size(), offset, kHeap);
    std::ranges::copy(one->sent, one->input->data());
    made.input = one->input->data();
    made.output = one->output->data();
  }
  calls_.push_back(std::move(one));
}

void RankCalls::AddMessages(const SimCall& call, int rank) {
  constexpr auto kHeap = GuardedBuffer::Memory::kHeap;
  for (const SimMessage& message : call.messages) {
    const auto add = [&](Transfer::Direction direction, int peer) {
      auto one = std::make_unique<One>();
      one->name = direction == Transfer::kSend ? "send" : "receive";
      one->is_wild = message.is_wild() && direction == Transfer::kReceive;
      if (one->is_wild) peer = kAnySource;
      const int64_t bytes = one->is_wild ? kMostMessageBytes : message.bytes;
      auto buffer =
          std::make_unique<GuardedBuffer>(static_cast<size_t>(bytes), 1, kHeap);
      one->operation.kind = Operation::Kind::kTransfer;
      one->operation.transfer = {.direction = direction,
                                 .peer = peer,
                                 .tag = message.tag,
                                 .buffer = buffer->data(),
                                 .bytes = static_cast<size_t>(bytes)};
      if (direction == Transfer::kSend) {
        one->sent = ContentOf(message);
        std::ranges::copy(one->sent, buffer->data());
        one->input = std::move(buffer);
      } else {
        if (!one->is_wild) one->expected = ContentOf(message);
        one->output = std::move(buffer);
      }
      calls_.push_back(std::move(one));
    };
    if (message.from == rank) add(Transfer::kSend, message.to);
    if (message.to == rank) add(Transfer::kReceive, message.from);
  }
}

bool RankCalls::done() const {
  return std::ranges::all_of(operations_, [](const Operation* operation) {
    return operation->done.load();
  });
}

bool RankCalls::RunOn(Communicator* communicator) {
  absl::Status status;
  bool was_short = false;
  const Operation& first = *operations_.front();
  if (operations_.size() == 1 && first.kind == Operation::Kind::kCollective) {
    const Envelope fingerprint = FingerprintOf(first.call, {});
    was_short = communicator->RunShort(
        {.what = fingerprint.words[1], .count = fingerprint.words[2]},
        {.input = first.call.input, .output = first.call.output}, &status);
  }
  if (!was_short) status = communicator->RunAll(operations_);
  for (Operation* operation : operations_) {
    operation->status = status;
    operation->done.store(true);
  }
  return was_short;
}

std::string RankCalls::Check() const {
  for (const auto& one : calls_) {
    const auto wrong = [&](const char* what) {
      return absl::StrCat(one->name, " #", one->operation.sequence, ": ", what);
    };
    for (const auto* buffer : {one->input.get(), one->output.get()})
      if (buffer != nullptr && !buffer->intact())
        return wrong("it wrote beside its buffer");
    if (one->input != nullptr &&
        !std::equal(one->sent.begin(), one->sent.end(), one->input->data()))
      return wrong("it changed its input");
    if (!one->operation.done || !one->operation.status.ok()) continue;
    if (one->is_wild) {
      const std::string why =
          oracle_->CheckWild(one->operation.transfer, rank_);
      if (!why.empty()) return wrong(why.c_str());
    }
    if (one->output != nullptr &&
        !std::equal(one->expected.begin(), one->expected.end(),
                    one->output->data() + one->output_at))
      return wrong("a wrong result, and no error");
  }
  return "";
}

}  // namespace trnccl

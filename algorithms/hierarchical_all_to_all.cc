// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Hierarchical all_to_all: for each other node in turn, the ranks of a node
// hand each block to the mate that stands in the column of its destination;
// the mate sends what all of them have for that rank as one message.
//
//     node 0        node 1
//     [ 0  ......   [ 2      0 -> 1: its block for 3     then 1 -> 3: the
//       |             |      1 -> 0: its block for 2     blocks of 0 and 1
//     [ 1 -------->  [ 3                                 for 3, at once
//
// N nodes of m ranks, n = N * m. A node with fewer ranks than another serves
// that one's columns in several turns.
//
//   rounds  N: N-1 in the node, one for each other node, and one across
//   a rank sends (N-1) (m-1) + m-1 messages of a block in the node, and N-1 of
//   m blocks to other nodes: m times fewer than directly
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "algorithms/hierarchical.h"
#include "algorithms/node_position.h"
#include "algorithms/step_builder.h"

namespace trnccl::hierarchical {
namespace {

class Exchange {
 public:
  Exchange(Lane& lane, const Shape& shape)
      : lane_(lane), shape_(shape), position_(shape) {}

  int64_t slots() const { return static_cast<int64_t>(position_.columns()); }

  // Blocks to and from nodes come in the order of their distance, so that no
  // node hears from all others at once.
  void Build() {
    const size_t nodes = position_.nodes();
    for (size_t far = 1; far < nodes; ++far) {
      SendTo(position_.node((position_.index() + far) % nodes));
    }
    SwapInNode();
    for (size_t far = 1; far < nodes; ++far) {
      ReceiveFrom(position_.node((position_.index() + nodes - far) % nodes));
    }
  }

 private:
  using Ranks = std::vector<int>;

  const Ranks& mates() const { return position_.node(); }

  int64_t BlockOf(int source, int destination) const {
    return int64_t{source} * shape_.ranks + destination;
  }
  // The blocks that the sources have for a destination, in their order.
  StepBuilder AddBlocks(const Ranks& sources, int destination) {
    std::vector<int64_t> chunks;
    for (const int source : sources) {
      chunks.push_back(BlockOf(source, destination));
    }
    return AddSpans(lane_, Spans(chunks));
  }

  // Calls visit(mate) for each other rank of the node, the next one first.
  template <typename Visit>
  void ForEachMate(Visit visit) const {
    for (size_t ahead = 1; ahead < mates().size(); ++ahead) {
      visit((position_.place() + ahead) % mates().size());
    }
  }

  void SendTo(const Ranks& node) {
    for (size_t first = 0; first < node.size(); first += mates().size()) {
      ForEachMate([&](size_t mate) {
        if (first + mate >= node.size()) return;
        AddBlocks({shape_.rank}, node[first + mate])
            .TakeInput()
            .Send(mates()[mate]);
      });
      const size_t column = first + position_.place();
      if (column < node.size()) SendAllTo(node[column]);
    }
  }

  // What all ranks of the node have for the destination.
  void SendAllTo(int destination) {
    if (mates().size() == 1) {
      AddBlocks(mates(), destination).TakeInput().Send(destination);
      return;
    }
    AddBlocks({shape_.rank}, destination)
        .TakeInput()
        .StoreSlot(static_cast<int64_t>(position_.place()));
    ForEachMate([&](size_t mate) {
      AddBlocks({mates()[mate]}, destination)
          .Take(Operand::From(mates()[mate]))
          .StoreSlot(static_cast<int64_t>(mate));
    });
    AddBlocks(mates(), destination).Take(Operand::Slot(0)).Send(destination);
  }

  // In place, an output block lies where an input block has left by now.
  void SwapInNode() {
    ForEachMate([&](size_t mate) {
      AddBlocks({shape_.rank}, mates()[mate]).TakeInput().Send(mates()[mate]);
    });
    AddBlocks({shape_.rank}, shape_.rank).TakeInput().Store(Buffer::kOutput);
    ForEachMate([&](size_t mate) {
      AddBlocks({mates()[mate]}, shape_.rank)
          .Take(Operand::From(mates()[mate]))
          .Store(Buffer::kOutput);
    });
  }

  void ReceiveFrom(const Ranks& node) {
    AddBlocks(node, shape_.rank)
        .Take(Operand::From(node[position_.place() % node.size()]))
        .Store(Buffer::kOutput);
  }

  Lane& lane_;
  const Shape& shape_;
  const NodePosition position_;
};

}  // namespace

Program AllToAll(const Shape& shape) {
  Program program = WithLanes(1);
  Exchange exchange(program.lanes[0], shape);
  exchange.Build();
  program.scratch_slots = exchange.slots();
  return program;
}

}  // namespace trnccl::hierarchical

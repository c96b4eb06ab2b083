// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/bootstrap/tree.h"

#include <poll.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "ccl/base/status_macros.h"
#include "ccl/bootstrap/wire.h"

namespace trnccl {
namespace {

constexpr size_t kMaxErrorChars = 4 << 10;

// A broken link is the peer's end; lost patience stays what it is.
absl::Status Annotate(const absl::Status& status, const TreeLink& link) {
  if (absl::IsAborted(status) || absl::IsDeadlineExceeded(status)) {
    return status;
  }
  const std::string name = RankText(link.rank, link.host);
  return absl::UnavailableError(
      absl::StrCat("lost ", name, ": ", status.message(), "; origin: ", name));
}

bool IsReadable(const pollfd& fd) { return fd.revents != 0; }

}  // namespace

std::string RankText(int rank, std::string_view host) {
  return absl::StrCat("rank ", rank, " (host ", std::string(host), ")");
}

TreeFrame ErrorFrame(const absl::Status& status) {
  WireWriter writer;
  writer.U8(static_cast<uint8_t>(status.code()));
  writer.Raw(std::string_view(status.message().data(), status.message().size())
                 .substr(0, kMaxErrorChars));
  return {TreeFrame::Kind::kError, 0, writer.bytes()};
}

absl::Status StatusOf(const TreeFrame& error) {
  WireReader reader(error.body);
  auto code = static_cast<absl::StatusCode>(reader.U8());
  if (code <= absl::StatusCode::kOk ||
      code > absl::StatusCode::kUnauthenticated) {
    code = absl::StatusCode::kInternal;
  }
  return absl::Status(code, error.body.empty() ? "" : error.body.substr(1));
}

std::optional<TreeFrame> ParseFrame(std::string_view bytes) {
  WireReader reader(bytes);
  TreeFrame frame;
  frame.kind = static_cast<TreeFrame::Kind>(reader.U8());
  frame.sequence = reader.U32();
  if (!reader.ok()) return std::nullopt;
  frame.body = reader.Raw(bytes.size() - sizeof(uint8_t) - sizeof(uint32_t));
  return frame;
}

absl::Status SendFrameTo(const TreeLink& link, const TreeFrame& frame,
                         const Patience& patience) {
  WireWriter writer;
  writer.U8(static_cast<uint8_t>(frame.kind));
  writer.U32(frame.sequence);
  writer.Raw(frame.body);
  const absl::Status sent = SendFrame(link.socket, writer.bytes(), patience);
  return sent.ok() ? sent : Annotate(sent, link);
}

absl::StatusOr<TreeFrame> ReceiveFrameFrom(const TreeLink& link,
                                           const Patience& patience) {
  const absl::StatusOr<std::string> bytes =
      ReceiveFrame(link.socket, kMaxFrameBytes, patience);
  if (!bytes.ok()) return Annotate(bytes.status(), link);
  std::optional<TreeFrame> frame = ParseFrame(*bytes);
  if (!frame || frame->kind < TreeFrame::Kind::kUp ||
      frame->kind > TreeFrame::Kind::kError) {
    return Annotate(absl::InternalError("it sent a malformed frame"), link);
  }
  return *std::move(frame);
}

absl::StatusOr<Tree::Incoming> Tree::Next(const Patience& patience) const {
  std::vector<pollfd> fds = {{parent.socket.fd(), POLLIN, 0}};
  for (const TreeLink& child : children) {
    fds.push_back({child.socket.fd(), POLLIN, 0});
  }
  while (true) {
    PollSlice(fds.data(), fds.size(), patience);
    const auto readable = std::find_if(fds.begin(), fds.end(), IsReadable);
    if (readable != fds.end()) {
      const int child = static_cast<int>(readable - fds.begin()) - 1;
      ASSIGN_OR_RETURN(TreeFrame frame,
                       ReceiveFrameFrom(link(child), patience));
      return Incoming{child, std::move(frame)};
    }
    RETURN_IF_ERROR(patience.Check());
  }
}

void Tree::Fail(const absl::Status& status) {
  const TreeFrame frame = ErrorFrame(status);
  const Patience at_once{Deadline::After(0)};
  const auto tell = [&](TreeLink& link) {
    // Whoever can't be told sees the link end.
    if (link.socket.is_open()) SendFrameTo(link, frame, at_once).IgnoreError();
    link.socket.Close();
  };
  tell(parent);
  for (TreeLink& child : children) tell(child);
}

int LevelsBelow(int index, int ranks) {
  int levels = 0;
  for (int64_t first = 2 * int64_t{index} + 1; first < ranks;
       first = 2 * first + 1) {
    ++levels;
  }
  return levels;
}

}  // namespace trnccl

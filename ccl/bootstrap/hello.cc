// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/bootstrap/hello.h"

#include <climits>

#include "ccl/bootstrap/wire.h"

namespace trnccl {
namespace {

enum Kind : uint8_t { kJoin = 1, kLink = 2, kReport = 3 };

void WriteInt(int value, WireWriter* writer) {
  writer->U32(static_cast<uint32_t>(value));
}

int ReadInt(WireReader* reader) { return static_cast<int>(reader->U32()); }

struct HelloWriter {
  WireWriter* writer;

  void operator()(const JoinHello& join) const {
    writer->U8(kJoin);
    WriteInt(join.member.rank, writer);
    WriteInt(join.member.ranks, writer);
    WriteInt(join.remaining_ms, writer);
    writer->Text(std::string_view(join.host).substr(0, kMaxHostChars));
    writer->Text(join.agreement);
    WriteAddresses(join.addresses, writer);
  }
  void operator()(const LinkHello& link) const {
    writer->U8(kLink);
    WriteInt(link.index, writer);
    WriteInt(link.rank, writer);
    writer->Text(std::string_view(link.host).substr(0, kMaxHostChars));
  }
  void operator()(const ReportHello& report) const {
    writer->U8(kReport);
    WriteInt(report.rank, writer);
    writer->Text(std::string_view(report.text).substr(0, kMaxReportChars));
  }
};

std::optional<Hello> ReadJoin(WireReader* reader) {
  JoinHello join;
  join.member.rank = ReadInt(reader);
  join.member.ranks = ReadInt(reader);
  join.remaining_ms = ReadInt(reader);
  join.host = reader->Text(kMaxHostChars);
  join.agreement = reader->Text(kMaxAgreementChars);
  auto addresses = ReadAddresses(reader);
  if (!addresses || join.remaining_ms < 0) return std::nullopt;
  join.addresses = *std::move(addresses);
  return join;
}

}  // namespace

std::string SerializeHello(const Hello& hello) {
  WireWriter writer;
  std::visit(HelloWriter{&writer}, hello);
  return writer.bytes();
}

std::optional<Hello> ParseHello(std::string_view bytes) {
  WireReader reader(bytes);
  std::optional<Hello> hello;
  switch (reader.U8()) {
    case kJoin:
      hello = ReadJoin(&reader);
      break;
    case kLink: {
      LinkHello link;
      link.index = ReadInt(&reader);
      link.rank = ReadInt(&reader);
      link.host = reader.Text(kMaxHostChars);
      hello = link;
      break;
    }
    case kReport: {
      ReportHello report;
      report.rank = ReadInt(&reader);
      report.text = reader.Text(kMaxReportChars);
      hello = report;
      break;
    }
  }
  if (!reader.Finished()) return std::nullopt;
  return hello;
}

std::string SerializeReply(const JoinReply& reply) {
  WireWriter writer;
  WriteInt(reply.index, &writer);
  WriteInt(reply.parent_rank, &writer);
  writer.Text(std::string_view(reply.parent_host).substr(0, kMaxHostChars));
  WriteAddresses(reply.parent_addresses, &writer);
  return writer.bytes();
}

std::optional<JoinReply> ParseReply(std::string_view bytes) {
  WireReader reader(bytes);
  JoinReply reply;
  reply.index = ReadInt(&reader);
  reply.parent_rank = ReadInt(&reader);
  reply.parent_host = reader.Text(kMaxHostChars);
  auto addresses = ReadAddresses(&reader);
  if (!addresses || !reader.Finished() || reply.index < 1) return std::nullopt;
  reply.parent_addresses = *std::move(addresses);
  return reply;
}

}  // namespace trnccl

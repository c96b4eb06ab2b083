// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/mpi/benchmark.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "bindings/mpi/cache_line.h"
#include "bindings/mpi/flags.h"
#include "bindings/mpi/launch.h"
#include "bindings/mpi/library.h"
#include "bindings/mpi/mpi_side.h"
#include "bindings/mpi/rendezvous.h"
#include "bindings/mpi/sweep.h"
#include "ccl/base/status_macros.h"

namespace trnccl::perf {
namespace {

constexpr int kWrongExit = 7;

// As nccl-tests' results.
int ExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kUnavailable:
      return 3;
    case absl::StatusCode::kDeadlineExceeded:
      return 4;
    case absl::StatusCode::kUnimplemented:
      return 5;
    case absl::StatusCode::kInvalidArgument:
      return 6;
    case absl::StatusCode::kOutOfRange:
      return 255;
    default:
      return 1;
  }
}

void PrintError(int rank, const absl::Status& status) {
  const std::string text =
      absl::StrCat("rank ", rank, ": ", status.message(), "\n");
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

// What the ranks of one process share.
struct Job {
  MakeCollective make;
  Launch launch;
  Options options;
  trncclUniqueId id = {};
};

Device ThisDevice(int group) {
  Device device;
  device.group = group;
  device.process = getpid();
  gethostname(device.host.data(), device.host.size() - 1);
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (!absl::StartsWith(line, "model name")) continue;
    const size_t value = std::min(line.find(": "), line.size() - 2) + 2;
    line.copy(device.processor.data(), device.processor.size() - 1, value);
    break;
  }
  return device;
}

std::optional<double> MinBandwidthGbps() {
  double gbps = 0;
  const char* text = std::getenv("NCCL_TESTS_MIN_BW");
  if (text == nullptr || !absl::SimpleAtod(text, &gbps)) return std::nullopt;
  return 0.9 * gbps;
}

// One rank, on a thread of its own.
class RankRun {
 public:
  RankRun(const Job& job, int thread)
      : job_(job),
        rank_(job.launch.process * job.options.threads + thread),
        ranks_(job.launch.processes * job.options.threads) {}

  int rank() const { return rank_; }

  // The exit code, the same on all ranks; an error is this rank's own.
  absl::StatusOr<int> Run();

 private:
  absl::Status Connect();
  absl::Status Measure(Report& report);
  absl::Status MarkCacheLine(const char* when, Report& report);
  absl::Status MarkMemory(Report& report);
  absl::Status Disconnect();

  const Job& job_;
  const int rank_;
  const int ranks_;
  int group_ = 0;
  trncclComm_t world_ = nullptr;
  trncclComm_t comm_ = nullptr;
  std::unique_ptr<Team> team_;
};

absl::Status RankRun::Connect() {
  trncclConfig_t config = TRNCCL_CONFIG_INITIALIZER;
  config.timeout_ms = job_.options.timeout_s * 1000;
  RETURN_IF_ERROR(FromLibrary(
      trncclCommInitRankConfig(&world_, ranks_, job_.id, rank_, &config),
      {"CommInitRankConfig"}));
  ASSIGN_OR_RETURN(group_, SplitGroup(std::getenv, rank_));
  RETURN_IF_ERROR(
      FromLibrary(trncclCommSplit(world_, group_, rank_, &comm_, &config),
                  {"CommSplit", world_}));
  // Under MPI, meeting is MPI's work, so that ours does what's timed alone.
  if (job_.launch.by_mpi && job_.options.threads == 1) {
    team_ = MakeMpiTeam();
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(team_, MakeLibraryTeam(world_));
  return absl::OkStatus();
}

absl::Status RankRun::MarkCacheLine(const char* when, Report& report) {
  ASSIGN_OR_RETURN(const std::optional<double> ns, MeasureCacheLineNs(*team_));
  if (rank_ == 0 && ranks_ > 1) report.PrintCacheLine(when, ns);
  return absl::OkStatus();
}

absl::Status RankRun::MarkMemory(Report& report) {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  ASSIGN_OR_RETURN(const std::vector<double> mib,
                   team_->Gather(static_cast<double>(usage.ru_maxrss) / 1024));
  if (rank_ == 0 && job_.options.report_memory) report.PrintMemory(mib);
  return absl::OkStatus();
}

absl::Status RankRun::Measure(Report& report) {
  const std::unique_ptr<Collective> collective = job_.make();
  trncclCommInfo_t info = {};
  RETURN_IF_ERROR(
      FromLibrary(trncclCommInfo(comm_, &info), {"CommInfo", comm_}));
  const size_t margin = (kGuardElements + job_.options.unaligned_elements) * 16;
  ASSIGN_OR_RETURN(const Buffers buffers,
                   Buffers::Make(job_.options.max_bytes + margin,
                                 job_.options.registered ? Backing::kMemAlloc
                                                         : Backing::kHeap));
  const bool compare = job_.options.compare_mpi;
  const Session session = {job_.options,
                           *collective,
                           *team_,
                           comm_,
                           info.rank,
                           info.ranks,
                           compare ? SplitMpi(group_, rank_) : MPI_COMM_NULL,
                           buffers};
  return RunSweep(session, [&](const Row& row) {
    if (rank_ == 0) report.Add(row);
  });
}

absl::Status RankRun::Disconnect() {
  RETURN_IF_ERROR(
      FromLibrary(trncclCommFinalize(comm_), {"CommFinalize", comm_}));
  RETURN_IF_ERROR(FromLibrary(trncclCommDestroy(comm_), {"CommDestroy"}));
  RETURN_IF_ERROR(
      FromLibrary(trncclCommFinalize(world_), {"CommFinalize", world_}));
  return FromLibrary(trncclCommDestroy(world_), {"CommDestroy"});
}

absl::StatusOr<int> RankRun::Run() {
  RETURN_IF_ERROR(Connect());
  Report report(job_.options, job_.make()->traits().name, ranks_);
  ASSIGN_OR_RETURN(const std::vector<Device> devices,
                   team_->Gather(ThisDevice(group_)));
  if (rank_ == 0) {
    // A path that can't be written is better known before the work is done.
    RETURN_IF_ERROR(report.WriteJson());
    report.PrintHeader(devices);
  }
  RETURN_IF_ERROR(MarkCacheLine("before", report));
  RETURN_IF_ERROR(Measure(report));
  RETURN_IF_ERROR(MarkCacheLine("after", report));
  RETURN_IF_ERROR(MarkMemory(report));
  int exit_code = 0;
  if (rank_ == 0) {
    const std::optional<double> min_gbps = MinBandwidthGbps();
    report.PrintFooter(min_gbps);
    RETURN_IF_ERROR(report.WriteJson());
    if (report.wrong() > 0 || report.average_busbw_gbps() < min_gbps)
      exit_code = kWrongExit;
  }
  ASSIGN_OR_RETURN(const std::vector<int> codes, team_->Gather(exit_code));
  RETURN_IF_ERROR(Disconnect());
  return codes[0];
}

int RunThread(const Job& job, int thread) {
  RankRun run(job, thread);
  const absl::StatusOr<int> exit_code = run.Run();
  if (exit_code.ok()) return *exit_code;
  PrintError(run.rank(), exit_code.status());
  AbortAll(ExitCode(exit_code.status()));
}

int RunThreads(const Job& job) {
  std::vector<std::thread> others;
  for (int thread = 1; thread < job.options.threads; ++thread)
    others.emplace_back([&job, thread] { RunThread(job, thread); });
  const int exit_code = RunThread(job, 0);
  for (std::thread& other : others) other.join();
  return exit_code;
}

// What all processes find alike, before they're connected.
absl::Status Prepare(Job& job, int argc, char** argv) {
  ASSIGN_OR_RETURN(job.options, ParseFlags(argc, argv));
  if (job.options.help) return absl::OkStatus();
  const std::unique_ptr<Collective> collective = job.make();
  const Traits& traits = collective->traits();
  RETURN_IF_ERROR(KindsOf(job.options, traits).status());
  if (!job.options.compare_mpi || job.launch.by_mpi) return absl::OkStatus();
  if (job.launch.processes > 1)
    return absl::InvalidArgumentError(
        "--compare mpi: run it under Open MPI's mpirun");
  return StartMpi(job.launch);
}

absl::Status ShareUniqueId(Job& job) {
  if (job.launch.process == 0)
    RETURN_IF_ERROR(FromLibrary(trncclGetUniqueId(&job.id), {"GetUniqueId"}));
  if (job.launch.by_mpi) {
    BroadcastFromFirst(&job.id, sizeof(job.id));
    return absl::OkStatus();
  }
  if (job.launch.processes == 1) return absl::OkStatus();
  ASSIGN_OR_RETURN(const RendezvousAddress address,
                   FindRendezvous(std::getenv));
  return ShareId(job.launch, address, &job.id);
}

}  // namespace

int RunBenchmark(MakeCollective make, int argc, char** argv) {
  Job job = {make, {}, {}, {}};
  const auto fail = [&job](const absl::Status& status) {
    PrintError(job.launch.process, status);
    AbortAll(ExitCode(status));
  };
  const absl::StatusOr<Launch> launch = FindLaunch(std::getenv);
  if (!launch.ok()) fail(launch.status());
  job.launch = *launch;
  if (job.launch.by_mpi) {
    const absl::Status started = StartMpi(job.launch);
    if (!started.ok()) fail(started);
  }
  int exit_code = 0;
  const absl::Status prepared = Prepare(job, argc, argv);
  if (!prepared.ok() || job.options.help) {
    if (job.launch.process == 0) {
      if (prepared.ok())
        std::fputs(HelpText(job.make()->traits().name).c_str(), stdout);
      else
        PrintError(0, prepared);
    }
    exit_code = ExitCode(prepared);
  } else {
    const absl::Status shared = ShareUniqueId(job);
    if (!shared.ok()) fail(shared);
    exit_code = RunThreads(job);
  }
  FinishMpi();
  return exit_code;
}

}  // namespace trnccl::perf

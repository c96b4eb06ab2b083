// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/mpi/flags.h"

#include <getopt.h>

#include <charconv>
#include <limits>
#include <span>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ccl/base/status_macros.h"

namespace trnccl::perf {
namespace {

// Flags without a letter have a number beyond the letters.
constexpr int kCompare = 256;
constexpr int kFresh = 257;

struct Flag {
  int letter;
  const char* name;
  const char* initial;  // the default, for the help
  const char* help;
  absl::Status (*set)(std::string_view value, Options& options);
};

template <typename Integer>
absl::Status SetInteger(std::string_view text, Integer smallest,
                        Integer& value) {
  Integer parsed = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, parsed);
  if (error != std::errc() || stop != end || parsed < smallest)
    return absl::InvalidArgumentError(
        absl::StrCat("'", std::string(text), "' isn't a whole number of at ",
                     "least ", smallest));
  value = parsed;
  return absl::OkStatus();
}

absl::Status SetBytes(std::string_view text, size_t& value) {
  int shift = 0;
  std::string_view digits = text;
  if (!text.empty()) {
    const size_t suffix = std::string_view("KkMmGg").find(text.back());
    if (suffix != std::string_view::npos) {
      shift = 10 * (1 + static_cast<int>(suffix) / 2);
      digits.remove_suffix(1);
    }
  }
  size_t number = 0;
  const absl::Status status = SetInteger<size_t>(digits, 0, number);
  if (!status.ok() || number > (std::numeric_limits<size_t>::max() >> shift))
    return absl::OutOfRangeError(
        absl::StrCat("'", std::string(text),
                     "' isn't a size: give bytes, or a number with K, M or G"));
  value = number << shift;
  return absl::OkStatus();
}

template <typename Enum>
absl::Status SetChoice(std::string_view text, Enum last, Enum& value) {
  int number = 0;
  RETURN_IF_ERROR(SetInteger(text, 0, number));
  if (number > static_cast<int>(last))
    return absl::InvalidArgumentError(absl::StrCat(
        "'", std::string(text), "' isn't in 0..", static_cast<int>(last)));
  value = static_cast<Enum>(number);
  return absl::OkStatus();
}

absl::Status SetSwitch(std::string_view text, bool* value) {
  int number = 0;
  RETURN_IF_ERROR(SetChoice(text, 1, number));
  *value = number == 1;
  return absl::OkStatus();
}

absl::Status SetOperator(std::string_view text, Options& options) {
  options.all_operators = text == "all";
  if (options.all_operators) return absl::OkStatus();
  const OperatorRow* row = FindOperator(text);
  if (row != nullptr) {
    options.op = row->op;
    return absl::OkStatus();
  }
  std::string names;
  for (const OperatorRow& known : AllOperators())
    absl::StrAppend(&names, std::string(known.name), " ");
  return absl::InvalidArgumentError(absl::StrCat(
      "'", std::string(text), "' is no operator; there are: ", names, "all"));
}

absl::Status SetType(std::string_view text, Options& options) {
  options.all_types = text == "all";
  if (options.all_types) return absl::OkStatus();
  const TypeRow* row = FindType(text);
  if (row != nullptr) {
    options.type = row->type;
    return absl::OkStatus();
  }
  std::string names;
  for (const TypeRow& known : AllTypes())
    absl::StrAppend(&names, std::string(known.name), " ");
  return absl::InvalidArgumentError(absl::StrCat(
      "'", std::string(text), "' is no type; there are: ", names, "all"));
}

absl::Status SetRegistered(std::string_view text, Options& options) {
  if (text == "2")
    return absl::UnimplementedError(
        "2 (symmetric windows) has no meaning on a CPU: use 1");
  return SetSwitch(text, &options.registered);
}

absl::Status SetCompare(std::string_view text, Options& options) {
  if (text != "mpi")
    return absl::InvalidArgumentError(absl::StrCat(
        "'", std::string(text), "' can't be compared with: use mpi"));
  options.compare_mpi = true;
  return absl::OkStatus();
}

absl::Status OnlyValue(std::string_view text, std::string_view value) {
  if (text == value) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("there's no such thing on a CPU: leave it out, or at ",
                   std::string(value)));
}

absl::Status OnlyZero(std::string_view text, Options&) {
  return OnlyValue(text, "0");
}

absl::Status OnlyOne(std::string_view text, Options&) {
  return OnlyValue(text, "1");
}

constexpr Flag kFlags[] = {
    {'t', "nthreads", "1", "ranks of each process, a thread each",
     [](std::string_view text, Options& options) {
       return SetInteger(text, 1, options.threads);
     }},
    {'g', "ngpus", "1", "devices of a thread; only 1", OnlyOne},
    {'b', "minbytes", "32M", "smallest size, with K, M, G",
     [](std::string_view text, Options& options) {
       return SetBytes(text, options.min_bytes);
     }},
    {'e', "maxbytes", "32M", "largest size",
     [](std::string_view text, Options& options) {
       return SetBytes(text, options.max_bytes);
     }},
    {'i', "stepbytes", "1M", "sizes grow by so many bytes",
     [](std::string_view text, Options& options) {
       return SetBytes(text, options.step_bytes);
     }},
    {'f', "stepfactor", "off", "or by this factor, at least 2",
     [](std::string_view text, Options& options) {
       return SetInteger<size_t>(text, 2, options.step_factor);
     }},
    {'n', "iters", "auto",
     "iterations of a repetition; auto: as many as last\n10 ms, in 9 "
     "repetitions, of which the median counts.\nWith a number there's one "
     "repetition, or 9 with\n--compare",
     [](std::string_view text, Options& options) {
       return SetInteger<int64_t>(text, 1, options.iterations);
     }},
    {'w', "warmup_iters", "1", "iterations before each row's time",
     [](std::string_view text, Options& options) {
       return SetInteger<int64_t>(text, 0, options.warmup_iterations);
     }},
    {'m', "agg_iters", "1", "calls of an iteration, as one group",
     [](std::string_view text, Options& options) {
       return SetInteger<int64_t>(text, 1, options.aggregated_calls);
     }},
    {'N', "run_cycles", "1", "times to go over all sizes; 0: for ever",
     [](std::string_view text, Options& options) {
       return SetInteger<int64_t>(text, 0, options.cycles);
     }},
    {'p', "parallel_init", "0", "only 0", OnlyZero},
    {'c', "check", "1", "checked calls of each row, after its time; 0: none",
     [](std::string_view text, Options& options) {
       return SetInteger<int64_t>(text, 0, options.checks);
     }},
    {'o', "op", "sum",
     "sum prod max min avg mulsum band bor bxor, or all:\nthose with a meaning "
     "for the type",
     SetOperator},
    {'d', "datatype", "float",
     "int8 uint8 int16 uint16 int32 uint32 int64 uint64\nhalf bfloat16 float "
     "double f8e4m3 f8e5m2 bool\ncomplex64 complex128, or all",
     SetType},
    {'r', "root", "0", "root, or all",
     [](std::string_view text, Options& options) {
       if (text != "all") return SetInteger(text, 0, options.root);
       options.root = kAllRoots;
       return absl::OkStatus();
     }},
    {'z', "blocking", "1",
     "0: asynchronous calls, waited for after each -m;\n1: blocking calls; 2: "
     "asynchronous calls, each waited\nfor at once; 3: as 1, and the ranks "
     "meet before each\niteration, outside the time",
     [](std::string_view text, Options& options) {
       return SetChoice(text, CallMode::kSynchronised, options.mode);
     }},
    {'y', "stream_null", "0", "only 0", OnlyZero},
    {'G', "cudagraph", "0", "only 0", OnlyZero},
    {'x', "cta_policy", "0", "only 0", OnlyZero},
    {'D', "device_implementation", "0", "only 0", OnlyZero},
    {'V', "device_cta_count", "0", "only 0", OnlyZero},
    {'C', "report_cputime", "0", "1: CPU time of the process, not elapsed time",
     [](std::string_view text, Options& options) {
       return SetSwitch(text, &options.report_cpu_time);
     }},
    {'S', "report_timestamps", "0", "1: end each line with date and time",
     [](std::string_view text, Options& options) {
       return SetSwitch(text, &options.report_timestamps);
     }},
    {'a', "average", "1",
     "time of: 0 rank 0, 1 mean, 2 min, 3 max of the ranks",
     [](std::string_view text, Options& options) {
       return SetChoice(text, Average::kMax, options.average);
     }},
    {'R', "local_register", "0", "1: buffers of trncclMemAlloc", SetRegistered},
    {'T', "timeout", "0", "seconds that a call may take; 0: the library's own",
     [](std::string_view text, Options& options) {
       return SetInteger<int64_t>(text, 0, options.timeout_s);
     }},
    {'J', "output_file", "none", "write the results as JSON",
     [](std::string_view text, Options& options) {
       options.json_path = text;
       return absl::OkStatus();
     }},
    {'M', "memory", "0", "1: report the memory that ranks have used",
     [](std::string_view text, Options& options) {
       return SetSwitch(text, &options.report_memory);
     }},
    {'u', "unalign", "0", "buffers begin so many elements past a page",
     [](std::string_view text, Options& options) {
       return SetInteger<size_t>(text, 0, options.unaligned_elements);
     }},
    {'I', "per_iter_timing", "0",
     "1: time each iteration by itself; adds i_min i_max\ni_p99 i_cv%, of the "
     "slowest rank",
     [](std::string_view text, Options& options) {
       return SetSwitch(text, &options.report_iterations);
     }},
    {'K', "per_iter_skip", "0", "first iterations that -I leaves out",
     [](std::string_view text, Options& options) {
       return SetInteger<int64_t>(text, 0, options.skipped_iterations);
     }},
    {kCompare, "compare", "off",
     "mpi: the same calls through MPI, in turn with ours;\nadds mpi, ratio "
     "(ours : MPI), limit",
     SetCompare},
    {kFresh, "fresh", "0",
     "1: rewrite the whole input before each call, outside\nthe time",
     [](std::string_view text, Options& options) {
       return SetSwitch(text, &options.fresh);
     }},
    {'h', "help", "", "print this",
     [](std::string_view, Options& options) {
       options.help = true;
       return absl::OkStatus();
     }},
};

std::string FlagName(const Flag& flag) {
  return flag.letter < kCompare
             ? absl::StrFormat("-%c, --%s", flag.letter, flag.name)
             : absl::StrFormat("    --%s", flag.name);
}

absl::Status CheckTogether(const Options& options) {
  if (options.min_bytes > options.max_bytes)
    return absl::OutOfRangeError(absl::StrCat(
        "-b ", options.min_bytes, " is more than -e ", options.max_bytes));
  const bool grows =
      options.step_factor > 1 ? options.min_bytes > 0 : options.step_bytes > 0;
  if (options.min_bytes < options.max_bytes && !grows)
    return absl::OutOfRangeError(
        "sizes don't grow: -i must be at least 1, and with -f so must -b");
  if (options.compare_mpi && options.threads > 1)
    return absl::InvalidArgumentError(
        "--compare mpi needs -t 1: MPI's ranks are processes");
  if (options.skipped_iterations > 0 && !options.report_iterations)
    return absl::InvalidArgumentError("-K has a meaning only with -I 1");
  return absl::OkStatus();
}

// getopt's two lists: the letters, and the long names.
struct GetoptTables {
  std::string letters = "+:";
  std::vector<option> names;

  GetoptTables() {
    for (const Flag& flag : kFlags) {
      const bool takes_value = flag.letter != 'h';
      if (flag.letter < kCompare)
        absl::StrAppend(&letters, std::string(1, flag.letter),
                        takes_value ? ":" : "");
      names.push_back({flag.name, takes_value ? required_argument : no_argument,
                       nullptr, flag.letter});
    }
    names.push_back({});
  }
};

absl::Status SetFlag(int letter, std::string_view value, Options& options) {
  for (const Flag& flag : kFlags) {
    if (flag.letter != letter) continue;
    const absl::Status status = flag.set(value, options);
    if (status.ok()) return status;
    return absl::Status(status.code(),
                        absl::StrCat(FlagName(flag), ": ", status.message()));
  }
  return absl::InternalError("getopt knows a flag that the table doesn't");
}

}  // namespace

absl::StatusOr<Options> ParseFlags(int argc, char** argv) {
  const GetoptTables tables;
  Options options;
  optind = 0;  // starts anew, in tests
  for (;;) {
    const int at = optind == 0 ? 1 : optind;
    const int letter = getopt_long(argc, argv, tables.letters.c_str(),
                                   tables.names.data(), nullptr);
    if (letter == -1) break;
    if (letter == ':' || letter == '?')
      return absl::InvalidArgumentError(absl::StrCat(
          "'", argv[at], "'", letter == ':' ? " needs a value" : " is no flag",
          "; --help lists the flags"));
    RETURN_IF_ERROR(SetFlag(letter, optarg == nullptr ? "" : optarg, options));
  }
  if (optind < argc)
    return absl::InvalidArgumentError(absl::StrCat(
        "'", argv[optind], "' is no flag; --help lists the flags"));
  RETURN_IF_ERROR(CheckTogether(options));
  return options;
}

absl::StatusOr<std::vector<Kind>> KindsOf(const Options& options,
                                          const Traits& traits) {
  std::vector<Kind> kinds;
  for (const TypeRow& row : AllTypes()) {
    if (!options.all_types && row.type != options.type) continue;
    if (!traits.reduces) {
      kinds.push_back({row.type, Operator::kNone});
      continue;
    }
    for (const OperatorRow& candidate : AllOperators()) {
      if (!options.all_operators && candidate.op != options.op) continue;
      if (HasMeaning(row.type, candidate.op))
        kinds.push_back({row.type, candidate.op});
    }
  }
  if (!kinds.empty()) return kinds;
  return absl::InvalidArgumentError(
      absl::StrCat(traits.name, ": -o ", std::string(Name(options.op)),
                   " of -d ", std::string(RowOf(options.type).name),
                   " has no meaning; -o all takes those that have one"));
}

std::string HelpText(std::string_view collective) {
  std::string text = absl::StrCat(
      "Usage: [mpirun -n RANKS] ", std::string(collective), "_perf [flags]\n\n",
      "Times and checks one collective, as nccl-tests does. README.md of this "
      "folder says\nwhat each column means. Flags, with their defaults:\n");
  for (const Flag& flag : kFlags) {
    std::string_view help = flag.help;
    std::string left = FlagName(flag);
    std::string_view initial = flag.initial;
    while (true) {
      const size_t end = help.find('\n');
      absl::StrAppend(&text, absl::StrFormat("  %-28s %-6s ", left, initial),
                      std::string(help.substr(0, end)), "\n");
      if (end == std::string_view::npos) break;
      help.remove_prefix(end + 1);
      left.clear();
      initial = "";
    }
  }
  return text;
}

}  // namespace trnccl::perf

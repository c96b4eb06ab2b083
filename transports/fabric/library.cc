// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/fabric/library.h"

#include <dlfcn.h>
#include <rdma/fi_errno.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ccl/base/mutex.h"
#include "ccl/base/status_macros.h"

namespace trnccl::fabric {
namespace {

constexpr const char* kSystemLibrary = "libfabric.so.1";

// The functions take structures whose layout belongs to a version; this is the
// one that this library is compiled with, and newer releases keep it.
constexpr const char* kVersions[] = {"FABRIC_1.3", "FABRIC_1.1", "FABRIC_1.0"};

struct Loading {
  void* handle;
  const std::string& path;

  // The newest version of the symbol that isn't newer than the headers.
  template <typename Function>
  absl::Status Find(const char* name, Function** function) const {
    for (const char* version : kVersions) {
      void* symbol = dlvsym(handle, name, version);
      if (symbol == nullptr) continue;
      *function = reinterpret_cast<Function*>(symbol);
      return absl::OkStatus();
    }
    return absl::FailedPreconditionError(
        absl::StrCat("libfabric at \"", path, "\" has no ", name,
                     "; release 1.17 or a newer one is needed"));
  }
};

// Parameters that providers read from the environment alone, when libfabric is
// first asked for any. A user's own win.
//
// TCP's providers may keep the end of a message in a buffer of theirs and call
// it sent: a rank that computes from then on would hold up the one that waits
// for it. And the libraries of some adapters, loaded with it whether they're
// there or not, write a file into the working directory when a program aborts.
constexpr const char* kParameters[][2] = {{"FI_NET_STAGING_SBUF_SIZE", "0"},
                                          {"FI_TCP_STAGING_SBUF_SIZE", "0"},
                                          {"IPATH_NO_BACKTRACE", "1"},
                                          {"HFI_NO_BACKTRACE", "1"}};

absl::StatusOr<std::unique_ptr<FabricLibrary>> Open(const std::string& path) {
  for (const auto& [parameter, value] : kParameters)
    setenv(parameter, value, /*overwrite=*/0);
  const std::string name = path.empty() ? kSystemLibrary : path;
  void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "libfabric, which carries messages between nodes, can't be loaded: ",
        dlerror(),
        "; install it (Debian: libfabric1; AWS: the EFA installer) or name its "
        "file by TRNCCL_FABRIC_LIBRARY"));
  }
  auto library = std::make_unique<FabricLibrary>();
  library->path = name;
  const Loading loading{handle, library->path};
  RETURN_IF_ERROR(loading.Find("fi_getinfo", &library->getinfo));
  RETURN_IF_ERROR(loading.Find("fi_freeinfo", &library->freeinfo));
  RETURN_IF_ERROR(loading.Find("fi_dupinfo", &library->dupinfo));
  RETURN_IF_ERROR(loading.Find("fi_fabric", &library->fabric));
  RETURN_IF_ERROR(loading.Find("fi_strerror", &library->strerror));
  RETURN_IF_ERROR(loading.Find("fi_version", &library->version));
  return library;
}

}  // namespace

absl::StatusOr<const FabricLibrary*> FabricLibrary::Load(
    const std::string& path) {
  static Mutex& mutex = *new Mutex;
  static auto& loaded =
      *new std::map<std::string, std::unique_ptr<FabricLibrary>>;
  MutexLock lock(mutex);
  std::unique_ptr<FabricLibrary>& library = loaded[path];
  if (library == nullptr) {
    ASSIGN_OR_RETURN(library, Open(path));
  }
  return library.get();
}

absl::Status FabricLibrary::Error(const std::string& call, ssize_t code) const {
  const int error = static_cast<int>(code < 0 ? -code : code);
  const std::string text = absl::StrCat(call, ": ", strerror(error));
  if (error == FI_ENOMEM || error == FI_EMFILE || error == FI_ENOBUFS)
    return absl::ResourceExhaustedError(text);
  return absl::UnavailableError(text);
}

}  // namespace trnccl::fabric

// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ccl/base/mutex.h"
#include "ccl/base/status_macros.h"
#include "transports/available_memory.h"
#include "transports/system_error.h"

namespace trnccl {

struct SharedMapping::Extent {
  uint64_t inode = 0;
  std::byte* base = nullptr;
  size_t bytes = 0;
  SharedAccess access = SharedAccess::kRead;

  ~Extent() { munmap(base, bytes); }
};

namespace {

using Extent = SharedMapping::Extent;

// This process's mappings by inode, which tells memfds of one machine apart.
class Mappings {
 public:
  // Never destroyed: threads may outlive static objects.
  static Mappings& Get() {
    static Mappings& mappings = *new Mappings;
    return mappings;
  }

  std::shared_ptr<const Extent> Find(const SharedReference& reference,
                                     SharedAccess access) {
    MutexLock lock(mutex_);
    const auto found = extents_.find(reference.inode);
    if (found == extents_.end()) return nullptr;
    std::shared_ptr<const Extent> extent = found->second.lock();
    if (extent == nullptr || extent->bytes != reference.bytes) return nullptr;
    const bool enough = extent->access >= access;
    return enough ? extent : nullptr;
  }

  // The first of two threads that map one memory at once wins.
  std::shared_ptr<const Extent> Add(std::shared_ptr<const Extent> extent) {
    MutexLock lock(mutex_);
    std::erase_if(extents_, [](const auto& e) { return e.second.expired(); });
    std::weak_ptr<const Extent>& entry = extents_[extent->inode];
    if (std::shared_ptr<const Extent> first = entry.lock();
        first != nullptr && first->access >= extent->access) {
      return first;
    }
    entry = extent;
    return extent;
  }

 private:
  Mutex mutex_;
  std::map<uint64_t, std::weak_ptr<const Extent>> extents_
      ABSL_GUARDED_BY(mutex_);
};

// `fd` is this process's own descriptor of that memory.
absl::StatusOr<SharedMapping> Map(const SharedReference& reference, int fd,
                                  SharedAccess access) {
  const int protection =
      access == SharedAccess::kReadWrite ? PROT_READ | PROT_WRITE : PROT_READ;
  void* base = mmap(nullptr, reference.bytes, protection, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) {
    return SystemError(errno, absl::StrCat("mapping ", reference.bytes,
                                           " bytes of shared memory"));
  }
  auto extent = std::make_shared<Extent>();
  extent->inode = reference.inode;
  extent->base = static_cast<std::byte*>(base);
  extent->bytes = reference.bytes;
  extent->access = access;
  return SharedMapping(Mappings::Get().Add(std::move(extent)));
}

// Refused here, growing a file beyond the limit raises no SIGXFSZ, and filling
// more than there is doesn't wake the kernel's killer of processes.
absl::Status CheckLimits(const SharedFile::Size& size) {
  const std::string what =
      absl::StrCat("making ", size.bytes, " bytes of shared memory");
  rlimit limit = {};
  getrlimit(RLIMIT_FSIZE, &limit);
  if (size.bytes > limit.rlim_cur) return SystemError(EFBIG, what);
  const uint64_t available = AvailableMemoryBytes();
  if (size.filled_bytes <= available) return absl::OkStatus();
  return SystemError(ENOMEM, absl::StrCat(what, " with ", available, " left"));
}

class FileCloser {
 public:
  explicit FileCloser(int fd) : fd_(fd) {}
  ~FileCloser() { close(fd_); }
  FileCloser(const FileCloser&) = delete;
  FileCloser& operator=(const FileCloser&) = delete;

 private:
  int fd_;
};

}  // namespace

SharedMapping::SharedMapping(std::shared_ptr<const Extent> extent)
    : extent_(std::move(extent)),
      base_(extent_->base),
      bytes_(extent_->bytes) {}

absl::StatusOr<SharedFile> SharedFile::Create(const char* name) {
  const int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return SystemError(errno, "making shared memory");
  struct stat status = {};
  if (fchmod(fd, S_IRUSR | S_IWUSR) != 0 || fstat(fd, &status) != 0) {
    const int error = errno;
    close(fd);
    return SystemError(error, "making shared memory");
  }
  return SharedFile(
      {.pid = getpid(), .fd = fd, .inode = status.st_ino, .bytes = 0});
}

SharedFile::SharedFile(const SharedReference& reference)
    : reference_(reference) {}

SharedFile::SharedFile(SharedFile&& other) noexcept
    : reference_(other.reference_) {
  other.reference_.fd = -1;
}

SharedFile::~SharedFile() { Close(); }

absl::StatusOr<SharedMapping> SharedFile::Resize(const Size& size) {
  const std::string what =
      absl::StrCat("making ", size.bytes, " bytes of shared memory");
  const int fd = reference_.fd;
  RETURN_IF_ERROR(CheckLimits(size));
  if (ftruncate(fd, static_cast<off_t>(size.bytes)) != 0) {
    return SystemError(errno, what);
  }
  int result = 0;
  do {
    result = fallocate(fd, 0, 0, static_cast<off_t>(size.filled_bytes));
  } while (result != 0 && errno == EINTR);
  if (result != 0) return SystemError(errno, what);
  reference_.bytes = size.bytes;
  ASSIGN_OR_RETURN(SharedMapping mapping,
                   Map(reference_, fd, SharedAccess::kReadWrite));
  // Last, since nobody maps what isn't sealed: so the other ranks of this
  // process find this mapping, and make none of their own.
  if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return SystemError(errno, "sealing shared memory");
  }
  return mapping;
}

void SharedFile::Discard() {
  // Can't fail in a way that matters: the pages go with the last mapping then.
  static_cast<void>(fallocate(reference_.fd,
                              FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                              static_cast<off_t>(reference_.bytes)));
}

void SharedFile::Close() {
  if (reference_.fd >= 0) close(reference_.fd);
  reference_.fd = -1;
}

absl::StatusOr<SharedMapping> MapShared(const SharedReference& reference,
                                        SharedAccess access) {
  if (auto extent = Mappings::Get().Find(reference, access)) {
    return SharedMapping(std::move(extent));
  }
  const std::string path =
      absl::StrCat("/proc/", reference.pid, "/fd/", reference.fd);
  const int mode = access == SharedAccess::kReadWrite ? O_RDWR : O_RDONLY;
  // Not to hang in the open of a pipe, should the descriptor be one by now.
  const int fd = open(path.c_str(), mode | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 && errno == ENOENT) {
    return absl::NotFoundError(
        absl::StrCat("shared memory ", path, " is gone, or was never here"));
  }
  if (fd < 0) return SystemError(errno, absl::StrCat("opening ", path));
  const FileCloser closer(fd);
  struct stat status = {};
  const int seals = fcntl(fd, F_GET_SEALS);
  const bool same =
      fstat(fd, &status) == 0 && seals >= 0 && status.st_ino == reference.inode;
  if (same && (seals & F_SEAL_SHRINK) == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("shared memory ", path, " has no size yet"));
  }
  if (!same || static_cast<uint64_t>(status.st_size) != reference.bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("shared memory ", path, " isn't what it should be"));
  }
  return Map(reference, fd, access);
}

absl::Status FillShared(std::byte* base, size_t bytes) {
  const std::string what =
      absl::StrCat("filling ", bytes, " bytes of shared memory");
  if (bytes > AvailableMemoryBytes()) return SystemError(ENOMEM, what);
  // Kernels before 5.14 don't know it: pages come as they are touched there.
  if (madvise(base, bytes, MADV_POPULATE_WRITE) == 0 || errno == EINVAL) {
    return absl::OkStatus();
  }
  return SystemError(errno == EFAULT ? ENOMEM : errno, what);
}

}  // namespace trnccl

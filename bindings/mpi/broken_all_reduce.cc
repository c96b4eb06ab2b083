// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// For a test of the check: an all-reduce whose last element is wrong by its
// lowest bit, on rank 1 alone. The linker puts it in place of the library's.
#include "ccl/base/types.h"
#include "ccl/trnccl.h"

extern "C" {

trncclResult_t __real_trncclAllReduce(const void* send, void* recv,
                                      size_t count, trncclDataType_t type,
                                      trncclRedOp_t op, trncclComm_t comm,
                                      trncclRequest_t* request);

trncclResult_t __wrap_trncclAllReduce(const void* send, void* recv,
                                      size_t count, trncclDataType_t type,
                                      trncclRedOp_t op, trncclComm_t comm,
                                      trncclRequest_t* request) {
  const trncclResult_t result =
      __real_trncclAllReduce(send, recv, count, type, op, comm, request);
  int rank = 0;
  trncclCommUserRank(comm, &rank);
  if (rank == 1 && count > 0) {
    const size_t bytes = ElementBytes(static_cast<trnccl::DataType>(type));
    static_cast<unsigned char*>(recv)[(count - 1) * bytes] ^= 1;
  }
  return result;
}

}  // extern "C"
